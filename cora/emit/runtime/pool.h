/* Pools of values (docs/semantics.md, section 5): a bitmap over row-major indices, searched a word at a time in the order
 * the contract gives. A second bitmap marks words without a free bit, so a nearly empty pool is searched quickly too.
 *
 * With CORA_SHARDS the pool is one for several cores, each with an engine of its own: the bitmaps change by atomic
 * operations. A core first reserves a value of the count of free ones, then looks for it; so a search finds nothing only
 * when the pool is empty. */
#ifndef CORA_POOL_H
#define CORA_POOL_H

#include "base.h"

#ifdef CORA_SHARDS
struct cora_pool_shared {
    uint64_t next;
    int64_t free;   /* values that nobody has and nobody has reserved */
    uint8_t *owner; /* by value: the core whose entry has it, or had it last */
};
#endif

struct cora_pool {
    uint64_t *used;
    uint64_t *full;     /* bit w: word w of `used` has no free bit */
    uint64_t size;      /* at most 2^32 - 1 */
#ifdef CORA_SHARDS
    struct cora_pool_shared *shared;
#else
    uint64_t next;      /* where a search without preference starts */
#endif
    uint64_t block;     /* values of the last dimension */
    uint64_t low;       /* its lowest value */
};

static inline uint64_t cora_pool_words(const struct cora_pool *p) { return (p->size + 63) / 64; }

CORA_COLD void cora_pool_init(struct cora_pool *p, uint64_t size, uint64_t block, uint64_t low)
{
    *p = (struct cora_pool){.size = size, .block = block, .low = low};
    p->used = cora_zeroed(cora_pool_words(p), 8);
    p->full = cora_zeroed(cora_pool_words(p) / 64 + 1, 8);
#ifdef CORA_SHARDS
    p->shared = cora_zeroed(1, sizeof *p->shared);
    p->shared->free = (int64_t)size;
    p->shared->owner = cora_zeroed(size, 1);
#endif
}

CORA_COLD void cora_pool_close(struct cora_pool *p)
{
    cora_release(p->used, cora_pool_words(p), 8);
    cora_release(p->full, cora_pool_words(p) / 64 + 1, 8);
#ifdef CORA_SHARDS
    cora_release(p->shared->owner, p->size, 1);
    cora_release(p->shared, 1, sizeof *p->shared);
#endif
}

#ifdef CORA_SHARDS
static inline uint64_t cora_pool_word(const struct cora_pool *p, uint64_t word)
{
    return __atomic_load_n(&p->used[word], __ATOMIC_RELAXED);
}

static inline uint64_t cora_pool_full(const struct cora_pool *p, uint64_t word)
{
    return __atomic_load_n(&p->full[word], __ATOMIC_RELAXED);
}

static inline uint64_t cora_pool_next(const struct cora_pool *p)
{
    return __atomic_load_n(&p->shared->next, __ATOMIC_RELAXED);
}

static inline void cora_pool_set_next(struct cora_pool *p, uint64_t next)
{
    __atomic_store_n(&p->shared->next, next, __ATOMIC_RELAXED);
}

/* Makes sure that a value can be found. */
static inline bool cora_pool_reserve(struct cora_pool *p)
{
    if (__atomic_fetch_sub(&p->shared->free, 1, __ATOMIC_ACQ_REL) > 0)
        return true;
    __atomic_fetch_add(&p->shared->free, 1, __ATOMIC_ACQ_REL);
    return false;
}

/* Makes a reserved value this core's own; false: another core was faster. */
static inline bool cora_pool_claim(struct cora_pool *p, uint64_t index)
{
    uint64_t word = index / 64, bit = (uint64_t)1 << (index % 64), flag = (uint64_t)1 << (word % 64);
    uint64_t before = __atomic_fetch_or(&p->used[word], bit, __ATOMIC_SEQ_CST);
    if (before & bit)
        return false;
    if ((before | bit) == UINT64_MAX) {
        __atomic_fetch_or(&p->full[word / 64], flag, __ATOMIC_SEQ_CST);
        /* A value of the word may have come back between the two steps: its core has cleared the flag too early. */
        if (__atomic_load_n(&p->used[word], __ATOMIC_SEQ_CST) != UINT64_MAX)
            __atomic_fetch_and(&p->full[word / 64], ~flag, __ATOMIC_SEQ_CST);
    }
    return true;
}

/* Whether a search has to be repeated. What was reserved is there, so one that found nothing has only missed it. */
static inline bool cora_pool_lost(struct cora_pool *p, uint32_t found)
{
    return found == CORA_NONE || !cora_pool_claim(p, found);
}

/* Marks a value as used; false: it was already. */
static inline bool cora_pool_mark(struct cora_pool *p, uint64_t index)
{
    if (!cora_pool_reserve(p))
        return false;
    if (cora_pool_claim(p, index))
        return true;
    __atomic_fetch_add(&p->shared->free, 1, __ATOMIC_ACQ_REL);
    return false;
}

static inline void cora_pool_give(struct cora_pool *p, uint32_t index)
{
    uint32_t word = index / 64;
    __atomic_fetch_and(&p->used[word], ~((uint64_t)1 << (index % 64)), __ATOMIC_SEQ_CST);
    __atomic_fetch_and(&p->full[word / 64], ~((uint64_t)1 << (word % 64)), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&p->shared->free, 1, __ATOMIC_ACQ_REL);
}

/* The core with the entry that has this value. */
static inline uint32_t cora_pool_owner(const struct cora_pool *p, uint64_t index)
{
    return __atomic_load_n(&p->shared->owner[index], __ATOMIC_RELAXED);
}

static inline void cora_pool_own(struct cora_pool *p, uint64_t index, uint32_t core)
{
    __atomic_store_n(&p->shared->owner[index], (uint8_t)core, __ATOMIC_RELAXED);
}
#else
static inline uint64_t cora_pool_word(const struct cora_pool *p, uint64_t word) { return p->used[word]; }

static inline uint64_t cora_pool_full(const struct cora_pool *p, uint64_t word) { return p->full[word]; }

static inline uint64_t cora_pool_next(const struct cora_pool *p) { return p->next; }

static inline void cora_pool_set_next(struct cora_pool *p, uint64_t next) { p->next = next; }

static inline bool cora_pool_reserve(struct cora_pool *p) { return (void)p, true; }

static inline void cora_pool_mark(struct cora_pool *p, uint64_t index)
{
    uint64_t word = index / 64;
    p->used[word] |= (uint64_t)1 << (index % 64);
    if (p->used[word] == UINT64_MAX)
        p->full[word / 64] |= (uint64_t)1 << (word % 64);
}

/* Marks what a search found; whether it has to be repeated. */
static inline bool cora_pool_lost(struct cora_pool *p, uint32_t found)
{
    if (found != CORA_NONE)
        cora_pool_mark(p, found);
    return false;
}

static inline void cora_pool_give(struct cora_pool *p, uint32_t index)
{
    uint32_t word = index / 64;
    p->used[word] &= ~((uint64_t)1 << (index % 64));
    p->full[word / 64] &= ~((uint64_t)1 << (word % 64));
}
#endif

static inline bool cora_pool_is_used(const struct cora_pool *p, uint64_t index)
{
    return cora_pool_word(p, index / 64) >> (index % 64) & 1;
}

/* Values in use. */
CORA_COLD uint64_t cora_pool_count(const struct cora_pool *p)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < cora_pool_words(p); i++)
        count += (uint64_t)__builtin_popcountll(cora_pool_word(p, i));
    return count;
}

/* The first word from `word` on with a free bit, or `words`. */
static inline uint64_t cora_pool_open_word(const struct cora_pool *p, uint64_t word, uint64_t words)
{
    while (word < words) {
        uint64_t open = ~cora_pool_full(p, word / 64) >> (word % 64);
        if (open)
            return cora_min64(word + (uint64_t)__builtin_ctzll(open), words);
        word = (word / 64 + 1) * 64;
    }
    return words;
}

#define CORA_POOL_ALL UINT64_MAX
#define CORA_POOL_EVEN 0x5555555555555555u

/* The lowest free index in [from, to) whose bit is in the mask (of indices modulo 64), or CORA_NONE. */
CORA_COLD uint32_t cora_pool_scan(const struct cora_pool *p, uint64_t from, uint64_t to, uint64_t mask)
{
    if (from >= to)
        return CORA_NONE;
    uint64_t words = (to + 63) / 64;
    uint64_t first = UINT64_MAX << (from % 64);
    for (uint64_t word = from / 64; (word = cora_pool_open_word(p, word, words)) < words; word++) {
        uint64_t open = ~cora_pool_word(p, word) & mask & (word == from / 64 ? first : UINT64_MAX);
        if (!open)
            continue;
        uint64_t index = word * 64 + (uint64_t)__builtin_ctzll(open);
        return index < to ? (uint32_t)index : CORA_NONE;
    }
    return CORA_NONE;
}

/* Upward from `start` to the end of [from, to), then from its beginning. */
static inline uint32_t cora_pool_around(const struct cora_pool *p, uint64_t from, uint64_t to, uint64_t start,
                                        uint64_t mask)
{
    uint32_t found = cora_pool_scan(p, start, to, mask);
    return found != CORA_NONE ? found : cora_pool_scan(p, from, start, mask);
}

/* Takes the lowest free index at or after the one past the previous allocation; CORA_NONE: the pool is empty. */
static inline uint32_t cora_pool_take(struct cora_pool *p)
{
    uint32_t found;
    if (!cora_pool_reserve(p))
        return CORA_NONE;
    do
        found = cora_pool_around(p, 0, p->size, cora_pool_next(p), CORA_POOL_ALL);
    while (cora_pool_lost(p, found));
    if (found != CORA_NONE)
        cora_pool_set_next(p, (found + (uint64_t)1) % p->size);
    return found;
}

/* RFC 4787 REQ-3 and REQ-4: same parity and port range as `wanted`, then the same range, then its block. */
CORA_COLD uint32_t cora_pool_preserving(const struct cora_pool *p, uint64_t wanted)
{
    uint64_t base = wanted - wanted % p->block, end = base + p->block;
    uint64_t split = base + (p->low >= 1024 ? 0 : cora_min64(1024 - p->low, p->block));
    uint64_t from = wanted < split ? base : split, to = wanted < split ? split : end;
    uint64_t parity = wanted & 1 ? ~CORA_POOL_EVEN : CORA_POOL_EVEN;
    uint32_t found = cora_pool_around(p, from, to, wanted, parity);
    if (found == CORA_NONE)
        found = cora_pool_around(p, from, to, wanted, CORA_POOL_ALL);
    if (found == CORA_NONE)
        found = cora_pool_around(p, base, end, wanted, CORA_POOL_ALL);
    return found;
}

/* A coordinate of a wish, clamped into its range and counted from its start. */
static inline uint64_t cora_pool_clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? 0 : (value > high ? high : value) - low;
}

/* `wanted` if it is free, else the value that comes next in the order of preference. */
static inline uint32_t cora_pool_near(const struct cora_pool *p, uint64_t wanted, bool preserve)
{
    if (!cora_pool_is_used(p, wanted))
        return (uint32_t)wanted;
    uint32_t found = preserve ? cora_pool_preserving(p, wanted) : CORA_NONE;
    return found != CORA_NONE ? found : cora_pool_around(p, 0, p->size, wanted, CORA_POOL_ALL);
}

/* Takes the value nearest to a wish. */
static inline uint32_t cora_pool_take_near(struct cora_pool *p, uint64_t wanted, bool preserve)
{
    uint32_t found;
    if (!cora_pool_reserve(p))
        return CORA_NONE;
    do
        found = cora_pool_near(p, wanted, preserve);
    while (cora_pool_lost(p, found));
    return found;
}

/* A dump: the position of the next search, then the bitmap of used values. */
static inline size_t cora_pool_dump_size(const struct cora_pool *p) { return 8 * (1 + cora_pool_words(p)); }

CORA_COLD void cora_pool_dump(const struct cora_pool *p, uint8_t *out)
{
    uint64_t next = cora_pool_next(p);
    memcpy(out, &next, 8);
    memcpy(out + 8, p->used, 8 * cora_pool_words(p));
}

CORA_COLD bool cora_pool_load(struct cora_pool *p, const uint8_t *rows, size_t size)
{
    if (size != cora_pool_dump_size(p))
        return false;
    cora_pool_set_next(p, cora_raw64(rows));
    for (uint64_t i = 0; i < p->size; i++)
        if (cora_raw64(rows + 8 + i / 64 * 8) >> (i % 64) & 1)
            cora_pool_mark(p, i);
    return cora_pool_next(p) < p->size;
}

#endif
