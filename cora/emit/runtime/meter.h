/* Token buckets (docs/semantics.md, section 5; RFC 2697, RFC 2698), exact: credits are octets times 10^9, so a rate in
 * octets per second gives whole credits per nanosecond. */
#ifndef CORA_METER_H
#define CORA_METER_H

#include "base.h"

enum cora_colour { CORA_COLOUR_GREEN, CORA_COLOUR_YELLOW, CORA_COLOUR_RED, CORA_COLOUR_FULL };
enum cora_algorithm { CORA_TOKEN_BUCKET, CORA_SRTCM, CORA_TRTCM };

#define CORA_CREDIT ((cora_u128)1000000000)

/* Rates in octets/s; burst sizes in octets. `second` is the excess (srtcm) or the peak (trtcm) bucket. */
struct cora_meter_spec {
    enum cora_algorithm algorithm;
    uint64_t rate, burst, second_rate, second_burst;
};

typedef cora_u128 cora_credits;

struct cora_buckets {
    cora_credits first, second;
};

#include "charge.h"

static inline void cora_refill(const struct cora_meter_spec *m, struct cora_buckets *b, uint64_t elapsed)
{
    cora_u128 top = m->burst * CORA_CREDIT;
    b->first += (cora_u128)elapsed * m->rate;
    cora_u128 over = b->first > top ? b->first - top : 0;
    b->first -= over;
    if (m->algorithm == CORA_TOKEN_BUCKET)
        return;
    b->second += m->algorithm == CORA_SRTCM ? over : (cora_u128)elapsed * m->second_rate;
    if (b->second > m->second_burst * CORA_CREDIT)
        b->second = m->second_burst * CORA_CREDIT;
}

static inline enum cora_colour cora_charge(const struct cora_meter_spec *m, struct cora_buckets *b, uint64_t size)
{
    return cora_spend(m->algorithm, b, size * CORA_CREDIT);
}

static inline struct cora_buckets cora_full_buckets(const struct cora_meter_spec *m)
{
    return (struct cora_buckets){m->burst * CORA_CREDIT, m->second_burst * CORA_CREDIT};
}

#endif
