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

/* Loops keep their shape; the verifier counts their turns. */
#define CORA_LOOP _Pragma("clang loop unroll(disable)")

#endif
