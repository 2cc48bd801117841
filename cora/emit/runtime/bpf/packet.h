/* The packet context and the extraction of headers in the kernel (docs/semantics.md, section 2). The same outcomes as
 * ../packet.h for a frame that is there as a whole, which it always is here: nothing was cut off by a capture.
 *
 * The verifier wants every access to lie inside what was compared with data_end before, through a pointer that was not
 * computed anew since. So headers are kept as pointers, beside their places in the frame, which a punt takes along. */
#ifndef CORA_BPF_PACKET_H
#define CORA_BPF_PACKET_H

#include "base.h"
#include "../checksum.h"

enum cora_outcome { CORA_OK, CORA_MALFORMED, CORA_UNPARSED, CORA_BAD_CHECKSUM, CORA_SOURCE_ROUTE, CORA_ABSENT };

/* No frame is longer, so places in it add up without a carry; the verifier has a limit of its own just above. */
#define CORA_FRAME_LIMIT 0xff00

struct cora_lent_entry;

struct cora_packet {
    uint8_t *data, *data_end;
    uint8_t *l3_header, *l4_header, *quoted_header, *quoted_l4_header;
    struct cora_lent_entry *met; /* the lent entry the packet used */
    uint64_t now;
    uint64_t number; /* of the packet among those handed on in its queue; 0: it is not handed on */
    uint32_t queue;
    uint32_t wirelen, present;
    uint32_t l3, end, l4;
    uint32_t fragment_start, fragment_offset, fragment_id;
    uint32_t quoted, quoted_l4;
    uint32_t reason;
    uint16_t port, eth_type;
    uint8_t tags, family, upper, quoted_family, quoted_upper;
    bool is_fragment, more_fragments;
};

#define CORA_HAS_ETH (1u << 0)
#define CORA_HAS_VLAN (1u << 1)
#define CORA_HAS_ARP (1u << 2)
#define CORA_HAS_IPV4 (1u << 3)
#define CORA_HAS_IPV6 (1u << 4)
#define CORA_HAS_TCP (1u << 5)
#define CORA_HAS_UDP (1u << 6)
#define CORA_HAS_ICMP (1u << 7)
#define CORA_HAS_ICMP6 (1u << 8)
#define CORA_HAS_L4 (1u << 9)
#define CORA_HAS_QUOTED_IPV4 (1u << 10)
#define CORA_HAS_QUOTED_IPV6 (1u << 11)
#define CORA_HAS_QUOTED_TCP (1u << 12)
#define CORA_HAS_QUOTED_UDP (1u << 13)
#define CORA_HAS_QUOTED_ICMP (1u << 14)
#define CORA_HAS_QUOTED_ICMP6 (1u << 15)
#define CORA_HAS_QUOTED_L4 (1u << 16)

/* Functions that look at the frame by themselves. Those that a packet calls while it holds a lock must be part of what the
 * verifier follows. */
#ifdef CORA_PARSES_LOCKED
#define CORA_PARSER static CORA_ALONE
#else
#define CORA_PARSER CORA_ALONE
#endif

/* Returns from the caller when the frame ends before `at + n`. */
#define CORA_NEED(p, at, n)                       \
    do {                                          \
        if (CORA_UNLIKELY((at) + (n) > (p)->data_end)) \
            return CORA_MALFORMED;                \
    } while (0)

static inline enum cora_outcome cora_extract_eth(struct cora_packet *p, uint32_t limit)
{
    uint8_t *at = p->data;
    CORA_NEED(p, at, 14);
    uint32_t tags = 0;
    uint16_t type = cora_get16(at + 12);
    while (CORA_UNLIKELY(type == 0x8100 || type == 0x88a8 || type == 0x9100)) {
        if (++tags > limit)
            return CORA_UNPARSED;
        at += 4;
        CORA_NEED(p, at, 14);
        type = cora_get16(at + 12);
    }
    p->l3_header = cora_kept(at + 14);
    p->l3 = 14 + 4 * tags;
    p->eth_type = type;
    p->tags = (uint8_t)tags;
    p->present |= CORA_HAS_ETH;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_vlan(struct cora_packet *p)
{
    if (!p->tags)
        return CORA_ABSENT;
    CORA_NEED(p, p->data, 18);
    p->present |= CORA_HAS_VLAN;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_arp(struct cora_packet *p)
{
    CORA_NEED(p, p->l3_header, 28);
    p->present |= CORA_HAS_ARP;
    return CORA_OK;
}

/* The sum of an IPv4 header's option words: the header is at frame offset `at`, `length` bytes long. */
CORA_PARSER uint64_t cora_options_sum(struct xdp_md *ctx, uint32_t at, uint32_t length)
{
    uint8_t *data = cora_pointer(ctx->data), *data_end = cora_pointer(ctx->data_end);
    uint64_t sum = 0;
    if (at > CORA_FRAME_LIMIT)
        return 0;
    uint8_t *word = data + at + 20;
    CORA_LOOP
    for (uint32_t done = 20; done < 60; done += 4, word += 4) {
        if (done >= length || word + 4 > data_end)
            break;
        sum += cora_raw32(word);
    }
    return sum;
}

/* Whether an IPv4 header of `length` bytes at frame offset `at` has an LSRR (131) or SSRR (137) option. */
CORA_PARSER int cora_has_source_route(struct xdp_md *ctx, uint32_t at, uint32_t length)
{
    uint8_t *data = cora_pointer(ctx->data), *data_end = cora_pointer(ctx->data_end);
    uint32_t next = 20;
    if (at > CORA_FRAME_LIMIT - 64)
        return 0;
    uint8_t *header = data + at;
    /* Byte by byte, with the next option's place as the only unknown number: the verifier has few states to follow. */
    CORA_LOOP
    for (uint32_t place = 20; place < 60; place++) {
        uint8_t *option = header + place;
        if (place >= length || option + 1 > data_end)
            return 0;
        if (place != next)
            continue;
        if (*option == 0)
            return 0;
        if (*option == 131 || *option == 137)
            return 1;
        next = place + 1;
        if (*option == 1)
            continue;
        if (place + 1 >= length || option + 2 > data_end || option[1] < 2 || place + option[1] > length)
            return 0;
        next = place + option[1];
    }
    return 0;
}

static inline enum cora_outcome cora_extract_ipv4(struct xdp_md *ctx, struct cora_packet *p, bool verify,
                                                  bool source_route)
{
    uint8_t *h = p->l3_header;
    CORA_NEED(p, h, 20);
    uint32_t length = 4u * (h[0] & 15), total = cora_get16(h + 2);
    if (h[0] >> 4 != 4 || length < 20 || length > total)
        return CORA_MALFORMED;
    if (p->l3 + total > p->wirelen)
        return CORA_MALFORMED;
    if (verify) {
        uint64_t sum = (uint64_t)cora_raw32(h) + cora_raw32(h + 4) + cora_raw32(h + 8) + cora_raw32(h + 12) +
                       cora_raw32(h + 16);
        if (CORA_UNLIKELY(length > 20))
            sum += cora_options_sum(ctx, p->l3, length);
        if (cora_fold(sum) != 0xffff)
            return CORA_BAD_CHECKSUM;
    }
    if (source_route && CORA_UNLIKELY(length > 20) && cora_has_source_route(ctx, p->l3, length))
        return CORA_SOURCE_ROUTE;
    uint16_t fragment = cora_get16(h + 6);
    p->family = 4;
    p->end = p->l3 + total;
    p->l4 = p->fragment_start = p->l3 + length;
    p->l4_header = cora_kept(h + length);
    p->upper = h[9];
    p->fragment_offset = 8u * (fragment & 0x1fff);
    p->more_fragments = fragment & 0x2000;
    p->is_fragment = fragment & 0x3fff;
    p->fragment_id = cora_get16(h + 4);
    p->present |= CORA_HAS_IPV4;
    return CORA_OK;
}

struct cora_chain {
    uint32_t at, end, limit; /* given: where the first header is, where the packet ends, headers walked at most */
    uint32_t l4, start, offset, id;
    uint8_t next, upper, more, fragment;
};

/* Bit n: protocol number n is an extension header (0, 43, 44, 51, 60, 135, 139, 140). A table, because the verifier would
 * follow every comparison. */
static const volatile uint64_t cora_extensions[4] = {0x1008180000000001, 0, 0x1880, 0};

/* Walks IPv6 extension headers from `next` at frame offset `at` (RFC 8200, section 4; AH: RFC 4302, section 2.2). Returns
 * a cora_outcome. */
CORA_PARSER int cora_walk_chain(struct xdp_md *ctx, struct cora_chain *chain)
{
    if (!chain)
        return CORA_UNPARSED;
    uint8_t *data = cora_pointer(ctx->data), *data_end = cora_pointer(ctx->data_end);
    uint32_t at = chain->at, start = 0, offset = 0, id = 0;
    uint8_t next = chain->next, more = 0, seen = 0;
    CORA_LOOP
    for (uint32_t count = 1; count <= CORA_HEADER_LIMIT + 1; count++) {
        if (!(cora_extensions[next >> 6] >> (next & 63) & 1))
            break;
        if (count > chain->limit || at > CORA_FRAME_LIMIT || at + 8 > chain->end)
            return CORA_UNPARSED;
        uint8_t *h = data + at;
        if (h + 8 > data_end)
            return CORA_UNPARSED;
        uint32_t length = next == 51 ? 4u * (h[1] + 2u) : 8u * (h[1] + 1u);
        bool later = false;
        if (next == 44) {
            if (seen)
                return CORA_UNPARSED;
            seen = 1;
            length = 8;
            offset = cora_get16(h + 2) & 0xfff8;
            more = h[3] & 1;
            id = cora_get32(h + 4);
            start = at + 8;
            later = offset;
        }
        if (at + length > chain->end)
            return CORA_UNPARSED;
        next = h[0];
        at += length;
        if (later)
            break;
    }
    chain->l4 = at;
    chain->upper = next;
    chain->start = start;
    chain->offset = offset;
    chain->id = id;
    chain->more = more;
    chain->fragment = offset || more;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_ipv6(struct xdp_md *ctx, struct cora_packet *p, uint32_t limit)
{
    uint8_t *h = p->l3_header;
    CORA_NEED(p, h, 40);
    if (h[0] >> 4 != 6)
        return CORA_MALFORMED;
    uint32_t end = p->l3 + 40 + cora_get16(h + 4);
    if (end > p->wirelen)
        return CORA_MALFORMED;
    struct cora_chain chain = {.at = p->l3 + 40, .end = end, .limit = limit, .next = h[6]};
    enum cora_outcome outcome = cora_walk_chain(ctx, &chain);
    if (outcome != CORA_OK)
        return outcome;
    if (chain.l4 > CORA_FRAME_LIMIT)
        return CORA_UNPARSED;
    p->family = 6;
    p->end = end;
    p->l4 = chain.l4;
    p->l4_header = cora_kept(p->data + chain.l4);
    p->upper = chain.upper;
    p->fragment_start = chain.start;
    p->fragment_offset = chain.offset;
    p->more_fragments = chain.more;
    p->is_fragment = chain.fragment;
    p->fragment_id = chain.id;
    p->present |= CORA_HAS_IPV6;
    return CORA_OK;
}

/* `size` bytes of an upper-layer header: inside the IP packet, and (which the verifier cannot conclude) in the frame. */
#define CORA_UPPER(p, at, header, size)                                                                \
    do {                                                                                               \
        if (CORA_UNLIKELY((at) + (size) > (p)->end || (header) + (size) > (p)->data_end))              \
            return CORA_MALFORMED;                                                                     \
    } while (0)

static inline enum cora_outcome cora_extract_tcp(struct cora_packet *p)
{
    uint8_t *h = p->l4_header;
    CORA_UPPER(p, p->l4, h, 20);
    uint32_t length = 4u * (h[12] >> 4);
    if (length < 20)
        return CORA_MALFORMED;
    if (p->l4 + length > p->end && !p->is_fragment)
        return CORA_MALFORMED;
    p->present |= CORA_HAS_TCP | CORA_HAS_L4;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_udp(struct cora_packet *p)
{
    uint8_t *h = p->l4_header;
    CORA_UPPER(p, p->l4, h, 8);
    uint32_t length = cora_get16(h + 4);
    if (length < 8)
        return CORA_MALFORMED;
    if (p->l4 + length > p->end && !p->is_fragment)
        return CORA_MALFORMED;
    if (p->family == 6 && !cora_raw16(h + 6))
        return CORA_MALFORMED;
    p->present |= CORA_HAS_UDP | CORA_HAS_L4;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_icmp(struct cora_packet *p)
{
    CORA_UPPER(p, p->l4, p->l4_header, 8);
    p->present |= CORA_HAS_ICMP;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_icmp6(struct cora_packet *p)
{
    CORA_UPPER(p, p->l4, p->l4_header, 8);
    p->present |= CORA_HAS_ICMP6;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_quoted_ipv4(struct cora_packet *p)
{
    uint32_t at = p->l4 + 8;
    uint8_t *h = cora_kept(p->l4_header + 8);
    CORA_UPPER(p, at, h, 20);
    uint32_t length = 4u * (h[0] & 15);
    if (h[0] >> 4 != 4 || length < 20 || at + length > p->end)
        return CORA_MALFORMED;
    if (cora_get16(h + 6) & 0x1fff)
        return CORA_MALFORMED;
    p->quoted = at;
    p->quoted_header = h;
    p->quoted_l4 = at + length;
    p->quoted_l4_header = cora_kept(h + length);
    p->quoted_family = 4;
    p->quoted_upper = h[9];
    p->present |= CORA_HAS_QUOTED_IPV4;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_quoted_ipv6(struct xdp_md *ctx, struct cora_packet *p, uint32_t limit)
{
    uint32_t at = p->l4 + 8;
    uint8_t *h = cora_kept(p->l4_header + 8);
    CORA_UPPER(p, at, h, 40);
    if (h[0] >> 4 != 6)
        return CORA_MALFORMED;
    struct cora_chain chain = {.at = at + 40, .end = p->end, .limit = limit, .next = h[6]};
    enum cora_outcome outcome = cora_walk_chain(ctx, &chain);
    if (outcome != CORA_OK)
        return outcome;
    if (chain.offset)
        return CORA_MALFORMED;
    if (chain.l4 > CORA_FRAME_LIMIT)
        return CORA_UNPARSED;
    p->quoted = at;
    p->quoted_header = h;
    p->quoted_l4 = chain.l4;
    p->quoted_l4_header = cora_kept(p->data + chain.l4);
    p->quoted_family = 6;
    p->quoted_upper = chain.upper;
    p->present |= CORA_HAS_QUOTED_IPV6;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_quoted_upper(struct cora_packet *p, uint32_t has)
{
    CORA_UPPER(p, p->quoted_l4, p->quoted_l4_header, 8);
    p->present |= has;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_quoted_tcp(struct cora_packet *p)
{
    return cora_extract_quoted_upper(p, CORA_HAS_QUOTED_TCP | CORA_HAS_QUOTED_L4);
}

static inline enum cora_outcome cora_extract_quoted_udp(struct cora_packet *p)
{
    return cora_extract_quoted_upper(p, CORA_HAS_QUOTED_UDP | CORA_HAS_QUOTED_L4);
}

static inline enum cora_outcome cora_extract_quoted_icmp(struct cora_packet *p)
{
    return cora_extract_quoted_upper(p, CORA_HAS_QUOTED_ICMP);
}

static inline enum cora_outcome cora_extract_quoted_icmp6(struct cora_packet *p)
{
    return cora_extract_quoted_upper(p, CORA_HAS_QUOTED_ICMP6);
}

/* --- checksums of header stores (section 3); `change` is what the store of the field returned --- */

/* The checksum of the upper-layer header at `header` (frame offset l4) and protocol `upper`, where both its bytes lie in
 * the packet. Returns the change of the checksum's word, else 0. */
static inline uint64_t cora_fix_upper_at(struct cora_packet *p, uint8_t *header, uint32_t l4, uint8_t upper, bool v6,
                                         uint64_t change)
{
    uint32_t at;
    switch (upper) {
    case 6: at = 16; break;
    case 17: case 33: case 136: at = 6; break;
    case 58: if (!v6) return 0; at = 2; break;
    default: return 0;
    }
    uint8_t *sum = header + at;
    if (l4 + at + 2 > p->end || sum + 2 > p->data_end)
        return 0;
    return upper == 17 ? cora_fix_udp(sum, change) : cora_fix(sum, change);
}

static inline void cora_stored_ipv4(struct cora_packet *p, uint64_t change)
{
    cora_fix(p->l3_header + 10, change);
}

/* An IP address changed, so the pseudo header did. */
static inline void cora_stored_address(struct cora_packet *p, uint64_t change, bool v6)
{
    if (!p->fragment_offset)
        cora_fix_upper_at(p, p->l4_header, p->l4, p->upper, v6, change);
}

/* A field of the upper-layer header whose own checksum is at l4 + at changed. */
static inline void cora_stored_upper(struct cora_packet *p, uint64_t change, uint32_t at, bool udp)
{
    uint8_t *sum = p->l4_header + at;
    if (p->l4 + at + 2 > p->end || sum + 2 > p->data_end)
        return;
    if (udp)
        cora_fix_udp(sum, change);
    else
        cora_fix(sum, change);
}

/* The same when only `upper` tells which header it is. */
static inline void cora_stored_l4(struct cora_packet *p, uint64_t change)
{
    cora_fix_upper_at(p, p->l4_header, p->l4, p->upper, p->family == 6, change);
}

/* Both: addresses count for the first fragment alone, ports wherever they were written. */
static inline void cora_stored_both(struct cora_packet *p, uint64_t address, uint64_t ports, bool v6)
{
    cora_fix_upper_at(p, p->l4_header, p->l4, p->upper, v6, p->fragment_offset ? ports : address + ports);
}

/* The outer ICMP checksum over everything changed inside the quoted packet. */
static inline void cora_stored_quote(struct cora_packet *p, uint64_t change)
{
    cora_fix(p->l4_header + 2, change);
}

static inline void cora_stored_quoted_ip(struct cora_packet *p, uint64_t change, bool v6, bool address)
{
    uint64_t all = change;
    if (!v6)
        all += cora_fix(p->quoted_header + 10, change);
    if (address)
        all += cora_fix_upper_at(p, p->quoted_l4_header, p->quoted_l4, p->quoted_upper, v6, change);
    cora_stored_quote(p, all);
}

static inline void cora_stored_quoted_upper(struct cora_packet *p, uint64_t change, uint32_t at, bool udp)
{
    uint64_t all = change;
    uint8_t *sum = p->quoted_l4_header + at;
    if (p->quoted_l4 + at + 2 <= p->end && sum + 2 <= p->data_end)
        all += udp ? cora_fix_udp(sum, change) : cora_fix(sum, change);
    cora_stored_quote(p, all);
}

static inline void cora_stored_quoted_l4(struct cora_packet *p, uint64_t change)
{
    cora_stored_quote(p, change + cora_fix_upper_at(p, p->quoted_l4_header, p->quoted_l4, p->quoted_upper,
                                                    p->quoted_family == 6, change));
}

#endif
