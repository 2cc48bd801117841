/* What a packet takes from token buckets (RFC 2697, RFC 2698). Included by the two meters, which count credits in
 * `cora_credits` of different widths. */
#ifndef CORA_CHARGE_H
#define CORA_CHARGE_H

static inline enum cora_colour cora_spend(enum cora_algorithm algorithm, struct cora_buckets *b, cora_credits cost)
{
    if (algorithm == CORA_TRTCM) {
        if (cost > b->second)
            return CORA_COLOUR_RED;
        b->second -= cost;
        if (cost > b->first)
            return CORA_COLOUR_YELLOW;
        b->first -= cost;
        return CORA_COLOUR_GREEN;
    }
    if (b->first >= cost) {
        b->first -= cost;
        return CORA_COLOUR_GREEN;
    }
    if (algorithm == CORA_TOKEN_BUCKET || b->second < cost)
        return CORA_COLOUR_RED;
    b->second -= cost;
    return CORA_COLOUR_YELLOW;
}

#endif
