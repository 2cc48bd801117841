/* The firewall of examples/firewall.ref.nf by hand: a hash map of flows, refreshed by both directions. */
#include "common.h"

struct connection {
    __u64 last;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ENTRIES);
    __type(key, struct flow);
    __type(value, struct connection);
} connections SEC(".maps");

/* A connection that is not idle for too long; the time of the last packet is one word, so no lock is needed. */
static __always_inline struct connection *alive(const struct flow *flow, __u64 now)
{
    struct connection *found = bpf_map_lookup_elem(&connections, flow);
    if (!found || found->last + IDLE < now)
        return NULL;
    if (found->last < now)
        found->last = now;
    return found;
}

SEC("xdp") int firewall(struct xdp_md *ctx)
{
    struct packet p;
    struct counts *c;
    __u32 port;
    int action = begin(ctx, &p, &c, &port);
    if (action >= 0)
        return action;
    if (port == OUTSIDE) {
        struct flow flow = {p.ip->daddr, p.ip->saddr, p.ports[1], p.ports[0], p.ip->protocol};
        return alive(&flow, p.now) ? send(c, &p, INSIDE) : drop(c, NOT_OPENED);
    }
    struct flow flow = {p.ip->saddr, p.ip->daddr, p.ports[0], p.ports[1], p.ip->protocol};
    if (!alive(&flow, p.now)) {
        struct connection opened = {p.now};
        /* A full table lets the packet pass without an entry. */
        bpf_map_update_elem(&connections, &flow, &opened, BPF_ANY);
    }
    return send(c, &p, OUTSIDE);
}

char _license[] SEC("license") = "GPL";
