/* Following the packets that come to user space: what came, what left, and why. */
#ifndef CORA_XDP_TRACE_H
#define CORA_XDP_TRACE_H

#include "../core.h"

#define CORA_TRACE_MOST 4096
#define CORA_TRACE_BYTES 128 /* of each frame */

enum cora_trace_kind { CORA_TRACE_ARRIVED, CORA_TRACE_LEFT, CORA_TRACE_DECIDED };

struct cora_trace_event {
    enum cora_trace_kind kind;
    uint64_t packet, now;
    uint32_t port, entry, verdict, length;
    uint8_t bytes[CORA_TRACE_BYTES];
};

struct cora_trace {
    uint32_t wanted, packets; /* packets to follow, and followed so far */
    uint32_t count;
    uint64_t packet, now; /* at hand */
    struct cora_trace_event events[3 * CORA_TRACE_MOST];
};

static struct cora_trace_event *cora_trace_next(struct cora_trace *t, enum cora_trace_kind kind)
{
    const uint32_t most = sizeof t->events / sizeof *t->events;
    if (t->packets > t->wanted || t->count == most)
        return NULL;
    struct cora_trace_event *e = &t->events[t->count++];
    e->kind = kind;
    e->packet = t->packet;
    e->now = t->now;
    return e;
}

static void cora_trace_frame(struct cora_trace_event *e, const uint8_t *frame, uint32_t length)
{
    e->length = length;
    memcpy(e->bytes, frame, cora_min32(length, CORA_TRACE_BYTES));
}

CORA_COLD void cora_trace_arrived(struct cora_trace *t, const struct cora_packet *p, const uint8_t *frame,
                                  uint32_t length)
{
    t->packets++;
    t->packet = p->index;
    t->now = p->now;
    struct cora_trace_event *e = cora_trace_next(t, CORA_TRACE_ARRIVED);
    if (!e)
        return;
    e->port = p->port;
    e->entry = p->resume;
    cora_trace_frame(e, frame, length);
}

CORA_COLD void cora_trace_left(struct cora_trace *t, uint32_t port, const uint8_t *frame, uint32_t length)
{
    struct cora_trace_event *e = cora_trace_next(t, CORA_TRACE_LEFT);
    if (!e)
        return;
    e->port = port;
    cora_trace_frame(e, frame, length);
}

CORA_COLD void cora_trace_decided(struct cora_trace *t, const struct cora_packet *p)
{
    struct cora_trace_event *e = cora_trace_next(t, CORA_TRACE_DECIDED);
    if (e)
        e->verdict = p->verdict;
}

#endif
