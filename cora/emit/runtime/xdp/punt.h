/* Whether a punt header can be believed. The kernel half writes it, but nothing that arrives through a socket may make this
 * process read outside a frame: what a header says is compared with the frame and with what its entry expects.
 *
 * The generated part before it defines CORA_ENTRIES, CORA_PUNT_META, and
 *   cora_entry_present   headers that packets at an entry have, by number of the entry
 *   cora_entry_size      bytes of the values that come with them
 *   cora_entry_fits      whether these values are in the ranges of their types */
#ifndef CORA_XDP_PUNT_H
#define CORA_XDP_PUNT_H

#include "../split.h"

static inline bool cora_punt_outer(const struct cora_punt_head *h, const uint8_t *frame, uint32_t length)
{
    if (!(h->present & CORA_HAS_ETH))
        return !h->present;
    if (h->l3 != 14 + 4u * h->tags || h->l3 > length || (h->present & CORA_HAS_VLAN && !h->tags))
        return false;
    if (h->present & CORA_HAS_ARP && h->l3 + 28 > length)
        return false;
    if (!(h->present & (CORA_HAS_IPV4 | CORA_HAS_IPV6)))
        return !(h->present & ~(CORA_HAS_ETH | CORA_HAS_VLAN | CORA_HAS_ARP));
    bool v4 = h->present & CORA_HAS_IPV4, v6 = h->present & CORA_HAS_IPV6;
    if (v4 == v6 || h->family != (v4 ? 4 : 6) || h->end > length || h->l3 + (v4 ? 20u : 40u) > h->end)
        return false;
    uint32_t head = v4 ? 4u * (frame[h->l3] & 15) : 40;
    return head >= 20 && h->l4 >= h->l3 + head && h->l4 <= h->end && h->fragment_start <= h->l4 &&
           (!v4 || h->l4 == h->l3 + head);
}

static inline bool cora_punt_upper(const struct cora_punt_head *h)
{
    uint32_t needed = 0;
    if (h->present & (CORA_HAS_UDP | CORA_HAS_ICMP | CORA_HAS_ICMP6 | CORA_HAS_L4))
        needed = 8;
    if (h->present & CORA_HAS_TCP)
        needed = 20;
    return h->l4 + needed <= h->end;
}

static inline bool cora_punt_quote(const struct cora_punt_head *h)
{
    uint32_t upper = CORA_HAS_QUOTED_TCP | CORA_HAS_QUOTED_UDP | CORA_HAS_QUOTED_ICMP | CORA_HAS_QUOTED_ICMP6 |
                     CORA_HAS_QUOTED_L4;
    bool v4 = h->present & CORA_HAS_QUOTED_IPV4, v6 = h->present & CORA_HAS_QUOTED_IPV6;
    if (!v4 && !v6)
        return !(h->present & upper);
    if ((v4 && v6) || h->quoted_family != (v4 ? 4 : 6) || !(h->present & (CORA_HAS_ICMP | CORA_HAS_ICMP6)))
        return false;
    return h->quoted == h->l4 + 8 && h->quoted_l4 <= h->end && h->quoted + (v4 ? 20u : 40u) <= h->quoted_l4 &&
           (!(h->present & upper) || h->quoted_l4 + 8 <= h->end);
}

/* When a packet arrived, as its header says. */
static inline uint64_t cora_punt_time(const uint8_t *bytes)
{
    return cora_raw64(bytes + offsetof(struct cora_punt_head, now));
}

/* `bytes`: CORA_PUNT_META bytes, the header and the values behind it. */
static inline bool cora_punt_sane(const uint8_t *bytes, const uint8_t *frame, uint32_t length)
{
    struct cora_punt_head h;
    memcpy(&h, bytes, sizeof h);
    if (h.program != CORA_PROGRAM || h.epoch != CORA_EPOCH || h.entry == 0 || h.entry > CORA_ENTRIES)
        return false;
    if (h.port >= CORA_PORTS || h.wirelen != length || h.flags & ~(CORA_PUNT_FRAGMENT | CORA_PUNT_MORE))
        return false;
    if (h.values != cora_entry_size[h.entry] || (h.present & cora_entry_present[h.entry]) != cora_entry_present[h.entry])
        return false;
    /* Offsets are small, so that no sum below wraps around. */
    if ((h.l3 | h.l4 | h.end | h.fragment_start | h.quoted | h.quoted_l4 | length) >> 20)
        return false;
    if (h.present && (!cora_punt_outer(&h, frame, length) || !cora_punt_upper(&h) || !cora_punt_quote(&h)))
        return false;
    return cora_entry_fits(h.entry, bytes + sizeof h);
}

#endif
