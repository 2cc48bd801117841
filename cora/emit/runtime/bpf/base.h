/* What all generated BPF programs begin with. Built by clang with -target bpf -mcpu=v3 -ffreestanding. */
#ifndef CORA_BPF_BASE_H
#define CORA_BPF_BASE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Values of 128 bits, and pointers into packets that were checked, only survive in registers: everything is one function. */
#define inline __inline__ __attribute__((always_inline))

#include "../bits.h"

#define CORA_VALUE __attribute__((unused))

/* A function that the verifier looks at by itself, once, with arguments it knows nothing about. */
#define CORA_ALONE __attribute__((noinline))

/* A pointer of the context as 64 bits: the compiler knows it as 32 that were extended, and would keep half of it on the
 * stack, where the verifier does not know it as a pointer any more. */
static inline uint8_t *cora_pointer(uint32_t context)
{
    uint8_t *at = (uint8_t *)(unsigned long)context;
    __asm__("" : "+r"(at));
    return at;
}

/* Keeps a value in its register where the compiler would compute it anew. */
#define CORA_KEEP(value) __asm__("" : "+r"(value))

/* A pointer into the frame that is not to be computed anew: the verifier would not know the new one as checked. */
static inline uint8_t *cora_kept(uint8_t *at)
{
    CORA_KEEP(at);
    return at;
}

/* Loops keep their shape; the verifier counts their turns. */
#define CORA_LOOP _Pragma("clang loop unroll(disable)")

#endif
