/* What the places of a split program share: items that go from place to place, control messages, and the world between
 * the places (split_driver.h), which decides what happens next. docs/splitting.md says why results cannot depend on that.
 *
 * Packets and what must not overtake them go away from the wire through a queue before each place, first in, first out.
 * Control messages go towards the wire, and answers away from it beside the queues, each from a place to its neighbour. */
#ifndef CORA_SPLIT_H
#define CORA_SPLIT_H

#include "core.h"

/* The punt header: what a packet takes along in the middle of the program, with the place of its headers. */
struct cora_punt_head {
    uint64_t program; /* start of the program's hash */
    uint64_t now;     /* stamped where the packet arrived */
    uint32_t epoch, wirelen;
    uint32_t present, l3, l4, end, fragment_start, quoted, quoted_l4, fragment_id;
    uint16_t port, entry, fragment_offset, eth_type;
    uint8_t tags, family, upper, quoted_family, quoted_upper, flags;
    uint8_t inherited[20]; /* a follower's upper-layer header */
    uint8_t values;        /* bytes of live values behind the header */
    uint8_t unused[5];
};

_Static_assert(sizeof(struct cora_punt_head) == CORA_PUNT_FIXED, "cora.ir.parts says how long a punt header is");

enum { CORA_PUNT_FRAGMENT = 1, CORA_PUNT_MORE = 2, CORA_PUNT_FOLLOWER = 4, CORA_PUNT_RELEASED = 8 };

enum cora_item_kind {
    CORA_ITEM_PACKET,
    CORA_ITEM_PASSED, /* a packet that ended at a place before */
    CORA_ITEM_ACTIVE, /* a lent entry is used for the first time */
    CORA_ITEM_SOONER  /* a lent entry is due earlier than its owner knows */
};

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

enum cora_message_kind {
    CORA_LEND,     /* owner to near: an entry, to be used when the packets before it are through */
    CORA_UPDATE,   /* owner to near: the owner changed an entry that is not in use yet */
    CORA_RECALL,   /* owner to near: give it back */
    CORA_ASK,      /* owner to near: is it due? */
    CORA_DONE,     /* last place to all: packets before `number` are through */
    CORA_RETURNED, /* near to owner: the entry as it is now; it is not lent any more */
    CORA_ANSWER,   /* near to owner: the entry as it is now */
    CORA_REFUSAL   /* near to owner: it was not taken, all others are used more */
};

struct cora_message {
    enum cora_message_kind kind;
    uint32_t to, lending, slot;
    uint64_t serial;
    uint64_t number; /* ASK: time; DONE: packets that are through */
    uint64_t used, gap; /* the flow's latest packet and the mean of its pauses */
    uint32_t seen;      /* LEND: packets that the owner has seen of it */
    bool active;     /* the near place has used it, so its values count */
    uint8_t row[CORA_ROW_LIMIT + 1];
};

/* What verification prints; the order is that of STATISTICS in cora/engine/split.py. */
enum cora_statistic {
    CORA_FAST,     /* packets that used a lent entry and ended at its place */
    CORA_PUNTED,   /* hand-overs */
    CORA_WAITED,   /* look-ups that found a lent entry but had to wait for packets before them */
    CORA_LENT,     /* entries lent */
    CORA_USED,     /* of them, used at least once */
    CORA_RECALLED, /* taken back because a packet needed them at the owner */
    CORA_ASKED,    /* asked for their last use */
    CORA_EVICTED,  /* given back for one that is used more */
    CORA_REFUSED,  /* lent while the table was full of entries used more */
    CORA_STALLED,  /* times a place waited for the verdict on a first fragment */
    CORA_OVERTAKEN,/* packets that left before an earlier one of their flow */
    CORA_LEFT,     /* lent entries whose owner has none, found at the end */
    CORA_STRAY,    /* messages and values that fit nothing: a fault of the plan or of this runtime */
    CORA_PEAK,     /* most entries lent at a time */
    CORA_STATISTICS
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
