/* What the places of a split program share: items that go from place to place, control messages, and the world between
 * the places (split_driver.h), which decides what happens next. docs/splitting.md says why results cannot depend on that.
 *
 * Packets and what must not overtake them go away from the wire through a queue before each place, first in, first out.
 * Control messages go towards the wire, and answers away from it beside the queues, each from a place to its neighbour. */
#ifndef CORA_SPLIT_H
#define CORA_SPLIT_H

#include "core.h"
#include "wire.h"

/* What goes through the queues. Only the header, the values and the frame would be on a wire. */
struct cora_item {
    uint8_t head[CORA_PUNT_LIMIT];
    uint64_t index, flow;
    struct cora_record record; /* as it arrived */
    enum cora_item_kind kind;
    uint32_t to, lending, slot, caplen;
    uint64_t serial, deadline;
    uint8_t frame[];
};

struct cora_world;

void cora_world_push(struct cora_world *world, uint32_t place, struct cora_item *item);
void cora_world_up(struct cora_world *world, uint32_t from, const struct cora_message *message);
void cora_world_down(struct cora_world *world, uint32_t from, const struct cora_message *message);
/* Lets places before `place` and the messages between them go on; `place` waits in the middle of a packet. */
void cora_world_wait(struct cora_world *world, uint32_t place);
void cora_world_through(struct cora_world *world, uint64_t index);
void cora_world_ended(struct cora_world *world, uint64_t index, uint16_t verdict);
void cora_world_left(struct cora_world *world, uint64_t flow, uint64_t index);
uint64_t *cora_world_statistics(struct cora_world *world);
uint64_t cora_world_serial(struct cora_world *world);
#ifdef CORA_GAPS
/* Whether rules are installed in gaps: they serve packets at once, whichever of their flow are still on their way. Then the
 * order in which packets are committed, and the time each has, are written down. */
bool cora_world_gaps(const struct cora_world *world);
uint64_t cora_world_clock(const struct cora_world *world);
void cora_world_commit(struct cora_world *world, uint64_t index, uint64_t now);
/* Whether a packet of the flow waits in the queue of a place. */
bool cora_world_queued(const struct cora_world *world, uint32_t place, uint64_t flow);
#endif
/* Lendings that a packet behind an entry of a place may harm, a bit each. */
uint64_t cora_world_harm(const struct cora_world *world, uint32_t place, uint32_t entry);

struct cora_engine;

struct cora_place_ops {
    struct cora_engine *(*create)(const uint8_t *config, uint32_t options, const uint64_t seed[8],
                                  struct cora_world *world);
    void (*destroy)(struct cora_engine *E);
    void (*arrive)(struct cora_engine *E, const struct cora_record *record, uint64_t index);
    void (*serve)(struct cora_engine *E, struct cora_item *item);
    void (*told)(struct cora_engine *E, const struct cora_message *message);
    void (*settle)(struct cora_engine *E, uint16_t verdict);
    void (*expire)(struct cora_engine *E, uint64_t now);
    void (*recall)(struct cora_engine *E);
    uint64_t (*left)(const struct cora_engine *E);
    bool (*stalled)(const struct cora_engine *E, uint64_t *index);
    struct cora_core *(*core)(struct cora_engine *E);
    void (*summary)(const struct cora_engine *E, uint64_t *out);
    size_t (*state_size)(const struct cora_engine *E, uint32_t state);
    void (*state_dump)(const struct cora_engine *E, uint32_t state, uint8_t *out);
};

static inline struct cora_item *cora_item_new(enum cora_item_kind kind, uint32_t to, uint32_t caplen)
{
    struct cora_item *item = malloc(sizeof *item + caplen);
    if (!item)
        cora_out_of_memory(sizeof *item + caplen);
    item->kind = kind;
    item->to = to;
    item->caplen = caplen;
    return item;
}

#endif
