/* Pools of values in the kernel: the bitmap and the order of search of ../pool.h (docs/semantics.md, section 5). A value is
 * claimed by an atomic OR of its bit: of two CPUs that want it, one sees the bit it set was clear and has it, the other
 * goes on searching. So no lock is held while a pool is searched, and a pool needs none. */
#ifndef CORA_BPF_POOL_H
#define CORA_BPF_POOL_H

#include "base.h"

#define CORA_POOL_ALL UINT64_MAX
#define CORA_POOL_EVEN 0x5555555555555555u

/* Number of the lowest set bit of a word that is not zero: a multiplication moves a pattern of its own to the top (a
 * de Bruijn sequence), so that there is no branch for the verifier to follow. */
static const volatile uint8_t cora_bit_numbers[64] = {
    0, 1, 2, 53, 3, 7, 54, 27, 4, 38, 41, 8, 34, 55, 48, 28, 62, 5, 39, 46, 44, 42, 22, 9, 24, 35, 59, 56, 49, 18, 29, 11,
    63, 52, 6, 26, 37, 40, 33, 47, 61, 45, 43, 21, 23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14,
    13, 12};

static inline uint32_t cora_lowest_bit(uint64_t word)
{
    return cora_bit_numbers[(word & -word) * 0x022fdd63cc95386dull >> 58];
}

/* A search for a free value: the word it is at, the bits of it that will do, and those of the words behind. */
struct cora_pool_search {
    uint64_t bits, mask;
    uint32_t word, to, found;
};

/* A coordinate of a wish, clamped into its range and counted from its start. */
static inline uint64_t cora_pool_clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? 0 : (value > high ? high : value) - low;
}

#endif
