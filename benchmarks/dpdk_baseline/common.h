/* What the hand-written functions share: devices, the loop over bursts, a flow table with one time-out.
 *
 * Written as one would by hand with DPDK's own parts: rte_hash with CRC32, looked up a burst at a time, entries in an
 * array, a list of entries by their last use for the time-out, frames prefetched, bursts sent together. */
#ifndef BASELINE_COMMON_H
#define BASELINE_COMMON_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#define BURST 32
#define CAPACITY 65536
#define TIMEOUT_S 60
#define DROP UINT16_MAX

struct headers {
    struct rte_ipv4_hdr *ip;
    struct rte_udp_hdr *ports; /* ports stand alike in TCP and UDP */
};

struct flow_key {
    rte_be32_t src, dst;
    rte_be16_t sport, dport;
    uint8_t proto, zero[3];
};

/* IPv4 with TCP or UDP; false: something else, or cut short. */
static inline bool parse(struct rte_mbuf *m, struct headers *h)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    uint32_t length = rte_pktmbuf_data_len(m);
    if (length < sizeof *eth + sizeof *h->ip || eth->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
        return false;
    h->ip = (struct rte_ipv4_hdr *)(uintptr_t)(eth + 1);
    uint32_t header = (uint32_t)(h->ip->version_ihl & 15) * 4;
    if (h->ip->version_ihl >> 4 != 4 || header < 20 || length < sizeof *eth + header + 8)
        return false;
    if (h->ip->next_proto_id != IPPROTO_TCP && h->ip->next_proto_id != IPPROTO_UDP)
        return false;
    h->ports = (struct rte_udp_hdr *)((uint8_t *)h->ip + header);
    return true;
}

/* --- entries by last use --- */

struct ages {
    uint32_t before[CAPACITY + 1], after[CAPACITY + 1]; /* entry CAPACITY: the two ends */
    uint64_t last[CAPACITY];
};

static inline void age_unlink(struct ages *a, uint32_t i)
{
    a->after[a->before[i]] = a->after[i];
    a->before[a->after[i]] = a->before[i];
}

static inline void age_append(struct ages *a, uint32_t i, uint64_t now)
{
    a->last[i] = now;
    a->before[i] = a->before[CAPACITY];
    a->after[i] = CAPACITY;
    a->after[a->before[CAPACITY]] = i;
    a->before[CAPACITY] = i;
}

static inline void age_touch(struct ages *a, uint32_t i, uint64_t now)
{
    age_unlink(a, i);
    age_append(a, i, now);
}

/* The entry used longest ago when its time is over, else CAPACITY. */
static inline uint32_t age_over(const struct ages *a, uint64_t before)
{
    uint32_t oldest = a->after[CAPACITY];
    return oldest != CAPACITY && a->last[oldest] < before ? oldest : CAPACITY;
}

static inline void ages_init(struct ages *a) { a->before[CAPACITY] = a->after[CAPACITY] = CAPACITY; }

/* --- free entry numbers --- */

struct numbers {
    uint32_t free[CAPACITY], count;
};

static inline void numbers_init(struct numbers *n, uint32_t count)
{
    for (n->count = 0; n->count < count; n->count++)
        n->free[n->count] = count - 1 - n->count;
}

__attribute__((unused)) static struct rte_hash *table(const char *name, uint32_t key)
{
    struct rte_hash_parameters p = {.name = name, .entries = 2 * CAPACITY, .key_len = key, .hash_func = rte_hash_crc};
    struct rte_hash *h = rte_hash_create(&p);
    if (!h)
        rte_exit(2, "no memory for a table\n");
    return h;
}

/* --- the loop --- */

/* One burst from a device: writes for each packet the device it leaves by, or DROP. */
static void process(uint16_t device, struct rte_mbuf **packets, uint16_t count, uint64_t now, uint16_t *to);
static void start(void);

static volatile sig_atomic_t stopped;
static uint64_t timeout;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static void open_device(uint16_t device, struct rte_mempool *pool)
{
    struct rte_eth_conf conf = {0};
    if (rte_eth_dev_configure(device, 1, 1, &conf) || rte_eth_rx_queue_setup(device, 0, 1024, 0, NULL, pool) ||
        rte_eth_tx_queue_setup(device, 0, 1024, 0, NULL) || rte_eth_dev_start(device))
        rte_exit(2, "device %u does not start\n", device);
}

static inline void send_burst(uint16_t device, struct rte_mbuf **packets, uint16_t count)
{
    uint16_t sent = rte_eth_tx_burst(device, 0, packets, count);
    if (sent < count)
        rte_pktmbuf_free_bulk(packets + sent, count - sent);
}

static uint64_t forwarded;

static inline uint16_t round_of(uint16_t device)
{
    struct rte_mbuf *packets[BURST], *out[BURST], *gone[BURST];
    uint16_t to[BURST], sent = 0, dropped = 0;
    uint16_t count = rte_eth_rx_burst(device, 0, packets, BURST);
    if (!count)
        return 0;
    for (uint16_t i = 0; i < count; i++)
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
    process(device, packets, count, rte_rdtsc(), to);
    for (uint16_t i = 0; i < count; i++)
        if (to[i] == DROP)
            gone[dropped++] = packets[i];
        else
            out[sent++] = packets[i];
    if (sent)
        send_burst(!device, out, sent); /* there are two devices */
    if (dropped)
        rte_pktmbuf_free_bulk(gone, dropped);
    forwarded += sent;
    return count;
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    int eal = rte_eal_init(argc, argv);
    uint64_t wanted, received = 0;
    if (eal < 0 || argc - eal != 2 || rte_eth_dev_count_avail() != 2)
        rte_exit(2, "usage: %s [EAL OPTIONS with two devices] -- PACKETS\n", argv[0]);
    wanted = strtoull(argv[eal + 1], NULL, 10);
    struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", 16383, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
    if (!pool)
        rte_exit(2, "no memory for packets\n");
    open_device(0, pool);
    open_device(1, pool);
    timeout = TIMEOUT_S * rte_get_tsc_hz();
    start();
    signal(SIGTERM, stop);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    while (!stopped && received < wanted)
        received += round_of(0) + round_of(1);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    printf("{\"packets\": %llu, \"forwarded\": %llu, \"cpu_ns\": %lld}\n", (unsigned long long)received,
           (unsigned long long)forwarded,
           (end.tv_sec - begin.tv_sec) * 1000000000LL + (end.tv_nsec - begin.tv_nsec));
    rte_eal_cleanup();
    return 0;
}

#endif
