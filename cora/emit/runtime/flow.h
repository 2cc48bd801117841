/* Which packets are of one flow, told from the frame as it arrived. */
#ifndef CORA_FLOW_H
#define CORA_FLOW_H

#include "packet.h"

/* Extension headers that are looked behind, at most. */
#define CORA_FLOW_CHAIN 64

static inline uint64_t cora_flow_mix(uint64_t x, uint64_t y)
{
    x = (x ^ y) * 0x9e3779b97f4a7c15;
    return x ^ x >> 31;
}

/* ICMP messages of one flow: of one type, with one identifier or about one quoted flow. */
static inline uint64_t cora_flow_icmp(uint64_t x, const uint8_t *d, uint32_t room, bool error)
{
    if (room < 8)
        return x;
    x = cora_flow_mix(x, d[0]);
    if (error && room >= 8 + 24 && d[8] >> 4 == 4) {
        uint32_t l4 = 8 + 4u * (d[8] & 15);
        x = cora_flow_mix(cora_flow_mix(x, cora_get64(d + 8 + 12)), d[8 + 9]);
        return l4 + 4 <= room ? cora_flow_mix(x, cora_get32(d + l4)) : x;
    }
    if (error && room >= 8 + 44 && d[8] >> 4 == 6) {
        for (int i = 8; i < 40; i += 8)
            x = cora_flow_mix(x, cora_get64(d + 8 + i));
        return cora_flow_mix(cora_flow_mix(x, d[8 + 6]), cora_get32(d + 8 + 40));
    }
    return cora_flow_mix(x, cora_get16(d + 4));
}

/* Who must not be overtaken: packets of one arrival port, address pair, protocol, and port pair or kind of ICMP message.
 * Later fragments have no ports, and what stands there tells them apart for some programs: they are compared with their
 * like only. */
static inline uint64_t cora_flow_of(const struct cora_packet *p)
{
    const uint8_t *d = p->data;
    uint32_t at = 12;
    uint64_t x = cora_flow_mix(p->port, p->caplen < 14);
    if (p->caplen < 14)
        return x;
    uint16_t type = cora_get16(d + at);
    for (; (type == 0x8100 || type == 0x88a8 || type == 0x9100) && at + 6 <= p->caplen; type = cora_get16(d + at))
        at += 4;
    at += 2;
    x = cora_flow_mix(x, type);
    uint32_t l4 = 0;
    if (type == 0x0800 && at + 20 <= p->caplen) {
        uint16_t offset = cora_get16(d + at + 6) & 0x1fff;
        x = cora_flow_mix(cora_flow_mix(x, cora_get64(d + at + 12)), (uint64_t)offset << 8 | d[at + 9]);
        l4 = d[at + 9] == 6 || d[at + 9] == 17 ? at + 4u * (d[at] & 15) : 0;
        uint32_t icmp = at + 4u * (d[at] & 15);
        if (d[at + 9] == 1 && !offset && icmp < p->caplen)
            return cora_flow_icmp(x, d + icmp, p->caplen - icmp, 1u << (d[icmp] & 31) & 0x1838);
    } else if (type == 0x86dd && at + 40 <= p->caplen) {
        struct cora_chain chain;
        for (int i = 8; i < 40; i += 8)
            x = cora_flow_mix(x, cora_get64(d + at + i));
        /* The protocol is that behind the extension headers, which packets of one flow may have or not. */
        if (cora_walk_chain(p, d[at + 6], at + 40, p->caplen, CORA_FLOW_CHAIN, &chain) != CORA_OK)
            return cora_flow_mix(x, d[at + 6]);
        x = cora_flow_mix(x, (uint64_t)chain.offset << 8 | chain.upper);
        l4 = chain.upper == 6 || chain.upper == 17 ? chain.l4 : 0;
        if (chain.upper == 58 && !chain.offset && chain.l4 < p->caplen)
            return cora_flow_icmp(x, d + chain.l4, p->caplen - chain.l4, d[chain.l4] < 128);
    } else {
        return cora_flow_mix(cora_flow_mix(x, cora_get48(d)), cora_get48(d + 6));
    }
    return l4 && l4 + 4 <= p->caplen ? cora_flow_mix(x, cora_get32(d + l4)) : x;
}

#endif
