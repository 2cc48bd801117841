/* Types, big-endian access and zeroed memory for generated programs. C11 with the GCC and Clang extensions __int128 and
 * __builtin_*. All functions are safe for unaligned addresses. */
#ifndef CORA_BASE_H
#define CORA_BASE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

typedef unsigned __int128 cora_u128;

#define CORA_NONE UINT32_MAX
#define CORA_NEVER UINT64_MAX
#define CORA_LIKELY(x) __builtin_expect(!!(x), 1)
#define CORA_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Rare, or large and called from many places: not copied into the callers, so that the packet path stays small and
 * compiles fast. */
#define CORA_COLD static __attribute__((noinline, unused))
#define CORA_SHARED static __attribute__((noinline, unused))

/* A value of the program: its last use may have been decided when the code was generated. */
#define CORA_VALUE __attribute__((unused))

#ifdef CORA_PROFILE
#define CORA_IF_PROFILE(...) __VA_ARGS__
#else
#define CORA_IF_PROFILE(...)
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CORA_BE16(x) __builtin_bswap16(x)
#define CORA_BE32(x) __builtin_bswap32(x)
#define CORA_BE64(x) __builtin_bswap64(x)
#else
#define CORA_BE16(x) ((uint16_t)(x))
#define CORA_BE32(x) ((uint32_t)(x))
#define CORA_BE64(x) ((uint64_t)(x))
#endif

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

static inline uint8_t cora_get8(const uint8_t *p) { return *p; }
static inline uint16_t cora_get16(const uint8_t *p) { return CORA_BE16(cora_raw16(p)); }
static inline uint32_t cora_get32(const uint8_t *p) { return CORA_BE32(cora_raw32(p)); }
static inline uint64_t cora_get48(const uint8_t *p) { return (uint64_t)cora_get16(p) << 32 | cora_get32(p + 2); }
static inline uint64_t cora_get64(const uint8_t *p) { return CORA_BE64(cora_raw64(p)); }
static inline cora_u128 cora_get128(const uint8_t *p) { return (cora_u128)cora_get64(p) << 64 | cora_get64(p + 8); }

static inline void cora_put16(uint8_t *p, uint16_t v)
{
    v = CORA_BE16(v);
    memcpy(p, &v, sizeof v);
}

static inline void cora_put32(uint8_t *p, uint32_t v)
{
    v = CORA_BE32(v);
    memcpy(p, &v, sizeof v);
}

static inline void cora_put48(uint8_t *p, uint64_t v)
{
    cora_put16(p, (uint16_t)(v >> 32));
    cora_put32(p + 2, (uint32_t)v);
}

static inline void cora_put64(uint8_t *p, uint64_t v)
{
    v = CORA_BE64(v);
    memcpy(p, &v, sizeof v);
}

static inline void cora_put128(uint8_t *p, cora_u128 v)
{
    cora_put64(p, (uint64_t)(v >> 64));
    cora_put64(p + 8, (uint64_t)v);
}

static inline uint32_t cora_min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint64_t cora_min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* a + b, or UINT64_MAX when that does not fit. */
static inline uint64_t cora_add_capped(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Where to go when there is no memory, set while an engine is made or run: the process that uses the engine goes on. */
#ifdef CORA_PLACES
/* One for all places of a split program. */
extern _Thread_local jmp_buf *cora_split_rescue;
#define cora_rescue cora_split_rescue
#else
static _Thread_local jmp_buf *cora_rescue;
#endif

CORA_COLD void cora_out_of_memory(size_t wanted)
{
    if (cora_rescue)
        longjmp(*cora_rescue, 1);
    fprintf(stderr, "cora: out of memory (%zu bytes wanted)\n", wanted);
    abort();
}

static inline size_t cora_region(size_t count, size_t size)
{
    size_t bytes = count * size;
    return bytes == 0 ? 1 : bytes;
}

/* Zeroed memory that costs nothing until it is touched, so a table may be made for its whole capacity at once.
 * Large regions ask for huge pages: random table access is bound by address translation otherwise. */
CORA_COLD void *cora_zeroed(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        cora_out_of_memory(SIZE_MAX);
    size_t bytes = cora_region(count, size);
#ifdef __linux__
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        cora_out_of_memory(bytes);
    if (bytes >= (size_t)4 << 20)
        (void)madvise(at, bytes, MADV_HUGEPAGE);
#else
    void *at = calloc(1, bytes);
    if (!at)
        cora_out_of_memory(bytes);
#endif
    return at;
}

/* Gives back what cora_zeroed(count, size) returned; NULL is allowed. */
CORA_COLD void cora_release(void *at, size_t count, size_t size)
{
    if (!at)
        return;
#ifdef __linux__
    munmap(at, cora_region(count, size));
#else
    (void)count, (void)size;
    free(at);
#endif
}

/* Makes room for `needed` elements in a growing array; `*room` is its current size in elements. */
CORA_COLD void *cora_grow(void *at, size_t *room, size_t needed, size_t size)
{
    size_t more = *room ? *room : 64;
    while (more < needed)
        more *= 2;
    if (more == *room)
        return at;
    if (more > SIZE_MAX / size)
        cora_out_of_memory(SIZE_MAX);
    at = realloc(at, more * size);
    if (!at)
        cora_out_of_memory(more * size);
    *room = more;
    return at;
}

#endif
