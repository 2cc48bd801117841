/* examples/firewall.ref.nf by hand: device 0 is inside, device 1 outside; outside only enters what inside opened. */
#include "common.h"

static struct rte_hash *flows;
static struct flow_key keys[CAPACITY];
static struct ages ages;
static struct numbers numbers;

static void start(void)
{
    flows = table("flows", sizeof(struct flow_key));
    ages_init(&ages);
    numbers_init(&numbers, CAPACITY);
}

static void expire(uint64_t now)
{
    if (now < timeout)
        return;
    for (uint32_t i; (i = age_over(&ages, now - timeout)) != CAPACITY;) {
        rte_hash_del_key(flows, &keys[i]);
        age_unlink(&ages, i);
        numbers.free[numbers.count++] = i;
    }
}

static void add(const struct flow_key *key, uint64_t now)
{
    if (!numbers.count)
        return; /* the packet passes all the same */
    uint32_t i = numbers.free[--numbers.count];
    if (rte_hash_add_key_data(flows, key, (void *)(uintptr_t)i) != 0) {
        numbers.count++;
        return;
    }
    keys[i] = *key;
    age_append(&ages, i, now);
}

static void process(uint16_t device, struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to)
{
    struct flow_key key[BURST];
    const void *asked[BURST];
    void *data[BURST];
    uint64_t hits = 0;
    uint16_t n = 0, at[BURST];
    expire(now);
    for (uint16_t i = 0; i < count; i++) {
        struct headers h;
        to[i] = DROP;
        if (!parse(packets[i], &h))
            continue;
        key[n] = device == 0 ? (struct flow_key){h.ip->src_addr, h.ip->dst_addr, h.ports->src_port, h.ports->dst_port,
                                                 h.ip->next_proto_id, {0}}
                             : (struct flow_key){h.ip->dst_addr, h.ip->src_addr, h.ports->dst_port, h.ports->src_port,
                                                 h.ip->next_proto_id, {0}};
        asked[n] = &key[n];
        at[n++] = i;
    }
    if (n)
        rte_hash_lookup_bulk_data(flows, asked, n, &hits, data);
    for (uint16_t k = 0; k < n; k++) {
        bool hit = hits >> k & 1;
        if (!hit && device == 0)
            hit = rte_hash_lookup_data(flows, &key[k], &data[k]) >= 0; /* an earlier packet of the burst may have opened it */
        if (hit)
            age_touch(&ages, (uint32_t)(uintptr_t)data[k], now);
        else if (device == 0)
            add(&key[k], now);
        if (hit || device == 0)
            to[at[k]] = !device;
    }
}
