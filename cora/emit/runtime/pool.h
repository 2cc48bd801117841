/* Pools of values (docs/semantics.md, section 5): a bitmap over row-major indices, searched a word at a time in the order
 * the contract gives. A second bitmap marks words without a free bit, so a nearly empty pool is searched quickly too. */
#ifndef CORA_POOL_H
#define CORA_POOL_H

#include "base.h"

struct cora_pool {
    uint64_t *used;
    uint64_t *full;     /* bit w: word w of `used` has no free bit */
    uint64_t size;      /* at most 2^32 - 1 */
    uint64_t next;      /* where a search without preference starts */
    uint64_t block;     /* values of the last dimension */
    uint64_t low;       /* its lowest value */
};

static inline uint64_t cora_pool_words(const struct cora_pool *p) { return (p->size + 63) / 64; }

CORA_COLD void cora_pool_init(struct cora_pool *p, uint64_t size, uint64_t block, uint64_t low)
{
    *p = (struct cora_pool){.size = size, .block = block, .low = low};
    p->used = cora_zeroed(cora_pool_words(p), 8);
    p->full = cora_zeroed(cora_pool_words(p) / 64 + 1, 8);
}

CORA_COLD void cora_pool_close(struct cora_pool *p)
{
    cora_release(p->used, cora_pool_words(p), 8);
    cora_release(p->full, cora_pool_words(p) / 64 + 1, 8);
}

static inline bool cora_pool_is_used(const struct cora_pool *p, uint64_t index)
{
    return p->used[index / 64] >> (index % 64) & 1;
}

static inline void cora_pool_mark(struct cora_pool *p, uint64_t index)
{
    uint64_t word = index / 64;
    p->used[word] |= (uint64_t)1 << (index % 64);
    if (p->used[word] == UINT64_MAX)
        p->full[word / 64] |= (uint64_t)1 << (word % 64);
}

static inline void cora_pool_give(struct cora_pool *p, uint32_t index)
{
    uint32_t word = index / 64;
    p->used[word] &= ~((uint64_t)1 << (index % 64));
    p->full[word / 64] &= ~((uint64_t)1 << (word % 64));
}

/* Values in use. */
CORA_COLD uint64_t cora_pool_count(const struct cora_pool *p)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < cora_pool_words(p); i++)
        count += (uint64_t)__builtin_popcountll(p->used[i]);
    return count;
}

/* The first word from `word` on with a free bit, or `words`. */
static inline uint64_t cora_pool_open_word(const struct cora_pool *p, uint64_t word, uint64_t words)
{
    while (word < words) {
        uint64_t open = ~p->full[word / 64] >> (word % 64);
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
        uint64_t open = ~p->used[word] & mask & (word == from / 64 ? first : UINT64_MAX);
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
    uint32_t found = cora_pool_around(p, 0, p->size, p->next, CORA_POOL_ALL);
    if (found == CORA_NONE)
        return CORA_NONE;
    cora_pool_mark(p, found);
    p->next = (found + (uint64_t)1) % p->size;
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

/* Takes `wanted` or the value that comes next in the order of preference. */
static inline uint32_t cora_pool_take_near(struct cora_pool *p, uint64_t wanted, bool preserve)
{
    uint32_t found = (uint32_t)wanted;
    if (cora_pool_is_used(p, wanted)) {
        found = preserve ? cora_pool_preserving(p, wanted) : CORA_NONE;
        if (found == CORA_NONE)
            found = cora_pool_around(p, 0, p->size, wanted, CORA_POOL_ALL);
        if (found == CORA_NONE)
            return CORA_NONE;
    }
    cora_pool_mark(p, found);
    return found;
}

/* A dump: the position of the next search, then the bitmap of used values. */
static inline size_t cora_pool_dump_size(const struct cora_pool *p) { return 8 * (1 + cora_pool_words(p)); }

CORA_COLD void cora_pool_dump(const struct cora_pool *p, uint8_t *out)
{
    memcpy(out, &p->next, 8);
    memcpy(out + 8, p->used, 8 * cora_pool_words(p));
}

CORA_COLD bool cora_pool_load(struct cora_pool *p, const uint8_t *rows, size_t size)
{
    if (size != cora_pool_dump_size(p))
        return false;
    memcpy(&p->next, rows, 8);
    for (uint64_t i = 0; i < p->size; i++)
        if (cora_raw64(rows + 8 + i / 64 * 8) >> (i % 64) & 1)
            cora_pool_mark(p, i);
    return p->next < p->size;
}

#endif
