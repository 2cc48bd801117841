/* The worker cores of a host program: each has an engine, polls receive queues, hands packets that belong to other cores
 * over through rings, and sends.
 *
 * Between any two workers there is a ring for each direction, so packets of one receive queue that belong to one core stay
 * in order. A packet that runs alone (shard.h) is run by the worker that received it, at its place in the order of that
 * queue: all that came before it has been handed over, and the others stand still only behind what they were handed. */
#ifndef CORA_DPDK_WORKER_H
#define CORA_DPDK_WORKER_H

#include <sched.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_spinlock.h>

#include "../xdp/trace.h"

#define CORA_BURST 32
#define CORA_RING_SLOTS 4096
#define CORA_SEND_TRIES 64 /* while a transmit queue is full */

/* What travels with a packet that is handed over, in the private area of its mbuf: with the packet as it arrived, where
 * ICMP errors quote it or fragments wait as they came. */
struct cora_carried {
    struct cora_packet packet;
    struct cora_record record;
};

struct cora_queue {
    uint16_t device, queue;
    uint16_t port; /* of the program */
};

struct cora_sender {
    struct rte_mbuf *waiting[2 * CORA_BURST];
    uint32_t count;
};

struct cora_handed {
    struct rte_ring *ring; /* to that worker */
    void *waiting[CORA_BURST];
    uint32_t count;
};

struct cora_worker_counts {
    uint64_t received, received_octets, handed_over, alone;
    uint64_t unsent, no_buffer, too_long;
    uint64_t cpu_ns; /* of its thread, without starting and ending */
};

struct cora_worker {
    struct cora_engine *engine;
    uint32_t number;
    uint32_t queue_count;
    struct cora_queue *queues;
    struct rte_ring *incoming[CORA_WORKERS_MOST]; /* from each other worker */
    struct cora_handed handed[CORA_WORKERS_MOST];
    struct cora_sender senders[CORA_PORTS];
    uint16_t send_queue[CORA_PORTS];
    struct rte_mbuf *current; /* the packet at hand, which can be sent as it is; NULL: it is gone */
    struct cora_worker_counts counts;
    struct rte_mbuf *mbufs[CORA_BURST];
    uint32_t to[CORA_BURST];
    struct cora_packet packets[CORA_BURST];
    struct cora_record records[CORA_BURST];
    struct cora_trace *trace; /* NULL: nobody follows packets */
} __attribute__((aligned(64)));

/* All workers, and what they share. */
struct cora_host {
    uint32_t workers;
    struct cora_worker worker[CORA_WORKERS_MOST];
    struct rte_mempool *pool;
    uint16_t device[CORA_PORTS];
    rte_spinlock_t send_lock[CORA_PORTS]; /* where workers share a transmit queue */
    bool shared_send[CORA_PORTS];
    uint32_t frame_room; /* longest frame */
    uint64_t wall, cycles, rate; /* clock: nanoseconds and cycles when it started, nanoseconds per cycle times 2^32 */
    bool by_records;             /* packets and their times come from a file */
    uint64_t virtual_now;
    rte_spinlock_t alone;
    uint32_t standing __attribute__((aligned(64))); /* workers that stand still */
    uint32_t round;                                  /* changes when they may go on */
    uint64_t in_flight __attribute__((aligned(64))); /* packets handed over and not done, by records only */
    bool stop;
    uint32_t quiet; /* workers that receive no more */
};

static struct cora_host cora_host;
static _Thread_local struct cora_worker *cora_self;
static char cora_marker; /* in a ring: stand still */

static inline uint64_t cora_host_clock(void)
{
    const struct cora_host *h = &cora_host;
    if (CORA_UNLIKELY(h->by_records))
        return __atomic_load_n(&h->virtual_now, __ATOMIC_ACQUIRE);
    return h->wall + (uint64_t)((cora_u128)(rte_rdtsc() - h->cycles) * h->rate >> 32);
}

/* Waits for another worker for a moment. */
static inline void cora_worker_wait(void)
{
    if (CORA_UNLIKELY(cora_host.by_records))
        sched_yield(); /* workers may share a processor */
    else
        cora_relax();
}

/* --- sending --- */

CORA_COLD void cora_worker_flush(struct cora_worker *w, uint32_t port)
{
    struct cora_sender *s = &w->senders[port];
    uint32_t sent = 0;
    bool shared = cora_host.shared_send[port];
    if (shared)
        rte_spinlock_lock(&cora_host.send_lock[port]);
    for (uint32_t tries = 0; sent < s->count && tries < CORA_SEND_TRIES; tries++)
        sent += rte_eth_tx_burst(cora_host.device[port], w->send_queue[port], s->waiting + sent,
                                 (uint16_t)(s->count - sent));
    if (shared)
        rte_spinlock_unlock(&cora_host.send_lock[port]);
    w->counts.unsent += s->count - sent;
    rte_pktmbuf_free_bulk(s->waiting + sent, s->count - sent);
    s->count = 0;
}

static inline void cora_worker_flush_all(struct cora_worker *w)
{
    for (uint32_t port = 0; port < CORA_PORTS; port++)
        if (w->senders[port].count)
            cora_worker_flush(w, port);
}

/* A frame that does not stand in the mbuf of the packet at hand. */
CORA_COLD struct rte_mbuf *cora_worker_copied(struct cora_worker *w, const uint8_t *frame, uint32_t length)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(cora_host.pool);
    char *at = m ? rte_pktmbuf_append(m, (uint16_t)length) : NULL;
    if (at) {
        memcpy(at, frame, length);
        return m;
    }
    w->counts.no_buffer++;
    rte_pktmbuf_free(m);
    return NULL;
}

static inline void cora_live_send(struct cora_core *core, uint32_t port, const uint8_t *frame, uint32_t length)
{
    struct cora_worker *w = cora_self;
    struct cora_sender *s = &w->senders[port];
    struct rte_mbuf *m = w->current;
    (void)core;
    if (CORA_UNLIKELY(w->trace != NULL))
        cora_trace_left(w->trace, port, frame, length);
    if (CORA_LIKELY(m != NULL && frame == rte_pktmbuf_mtod(m, const uint8_t *)))
        w->current = NULL;
    else if (!(m = cora_worker_copied(w, frame, length)))
        return;
    s->waiting[s->count++] = m;
    if (CORA_UNLIKELY(s->count == 2 * CORA_BURST))
        cora_worker_flush(w, port);
}

/* --- running packets --- */

/* Runs the rest of the program for a packet that belongs to this engine. */
static inline void cora_worker_complete(struct cora_worker *w, struct cora_engine *E, struct cora_packet *p,
                                        struct rte_mbuf *m)
{
    /* Packets of two queues have no order but that in which they come here: the clock does not go back for them. */
    if (CORA_UNLIKELY(p->now < E->core.now))
        p->now = E->core.now;
    w->current = m;
    if (CORA_UNLIKELY(w->trace != NULL))
        cora_trace_arrived(w->trace, p, p->data, p->caplen);
    cora_complete(E, p);
    if (CORA_UNLIKELY(w->trace != NULL))
        cora_trace_decided(w->trace, p);
    if (w->current)
        rte_pktmbuf_free(w->current);
    w->current = NULL;
}

/* Removes what is due, for a worker that has no packet. */
static inline void cora_worker_expire(struct cora_engine *E, uint64_t now)
{
    if (CORA_LIKELY(E->core.next_due >= now))
        return;
    E->core.now = now > E->core.now ? now : E->core.now;
    cora_program_expire(E);
    __atomic_store_n(&E->core.next_due, cora_program_due(E), __ATOMIC_RELEASE);
}

/* Stands still until the packet that runs alone is through. */
CORA_COLD void cora_worker_stand(struct cora_host *h)
{
    uint32_t round = __atomic_load_n(&h->round, __ATOMIC_ACQUIRE);
    __atomic_fetch_add(&h->standing, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&h->round, __ATOMIC_ACQUIRE) == round)
        cora_worker_wait();
}

static inline struct cora_carried *cora_carried_by(struct rte_mbuf *m) { return rte_mbuf_to_priv(m); }

/* The next packets from another worker; returns how many. */
static uint32_t cora_worker_take(struct cora_worker *w, struct rte_ring *ring)
{
    void *items[CORA_BURST];
    uint32_t n = rte_ring_sc_dequeue_burst(ring, items, CORA_BURST, NULL);
    for (uint32_t i = 0; i < n; i++)
        if (items[i] != &cora_marker)
            rte_prefetch0(cora_carried_by(items[i]));
    for (uint32_t i = 0; i < n; i++)
        if (items[i] != &cora_marker)
            cora_program_probe(w->engine, &cora_carried_by(items[i])->packet);
    for (uint32_t i = 0; i < n; i++)
        if (items[i] != &cora_marker && cora_carried_by(items[i])->packet.probe_index)
            cora_prefetch_entry(&cora_carried_by(items[i])->packet);
    for (uint32_t i = 0; i < n; i++) {
        if (CORA_UNLIKELY(items[i] == &cora_marker)) {
            cora_worker_stand(&cora_host);
            continue;
        }
        cora_worker_complete(w, w->engine, &cora_carried_by(items[i])->packet, items[i]);
        if (CORA_UNLIKELY(cora_host.by_records))
            __atomic_fetch_sub(&cora_host.in_flight, 1, __ATOMIC_ACQ_REL);
    }
    return n;
}

/* What was handed over to this worker; returns how many packets. */
static inline uint32_t cora_worker_incoming(struct cora_worker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cora_host.workers; i++)
        if (w->incoming[i])
            n += cora_worker_take(w, w->incoming[i]);
    return n;
}

/* What a worker does while it waits for others between two packets: they may wait for room in its rings, or for what is
 * due here to be removed (cora_shard_settle). */
static inline void cora_worker_serve(struct cora_worker *w)
{
    if (!cora_worker_incoming(w)) {
        cora_worker_expire(w->engine, cora_host_clock());
        cora_worker_wait();
    }
}

/* Puts all that waits for another worker into its ring. */
static void cora_worker_hand_on(struct cora_worker *w, uint32_t to)
{
    struct cora_handed *h = &w->handed[to];
    uint32_t count = h->count, done = 0;
    void *items[CORA_BURST];
    memcpy(items, h->waiting, count * sizeof *items);
    h->count = 0;
    while ((done += rte_ring_sp_enqueue_burst(h->ring, items + done, count - done, NULL)) < count)
        cora_worker_serve(w);
}

static inline void cora_worker_hand_on_all(struct cora_worker *w)
{
    for (uint32_t i = 0; i < cora_host.workers; i++)
        if (w->handed[i].count)
            cora_worker_hand_on(w, i);
}

/* Hands a packet over to its core. */
static inline void cora_worker_hand_over(struct cora_worker *w, const struct cora_packet *p, struct rte_mbuf *m,
                                         uint32_t to)
{
    struct cora_handed *h = &w->handed[to];
    struct cora_carried *carried = cora_carried_by(m);
    carried->packet = *p;
    carried->record = *p->record;
    carried->packet.record = &carried->record;
    if (CORA_UNLIKELY(p->l4_header == p->inherited))
        carried->packet.l4_header = carried->packet.inherited;
    if (CORA_UNLIKELY(cora_host.by_records))
        __atomic_fetch_add(&cora_host.in_flight, 1, __ATOMIC_ACQ_REL);
    w->counts.handed_over++;
    h->waiting[h->count++] = m;
    if (h->count == CORA_BURST)
        cora_worker_hand_on(w, to);
}

/* --- standing still --- */

/* The other workers stand still, behind all that this one has handed over to them. */
static void cora_worker_halt(struct cora_worker *w)
{
    struct cora_host *h = &cora_host;
    cora_worker_hand_on_all(w);
    while (!rte_spinlock_trylock(&h->alone))
        cora_worker_serve(w);
    __atomic_store_n(&cora_shards.halt, true, __ATOMIC_RELEASE);
    __atomic_store_n(&h->standing, 0, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < h->workers; i++)
        while (i != w->number && rte_ring_sp_enqueue(w->handed[i].ring, &cora_marker) != 0)
            cora_worker_wait();
    while (__atomic_load_n(&h->standing, __ATOMIC_ACQUIRE) < h->workers - 1)
        cora_worker_wait();
    uint64_t now = cora_host_clock();
    for (uint32_t i = 0; i < h->workers; i++)
        cora_worker_expire(h->worker[i].engine, now);
}

static void cora_worker_resume(void)
{
    struct cora_host *h = &cora_host;
    __atomic_store_n(&cora_shards.halt, false, __ATOMIC_RELEASE);
    __atomic_fetch_add(&h->round, 1, __ATOMIC_ACQ_REL);
    rte_spinlock_unlock(&h->alone);
}

/* Runs a packet alone, on the engine of core 0. */
CORA_COLD void cora_worker_alone(struct cora_worker *w, struct cora_packet *p, struct rte_mbuf *m)
{
    struct cora_engine *E = cora_host.worker[0].engine;
    w->counts.alone++;
    cora_worker_halt(w);
    for (uint32_t i = 0; i < cora_host.workers; i++)
        cora_worker_expire(cora_host.worker[i].engine, p->now);
    E->shard.alone = true;
    cora_worker_complete(w, E, p, m);
    cora_program_homecoming(E);
    E->shard.alone = false;
    cora_worker_resume();
}

/* --- receiving --- */

/* Makes a packet of a received mbuf; false: it cannot be taken. */
static inline bool cora_worker_arrive(struct cora_worker *w, struct cora_packet *p, struct cora_record *record,
                                      struct rte_mbuf *m, uint64_t index)
{
    uint32_t length = rte_pktmbuf_pkt_len(m);
    if (CORA_UNLIKELY(m->nb_segs > 1) && rte_pktmbuf_linearize(m) != 0) {
        w->counts.too_long++;
        return false;
    }
    uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
    record->data = (uint64_t)(uintptr_t)frame;
    record->caplen = length;
    if (!cora_host.by_records)
        record->wirelen = length;
    record->ethertype = 0;
#if CORA_KEEPS_ORIGINAL
    uint8_t *original = (uint8_t *)(cora_carried_by(m) + 1);
    memcpy(original, frame, length);
    record->data = (uint64_t)(uintptr_t)original;
#endif
    cora_begin(w->engine, p, record, frame);
    p->now = record->time_ns;
    p->index = index;
    cora_program_prefix(w->engine, p);
    return true;
}

/* One packet of a burst, at its turn. */
static inline void cora_worker_one(struct cora_worker *w, uint32_t i)
{
    if (CORA_LIKELY(w->to[i] == w->number))
        cora_worker_complete(w, w->engine, &w->packets[i], w->mbufs[i]);
    else if (w->to[i] == CORA_ALONE)
        cora_worker_alone(w, &w->packets[i], w->mbufs[i]);
    else
        cora_worker_hand_over(w, &w->packets[i], w->mbufs[i], w->to[i]);
}

/* The packets in `mbufs` with their records (port and time): the part of the program before the first table access for
 * all of them, then the rest, one by one in order. */
static inline void cora_worker_run(struct cora_worker *w, uint32_t n, uint64_t index)
{
    const bool several = cora_host.workers > 1;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (CORA_UNLIKELY(kept != i))
            w->records[kept] = w->records[i];
        if (CORA_UNLIKELY(!cora_worker_arrive(w, &w->packets[kept], &w->records[kept], w->mbufs[i], index + i))) {
            rte_pktmbuf_free(w->mbufs[i]);
            continue;
        }
        w->mbufs[kept] = w->mbufs[i];
        w->to[kept] = several ? cora_program_steer(w->engine, &w->packets[kept], w->number) : w->number;
        kept++;
    }
    for (uint32_t i = 0; i < kept; i++)
        if (w->packets[i].probe_index && w->to[i] == w->number)
            cora_prefetch_entry(&w->packets[i]);
    for (uint32_t i = 0; i < kept; i++)
        cora_worker_one(w, i);
    if (several)
        cora_worker_hand_on_all(w);
}

/* Receives from one queue; returns how many packets came. */
static inline uint32_t cora_worker_receive(struct cora_worker *w, const struct cora_queue *q)
{
    uint32_t n = rte_eth_rx_burst(q->device, q->queue, w->mbufs, CORA_BURST);
    if (!n)
        return 0;
    uint64_t now = cora_host_clock();
    for (uint32_t i = 0; i < n; i++) {
        rte_prefetch0(rte_pktmbuf_mtod(w->mbufs[i], void *));
        w->records[i].time_ns = now;
        w->records[i].port = q->port;
        w->counts.received_octets += rte_pktmbuf_pkt_len(w->mbufs[i]);
    }
    cora_worker_run(w, n, w->counts.received);
    w->counts.received += n;
    return n;
}

/* Ends a worker: what it has handed over and what it was handed is done before it returns. */
static void cora_worker_finish(struct cora_worker *w)
{
    struct cora_host *h = &cora_host;
    cora_worker_hand_on_all(w);
    __atomic_fetch_add(&h->quiet, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&h->quiet, __ATOMIC_ACQUIRE) < h->workers)
        cora_worker_serve(w);
    while (cora_worker_incoming(w))
        ;
    /* Others may still have something to do that hangs on this one. */
    __atomic_fetch_add(&h->quiet, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&h->quiet, __ATOMIC_ACQUIRE) < 2 * h->workers)
        cora_worker_serve(w);
    cora_worker_flush_all(w);
}

#endif
