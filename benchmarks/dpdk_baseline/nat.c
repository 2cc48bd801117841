/* examples/nat.ref.nf by hand: device 0 is inside, device 1 outside. */
#include "common.h"

#define FIRST_PORT 1024
#define PORTS (65536 - FIRST_PORT)
#define EXTERNAL RTE_IPV4(203, 0, 113, 1)

static struct rte_hash *flows;
static struct flow_key keys[CAPACITY];
static struct ages ages;
static struct numbers numbers;
static bool live[CAPACITY];

static void start(void)
{
    flows = table("flows", sizeof(struct flow_key));
    ages_init(&ages);
    numbers_init(&numbers, PORTS); /* an entry's number is its external port */
}

static void expire(uint64_t now)
{
    if (now < timeout)
        return;
    for (uint32_t i; (i = age_over(&ages, now - timeout)) != CAPACITY;) {
        rte_hash_del_key(flows, &keys[i]);
        age_unlink(&ages, i);
        live[i] = false;
        numbers.free[numbers.count++] = i;
    }
}

/* RFC 1624, equation 3, for one 16-bit word. */
static inline rte_be16_t updated(rte_be16_t checksum, uint16_t before, uint16_t after)
{
    uint32_t sum = (uint16_t)~checksum + (uint32_t)(uint16_t)~before + after;
    sum = (sum & 0xffff) + (sum >> 16);
    return (rte_be16_t)~(sum + (sum >> 16));
}

static inline rte_be16_t updated_address(rte_be16_t checksum, rte_be32_t before, rte_be32_t after)
{
    return updated(updated(checksum, (uint16_t)before, (uint16_t)after), (uint16_t)(before >> 16), (uint16_t)(after >> 16));
}

static inline void translate(struct headers *h, rte_be32_t *address, rte_be16_t *port, rte_be32_t new_address,
                             rte_be16_t new_port)
{
    rte_be16_t *sum = h->ip->next_proto_id == IPPROTO_TCP ? &((struct rte_tcp_hdr *)h->ports)->cksum : &h->ports->dgram_cksum;
    h->ip->hdr_checksum = updated_address(h->ip->hdr_checksum, *address, new_address);
    if (*sum || h->ip->next_proto_id == IPPROTO_TCP) {
        *sum = updated(updated_address(*sum, *address, new_address), *port, new_port);
        if (!*sum && h->ip->next_proto_id == IPPROTO_UDP)
            *sum = 0xffff;
    }
    *address = new_address;
    *port = new_port;
}

static bool add(const struct flow_key *key, uint64_t now, uint32_t *entry)
{
    if (!numbers.count)
        return false;
    *entry = numbers.free[--numbers.count];
    if (rte_hash_add_key_data(flows, key, (void *)(uintptr_t)*entry) != 0) {
        numbers.count++;
        return false;
    }
    keys[*entry] = *key;
    live[*entry] = true;
    age_append(&ages, *entry, now);
    return true;
}

static void outbound(struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to)
{
    struct headers h[BURST];
    struct flow_key key[BURST];
    const void *asked[BURST];
    void *data[BURST];
    uint64_t hits = 0;
    uint16_t n = 0, at[BURST];
    for (uint16_t i = 0; i < count; i++) {
        if (!parse(packets[i], &h[n]))
            continue;
        key[n] = (struct flow_key){h[n].ip->src_addr, h[n].ip->dst_addr, h[n].ports->src_port, h[n].ports->dst_port,
                                   h[n].ip->next_proto_id, {0}};
        asked[n] = &key[n];
        at[n++] = i;
    }
    if (n)
        rte_hash_lookup_bulk_data(flows, asked, n, &hits, data);
    for (uint16_t k = 0; k < n; k++) {
        uint32_t entry = (uint32_t)(uintptr_t)data[k];
        bool hit = hits >> k & 1;
        if (!hit && rte_hash_lookup_data(flows, &key[k], &data[k]) >= 0) {
            entry = (uint32_t)(uintptr_t)data[k]; /* an earlier packet of the burst has made it */
            hit = true;
        }
        if (hit)
            age_touch(&ages, entry, now);
        else if (!add(&key[k], now, &entry))
            continue;
        translate(&h[k], &h[k].ip->src_addr, &h[k].ports->src_port, rte_cpu_to_be_32(EXTERNAL),
                  rte_cpu_to_be_16((uint16_t)(FIRST_PORT + entry)));
        to[at[k]] = 1;
    }
}

static void inbound(struct rte_mbuf *packet, uint64_t now, uint16_t *to)
{
    struct headers h;
    if (!parse(packet, &h))
        return;
    uint32_t entry = (uint32_t)rte_be_to_cpu_16(h.ports->dst_port) - FIRST_PORT;
    if (entry >= PORTS || !live[entry])
        return;
    const struct flow_key *key = &keys[entry];
    age_touch(&ages, entry, now);
    if (key->dst != h.ip->src_addr || key->dport != h.ports->src_port || key->proto != h.ip->next_proto_id)
        return;
    translate(&h, &h.ip->dst_addr, &h.ports->dst_port, key->src, key->sport);
    *to = 0;
}

static void process(uint16_t device, struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to)
{
    expire(now);
    for (uint16_t i = 0; i < count; i++)
        to[i] = DROP;
    if (device == 0) {
        outbound(packets, count, now, to);
        return;
    }
    for (uint16_t i = 0; i < count; i++)
        inbound(packets[i], now, &to[i]);
}
