/* What a place keeps beside its tables: which of its entries it lent, and what it knows about entries lent to it. */
#ifndef CORA_PLACE_H
#define CORA_PLACE_H

#include "split.h"
#include "table.h"

#define CORA_GAP_UNKNOWN UINT64_MAX /* the flow had one packet */

enum cora_owned_state { CORA_HERE, CORA_OFFERED, CORA_ACTIVE };

/* An entry at its owner. OFFERED: as far as the queue tells, the near place has not used it yet. */
struct cora_owned_entry {
    uint64_t serial;
    uint64_t used; /* time of the flow's previous packet here */
    uint64_t gap;  /* running mean of the time between two packets, or CORA_GAP_UNKNOWN */
    uint32_t seen; /* packets since the entry was made, came back, or had one that needs the owner */
    uint8_t state;
    bool answered;
};

struct cora_owned {
    struct cora_owned_entry *entries; /* by slot of the table; NULL: not owned here */
    uint32_t capacity, lent;
    uint32_t used; /* entry of the packet at hand, CORA_NONE without */
    bool made;     /* by that packet */
    bool aligned;  /* some packet needed its entry and no owner; nothing is lent before */
    bool unaligned; /* it needs the owner, so the fast path would not have served it */
};

/* An entry at the place it is lent to. */
struct cora_lent_entry {
    uint64_t serial;
    uint64_t wait;  /* use it when packets before this number are through */
    uint64_t known; /* the deadline its owner knows */
    uint64_t used, gap; /* as the owner keeps them */
    uint32_t slot;  /* at its owner */
    bool active;
};

struct cora_lent {
    struct cora_lent_entry *entries; /* by slot of the lent table; NULL: nothing is lent here */
    uint32_t *by_slot;               /* of the owner's table */
    uint32_t capacity, owner_capacity;
    uint64_t guard; /* use no entry until packets before this number are through */
};

struct cora_place {
    struct cora_world *world;
    struct cora_owned owned[CORA_LENDINGS + 1];
    struct cora_lent lent[CORA_LENDINGS + 1];
    uint64_t through; /* packets before this number are through */
    uint64_t punted;  /* number of the packet handed on last, and 1 */
    bool stalled;     /* a first fragment was handed on; its verdict decides about those that are held */
    uint64_t stalled_index;
    struct cora_packet waiting;
};

static inline void cora_place_begin(struct cora_packet *p)
{
    p->punt_to = p->punt_size = 0;
    for (int i = 0; i < CORA_LENDINGS; i++)
        p->lent_at[i] = CORA_NONE;
#if CORA_LATER
    p->anew = false;
    p->later_count = 0;
    memset(p->refreshed, 0, sizeof p->refreshed);
#endif
}

#endif
