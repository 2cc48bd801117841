/* Devices, their queues, receive-side scaling, and the rings between workers. */
#ifndef CORA_DPDK_PORTS_H
#define CORA_DPDK_PORTS_H

#include <rte_errno.h>

#include "options.h"

/* The steering key as a card wants it. */
static uint8_t cora_rss_key[64];

static void cora_pool_open(const struct cora_options *o)
{
    size_t private = sizeof(struct cora_carried) + (CORA_KEEPS_ORIGINAL ? o->frame_room : 0);
    private = (private + RTE_MBUF_PRIV_ALIGN - 1) & ~(size_t)(RTE_MBUF_PRIV_ALIGN - 1);
    if (private > UINT16_MAX)
        cora_fail("--frame-bytes %u: frames of this program can have at most %zu bytes, since each is kept as it arrived",
                  o->frame_room, (size_t)UINT16_MAX - sizeof(struct cora_carried) - RTE_MBUF_PRIV_ALIGN);
    cora_host.frame_room = o->frame_room;
    cora_host.pool = rte_pktmbuf_pool_create("cora", o->buffers, o->buffers > 1024 ? 256 : 32, (uint16_t)private,
                                             (uint16_t)(o->frame_room + RTE_PKTMBUF_HEADROOM), (int)rte_socket_id());
    if (!cora_host.pool)
        cora_fail("there is no memory for %u packet buffers of %u bytes (%s): more memory with -m, or fewer --buffers",
                  o->buffers, o->frame_room, rte_strerror(rte_errno));
}

/* Fills the indirection table so that the card leads packets to the cores that software would. */
static bool cora_rss_table(uint16_t device, uint32_t slots, uint32_t queues)
{
    struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
    memset(table, 0, sizeof table);
    for (uint32_t i = 0; i < slots; i++) {
        table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << i % RTE_ETH_RETA_GROUP_SIZE;
        table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] =
            (uint16_t)(cora_shards.core_of[i % CORA_STEER_SLOTS] % queues);
    }
    return rte_eth_dev_rss_reta_update(device, table, (uint16_t)slots) == 0;
}

/* Whether a card can be told to lead packets itself: by these fields, with a key of this length, and a large enough table. */
static bool cora_rss_able(const struct rte_eth_dev_info *info, uint64_t fields)
{
    const uint64_t only = RTE_ETH_RSS_L3_SRC_ONLY | RTE_ETH_RSS_L3_DST_ONLY | RTE_ETH_RSS_L4_SRC_ONLY |
                          RTE_ETH_RSS_L4_DST_ONLY;
    return fields && (info->flow_type_rss_offloads & fields & ~only) && !(fields & only & ~info->flow_type_rss_offloads) &&
           info->reta_size >= CORA_STEER_SLOTS && info->reta_size <= RTE_ETH_RSS_RETA_SIZE_512 && info->hash_key_size &&
           info->hash_key_size <= sizeof cora_rss_key;
}

static void cora_device_check(int result, uint32_t port, const char *what)
{
    if (result < 0)
        cora_fail("the device of port '%s' refuses %s: %s", cora_port_names[port], what, rte_strerror(-result));
}

static void cora_device_queues(uint32_t port, const struct cora_options *o, uint32_t receive, uint32_t send)
{
    uint16_t device = cora_host.device[port], in = (uint16_t)o->descriptors, out = (uint16_t)o->descriptors;
    cora_device_check(rte_eth_dev_adjust_nb_rx_tx_desc(device, &in, &out), port, "queues of this length");
    for (uint32_t q = 0; q < receive; q++)
        cora_device_check(rte_eth_rx_queue_setup(device, (uint16_t)q, in, (unsigned)rte_eth_dev_socket_id(device), NULL,
                                                 cora_host.pool), port, "a receive queue");
    for (uint32_t q = 0; q < send; q++)
        cora_device_check(rte_eth_tx_queue_setup(device, (uint16_t)q, out, (unsigned)rte_eth_dev_socket_id(device), NULL),
                          port, "a transmit queue");
}

/* Worker `to` polls one more queue. */
static void cora_worker_polls(uint32_t to, uint32_t port, uint32_t queue)
{
    struct cora_worker *w = &cora_host.worker[to];
    w->queues = realloc(w->queues, (w->queue_count + 1) * sizeof *w->queues);
    if (!w->queues)
        cora_fail("there is no memory");
    w->queues[w->queue_count++] = (struct cora_queue){cora_host.device[port], (uint16_t)queue, (uint16_t)port};
}

/* One device: as many receive queues as it spreads packets over, a transmit queue for each worker where it has them. */
static void cora_device_open(uint32_t port, const struct cora_options *o)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {.rxmode = {.mq_mode = RTE_ETH_MQ_RX_NONE}};
    uint16_t device = cora_host.device[port];
    uint32_t workers = cora_host.workers;
    cora_device_check(rte_eth_dev_info_get(device, &info), port, "to tell about itself");
    bool able = workers > 1 && !o->no_rss && cora_rss_able(&info, cora_rss_fields[port]);
    uint32_t most = o->no_rss ? 1 : info.max_rx_queues;
    uint32_t receive = workers < most ? workers : most ? most : 1;
    uint32_t send = workers <= info.max_tx_queues ? workers : 1;
    if (able) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
            .rss_key = cora_rss_key, .rss_key_len = info.hash_key_size,
            .rss_hf = cora_rss_fields[port] & info.flow_type_rss_offloads};
    }
    cora_device_check(rte_eth_dev_configure(device, (uint16_t)receive, (uint16_t)send, &conf), port,
                      "this number of queues");
    cora_device_queues(port, o, receive, send);
    cora_device_check(rte_eth_dev_start(device), port, "to start");
    (void)rte_eth_promiscuous_enable(device); /* software devices have no such mode */
    bool led = able && cora_rss_table(device, info.reta_size, receive);
    cora_host.shared_send[port] = send < workers;
    for (uint32_t i = 0; i < workers; i++)
        cora_host.worker[i].send_queue[port] = (uint16_t)(send < workers ? 0 : i);
    for (uint32_t q = 0; q < receive; q++)
        cora_worker_polls(receive == workers ? q : (port + q) % workers, port, q);
    fprintf(stderr, "cora: port %s is device %u (%s): %u receive queues, %s; %s\n", cora_port_names[port], device,
            info.driver_name, receive,
            workers == 1 ? "one core" : led ? "the card leads packets to their cores" : "software leads packets to their cores",
            send < workers ? "its transmit queue is shared under a lock" : "a transmit queue for each core");
}

static void cora_devices_open(const struct cora_options *o)
{
    for (uint32_t i = 0; i < sizeof cora_rss_key; i++)
        cora_rss_key[i] = (uint8_t)(i % 2 ? CORA_STEER_KEY & 255 : CORA_STEER_KEY >> 8);
    for (uint32_t port = 0; port < CORA_PORTS; port++)
        cora_device_open(port, o);
}

static void cora_devices_close(void)
{
    for (uint32_t port = 0; port < CORA_PORTS; port++) {
        rte_eth_dev_stop(cora_host.device[port]);
        rte_eth_dev_close(cora_host.device[port]);
    }
}

static void cora_rings_open(void)
{
    char name[32];
    for (uint32_t from = 0; from < cora_host.workers; from++)
        for (uint32_t to = 0; to < cora_host.workers; to++) {
            if (from == to)
                continue;
            snprintf(name, sizeof name, "cora-%u-%u", from, to);
            struct rte_ring *ring = rte_ring_create(name, CORA_RING_SLOTS, (int)rte_socket_id(),
                                                    RING_F_SP_ENQ | RING_F_SC_DEQ);
            if (!ring)
                cora_fail("there is no memory for the rings between workers: more memory with -m");
            cora_host.worker[from].handed[to].ring = ring;
            cora_host.worker[to].incoming[from] = ring;
        }
}

#endif
