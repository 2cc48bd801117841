/* examples/policer.ref.nf by hand: device 0 is the wide-area side, whose packets are policed by destination; what comes
 * from device 1 passes. Rate and burst are those of the public implementation's own defaults. */
#include "common.h"

#define RATE UINT64_C(1000000000)
#define DEPTH UINT64_C(10000000000)

static struct rte_hash *buckets;
static rte_be32_t keys[CAPACITY];
static uint64_t tokens[CAPACITY];
static struct ages ages;
static struct numbers numbers;

static void start(void)
{
    buckets = table("buckets", sizeof(rte_be32_t));
    ages_init(&ages);
    numbers_init(&numbers, CAPACITY);
    timeout = DEPTH / RATE * rte_get_tsc_hz();
}

static void expire(uint64_t now)
{
    if (now < timeout)
        return;
    for (uint32_t i; (i = age_over(&ages, now - timeout)) != CAPACITY;) {
        rte_hash_del_key(buckets, &keys[i]);
        age_unlink(&ages, i);
        numbers.free[numbers.count++] = i;
    }
}

static bool add(rte_be32_t key, uint64_t size, uint64_t now)
{
    if (size > DEPTH || !numbers.count)
        return false;
    uint32_t i = numbers.free[--numbers.count];
    if (rte_hash_add_key_data(buckets, &key, (void *)(uintptr_t)i) != 0) {
        numbers.count++;
        return false;
    }
    keys[i] = key;
    tokens[i] = DEPTH - size;
    age_append(&ages, i, now);
    return true;
}

static bool charge(uint32_t i, uint64_t size, uint64_t now)
{
    uint64_t idle = now - ages.last[i];
    uint64_t earned = idle >= timeout ? DEPTH : tokens[i] + idle * RATE / rte_get_tsc_hz();
    if (earned > DEPTH)
        earned = DEPTH;
    age_touch(&ages, i, now);
    bool passes = earned > size;
    tokens[i] = passes ? earned - size : earned;
    return passes;
}

static void police(struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to)
{
    rte_be32_t key[BURST];
    const void *asked[BURST];
    void *data[BURST];
    uint64_t hits = 0;
    uint16_t n = 0, at[BURST];
    for (uint16_t i = 0; i < count; i++) {
        const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(packets[i], const struct rte_ether_hdr *);
        if (rte_pktmbuf_data_len(packets[i]) < sizeof *eth + sizeof(struct rte_ipv4_hdr) ||
            eth->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
            continue;
        key[n] = ((const struct rte_ipv4_hdr *)(const void *)(eth + 1))->dst_addr;
        asked[n] = &key[n];
        at[n++] = i;
    }
    if (n)
        rte_hash_lookup_bulk_data(buckets, asked, n, &hits, data);
    for (uint16_t k = 0; k < n; k++) {
        uint64_t size = rte_pktmbuf_pkt_len(packets[at[k]]);
        bool hit = hits >> k & 1 || rte_hash_lookup_data(buckets, &key[k], &data[k]) >= 0;
        if (hit ? charge((uint32_t)(uintptr_t)data[k], size, now) : add(key[k], size, now))
            to[at[k]] = 1;
    }
}

static void process(uint16_t device, struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to)
{
    expire(now);
    for (uint16_t i = 0; i < count; i++)
        to[i] = device == 0 ? DROP : 0;
    if (device == 0)
        police(packets, count, now, to);
}
