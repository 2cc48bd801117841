/* What travels between the places of a split program: the punt header of a packet, control messages, and the statistics
 * that every place keeps. Plain layouts of fixed width: places need not be built by one compiler, nor run in one process
 * (the kernel's half is built for BPF), only on one machine. */
#ifndef CORA_WIRE_H
#define CORA_WIRE_H

#include <stdbool.h>
#include <stdint.h>

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

enum {
    CORA_PUNT_FRAGMENT = 1, CORA_PUNT_MORE = 2, CORA_PUNT_FOLLOWER = 4, CORA_PUNT_RELEASED = 8,
    CORA_PUNT_ANEW = 16 /* no rule served it: it starts where it is handed to */
};

enum cora_item_kind {
    CORA_ITEM_PACKET,
    CORA_ITEM_PASSED, /* a packet that ended at a place before */
    CORA_ITEM_ACTIVE, /* a lent entry is used for the first time */
    CORA_ITEM_SOONER  /* a lent entry is due earlier than its owner knows */
};

enum cora_message_kind {
    CORA_LEND,     /* owner to near: an entry, to be used when the packets before it are through */
    CORA_UPDATE,   /* owner to near: the owner changed an entry that is not in use yet */
    CORA_RECALL,   /* owner to near: give it back; the kernel half knows slot CORA_NONE: any one, from entry `number` on */
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
    uint8_t row[CORA_ROW_LIMIT + 1] __attribute__((aligned(8)));
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

#endif
