/* What every generated engine has beside its tables: the clock, totals, verdicts and the output buffer. */
#ifndef CORA_CORE_H
#define CORA_CORE_H

#include "base.h"
#include "moves.h"
#include "packet.h"

enum cora_event_kind { CORA_EVENT_OUTPUT, CORA_EVENT_ERROR, CORA_EVENT_DROPPED, CORA_EVENT_HELD };

/* One event in the output buffer, followed by caplen bytes padded to 8. */
struct cora_event {
    uint64_t index; /* of the packet that caused it */
    uint32_t kind;
    uint32_t port; /* or the reason number of a drop */
    uint32_t caplen, wirelen;
};

/* A nanosecond pcap record header (magic 0xa1b23c4d), in native byte order. */
struct cora_pcap_record {
    uint32_t seconds, nanoseconds, caplen, wirelen;
};

/* CORA_OUTPUT_LIVE: packets leave at once, and nothing is written; only in programs that define CORA_LIVE. */
enum cora_output_mode {
    CORA_OUTPUT_NONE, CORA_OUTPUT_EVENTS, CORA_OUTPUT_PCAP, CORA_OUTPUT_DIGEST, CORA_OUTPUT_LIVE
};

#ifdef CORA_LIVE
struct cora_core;
/* An insert or a charge found its table full. */
#define CORA_FULL(n) (E->core.refused[n]++)
/* Sends a frame from a port; the program around the engine defines it. The frame is the caller's again afterwards, unless
 * it stands where the program put the arriving packet. */
static void cora_live_send(struct cora_core *core, uint32_t port, const uint8_t *frame, uint32_t length);
#else
#define CORA_FULL(n) ((void)0)
#endif

/* Per packet the sum of the digests of its events, so that two executions can be compared quickly. */
struct cora_digests {
    uint64_t *at;
    size_t count, room;
};

/* A verdict reached after the packet's own turn: it was held. */
struct cora_resolution {
    uint64_t index;
    uint64_t verdict;
};

struct cora_total {
    uint64_t packets, octets;
};

#ifdef CORA_PROFILE
#define CORA_SIZES 16385 /* frame lengths 0 to 16383, and all above */

struct cora_path_count {
    uint64_t path, packets, octets;
    uint64_t used;
};

struct cora_core_profile {
    uint64_t path_total; /* number of paths; counted in an array up to CORA_PATH_ARRAY, else in a hash table */
    struct cora_path_count *paths;
    uint64_t path_mask, path_used;
    uint64_t sizes[CORA_SIZES];
    uint64_t window_start, window_length, window_count; /* nanoseconds; length 0: no windows */
    uint64_t window;                                    /* of the current packet */
    struct cora_total *windows;
    bool following; /* whether what packets and followed entries do is written down, in the order it happens */
    uint64_t *moves, *moves_before; /* being written, and handed out */
    size_t move_count, move_room, room_before;
};
#define CORA_PATH_ARRAY 65536
#endif

/* Two words for the final mixing, the others for the words of a key. */
#define CORA_SEED_WORDS 64

struct cora_core {
    uint64_t now;
    uint64_t arrived_now; /* the clock of the packets read so far; `now` follows as they are finished */
    uint64_t next_due;    /* no table entry and no fragment expires before the clock passes this */
    uint64_t seed[CORA_SEED_WORDS];
    uint32_t options;
    uint32_t output_mode, output_port; /* pcap: the port whose packets are written, or CORA_NONE for all */
    uint32_t current_wirelen;
    struct cora_total arrived;
    struct cora_total *forwarded; /* by port */
    uint64_t *dropped;            /* by reason */
    uint64_t *dropped_at;         /* by arrival port, without fragments that had been held */
    uint64_t errors_sent, held;
    uint8_t *output;
    size_t output_used, output_room;
    struct cora_digests *digests; /* in the digest mode */
    struct cora_digests own_digests;
    uint16_t *verdicts; /* of the packets from verdict_base on; NULL: not wanted */
    uint64_t verdict_base;
    struct cora_resolution *resolutions;
    size_t resolution_count, resolution_room;
    struct cora_arrivals *arrivals; /* NULL: packets that were translated are not kept */
    struct cora_returns *returns; /* NULL: packets are taken as they were captured */
#ifdef CORA_LIVE
    uint64_t refused[CORA_STATES + 1]; /* by state: inserts and charges that found it full */
#endif
    CORA_IF_PROFILE(struct cora_core_profile profile;)
};

/* Packets as the program got them; `data` of a record is where its bytes begin in `bytes`. */
struct cora_arrivals {
    struct cora_record *records;
    size_t count, room;
    uint8_t *bytes;
    size_t used, byte_room;
};

CORA_COLD void cora_keep_arrival(struct cora_arrivals *kept, const struct cora_record *record)
{
    kept->records = cora_grow(kept->records, &kept->room, kept->count + 1, sizeof *kept->records);
    kept->bytes = cora_grow(kept->bytes, &kept->byte_room, kept->used + record->caplen + 1, 1);
    memcpy(kept->bytes + kept->used, (const uint8_t *)(uintptr_t)record->data, record->caplen);
    kept->records[kept->count] = *record;
    kept->records[kept->count++].data = kept->used;
    kept->used += record->caplen;
}

#define CORA_BATCH 32

struct cora_batch {
    struct cora_packet packets[CORA_BATCH];
    uint8_t *frames; /* private copies of the batch's packets, each on its own cache lines */
    size_t room;
};

/* Ends the packet's way through the program. */
#define CORA_END(result)                      \
    do {                                      \
        p->verdict = (uint16_t)(result);      \
        CORA_IF_PROFILE(p->path = path;)      \
        return;                               \
    } while (0)

/* Leaves the first part of the program; `finish` goes on at point n. */
#define CORA_STOP(n)                          \
    do {                                      \
        p->resume = (n);                      \
        CORA_IF_PROFILE(p->path = path;)      \
        return;                               \
    } while (0)

/* Ball-Larus increment of an edge. */
#ifdef CORA_PROFILE
#define CORA_STEP(n) (path += (uint64_t)(n))
#else
#define CORA_STEP(n) ((void)0)
#endif

/* Expands the caller's seed (splitmix64, Steele, Lea and Flood, OOPSLA 2014). */
CORA_COLD void cora_seed(struct cora_core *core, const uint64_t seed[8])
{
    uint64_t state = 0;
    for (int i = 0; i < CORA_SEED_WORDS; i++) {
        state += 0x9e3779b97f4a7c15;
        uint64_t z = state ^ seed[i % 8];
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        core->seed[i] = z ^ z >> 31 ^ seed[(i + 3) % 8];
    }
}

/* Sums 8 bytes at a time, multiplied so that no simple change of a frame leaves the sum as it was. */
static inline uint64_t cora_digest_bytes(uint64_t x, const uint8_t *at, size_t length)
{
    for (; length >= 8; at += 8, length -= 8)
        x = (x ^ cora_raw64(at)) * 0x9e3779b97f4a7c15, x ^= x >> 29;
    uint64_t rest = 0;
    if (length)
        memcpy(&rest, at, length);
    x = (x ^ rest ^ (uint64_t)length << 56) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

CORA_COLD void cora_digest_room(struct cora_digests *d, uint64_t index)
{
    size_t before = d->room;
    d->at = cora_grow(d->at, &d->room, index + 1, sizeof *d->at);
    memset(d->at + before, 0, (d->room - before) * sizeof *d->at);
}

static inline void cora_digest_event(struct cora_digests *d, uint64_t index, uint64_t head, const uint8_t *frame,
                                     uint32_t caplen, uint32_t wirelen)
{
    if (CORA_UNLIKELY(index >= d->room))
        cora_digest_room(d, index);
    if (index >= d->count)
        d->count = index + 1;
    d->at[index] += cora_digest_bytes(head << 32 | wirelen, frame, caplen) | 1;
}

CORA_COLD void cora_write_event(struct cora_core *core, enum cora_event_kind kind, uint64_t index, uint32_t port,
                                const uint8_t *frame, uint32_t caplen, uint32_t wirelen)
{
#ifdef CORA_LIVE
    if (core->output_mode == CORA_OUTPUT_LIVE) {
        cora_live_send(core, port, frame, caplen);
        return;
    }
#endif
    if (core->output_mode == CORA_OUTPUT_DIGEST) {
        cora_digest_event(core->digests, index, (uint64_t)kind << 16 | (port + 1u), frame, caplen, wirelen);
        return;
    }
    size_t needed = core->output_used + sizeof(struct cora_event) + caplen + 8;
    if (needed > core->output_room)
        core->output = cora_grow(core->output, &core->output_room, needed, 1);
    uint8_t *at = core->output + core->output_used;
    if (core->output_mode == CORA_OUTPUT_PCAP) {
        if (!frame || (core->output_port != CORA_NONE && core->output_port != port))
            return;
        struct cora_pcap_record head = {(uint32_t)(core->now / 1000000000), (uint32_t)(core->now % 1000000000), caplen,
                                        wirelen};
        memcpy(at, &head, sizeof head);
        memcpy(at + sizeof head, frame, caplen);
        core->output_used += sizeof head + caplen;
        return;
    }
    struct cora_event event = {index, kind, port, caplen, wirelen};
    memcpy(at, &event, sizeof event);
    if (caplen)
        memcpy(at + sizeof event, frame, caplen);
    core->output_used += sizeof event + ((caplen + 7u) & ~(size_t)7);
}

static inline void cora_set_verdict(struct cora_core *core, uint64_t index, uint16_t verdict, bool late)
{
    if (!core->verdicts)
        return;
    if (CORA_LIKELY(!late)) {
        core->verdicts[index - core->verdict_base] = verdict;
        return;
    }
    core->resolutions = cora_grow(core->resolutions, &core->resolution_room, core->resolution_count + 1,
                                  sizeof *core->resolutions);
    core->resolutions[core->resolution_count++] = (struct cora_resolution){index, verdict};
}

/* Drops packet `index`; `late`: it had been held. */
static inline void cora_drop(struct cora_core *core, uint64_t index, uint32_t reason, bool late)
{
    core->dropped[reason]++;
    core->held -= late;
    cora_set_verdict(core, index, (uint16_t)(CORA_DROP | reason), late);
    if (core->output_mode & CORA_OUTPUT_EVENTS)
        cora_write_event(core, CORA_EVENT_DROPPED, index, reason, NULL, 0, 0);
}

static inline void cora_forward(struct cora_core *core, const struct cora_packet *p)
{
    core->forwarded[p->verdict].packets++;
    core->forwarded[p->verdict].octets += p->wirelen;
    core->held -= p->released;
    cora_set_verdict(core, p->index, p->verdict, p->released);
#ifdef CORA_LIVE
    if (CORA_LIKELY(core->output_mode == CORA_OUTPUT_LIVE)) {
        cora_live_send(core, p->verdict, p->data, p->caplen);
        return;
    }
#endif
    if (core->output_mode != CORA_OUTPUT_NONE)
        cora_write_event(core, CORA_EVENT_OUTPUT, p->index, p->verdict, p->data, p->caplen, p->wirelen);
}

CORA_COLD void cora_hold(struct cora_core *core, const struct cora_packet *p)
{
    core->held += !p->released;
    cora_set_verdict(core, p->index, CORA_HELD, p->released);
    if (core->output_mode & CORA_OUTPUT_EVENTS)
        cora_write_event(core, CORA_EVENT_HELD, p->index, 0, NULL, 0, 0);
}

#ifdef CORA_PROFILE
CORA_COLD void cora_count_rare_path(struct cora_core_profile *c, uint64_t path, uint64_t packets, uint64_t octets)
{
    if (4 * (c->path_used + 1) > 3 * (c->path_mask + 1)) {
        struct cora_path_count *old = c->paths;
        uint64_t count = c->path_mask + 1;
        c->path_mask = 2 * count - 1;
        c->path_used = 0;
        c->paths = cora_zeroed(2 * count, sizeof *c->paths);
        for (uint64_t i = 0; i < count; i++)
            if (old[i].used)
                cora_count_rare_path(c, old[i].path, old[i].packets, old[i].octets);
        cora_release(old, count, sizeof *old);
    }
    uint64_t at = (path * 0x9e3779b97f4a7c15) >> 20;
    while (c->paths[at & c->path_mask].used && c->paths[at & c->path_mask].path != path)
        at++;
    struct cora_path_count *found = &c->paths[at & c->path_mask];
    c->path_used += !found->used;
    *found = (struct cora_path_count){path, found->packets + packets, found->octets + octets, 1};
}

static inline void cora_note_move(struct cora_core_profile *c, uint64_t word)
{
    if (CORA_UNLIKELY(c->move_count == c->move_room))
        c->moves = cora_grow(c->moves, &c->move_room, c->move_count + 1, sizeof *c->moves);
    c->moves[c->move_count++] = word;
}

static inline void cora_count_path(struct cora_core *core, const struct cora_packet *p)
{
    struct cora_core_profile *c = &core->profile;
    if (c->following) {
        cora_note_move(c, (uint64_t)CORA_MOVE_PACKET << CORA_MOVE_KIND);
        cora_note_move(c, p->path);
        cora_note_move(c, core->now);
    }
    if (c->path_total > CORA_PATH_ARRAY) {
        cora_count_rare_path(c, p->path, 1, p->wirelen);
        return;
    }
    struct cora_path_count *found = &c->paths[p->path];
    *found = (struct cora_path_count){p->path, found->packets + 1, found->octets + p->wirelen, 1};
}

static inline void cora_count_arrival(struct cora_core *core, const struct cora_packet *p)
{
    struct cora_core_profile *c = &core->profile;
    c->sizes[cora_min32(p->wirelen, CORA_SIZES - 1)]++;
    if (!c->window_length)
        return;
    c->window = p->now < c->window_start ? 0 : (p->now - c->window_start) / c->window_length;
    if (c->window >= c->window_count)
        c->window = c->window_count - 1;
    c->windows[c->window].packets++;
    c->windows[c->window].octets += p->wirelen;
}
#endif

#endif
