/* Types and big-endian access, without a C library: the same for this machine's programs and for BPF. All functions are
 * safe for unaligned addresses. */
#ifndef CORA_BITS_H
#define CORA_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __bpf__
#include <string.h>
#endif

typedef unsigned __int128 cora_u128;

#define CORA_NONE UINT32_MAX
#define CORA_NEVER UINT64_MAX
#define CORA_LIKELY(x) __builtin_expect(!!(x), 1)
#define CORA_UNLIKELY(x) __builtin_expect(!!(x), 0)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CORA_BE16(x) __builtin_bswap16(x)
#define CORA_BE32(x) __builtin_bswap32(x)
#define CORA_BE64(x) __builtin_bswap64(x)
#else
#define CORA_BE16(x) ((uint16_t)(x))
#define CORA_BE32(x) ((uint32_t)(x))
#define CORA_BE64(x) ((uint64_t)(x))
#endif

#ifdef __bpf__
/* Clang takes an address of unknown alignment apart into bytes for BPF, but the kernel lets a program load packets'
 * words as they stand. */
typedef uint16_t cora_word16 __attribute__((may_alias));
typedef uint32_t cora_word32 __attribute__((may_alias));
typedef uint64_t cora_word64 __attribute__((may_alias));

static inline uint16_t cora_raw16(const uint8_t *p) { return *(const cora_word16 *)p; }
static inline uint32_t cora_raw32(const uint8_t *p) { return *(const cora_word32 *)p; }
static inline uint64_t cora_raw64(const uint8_t *p) { return *(const cora_word64 *)p; }
static inline void cora_set16(uint8_t *p, uint16_t v) { *(cora_word16 *)p = v; }
static inline void cora_set32(uint8_t *p, uint32_t v) { *(cora_word32 *)p = v; }
static inline void cora_set64(uint8_t *p, uint64_t v) { *(cora_word64 *)p = v; }
#else
static inline uint16_t cora_raw16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t cora_raw32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t cora_raw64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void cora_set16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void cora_set32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void cora_set64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }
#endif

static inline uint8_t cora_get8(const uint8_t *p) { return *p; }
static inline uint16_t cora_get16(const uint8_t *p) { return CORA_BE16(cora_raw16(p)); }
static inline uint32_t cora_get32(const uint8_t *p) { return CORA_BE32(cora_raw32(p)); }
static inline uint64_t cora_get48(const uint8_t *p) { return (uint64_t)cora_get16(p) << 32 | cora_get32(p + 2); }
static inline uint64_t cora_get64(const uint8_t *p) { return CORA_BE64(cora_raw64(p)); }
static inline cora_u128 cora_get128(const uint8_t *p) { return (cora_u128)cora_get64(p) << 64 | cora_get64(p + 8); }

static inline void cora_put16(uint8_t *p, uint16_t v) { cora_set16(p, CORA_BE16(v)); }

static inline void cora_put32(uint8_t *p, uint32_t v) { cora_set32(p, CORA_BE32(v)); }

static inline void cora_put48(uint8_t *p, uint64_t v)
{
    cora_put16(p, (uint16_t)(v >> 32));
    cora_put32(p + 2, (uint32_t)v);
}

static inline void cora_put64(uint8_t *p, uint64_t v) { cora_set64(p, CORA_BE64(v)); }

static inline void cora_put128(uint8_t *p, cora_u128 v)
{
    cora_put64(p, (uint64_t)(v >> 64));
    cora_put64(p + 8, (uint64_t)v);
}

static inline uint32_t cora_min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t cora_min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* a + b, or UINT64_MAX when that does not fit. */
static inline uint64_t cora_add_capped(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

#endif
