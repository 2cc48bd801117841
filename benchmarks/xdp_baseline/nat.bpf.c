/* The NAT of examples/nat.ref.nf by hand: a hash map from inside flows to external ports, an array of mappings by port. */
#include "common.h"

#define EXTERNAL bpf_htonl(0xcb007101) /* 203.0.113.1 */
#define FIRST 1024u
#define COUNT (65536u - FIRST)

struct mapping {
    struct flow flow;
    __u64 last;
    __u32 used;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, COUNT);
    __type(key, struct flow);
    __type(value, __u32);
} by_flow SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, COUNT);
    __type(key, __u32);
    __type(value, struct mapping);
} by_port SEC(".maps");

__u32 next_port;

/* RFC 1624, equation 3, on native words. */
static __always_inline void fix(__u16 *sum, __u64 change)
{
    __u64 s = (__u16)~*sum + change;
    s = (s & 0xffffffff) + (s >> 32);
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    *sum = ~((s & 0xffff) + (s >> 16));
}

/* Writes an address and a port, and keeps both checksums right. The verifier has forgotten which header was checked. */
static __always_inline void rewrite(struct packet *p, __be32 *address, __be32 to, __be16 *port, __be16 to_port)
{
    __u64 moved = (__u64)(__u32)~*address + to;
    __u64 change = moved + (__u16)~*port + to_port;
    *address = to;
    *port = to_port;
    fix(&p->ip->check, moved);
    /* Later fragments have no checksum of their own. */
    if (p->ip->frag_off & bpf_htons(0x1fff))
        return;
    if (p->ip->protocol == IPPROTO_TCP) {
        struct tcphdr *tcp = (struct tcphdr *)p->ports;
        if ((void *)(tcp + 1) <= p->end)
            fix(&tcp->check, change);
        return;
    }
    struct udphdr *udp = (struct udphdr *)p->ports;
    if ((void *)(udp + 1) > p->end || !udp->check)
        return;
    fix(&udp->check, change);
    if (!udp->check)
        udp->check = 0xffff;
}

static __always_inline struct mapping *alive(__u32 number, __u64 now)
{
    struct mapping *found = bpf_map_lookup_elem(&by_port, &number);
    if (!found || !found->used || found->last + IDLE < now)
        return NULL;
    if (found->last < now)
        found->last = now;
    return found;
}

/* Takes the next port that is free. */
static __noinline int open_mapping(const struct flow *flow, __u64 now)
{
    for (int i = 0; i < 64; i++) {
        __u32 number = __sync_fetch_and_add(&next_port, 1) % COUNT;
        struct mapping *found = bpf_map_lookup_elem(&by_port, &number);
        if (!found || __sync_lock_test_and_set(&found->used, 1))
            continue;
        found->flow = *flow;
        found->last = now;
        if (bpf_map_update_elem(&by_flow, flow, &number, BPF_ANY) == 0)
            return number;
        found->used = 0;
        return -1;
    }
    return -1;
}

SEC("xdp") int nat(struct xdp_md *ctx)
{
    struct packet p;
    struct counts *c;
    __u32 port;
    int action = begin(ctx, &p, &c, &port);
    if (action >= 0)
        return action;
    if (port == OUTSIDE) {
        __u32 number = bpf_ntohs(p.ports[1]) - FIRST;
        struct mapping *m = alive(number, p.now);
        if (!m)
            return drop(c, NO_MAPPING);
        if (m->flow.dst != p.ip->saddr || m->flow.dport != p.ports[0] || m->flow.proto != p.ip->protocol)
            return drop(c, FILTERED);
        rewrite(&p, &p.ip->daddr, m->flow.src, &p.ports[1], m->flow.sport);
        return send(c, &p, INSIDE);
    }
    struct flow flow = {p.ip->saddr, p.ip->daddr, p.ports[0], p.ports[1], p.ip->protocol};
    __u32 *known = bpf_map_lookup_elem(&by_flow, &flow);
    int number = -1;
    if (known && alive(*known, p.now))
        number = *known;
    if (number < 0)
        number = open_mapping(&flow, p.now);
    if (number < 0)
        return drop(c, TABLE_FULL);
    rewrite(&p, &p.ip->saddr, EXTERNAL, &p.ports[0], bpf_htons(number + FIRST));
    return send(c, &p, OUTSIDE);
}

char _license[] SEC("license") = "GPL";
