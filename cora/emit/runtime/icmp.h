/* The ICMP error of a Reject (docs/semantics.md, section 6; RFC 792, RFC 1812 section 4.3, RFC 4443 section 2.4). */
#ifndef CORA_ICMP_H
#define CORA_ICMP_H

#include "packet.h"

#define CORA_ERROR_ROOM 2560 /* an Ethernet header with 255 tags and 1280 bytes */

/* Copies the first `length` bytes of the packet as it arrived. */
static inline void cora_arrived_prefix(const struct cora_record *record, uint8_t *out, uint32_t length)
{
    if (record->ethertype) {
        uint8_t head[CORA_ETHERNET_HEADER];
        cora_record_header(record, head);
        uint32_t first = cora_min32(length, CORA_ETHERNET_HEADER);
        memcpy(out, head, first);
        out += first, length -= first;
    }
    if (length)
        memcpy(out, (const uint8_t *)(uintptr_t)record->data, length);
}

static inline bool cora_v4_answerable(const uint8_t *h)
{
    uint32_t source = cora_get32(h + 12), destination = cora_get32(h + 16);
    return source && source >> 28 < 14 && source >> 24 != 127 && (destination >> 28 != 14) && destination != 0xffffffff;
}

static inline bool cora_v6_answerable(const uint8_t *h)
{
    cora_u128 source = cora_get128(h + 8);
    return source > 1 && h[8] != 0xff && h[24] != 0xff;
}

/* Whether the packet is an ICMP error itself, or may be one for all that was captured. */
static inline bool cora_is_icmp_error(const struct cora_packet *p)
{
    bool v4 = p->reject.family == 4;
    if (p->upper != (v4 ? 1 : 58))
        return false;
    if (p->l4 >= cora_min32(p->end, p->caplen))
        return true;
    uint32_t at = p->l4 - (p->record->ethertype ? CORA_ETHERNET_HEADER : 0);
    uint8_t type = ((const uint8_t *)(uintptr_t)p->record->data)[at];
    if (!v4)
        return type < 128;
    return !(type == 0 || type == 8 || (type >= 13 && type <= 18));
}

static inline uint32_t cora_error_head4(const struct cora_packet *p, uint8_t *ip, uint32_t quote, const uint8_t *h)
{
    memset(ip, 0, 28);
    ip[0] = 0x45;
    ip[1] = 0xc0;
    cora_put16(ip + 2, (uint16_t)(28 + quote));
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 1;
    cora_put32(ip + 12, (uint32_t)p->reject.source);
    memcpy(ip + 16, h + 12, 4);
    uint16_t sum = (uint16_t)~cora_fold(cora_sum(ip, 20, 0));
    memcpy(ip + 10, &sum, 2);
    memcpy(ip + 28, h, quote);
    ip[20] = p->reject.type;
    ip[21] = p->reject.code;
    sum = (uint16_t)~cora_fold(cora_sum(ip + 20, 8 + quote, 0));
    memcpy(ip + 22, &sum, 2);
    return 28 + quote;
}

static inline uint32_t cora_error_head6(const struct cora_packet *p, uint8_t *ip, uint32_t quote, const uint8_t *h)
{
    memset(ip, 0, 48);
    ip[0] = 0x6c;
    cora_put16(ip + 4, (uint16_t)(8 + quote));
    ip[6] = 58;
    ip[7] = 64;
    cora_put128(ip + 8, p->reject.source);
    memcpy(ip + 24, h + 8, 16);
    memcpy(ip + 48, h, quote);
    ip[40] = p->reject.type;
    ip[41] = p->reject.code;
    uint8_t pseudo[8] = {0};
    cora_put32(pseudo, 8 + quote);
    pseudo[7] = 58;
    uint64_t sum = cora_sum(pseudo, 8, cora_sum(ip + 8, 32 + 8 + quote, 0));
    uint16_t folded = (uint16_t)~cora_fold(sum);
    memcpy(ip + 42, &folded, 2);
    return 48 + quote;
}

/* Builds the error into `out` (CORA_ERROR_ROOM bytes) and returns its length; 0 when none is to be sent. */
CORA_COLD uint32_t cora_build_error(const struct cora_packet *p, uint8_t *out)
{
    static const uint32_t most[2] = {576 - 28, 1280 - 48};
    uint8_t frame[CORA_ERROR_ROOM];
    bool v4 = p->reject.family == 4;
    if (!p->reject.family || p->fragment_offset || p->released)
        return 0;
    uint32_t captured = cora_min32(p->caplen, CORA_ERROR_ROOM);
    cora_arrived_prefix(p->record, frame, captured);
    const uint8_t *h = frame + p->l3;
    if (frame[0] & 1 || !(v4 ? cora_v4_answerable(h) : cora_v6_answerable(h)) || cora_is_icmp_error(p))
        return 0;
    memcpy(out, frame + 6, 6);
    memcpy(out + 6, frame, 6);
    memcpy(out + 12, frame + 12, p->l3 - 12);
    uint32_t quote = cora_min32(cora_min32(p->end, captured) - p->l3, most[!v4]);
    uint8_t *ip = out + p->l3;
    return p->l3 + (v4 ? cora_error_head4(p, ip, quote, h) : cora_error_head6(p, ip, quote, h));
}

#endif
