/* The packet context and the extraction of headers (docs/semantics.md, section 2). An extraction that does not end in
 * CORA_OK changes nothing. Every header read later lies inside the captured bytes because its extraction checked it. */
#ifndef CORA_PACKET_H
#define CORA_PACKET_H

#include "base.h"
#include "checksum.h"
#include "record.h"

enum cora_outcome { CORA_OK, CORA_MALFORMED, CORA_UNPARSED, CORA_BAD_CHECKSUM, CORA_SOURCE_ROUTE, CORA_ABSENT };

enum cora_option { CORA_IGNORE_CHECKSUMS = 1, CORA_HEADERS_ONLY = 2 };

/* Verdicts: a port number, CORA_DROP with a reason number, or CORA_HELD. */
#define CORA_DROP 0x8000
#define CORA_HELD 0xffff

/* What the fragment tracker still owes an entry when the packet ends. */
enum cora_role { CORA_UNTRACKED, CORA_DECIDES, CORA_FOLLOWS, CORA_WAITS };

/* Fragment trackers of the program; the generated part says how many. */
#ifndef CORA_TRACKERS
#define CORA_TRACKERS 0
#endif

struct cora_tracking {
    enum cora_role role;
    uint32_t entry;
};

/* What a batch keeps for a packet between its first part and the rest is `struct cora_live`, made by the generated part
 * (which then defines CORA_LIVE_VALUES) before this header is read. */

struct cora_reject {
    cora_u128 source; /* address the error comes from */
    uint8_t family;   /* 4, 6, or 0: no error is to be sent */
    uint8_t type;
    uint8_t code;
};

struct cora_packet {
    uint8_t *data;                    /* the frame, caplen bytes, private to this packet */
    uint8_t *l4_header;               /* extracted upper-layer header: in data, or in `inherited` for a follower */
    const struct cora_record *record; /* the packet as it arrived */
    uint64_t now;
    uint64_t index;
    uint32_t caplen, wirelen;
    uint32_t present; /* CORA_HAS_* of the headers extracted so far */
    uint32_t l3, end, l4;
    uint32_t fragment_start, fragment_offset, fragment_id;
    uint32_t quoted, quoted_l4;
    uint16_t port, eth_type;
    uint8_t tags, family, upper, quoted_family, quoted_upper, options;
    bool is_fragment, more_fragments, follower, released;
    uint8_t inherited[20]; /* a follower's upper-layer header */

    uint16_t verdict;
    uint16_t resume; /* where `finish` goes on; 0: the packet is decided */
    struct cora_reject reject;

    bool tracked;
    struct cora_tracking tracking[CORA_TRACKERS + 1]; /* by tracker; meaningful when tracked */

    uint64_t hash; /* of the first table access, with what is needed to prefetch it */
    const struct cora_index *probe_index;
    const uint8_t *probe_entries;
    uint32_t probe_size;
    CORA_IF_PROFILE(uint64_t path;)
#ifdef CORA_LIVE_VALUES
    struct cora_live live;
#endif
#ifdef CORA_PLACES
    uint64_t flow;                   /* who must not be overtaken */
    uint8_t punt_to, punt_size;      /* place the packet is handed to (0: it was not), bytes of the values with it */
    uint8_t values[CORA_PUNT_LIMIT]; /* that travel, or came */
    uint32_t lent_at[CORA_LENDINGS + 1]; /* the lent entry the packet used, by lending */
#if CORA_LATER
    bool anew; /* no decided path serves it: it goes on as it arrived */
    uint8_t refreshed[CORA_LENDINGS + 1]; /* time-out class and 1; what a decided path does when it is through */
    uint32_t later_count;
    struct {
        uint64_t *total, octets;
    } later[CORA_LATER];
#endif
#endif
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

/* Makes `need(n)` of the contract: returns from the caller when byte n - 1 is not there. */
#define CORA_NEED(p, n)                      \
    do {                                     \
        uint32_t need_ = (n);                \
        if (CORA_UNLIKELY(need_ > (p)->caplen)) \
            return need_ > (p)->wirelen ? CORA_MALFORMED : CORA_UNPARSED; \
    } while (0)

static inline enum cora_outcome cora_extract_eth(struct cora_packet *p, uint32_t limit)
{
    CORA_NEED(p, 14);
    uint32_t at = 12, tags = 0;
    uint16_t type = cora_get16(p->data + at);
    while (type == 0x8100 || type == 0x88a8 || type == 0x9100) {
        if (++tags > limit)
            return CORA_UNPARSED;
        CORA_NEED(p, at + 6);
        at += 4;
        type = cora_get16(p->data + at);
    }
    p->l3 = at + 2;
    p->eth_type = type;
    p->tags = (uint8_t)tags;
    p->present |= CORA_HAS_ETH;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_vlan(struct cora_packet *p)
{
    if (!p->tags)
        return CORA_ABSENT;
    p->present |= CORA_HAS_VLAN;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_arp(struct cora_packet *p)
{
    CORA_NEED(p, p->l3 + 28);
    p->present |= CORA_HAS_ARP;
    return CORA_OK;
}

/* Whether an IPv4 header of `length` bytes has an LSRR (131) or SSRR (137) option. */
CORA_COLD bool cora_has_source_route(const uint8_t *header, uint32_t length)
{
    uint32_t at = 20;
    while (at < length) {
        uint8_t option = header[at];
        if (option == 0)
            return false;
        if (option == 131 || option == 137)
            return true;
        if (option == 1) {
            at++;
            continue;
        }
        if (at + 1 >= length || header[at + 1] < 2 || at + header[at + 1] > length)
            return false;
        at += header[at + 1];
    }
    return false;
}

static inline enum cora_outcome cora_extract_ipv4(struct cora_packet *p, bool verify, bool source_route)
{
    uint32_t l3 = p->l3;
    CORA_NEED(p, l3 + 20);
    const uint8_t *h = p->data + l3;
    uint32_t length = 4u * (h[0] & 15), total = cora_get16(h + 2);
    if (h[0] >> 4 != 4 || length < 20 || length > total)
        return CORA_MALFORMED;
    if (l3 + total > p->wirelen && !(p->options & CORA_HEADERS_ONLY))
        return CORA_MALFORMED;
    CORA_NEED(p, l3 + length);
    if (verify && !(p->options & CORA_IGNORE_CHECKSUMS) && cora_fold(cora_sum(h, length, 0)) != 0xffff)
        return CORA_BAD_CHECKSUM;
    if (source_route && length > 20 && cora_has_source_route(h, length))
        return CORA_SOURCE_ROUTE;
    uint16_t fragment = cora_get16(h + 6);
    p->family = 4;
    p->end = l3 + total;
    p->l4 = p->fragment_start = l3 + length;
    p->upper = h[9];
    p->fragment_offset = 8u * (fragment & 0x1fff);
    p->more_fragments = fragment & 0x2000;
    p->is_fragment = fragment & 0x3fff;
    p->fragment_id = cora_get16(h + 4);
    p->present |= CORA_HAS_IPV4;
    return CORA_OK;
}

struct cora_chain {
    uint32_t l4, start, offset, id;
    uint8_t upper;
    bool more, fragment;
};

/* Walks IPv6 extension headers from `next` at frame offset `at` (RFC 8200, section 4; AH: RFC 4302, section 2.2). */
static inline enum cora_outcome cora_walk_chain(const struct cora_packet *p, uint8_t next, uint32_t at, uint32_t end,
                                                uint32_t limit, struct cora_chain *chain)
{
    uint32_t count = 0;
    bool seen = false;
    *chain = (struct cora_chain){0};
    while (next == 0 || next == 43 || next == 44 || next == 51 || next == 60 || next == 135 || next == 139 ||
           next == 140) {
        if (++count > limit || at + 8 > end || at + 8 > p->caplen)
            return CORA_UNPARSED;
        const uint8_t *h = p->data + at;
        uint32_t length = 8u * (h[1] + 1u);
        if (next == 51)
            length = 4u * (h[1] + 2u);
        if (next == 44) {
            if (seen)
                return CORA_UNPARSED;
            seen = true;
            length = 8;
            chain->offset = cora_get16(h + 2) & 0xfff8;
            chain->more = h[3] & 1;
            chain->id = cora_get32(h + 4);
            chain->start = at + 8;
            chain->fragment = chain->offset || chain->more;
        }
        if (at + length > end)
            return CORA_UNPARSED;
        bool later = next == 44 && chain->offset;
        next = h[0];
        at += length;
        if (later)
            break;
    }
    chain->l4 = at;
    chain->upper = next;
    return CORA_OK;
}

CORA_COLD enum cora_outcome cora_extract_ipv6(struct cora_packet *p, uint32_t limit)
{
    uint32_t l3 = p->l3;
    CORA_NEED(p, l3 + 40);
    const uint8_t *h = p->data + l3;
    if (h[0] >> 4 != 6)
        return CORA_MALFORMED;
    uint32_t end = l3 + 40 + cora_get16(h + 4);
    if (end > p->wirelen && !(p->options & CORA_HEADERS_ONLY))
        return CORA_MALFORMED;
    struct cora_chain chain;
    enum cora_outcome outcome = cora_walk_chain(p, h[6], l3 + 40, end, limit, &chain);
    if (outcome != CORA_OK)
        return outcome;
    p->family = 6;
    p->end = end;
    p->l4 = chain.l4;
    p->upper = chain.upper;
    p->fragment_start = chain.start;
    p->fragment_offset = chain.offset;
    p->more_fragments = chain.more;
    p->is_fragment = chain.fragment;
    p->fragment_id = chain.id;
    p->present |= CORA_HAS_IPV6;
    return CORA_OK;
}

/* Makes the packet a follower: its upper-layer header is what its datagram's first fragment began with. */
static inline void cora_follow(struct cora_packet *p, const uint8_t first_bytes[8])
{
    p->follower = true;
    memset(p->inherited, 0, sizeof p->inherited);
    memcpy(p->inherited, first_bytes, 8);
}

/* `size` bytes of an upper-layer header at frame offset `at`: before the end, then captured. */
static inline enum cora_outcome cora_upper_bounds(const struct cora_packet *p, uint32_t at, uint32_t size)
{
    if (CORA_LIKELY(at + size <= cora_min32(p->end, p->caplen)))
        return CORA_OK;
    return at + size > p->end ? CORA_MALFORMED : CORA_UNPARSED;
}

static inline enum cora_outcome cora_extract_tcp(struct cora_packet *p)
{
    if (CORA_UNLIKELY(p->follower)) {
        p->inherited[12] = 0x50;
        p->l4_header = p->inherited;
    } else {
        enum cora_outcome outcome = cora_upper_bounds(p, p->l4, 20);
        if (outcome != CORA_OK)
            return outcome;
        uint8_t *h = p->data + p->l4;
        uint32_t length = 4u * (h[12] >> 4);
        if (length < 20)
            return CORA_MALFORMED;
        if (p->l4 + length > p->end && !p->is_fragment && !(p->options & CORA_HEADERS_ONLY))
            return CORA_MALFORMED;
        p->l4_header = h;
    }
    p->present |= CORA_HAS_TCP | CORA_HAS_L4;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_udp(struct cora_packet *p)
{
    if (CORA_UNLIKELY(p->follower)) {
        p->l4_header = p->inherited;
    } else {
        enum cora_outcome outcome = cora_upper_bounds(p, p->l4, 8);
        if (outcome != CORA_OK)
            return outcome;
        uint8_t *h = p->data + p->l4;
        uint32_t length = cora_get16(h + 4);
        if (length < 8)
            return CORA_MALFORMED;
        if (p->l4 + length > p->end && !p->is_fragment && !(p->options & CORA_HEADERS_ONLY))
            return CORA_MALFORMED;
        if (p->family == 6 && !cora_raw16(h + 6))
            return CORA_MALFORMED;
        p->l4_header = h;
    }
    p->present |= CORA_HAS_UDP | CORA_HAS_L4;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_icmp_kind(struct cora_packet *p, uint32_t has)
{
    if (CORA_UNLIKELY(p->follower)) {
        p->l4_header = p->inherited;
    } else {
        enum cora_outcome outcome = cora_upper_bounds(p, p->l4, 8);
        if (outcome != CORA_OK)
            return outcome;
        p->l4_header = p->data + p->l4;
    }
    p->present |= has;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_icmp(struct cora_packet *p)
{
    return cora_extract_icmp_kind(p, CORA_HAS_ICMP);
}

static inline enum cora_outcome cora_extract_icmp6(struct cora_packet *p)
{
    return cora_extract_icmp_kind(p, CORA_HAS_ICMP6);
}

CORA_COLD enum cora_outcome cora_extract_quoted_ipv4(struct cora_packet *p)
{
    if (p->follower)
        return CORA_UNPARSED;
    uint32_t at = p->l4 + 8;
    enum cora_outcome outcome = cora_upper_bounds(p, at, 20);
    if (outcome != CORA_OK)
        return outcome;
    const uint8_t *h = p->data + at;
    uint32_t length = 4u * (h[0] & 15);
    if (h[0] >> 4 != 4 || length < 20)
        return CORA_MALFORMED;
    outcome = cora_upper_bounds(p, at, length);
    if (outcome != CORA_OK)
        return outcome;
    if (cora_get16(h + 6) & 0x1fff)
        return CORA_MALFORMED;
    p->quoted = at;
    p->quoted_l4 = at + length;
    p->quoted_family = 4;
    p->quoted_upper = h[9];
    p->present |= CORA_HAS_QUOTED_IPV4;
    return CORA_OK;
}

CORA_COLD enum cora_outcome cora_extract_quoted_ipv6(struct cora_packet *p, uint32_t limit)
{
    if (p->follower)
        return CORA_UNPARSED;
    uint32_t at = p->l4 + 8;
    enum cora_outcome outcome = cora_upper_bounds(p, at, 40);
    if (outcome != CORA_OK)
        return outcome;
    const uint8_t *h = p->data + at;
    if (h[0] >> 4 != 6)
        return CORA_MALFORMED;
    struct cora_chain chain;
    outcome = cora_walk_chain(p, h[6], at + 40, p->end, limit, &chain);
    if (outcome != CORA_OK)
        return outcome;
    if (chain.offset)
        return CORA_MALFORMED;
    p->quoted = at;
    p->quoted_l4 = chain.l4;
    p->quoted_family = 6;
    p->quoted_upper = chain.upper;
    p->present |= CORA_HAS_QUOTED_IPV6;
    return CORA_OK;
}

static inline enum cora_outcome cora_extract_quoted_upper(struct cora_packet *p, uint32_t has)
{
    enum cora_outcome outcome = cora_upper_bounds(p, p->quoted_l4, 8);
    if (outcome == CORA_OK)
        p->present |= has;
    return outcome;
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

static inline uint32_t cora_sum_limit(const struct cora_packet *p) { return cora_min32(p->end, p->caplen); }

static inline void cora_stored_ipv4(struct cora_packet *p, uint64_t change)
{
    cora_fix(p->data + p->l3 + 10, change);
}

/* An IP address changed, so the pseudo header did. */
static inline void cora_stored_address(struct cora_packet *p, uint64_t change, bool v6)
{
    if (!p->fragment_offset)
        cora_fix_upper(p->data, p->l4, cora_sum_limit(p), p->upper, v6, change);
}

/* A field of the upper-layer header whose own checksum is at l4 + at changed. */
static inline void cora_stored_upper(struct cora_packet *p, uint64_t change, uint32_t at, bool udp)
{
    if (p->follower || p->l4 + at + 2 > cora_sum_limit(p))
        return;
    if (udp)
        cora_fix_udp(p->data + p->l4 + at, change);
    else
        cora_fix(p->data + p->l4 + at, change);
}

/* The same when only `upper` tells which header it is. */
static inline void cora_stored_l4(struct cora_packet *p, uint64_t change)
{
    if (!p->follower)
        cora_fix_upper(p->data, p->l4, cora_sum_limit(p), p->upper, p->family == 6, change);
}

/* The outer ICMP checksum over everything changed inside the quoted packet. */
static inline void cora_stored_quote(struct cora_packet *p, uint64_t change)
{
    cora_fix(p->data + p->l4 + 2, change);
}

CORA_COLD void cora_stored_quoted_ip(struct cora_packet *p, uint64_t change, bool v6, bool address)
{
    uint64_t all = change;
    if (!v6)
        all += cora_fix(p->data + p->quoted + 10, change);
    if (address)
        all += cora_fix_upper(p->data, p->quoted_l4, cora_sum_limit(p), p->quoted_upper, v6, change);
    cora_stored_quote(p, all);
}

CORA_COLD void cora_stored_quoted_upper(struct cora_packet *p, uint64_t change, uint32_t at, bool udp)
{
    uint64_t all = change;
    uint8_t *sum = p->data + p->quoted_l4 + at;
    if (p->quoted_l4 + at + 2 <= cora_sum_limit(p))
        all += udp ? cora_fix_udp(sum, change) : cora_fix(sum, change);
    cora_stored_quote(p, all);
}

CORA_COLD void cora_stored_quoted_l4(struct cora_packet *p, uint64_t change)
{
    cora_stored_quote(p, change + cora_fix_upper(p->data, p->quoted_l4, cora_sum_limit(p), p->quoted_upper,
                                                 p->quoted_family == 6, change));
}

#endif
