/* What the hand-written programs share: the headers they look at, the clock, counts for each CPU, ports. */
#ifndef COMMON_H
#define COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IDLE 60000000000ull /* ns */
#define TAGS 2
#define ENTRIES 65536

enum { INSIDE, OUTSIDE, PORTS };
enum { MALFORMED, UNPARSED, NO_HANDLER, NOT_OPENED, NO_MAPPING, FILTERED, TABLE_FULL, REASONS };

struct total {
    __u64 packets, octets;
};

struct counts {
    struct total arrived, forwarded[PORTS];
    __u64 dropped[REASONS], unknown_port, no_device;
};

struct flow {
    __be32 src, dst;
    __be16 sport, dport;
    __u32 proto;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counts);
} counts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, PORTS);
    __type(key, __u32);
    __type(value, __u32);
} devices SEC(".maps");

/* Interfaces of the ports, set before packets come. */
SEC(".data.ports") __u32 interfaces[PORTS];

struct packet {
    void *data, *end;
    struct iphdr *ip;
    __be16 *ports; /* source and destination of TCP and UDP alike */
    __u32 length;
    __u64 now;
};

static __always_inline int drop(struct counts *c, int reason)
{
    c->dropped[reason]++;
    return XDP_DROP;
}

static __always_inline int send(struct counts *c, const struct packet *p, __u32 port)
{
    c->forwarded[port].packets++;
    c->forwarded[port].octets += p->length;
    int action = bpf_redirect_map(&devices, port, 0);
    if (action != XDP_REDIRECT) {
        c->no_device++;
        return XDP_DROP;
    }
    return action;
}

/* Ethernet, up to two tags, IPv4, TCP or UDP. Returns a reason, or -1 when all is there. */
static __always_inline int parse(struct packet *p)
{
    struct ethhdr *eth = p->data;
    void *at = eth + 1;
    if (at > p->end)
        return MALFORMED;
    __be16 type = eth->h_proto;
    for (int tags = 0; type == bpf_htons(0x8100) || type == bpf_htons(0x88a8) || type == bpf_htons(0x9100); tags++) {
        if (tags == TAGS)
            return UNPARSED;
        if (at + 4 > p->end)
            return MALFORMED;
        type = *(__be16 *)(at + 2);
        at += 4;
    }
    if (type != bpf_htons(ETH_P_IP))
        return NO_HANDLER;
    struct iphdr *ip = at;
    if ((void *)(ip + 1) > p->end)
        return MALFORMED;
    __u32 header = ip->ihl * 4, total = bpf_ntohs(ip->tot_len);
    __u32 before = at - p->data;
    if (ip->version != 4 || header < sizeof *ip || header > total || before + total > p->length)
        return MALFORMED;
    void *l4 = at + header;
    __u32 room = total - header;
    if (ip->protocol == IPPROTO_TCP) {
        struct tcphdr *tcp = l4;
        if ((void *)(tcp + 1) > p->end || room < sizeof *tcp || tcp->doff < 5)
            return MALFORMED;
        if (tcp->doff * 4u > room && !(ip->frag_off & bpf_htons(0x3fff)))
            return MALFORMED;
    } else if (ip->protocol == IPPROTO_UDP) {
        struct udphdr *udp = l4;
        if ((void *)(udp + 1) > p->end || room < sizeof *udp || bpf_ntohs(udp->len) < sizeof *udp)
            return MALFORMED;
        if (bpf_ntohs(udp->len) > room && !(ip->frag_off & bpf_htons(0x3fff)))
            return MALFORMED;
    } else {
        return NO_HANDLER;
    }
    p->ip = ip;
    p->ports = l4;
    return -1;
}

/* The start of every packet's way: its counts, its port, its headers. Returns an action, or -1 to go on. */
static __always_inline int begin(struct xdp_md *ctx, struct packet *p, struct counts **counts_of, __u32 *port)
{
    __u32 zero = 0;
    struct counts *c = bpf_map_lookup_elem(&counts, &zero);
    if (!c)
        return XDP_ABORTED;
    *counts_of = c;
    p->data = (void *)(long)ctx->data;
    p->end = (void *)(long)ctx->data_end;
    p->length = p->end - p->data;
    p->now = bpf_ktime_get_ns();
    __u32 from = ctx->ingress_ifindex;
    if (from == interfaces[INSIDE]) {
        *port = INSIDE;
    } else if (from == interfaces[OUTSIDE]) {
        *port = OUTSIDE;
    } else {
        c->unknown_port++;
        return XDP_DROP;
    }
    c->arrived.packets++;
    c->arrived.octets += p->length;
    int reason = parse(p);
    return reason < 0 ? -1 : drop(c, reason);
}

#endif
