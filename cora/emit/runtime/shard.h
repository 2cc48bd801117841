/* Engines of several cores that divide the state of one program: each core has an engine with tables of its own, and an
 * entry lives at its *home*, the core to which steering leads the packets that use it.
 *
 * What is one for all cores: how many entries a table has (its room), and pools (pool.h). Both change by atomic
 * operations, and only when an entry is made or removed.
 *
 * A packet that steering cannot lead to one home (a fragment, one that touches two entries) runs alone: all other cores
 * stand still between two packets, the engine of core 0 borrows the entries that the packet finds, and they go home behind
 * it. The program around the engines sees to the standing still. */
#ifndef CORA_SHARD_H
#define CORA_SHARD_H

#include "core.h"
#include "pool.h"

#ifndef CORA_WORKERS_MOST
#define CORA_WORKERS_MOST 64
#endif

/* Steering gives this for packets that run alone. */
#define CORA_ALONE 0xffffffffu

/* Slots of the table from a steering hash to a core: like the indirection table of a card, whose size is at least this. */
#define CORA_STEER_SLOTS 128

/* In a loop that waits for another core. */
static inline void cora_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct cora_away {
    uint32_t state, at;
};

struct cora_shard {
    uint32_t number;
    bool alone;             /* a packet runs alone on this engine */
    struct cora_away *away; /* entries here that may have their home elsewhere */
    size_t away_count, away_room;
    uint32_t loaded;        /* the entry that was made from a row last */
    uint64_t refused;       /* inserts that failed because a table or a pool was full */
    uint64_t early;         /* of them, with entries due at a core that stood still for a packet that ran alone */
};

struct cora_room {
    uint64_t used;
} __attribute__((aligned(64)));

struct cora_shards {
    uint32_t count, made;
    struct cora_engine *engines[CORA_WORKERS_MOST];
    struct cora_room rooms[CORA_STATES + 1]; /* entries of each state, at all cores */
    uint8_t core_of[CORA_STEER_SLOTS];
    uint16_t toeplitz[2][256];
    bool halt __attribute__((aligned(64))); /* a core wants to run a packet alone, or does */
};

static struct cora_shards cora_shards = {.count = 1};

/* --- steering: the Toeplitz hash of receive-side scaling, with a key that repeats every 16 bits --- */

/* The symmetric key of Woo and Park ("Scalable TCP session monitoring with symmetric receive-side scaling", 2012): both
 * directions of a flow have the same hash. */
#define CORA_STEER_KEY 0x6d5a

/* With such a key the hash depends on the exclusive or of the input's 16-bit words only, and its upper half is equal to
 * its lower half. The table has that half for each byte of the word. */
CORA_COLD void cora_steer_open(uint32_t cores)
{
    for (uint32_t byte = 0; byte < 256; byte++)
        for (uint32_t bit = 0; bit < 8; bit++) {
            if (!(byte >> (7 - bit) & 1))
                continue;
            uint32_t high = CORA_STEER_KEY << bit, low = CORA_STEER_KEY << (bit + 8);
            cora_shards.toeplitz[0][byte] ^= (uint16_t)(high | high >> 16);
            cora_shards.toeplitz[1][byte] ^= (uint16_t)(low | low >> 16);
        }
    for (uint32_t i = 0; i < CORA_STEER_SLOTS; i++)
        cora_shards.core_of[i] = (uint8_t)(i % cores);
    cora_shards.count = cores;
}

/* The exclusive or of a value's 16-bit words. */
static inline uint16_t cora_fold16(uint64_t value)
{
    value ^= value >> 32;
    return (uint16_t)(value ^ value >> 16);
}

static inline uint16_t cora_fold16_wide(cora_u128 value) { return cora_fold16((uint64_t)(value ^ value >> 64)); }

static inline uint32_t cora_steer(uint16_t folded)
{
    uint16_t hash = cora_shards.toeplitz[0][folded >> 8] ^ cora_shards.toeplitz[1][folded & 255];
    return cora_shards.core_of[hash % CORA_STEER_SLOTS];
}

/* --- room: what a table has left, counted over all cores --- */

static inline bool cora_room_take(uint32_t state, uint64_t capacity)
{
    uint64_t *used = &cora_shards.rooms[state].used;
    if (__atomic_fetch_add(used, 1, __ATOMIC_ACQ_REL) < capacity)
        return true;
    __atomic_fetch_sub(used, 1, __ATOMIC_ACQ_REL);
    return false;
}

static inline void cora_room_give(uint32_t state)
{
    __atomic_fetch_sub(&cora_shards.rooms[state].used, 1, __ATOMIC_ACQ_REL);
}

static inline void cora_shard_note(struct cora_shard *s, uint32_t state, uint32_t at)
{
    s->away = cora_grow(s->away, &s->away_room, s->away_count + 1, sizeof *s->away);
    s->away[s->away_count++] = (struct cora_away){state, at};
}

#endif
