/* Zeroed memory and what else generated programs ask of the C library. C11 with the GCC and Clang extensions __int128 and
 * __builtin_*. */
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

#include "bits.h"

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
