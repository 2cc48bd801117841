/* Traffic captured on one side of a program that translates (docs/profile.md, "Where the capture was taken"): packets of
 * the other sides are given the addresses that the program itself has chosen. cora/runtime/returns.py is the same in
 * Python, and the oracle of this. Compiled in by -DCORA_RETURNS, as it would cost every build a tenth of its time. */
#ifndef CORA_RETURNS_H
#define CORA_RETURNS_H

#include "core.h"
#include "table.h"

#define CORA_RETURNS_TAGS 8
#define CORA_RETURNS_EXTENSIONS 16
/* Fragmented datagrams remembered: far more than are in flight at a time. */
#define CORA_RETURNS_DATAGRAMS (1u << 17)

/* Who writes to whom, seen on a port. IPv4 addresses are the first four bytes, the others are zero. Where it names a
 * fragmented datagram, the ports are the two halves of its identification. */
struct cora_flow {
    uint8_t source[16], destination[16];
    uint16_t sport, dport;
    uint8_t proto, family;
    uint16_t port;
};

_Static_assert(sizeof(struct cora_flow) == 40, "a flow is hashed as five words and has no padding");

struct cora_known {
    struct cora_flow key, value;
};

/* A hash table of flows: slots hold an index into `all`, plus one. */
struct cora_generation {
    struct cora_known *all;
    size_t count, room;
    uint32_t *slots;
    size_t slot_count; /* a power of two, or 0 */
};

/* At most `limit` entries. When the young half is full it becomes the old one, and what only the old one held is lost. */
struct cora_memory {
    struct cora_generation young, old;
    uint64_t limit, forgotten; /* forgotten: generations lost */
};

struct cora_returns {
    uint32_t port;
    struct cora_memory flows, datagrams;
    uint8_t *frame; /* the current packet as the program sees it */
    size_t room;
    uint64_t translated; /* packets */
};

/* --- the memory --- */

CORA_COLD uint64_t cora_flow_hash(const struct cora_core *core, const struct cora_flow *flow)
{
    uint64_t w[5];
    memcpy(w, flow, sizeof w);
    cora_u128 sum = cora_nh(core->seed, 0, w[0], w[1]) + cora_nh(core->seed, 1, w[2], w[3]) +
                    cora_nh(core->seed, 2, w[4], 0);
    return cora_mix(core->seed, sum);
}

/* The slot that holds the key, or the free one where it would go; the table is never full. */
CORA_COLD uint32_t *cora_generation_slot(const struct cora_core *core, const struct cora_generation *g,
                                      const struct cora_flow *key)
{
    size_t at = cora_flow_hash(core, key) & (g->slot_count - 1);
    while (g->slots[at] && memcmp(&g->all[g->slots[at] - 1].key, key, sizeof *key))
        at = (at + 1) & (g->slot_count - 1);
    return &g->slots[at];
}

CORA_COLD struct cora_known *cora_generation_find(const struct cora_core *core, const struct cora_generation *g,
                                               const struct cora_flow *key)
{
    if (!g->count)
        return NULL;
    uint32_t slot = *cora_generation_slot(core, g, key);
    return slot ? &g->all[slot - 1] : NULL;
}

CORA_COLD void cora_generation_close(struct cora_generation *g)
{
    free(g->all);
    cora_release(g->slots, g->slot_count, sizeof *g->slots);
    *g = (struct cora_generation){0};
}

/* Adds a key that is not there. */
CORA_COLD void cora_generation_add(const struct cora_core *core, struct cora_generation *g,
                                   const struct cora_known *known)
{
    if (2 * (g->count + 1) > g->slot_count) {
        cora_release(g->slots, g->slot_count, sizeof *g->slots);
        g->slot_count = g->slot_count ? 2 * g->slot_count : 1024;
        g->slots = cora_zeroed(g->slot_count, sizeof *g->slots);
        for (size_t i = 0; i < g->count; i++)
            *cora_generation_slot(core, g, &g->all[i].key) = (uint32_t)(i + 1);
    }
    g->all = cora_grow(g->all, &g->room, g->count + 1, sizeof *g->all);
    *cora_generation_slot(core, g, &known->key) = (uint32_t)(g->count + 1);
    g->all[g->count++] = *known;
}

CORA_COLD const struct cora_flow *cora_memory_find(const struct cora_core *core, const struct cora_memory *m,
                                                const struct cora_flow *key)
{
    const struct cora_known *found = cora_generation_find(core, &m->young, key);
    if (!found)
        found = cora_generation_find(core, &m->old, key);
    return found ? &found->value : NULL;
}

CORA_COLD void cora_memory_put(const struct cora_core *core, struct cora_memory *m, const struct cora_known *known)
{
    struct cora_known *found = cora_generation_find(core, &m->young, &known->key);
    if (found) {
        *found = *known;
        return;
    }
    if (m->young.count >= m->limit / 2) {
        m->forgotten += m->old.count != 0;
        cora_generation_close(&m->old);
        m->old = m->young;
        m->young = (struct cora_generation){0};
    }
    cora_generation_add(core, &m->young, known);
}

CORA_COLD void cora_memory_close(struct cora_memory *m)
{
    cora_generation_close(&m->young);
    cora_generation_close(&m->old);
}

/* --- flows of packets --- */

/* Where a flow stands in the frame: offsets of the addresses, their size, offsets of the ports (0: that one is 0). */
struct cora_flow_place {
    uint32_t source, destination, size, sport, dport;
};

/* Reads the link and IP headers; false when the packet passes as it is. */
CORA_COLD bool cora_returns_read(const struct cora_core *core, struct cora_packet *p, const struct cora_record *record,
                              uint8_t *frame)
{
    memset(p, 0, sizeof *p);
    p->data = frame;
    p->record = record;
    p->caplen = record->caplen;
    p->wirelen = record->wirelen;
    p->port = record->port;
    p->options = (uint8_t)core->options;
    if (cora_extract_eth(p, CORA_RETURNS_TAGS) != CORA_OK)
        return false;
    if (p->eth_type == 0x0800)
        return cora_extract_ipv4(p, false, false) == CORA_OK;
    return p->eth_type == 0x86dd && cora_extract_ipv6(p, CORA_RETURNS_EXTENSIONS) == CORA_OK;
}

CORA_COLD bool cora_returns_upper(struct cora_packet *p)
{
    if (p->fragment_offset)
        return false;
    if (p->upper == 6)
        return cora_extract_tcp(p) == CORA_OK;
    if (p->upper == 17)
        return cora_extract_udp(p) == CORA_OK;
    if (p->upper == (p->family == 4 ? 1 : 58))
        return (p->family == 4 ? cora_extract_icmp(p) : cora_extract_icmp6(p)) == CORA_OK;
    return false;
}

CORA_COLD bool cora_returns_quoted(struct cora_packet *p)
{
    enum cora_outcome outcome =
        p->family == 4 ? cora_extract_quoted_ipv4(p) : cora_extract_quoted_ipv6(p, CORA_RETURNS_EXTENSIONS);
    if (outcome != CORA_OK)
        return false;
    bool known = p->quoted_upper == 6 || p->quoted_upper == 17 || p->quoted_upper == (p->family == 4 ? 1 : 58);
    return known && cora_extract_quoted_upper(p, 0) == CORA_OK;
}

/* Whether an ICMP message quotes the packet it is about (RFC 792; RFC 4443 section 2.1). */
CORA_COLD bool cora_quotes(const struct cora_packet *p)
{
    if (p->upper != (p->family == 4 ? 1 : 58))
        return false;
    uint8_t type = p->data[p->l4];
    if (p->family == 6)
        return type < 128;
    return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

/* Where the flow of the packet, or of the one it quotes, stands; false when it has none. */
CORA_COLD bool cora_find_flow(const struct cora_packet *p, bool quoted, struct cora_flow_place *at)
{
    uint32_t ip = quoted ? p->quoted : p->l3, l4 = quoted ? p->quoted_l4 : p->l4;
    uint8_t upper = quoted ? p->quoted_upper : p->upper;
    bool v4 = p->family == 4;
    *at = (struct cora_flow_place){.size = v4 ? 4 : 16, .source = ip + (v4 ? 12 : 8)};
    at->destination = at->source + at->size;
    if (upper == 6 || upper == 17) {
        at->sport = l4;
        at->dport = l4 + 2;
        return true;
    }
    uint8_t type = p->data[l4];
    if (v4 ? type == 8 || type == 13 : type == 128)
        at->sport = l4 + 4;
    else if (v4 ? type == 0 || type == 14 : type == 129)
        at->dport = l4 + 4;
    return at->sport || at->dport;
}

CORA_COLD struct cora_flow cora_flow_at(const struct cora_packet *p, const struct cora_flow_place *at, uint8_t proto,
                                     uint32_t port)
{
    struct cora_flow flow = {.proto = proto, .family = p->family, .port = (uint16_t)port};
    memcpy(flow.source, p->data + at->source, at->size);
    memcpy(flow.destination, p->data + at->destination, at->size);
    flow.sport = at->sport ? cora_get16(p->data + at->sport) : 0;
    flow.dport = at->dport ? cora_get16(p->data + at->dport) : 0;
    return flow;
}

CORA_COLD struct cora_flow cora_flow_reversed(const struct cora_flow *flow)
{
    struct cora_flow out = *flow;
    memcpy(out.source, flow->destination, sizeof out.source);
    memcpy(out.destination, flow->source, sizeof out.destination);
    out.sport = flow->dport;
    out.dport = flow->sport;
    return out;
}

/* The datagram a fragment belongs to. IPv6 fragments may name different next headers (RFC 8200 section 4.5). */
CORA_COLD struct cora_flow cora_datagram_of(const struct cora_packet *p)
{
    struct cora_flow_place at;
    (void)cora_find_flow(p, false, &at);
    at.sport = at.dport = 0;
    struct cora_flow out = cora_flow_at(p, &at, p->family == 4 ? p->upper : 0, p->port);
    out.sport = (uint16_t)(p->fragment_id >> 16);
    out.dport = (uint16_t)p->fragment_id;
    return out;
}

/* --- rewriting, with every checksum --- */

CORA_COLD void cora_rewrite_address(struct cora_packet *p, bool quoted, uint32_t at, uint32_t size,
                                    const uint8_t *address)
{
    if (!memcmp(p->data + at, address, size))
        return;
    uint64_t change = 0;
    for (uint32_t i = 0; i < size; i += 4)
        change += cora_store32(p->data + at + i, cora_get32(address + i));
    bool v6 = p->family == 6;
    if (quoted) {
        cora_stored_quoted_ip(p, change, v6, true);
        return;
    }
    if (!v6)
        cora_stored_ipv4(p, change);
    cora_stored_address(p, change, v6);
}

CORA_COLD void cora_rewrite_port(struct cora_packet *p, bool quoted, uint32_t at, uint16_t value)
{
    if (!at || cora_get16(p->data + at) == value)
        return;
    uint64_t change = cora_store16(p->data + at, value);
    uint8_t upper = quoted ? p->quoted_upper : p->upper;
    bool icmp = upper == 1 || upper == 58;
    if (quoted && icmp)
        cora_stored_quoted_upper(p, change, 2, false);
    else if (quoted)
        cora_stored_quoted_l4(p, change);
    else if (icmp)
        cora_stored_upper(p, change, 2, false);
    else
        cora_stored_l4(p, change);
}

CORA_COLD void cora_rewrite_flow(struct cora_packet *p, bool quoted, const struct cora_flow_place *at,
                              const struct cora_flow *flow)
{
    cora_rewrite_address(p, quoted, at->source, at->size, flow->source);
    cora_rewrite_address(p, quoted, at->destination, at->size, flow->destination);
    cora_rewrite_port(p, quoted, at->sport, flow->sport);
    cora_rewrite_port(p, quoted, at->dport, flow->dport);
}

/* An ICMP error about a packet that the program has sent translated. */
CORA_COLD bool cora_return_error(const struct cora_core *core, struct cora_packet *p)
{
    struct cora_flow_place at, outer;
    if (!cora_quotes(p) || !cora_returns_quoted(p) || !cora_find_flow(p, true, &at))
        return false;
    struct cora_flow quoted = cora_flow_at(p, &at, p->quoted_upper, p->port), key = cora_flow_reversed(&quoted);
    const struct cora_flow *known = cora_memory_find(core, &core->returns->flows, &key);
    if (!known)
        return false;
    struct cora_flow sent = cora_flow_reversed(known);
    cora_rewrite_flow(p, true, &at, &sent);
    (void)cora_find_flow(p, false, &outer);
    if (!memcmp(p->data + outer.source, quoted.destination, outer.size))
        cora_rewrite_address(p, false, outer.source, outer.size, sent.destination);
    if (!memcmp(p->data + outer.destination, quoted.source, outer.size))
        cora_rewrite_address(p, false, outer.destination, outer.size, sent.source);
    return true;
}

CORA_COLD bool cora_return_packet(const struct cora_core *core, struct cora_packet *p)
{
    struct cora_flow_place at;
    if (!cora_returns_upper(p))
        return false;
    if (!cora_find_flow(p, false, &at))
        return cora_return_error(core, p);
    struct cora_flow flow = cora_flow_at(p, &at, p->upper, p->port);
    const struct cora_flow *known = cora_memory_find(core, &core->returns->flows, &flow);
    if (known)
        cora_rewrite_flow(p, false, &at, known);
    return known != NULL;
}

/* A fragment follows the first one of its datagram. */
CORA_COLD bool cora_return_fragment(const struct cora_core *core, struct cora_packet *p)
{
    struct cora_flow key = cora_datagram_of(p);
    struct cora_memory *datagrams = &core->returns->datagrams;
    if (!p->fragment_offset) {
        bool translated = cora_return_packet(core, p);
        struct cora_known known = {key, cora_datagram_of(p)};
        cora_memory_put(core, datagrams, &known);
        return translated;
    }
    const struct cora_flow *known = cora_memory_find(core, datagrams, &key);
    if (!known || !memcmp(known, &key, sizeof key))
        return false;
    struct cora_flow_place at;
    (void)cora_find_flow(p, false, &at);
    at.sport = at.dport = 0;
    cora_rewrite_flow(p, false, &at, known);
    return true;
}

/* --- before and after the program --- */

/* Makes the packet what it would be on its port; the frame stays valid until the next call. */
CORA_COLD struct cora_record cora_returns_before(const struct cora_core *core, const struct cora_record *record)
{
    struct cora_returns *r = core->returns;
#ifdef CORA_EXACT_FRAMES
    free(r->frame);
    r->frame = NULL;
    r->room = 0;
    r->frame = malloc(record->caplen ? record->caplen : 1);
    if (!r->frame)
        cora_out_of_memory(record->caplen);
#else
    r->frame = cora_grow(r->frame, &r->room, record->caplen, 1);
#endif
    cora_record_frame(record, r->frame);
    struct cora_record arrived = *record;
    arrived.data = (uint64_t)(uintptr_t)r->frame;
    arrived.ethertype = 0;
    struct cora_packet p;
    if (record->port != r->port && cora_returns_read(core, &p, &arrived, r->frame))
        r->translated += p.is_fragment ? cora_return_fragment(core, &p) : cora_return_packet(core, &p);
    return arrived;
}

/* Learns from a packet that has left, if it was forwarded: how the program translates its flow. */
CORA_COLD void cora_returns_after(const struct cora_core *core, const struct cora_packet *left)
{
    struct cora_returns *r = core->returns;
    struct cora_packet before, after;
    struct cora_flow_place was, is;
    if (left->port != r->port || left->verdict & CORA_DROP || left->verdict == r->port)
        return;
    if (!cora_returns_read(core, &before, left->record, r->frame) || !cora_returns_upper(&before) ||
        !cora_find_flow(&before, false, &was))
        return;
    if (!cora_returns_read(core, &after, left->record, left->data) || !cora_returns_upper(&after) ||
        !cora_find_flow(&after, false, &is) || before.family != after.family || before.upper != after.upper)
        return;
    struct cora_flow from = cora_flow_at(&before, &was, before.upper, left->verdict);
    struct cora_flow to = cora_flow_at(&after, &is, after.upper, left->verdict);
    struct cora_known known = {cora_flow_reversed(&from), cora_flow_reversed(&to)};
    if (memcmp(&from, &to, sizeof from) || cora_memory_find(core, &r->flows, &known.key))
        cora_memory_put(core, &r->flows, &known);
}

CORA_COLD void cora_returns_open(struct cora_core *core, uint32_t port, uint64_t limit)
{
    struct cora_returns *r = calloc(1, sizeof *r);
    if (!r)
        cora_out_of_memory(sizeof *r);
    r->port = port;
    r->flows.limit = limit;
    r->datagrams.limit = CORA_RETURNS_DATAGRAMS;
    core->returns = r;
}

CORA_COLD void cora_returns_close(struct cora_core *core)
{
    struct cora_returns *r = core->returns;
    if (!r)
        return;
    cora_memory_close(&r->flows);
    cora_memory_close(&r->datagrams);
    free(r->frame);
    free(r);
    core->returns = NULL;
}

#endif
