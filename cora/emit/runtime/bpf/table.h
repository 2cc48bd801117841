/* The parts a table in the kernel is made of: a keyed hash, hash chains onto an array of entries, free entries, and when
 * the first entry is due. Entries and key comparison are generated for each table; all of it lies in .bss, where the
 * verifier lets a program go by a checked number, without a call.
 *
 * Look-ups take no lock on the chains. An entry's link is only changed while the entry is free or new, and a chain ends
 * with the number of its bucket: whoever comes to the end of another chain has been led away by an entry that was
 * removed and used anew under its feet (as the kernel's own nulls lists tell). Whether the entry found is the right one
 * is decided under its lock. */
#ifndef CORA_BPF_TABLE_H
#define CORA_BPF_TABLE_H

#include "core.h"

/* A chain may have so many entries: with keyed hashes and no more entries than buckets, a longer one is less likely than
 * 1e-13 for a whole full table. An insert that meets one fails and is counted. */
#define CORA_CHAIN 16

#define CORA_STRAYED (CORA_NONE - 1) /* a look-up was led away */
#define CORA_TWICE (CORA_NONE - 2)   /* an insert's primary key is there */
#define CORA_LAST(bucket) (0x80000000u | (bucket))

/* NH (UMAC, RFC 4418, section 5.2.2) over the 32-bit halves of words, so that whoever chooses keys cannot choose
 * collisions without the seed. */
static inline uint64_t cora_nh(uint32_t number, uint64_t word)
{
    uint64_t seed = cora_shared.seed[1 + number];
    return (uint64_t)((uint32_t)word + (uint32_t)seed) * (uint32_t)((uint32_t)(word >> 32) + (uint32_t)(seed >> 32));
}

/* Spreads a sum of products; the highest bits are the best. */
static inline uint64_t cora_mix(uint64_t sum)
{
    return (sum ^ sum >> 32) * (cora_shared.seed[0] | 1);
}

/* A word that says whether an entry is still what it was; what is read after it is read after it, and what is read before it
 * is read before it. */
static inline uint32_t cora_life(uint32_t *life)
{
#ifdef CORA_STRONG_ORDER
    /* This machine keeps loads in order (x86). */
    __asm__ volatile("" ::: "memory");
    uint32_t found = *(volatile uint32_t *)life;
    __asm__ volatile("" ::: "memory");
    return found;
#else
    return __sync_fetch_and_or(life, 0);
#endif
}

struct cora_slots {
    uint32_t count, top, free_count; /* in use; never used from here on; returned */
};

/* A time before which no entry of a table is due. Writers do not meet often; one that gives up says "look now". */
static inline void cora_due_sooner(uint64_t *due, uint64_t deadline)
{
    uint64_t old = cora_volatile(due);
    CORA_LOOP
    for (int i = 0; i < 4; i++) {
        if (old <= deadline)
            return;
        uint64_t found = __sync_val_compare_and_swap(due, old, deadline);
        if (found == old)
            return;
        old = found;
    }
    *(volatile uint64_t *)due = 0;
}

#endif
