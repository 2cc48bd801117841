/* Internet checksums. Updates are RFC 1624 equation 3; sums work on native-order words, which gives the same checksum
 * bytes on either byte order (RFC 1071, section 2B). A `change` is sum(~m + m') over the words of a store. */
#ifndef CORA_CHECKSUM_H
#define CORA_CHECKSUM_H

#include "bits.h"

static inline uint16_t cora_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Sum of `length` bytes as native 16-bit words, an odd last byte padded with zero; add to a running sum. */
static inline uint64_t cora_sum(const uint8_t *p, uint32_t length, uint64_t sum)
{
    for (; length >= 4; p += 4, length -= 4)
        sum += cora_raw32(p);
    if (length >= 2) {
        sum += cora_raw16(p);
        p += 2, length -= 2;
    }
    if (length) {
        uint8_t last[2] = {*p, 0};
        sum += cora_raw16(last);
    }
    return sum;
}

static inline uint64_t cora_store16(uint8_t *p, uint16_t v)
{
    uint16_t old = cora_raw16(p), new_ = CORA_BE16(v);
    cora_set16(p, new_);
    return (uint64_t)(uint16_t)~old + new_;
}

static inline uint64_t cora_store32(uint8_t *p, uint32_t v)
{
    uint32_t old = cora_raw32(p), new_ = CORA_BE32(v);
    cora_set32(p, new_);
    return (uint64_t)(uint32_t)~old + new_;
}

static inline uint64_t cora_store128(uint8_t *p, cora_u128 v)
{
    uint64_t change = 0;
    for (int i = 0; i < 4; i++)
        change += cora_store32(p + 4 * i, (uint32_t)(v >> (96 - 32 * i)));
    return change;
}

/* Writes `v` into the bits `mask << shift` of the 16-bit word at p. */
static inline uint64_t cora_store_bits16(uint8_t *p, uint16_t v, unsigned shift, uint16_t mask)
{
    uint32_t field = (uint32_t)mask << shift;
    return cora_store16(p, (uint16_t)((cora_get16(p) & ~field) | ((uint32_t)(v & mask) << shift)));
}

static inline uint64_t cora_store_bits32(uint8_t *p, uint32_t v, unsigned shift, uint32_t mask)
{
    uint32_t field = mask << shift;
    return cora_store32(p, (cora_get32(p) & ~field) | ((v & mask) << shift));
}

/* Updates the checksum at p; returns the change of the checksum's own word. */
static inline uint64_t cora_fix(uint8_t *p, uint64_t change)
{
    uint16_t old = cora_raw16(p);
    uint16_t new_ = (uint16_t)~cora_fold((uint64_t)(uint16_t)~old + change);
    cora_set16(p, new_);
    return (uint64_t)(uint16_t)~old + new_;
}

/* The same for UDP over any IP: zero means "none" and stays, a computed zero is sent as 0xffff (RFC 768). Returns 0 when
 * nothing was updated. */
static inline uint64_t cora_fix_udp(uint8_t *p, uint64_t change)
{
    uint16_t old = cora_raw16(p);
    if (!old)
        return 0;
    uint16_t new_ = (uint16_t)~cora_fold((uint64_t)(uint16_t)~old + change);
    if (!new_)
        new_ = 0xffff;
    cora_set16(p, new_);
    return (uint64_t)(uint16_t)~old + new_;
}

/* Updates the upper-layer checksum of protocol `upper` whose header is at frame offset l4, when both its bytes lie
 * before `limit`. `v6`: ICMPv6 has a pseudo header, ICMPv4 has none. Returns the change of the checksum's word, else 0. */
static inline uint64_t cora_fix_upper(uint8_t *data, uint32_t l4, uint32_t limit, uint8_t upper, bool v6,
                                      uint64_t change)
{
    uint32_t at;
    switch (upper) {
    case 6: at = 16; break;
    case 17: case 33: case 136: at = 6; break;
    case 58: if (!v6) return 0; at = 2; break;
    default: return 0;
    }
    if (l4 + at + 2 > limit)
        return 0;
    return upper == 17 ? cora_fix_udp(data + l4 + at, change) : cora_fix(data + l4 + at, change);
}

#endif
