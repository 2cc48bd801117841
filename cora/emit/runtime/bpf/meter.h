/* Token buckets in the kernel: those of ../meter.h in 64 bits, which capabilities.py makes sure are enough: a burst with
 * what the rate adds in one nanosecond stays below 2^63 credits. */
#ifndef CORA_BPF_METER_H
#define CORA_BPF_METER_H

#include "base.h"

enum cora_colour { CORA_COLOUR_GREEN, CORA_COLOUR_YELLOW, CORA_COLOUR_RED, CORA_COLOUR_FULL, CORA_COLOUR_STRAYED };
enum cora_algorithm { CORA_TOKEN_BUCKET, CORA_SRTCM, CORA_TRTCM };

#define CORA_CREDIT 1000000000ull

/* Credits: octets times 10^9. `fill`: nanoseconds in which the rate fills both buckets it feeds for sure. */
struct cora_meter_spec {
    enum cora_algorithm algorithm;
    uint64_t rate, top, fill, second_rate, second_top, second_fill;
};

typedef uint64_t cora_credits;

struct cora_buckets {
    cora_credits first, second;
};

#include "../charge.h"

static inline uint64_t cora_earned(uint64_t elapsed, uint64_t rate, uint64_t fill)
{
    return (elapsed < fill ? elapsed : fill) * rate;
}

static inline void cora_refill(const struct cora_meter_spec m, struct cora_buckets *b, uint64_t elapsed)
{
    uint64_t sum = b->first + cora_earned(elapsed, m.rate, m.fill);
    uint64_t over = sum > m.top ? sum - m.top : 0;
    b->first = sum - over;
    if (m.algorithm == CORA_TOKEN_BUCKET)
        return;
    b->second += m.algorithm == CORA_SRTCM ? over : cora_earned(elapsed, m.second_rate, m.second_fill);
    if (b->second > m.second_top)
        b->second = m.second_top;
}

static inline enum cora_colour cora_charge(const struct cora_meter_spec m, struct cora_buckets *b, uint64_t size)
{
    /* No bucket holds 2^64 credits, and a size that costs as much is not to be had. */
    uint64_t cost = size > UINT64_MAX / CORA_CREDIT ? UINT64_MAX : size * CORA_CREDIT;
    return cora_spend(m.algorithm, b, cost);
}

#endif
