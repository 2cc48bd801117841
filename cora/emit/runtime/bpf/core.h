/* What every kernel program has beside its tables: what it shares with the user half, counts, locks, the clock, and where
 * packets go when they leave. Included after the generated interface and packet.h. */
#ifndef CORA_BPF_CORE_H
#define CORA_BPF_CORE_H

#include "abi.h"
#include "packet.h"

SEC(".data.shared") struct cora_shared cora_shared = {.rounds = {.open = 1}};
SEC(".data.config") struct cora_kernel_config cora_config = CORA_CONFIG_VALUES;

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct cora_counts);
} cora_counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, CORA_PORTS);
    __type(key, uint32_t);
    __type(value, uint32_t);
} cora_devices SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, CORA_QUEUES);
    __type(key, uint32_t);
    __type(value, uint32_t);
} cora_xsks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, uint32_t);
    __type(value, struct cora_rows);
} cora_rows SEC(".maps");

/* --- locks ---
 *
 * CORA_STRIPES locks are shared by all entries of all tables, by entry number; behind them stands one for the directory of
 * each table (hash chains, free entries). A packet holds the lock of its entry from where it finds it to where it leaves,
 * so everything it reads and writes there is one step for all other CPUs, and a message that takes the entry back waits for
 * it. Nobody holds two locks at a time: the lock of a directory is only taken by those who hold none. Holding one means
 * that this CPU takes no interrupts, so all loops under a lock are short. */
#define CORA_STRIPES 1024

struct cora_lock {
    struct bpf_spin_lock lock;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CORA_STRIPES + CORA_TABLES);
    __type(key, uint32_t);
    __type(value, struct cora_lock);
} cora_locks SEC(".maps");

static inline struct cora_lock *cora_entry_lock(uint32_t at)
{
    uint32_t number = at % CORA_STRIPES;
    return bpf_map_lookup_elem(&cora_locks, &number);
}

static inline struct cora_lock *cora_table_lock(uint32_t table)
{
    uint32_t number = CORA_STRIPES + table;
    return bpf_map_lookup_elem(&cora_locks, &number);
}

/* --- counts and the clock --- */

static inline struct cora_counts *cora_own_counts(void)
{
    uint32_t zero = 0;
    return bpf_map_lookup_elem(&cora_counts, &zero);
}

static inline uint64_t cora_volatile(const uint64_t *at) { return *(const volatile uint64_t *)at; }

static inline uint64_t cora_clock(void)
{
    uint64_t now = cora_volatile(&cora_shared.virtual_now);
    return CORA_UNLIKELY(now || cora_shared.test_run) ? now : bpf_ktime_get_ns();
}

/* Prepares the context of a packet; false: it did not come from a port of the program. */
static inline bool cora_arrive(struct xdp_md *ctx, struct cora_packet *p)
{
    p->data = cora_pointer(ctx->data);
    p->data_end = cora_pointer(ctx->data_end);
    p->wirelen = (uint32_t)(p->data_end - p->data);
    if (CORA_UNLIKELY(cora_shared.test_run)) {
        p->now = cora_shared.virtual_now;
        p->port = (uint16_t)cora_shared.test_port;
        return p->port < CORA_PORTS;
    }
    uint64_t now = cora_volatile(&cora_shared.virtual_now);
    p->now = CORA_UNLIKELY(now) ? now : bpf_ktime_get_ns();
    uint32_t from = ctx->ingress_ifindex;
    for (uint16_t port = 0; port < CORA_PORTS; port++)
        if (cora_shared.ifindex[port] == from) {
            p->port = port;
            return true;
        }
    return false;
}

static inline int cora_fault(struct cora_counts *counts, enum cora_kernel_fault fault)
{
    counts->faults[fault]++;
    if (cora_shared.test_run)
        cora_shared.verdict = CORA_VERDICT_FAULT | fault;
    return XDP_DROP;
}

/* The packet leaves by a port. */
static inline int cora_send(struct cora_packet *p, struct cora_counts *counts, uint32_t port)
{
    if (p->met)
        counts->statistics[CORA_FAST]++;
    if (CORA_UNLIKELY(cora_shared.test_run)) {
        cora_shared.verdict = port;
        return XDP_PASS;
    }
    counts->forwarded[port].packets++;
    counts->forwarded[port].octets += p->wirelen;
    int action = (int)bpf_redirect_map(&cora_devices, port, 0);
    if (CORA_UNLIKELY(action != XDP_REDIRECT)) {
        counts->forwarded[port].packets--;
        counts->forwarded[port].octets -= p->wirelen;
        return cora_fault(counts, CORA_FAULT_DEVICE);
    }
    return action;
}

static inline int cora_drop(struct cora_packet *p, struct cora_counts *counts)
{
    uint32_t reason = p->reason;
    if (p->met)
        counts->statistics[CORA_FAST]++;
    if (CORA_UNLIKELY(cora_shared.test_run))
        cora_shared.verdict = CORA_VERDICT_DROP | reason;
    else if (reason <= CORA_REASONS)
        counts->dropped[reason]++;
    return XDP_DROP;
}

/* The packet's end; its entry is let go at the label. */
#define CORA_DROPS(number)         \
    do {                           \
        p->reason = (number);      \
        goto cora_drops;           \
    } while (0)

#endif
