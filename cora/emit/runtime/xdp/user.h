/* The user-space half of a program that runs in the kernel and here: takes the packets that the kernel half hands on, runs
 * the rest of the program, and sends. Included last in the generated file, after place_driver.h.
 *
 * One thread does all of it, in rounds: packets of every socket, the oldest first; then everything that is to be sent goes
 * to the drivers; then, and not before, the kernel is told that those packets are through. So a packet that the kernel
 * forwards by itself cannot overtake one of its flow that was here. Between rounds tables are swept and the control
 * socket's requests are served. */
#ifndef CORA_XDP_USER_H
#define CORA_XDP_USER_H

#include "../control.h"
#include "ledger.h"
#include "punt.h"
#include "trace.h"
#include "world.h"
#include "xsk.h"

#define CORA_USER_ROUND 64

struct cora_user {
    struct cora_engine *engine;
    struct cora_world world;
    struct cora_kernel kernel;
    struct cora_frames frames;
    struct cora_xsk *sockets; /* by port, then queue */
    uint64_t *heads;          /* by socket: time of its next packet, or CORA_NEVER */
    struct cora_losses *losses; /* by socket */
    uint32_t socket_count;
    struct cora_xsk *outputs[CORA_PORTS]; /* the first socket of each port */
    struct cora_ledger *ledger;
    struct cora_port_counts *counts; /* by port, in the ledger */
    uint8_t *original; /* the packet at hand as it arrived */
    const uint8_t *current; /* its frame, which can be sent as it is */
    uint64_t current_address;
    bool current_sent;
    uint64_t packets; /* received so far */
    uint64_t started; /* time */
    struct cora_trace *trace; /* NULL: nobody follows packets */
    struct cora_control control;
    struct json_t *lost;      /* texts: what a killed user half took along, or NULL */
    bool orphaned;            /* the kernel half is gone from a port */
};

/* Packets that never reached a socket are through once those that stood in its ring when they were counted are. */
struct cora_losses {
    uint64_t before; /* counted when the socket was made */
    uint64_t known;  /* waits for the ring to be read up to `until` */
    uint32_t until;
    uint64_t counted; /* are through */
};

static struct cora_user cora_user;

/* Number of a socket's queue in the kernel half. */
static inline uint32_t cora_user_queue(const struct cora_user *u, uint32_t socket)
{
    return u->sockets[socket].port * u->kernel.queues + u->sockets[socket].queue;
}

/* Whether all that the kernel half handed on at a socket is through. */
static inline bool cora_user_idle(struct cora_user *u, uint32_t socket)
{
    uint32_t queue = cora_user_queue(u, socket);
    return !cora_xsk_peek(&u->sockets[socket]) && cora_kernel_punted(&u->kernel, queue) == u->kernel.done[queue];
}

/* --- sending --- */

/* Makes room in a port's transmit queue. */
CORA_COLD void cora_user_drain(struct cora_user *u, struct cora_xsk *x)
{
    u->counts[x->port].refused += cora_xsk_flush(x);
    cora_xsk_complete(x, &u->frames);
}

static void cora_live_send(struct cora_core *core, uint32_t port, const uint8_t *frame, uint32_t length)
{
    struct cora_user *u = &cora_user;
    struct cora_xsk *x = u->outputs[port];
    (void)core;
    if (CORA_UNLIKELY(u->trace))
        cora_trace_left(u->trace, port, frame, length);
    if (CORA_UNLIKELY(length > u->kernel.ports[port].longest)) {
        u->counts[port].long_frames++;
        return;
    }
    if (CORA_UNLIKELY(!cora_xsk_has_room(x)))
        cora_user_drain(u, x);
    bool in_place = frame == u->current && !u->current_sent;
    if (CORA_UNLIKELY(!cora_xsk_has_room(x) || (!in_place && !u->frames.unused_count))) {
        u->counts[port].unsent++;
        return;
    }
    if (CORA_LIKELY(in_place)) {
        u->current_sent = true;
        cora_xsk_queue(x, u->current_address, length);
        return;
    }
    uint64_t address = u->frames.unused[--u->frames.unused_count] + CORA_XSK_HEADROOM;
    memcpy(u->frames.area + address, frame, length);
    cora_xsk_queue(x, address, length);
}

/* What a socket has lost by now becomes through when the packets before it are. */
static void cora_user_losses(struct cora_user *u)
{
    for (uint32_t i = 0; i < u->socket_count; i++) {
        struct cora_losses *l = &u->losses[i];
        uint64_t lost = cora_kernel_lost(&u->kernel, cora_user_queue(u, i)) + cora_xsk_lost(&u->sockets[i]) - l->before;
        if (lost == l->known)
            continue;
        l->known = lost;
        l->until = cora_ring_load(u->sockets[i].rx.producer);
    }
}

/* Sends what the round has queued, then tells the kernel half which packets are through. */
static void cora_user_publish(struct cora_user *u)
{
    for (uint32_t i = 0; i < u->socket_count; i++) {
        struct cora_xsk *x = &u->sockets[i];
        if (cora_xsk_unsent(x))
            u->counts[x->port].refused += cora_xsk_flush(x);
        cora_xsk_complete(x, &u->frames);
        cora_xsk_refill(x, &u->frames);
    }
    for (uint32_t i = 0; i < u->socket_count; i++) {
        struct cora_losses *l = &u->losses[i];
        if (l->known != l->counted && (int32_t)(u->sockets[i].rx_next - l->until) >= 0) {
            u->counts[u->sockets[i].port].lost += l->known - l->counted;
            u->kernel.done[cora_user_queue(u, i)] += l->known - l->counted;
            l->counted = l->known;
        }
        cora_kernel_done(&u->kernel, cora_user_queue(u, i));
    }
    cora_summary(u->engine, u->ledger->totals);
    memcpy(u->ledger->statistics, u->world.statistics, sizeof u->ledger->statistics);
}

/* Takes all entries of a lending out of the kernel half; returns how many fit here again. */
CORA_COLD uint64_t cora_user_adopt(struct cora_user *u, uint32_t lending)
{
    struct cora_message take = {.kind = CORA_RECALL, .lending = lending, .slot = CORA_NONE}, entry;
    uint64_t adopted = 0;
    while (cora_kernel_tell(&u->kernel, &take, &entry) && entry.kind == CORA_RETURNED) {
        adopted += cora_program_adopt(u->engine, lending, entry.row);
        take.number = entry.number;
    }
    u->engine->core.next_due = cora_program_due(u->engine);
    return adopted;
}

/* Entries of every state, for the user half that comes after this one should it be killed. */
static void cora_user_account(struct cora_user *u)
{
    for (uint32_t i = 0; i < CORA_STATES; i++)
        u->ledger->entries[i] = cora_program_entries(u->engine, i);
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        u->ledger->lent[c] = u->engine->place.owned[c].lent;
}

/* --- receiving --- */

/* One packet that the kernel half handed on, in the frame where the kernel put it. */
static void cora_user_packet(struct cora_user *u, uint32_t socket, uint64_t address, uint32_t length)
{
    struct cora_engine *E = u->engine;
    struct cora_packet *p = &E->batch.packets[0];
    uint8_t *frame = u->frames.area + address;
    const uint8_t *head = frame - CORA_PUNT_META;
    struct cora_port_counts *counts = &u->counts[u->sockets[socket].port];
    counts->received++;
    counts->octets += length;
    if (CORA_UNLIKELY(!cora_punt_sane(head, frame, length))) {
        counts->stray++;
        cora_count_event(E, CORA_STRAY);
        return;
    }
    struct cora_record record = {.data = (uint64_t)(uintptr_t)frame, .caplen = length, .wirelen = length,
                                 .port = (uint16_t)u->sockets[socket].port};
#if CORA_KEEPS_ORIGINAL
    /* ICMP errors quote the packet as it arrived, and fragments wait as they arrived. */
    memcpy(u->original, frame, length);
    record.data = (uint64_t)(uintptr_t)u->original;
#endif
    cora_punt_decode(E, p, head, &record, frame);
    p->index = u->packets++;
    /* Packets of two queues have no order but that of their arrival here: the clock does not go back for them. */
    if (p->now < E->core.now)
        p->now = E->core.now;
    u->current = frame;
    u->current_address = address;
    if (CORA_UNLIKELY(u->trace))
        cora_trace_arrived(u->trace, p, frame, length);
    cora_place_packet(E, p);
    if (CORA_UNLIKELY(u->trace))
        cora_trace_decided(u->trace, p);
}

/* What the kernel half told of its own accord before the packets that come next. */
static inline void cora_user_notices(struct cora_user *u)
{
    struct cora_shared *shared = u->kernel.shared;
    uint64_t next = shared->notice_tail;
    const struct cora_notice *n = &shared->notices[next % CORA_NOTICES];
    if (CORA_LIKELY(__atomic_load_n(&n->ready, __ATOMIC_ACQUIRE) != next + 1))
        return;
    for (; __atomic_load_n(&n->ready, __ATOMIC_ACQUIRE) == next + 1; n = &shared->notices[++next % CORA_NOTICES]) {
        struct cora_item item = {.kind = n->kind, .lending = n->lending, .slot = n->slot, .serial = n->serial,
                                 .deadline = n->deadline};
        if (item.lending < CORA_LENDINGS && item.slot < u->engine->place.owned[item.lending].capacity)
            cora_owner_item(u->engine, &item);
        else
            cora_count_event(u->engine, CORA_STRAY);
    }
    __atomic_store_n(&shared->notice_tail, next, __ATOMIC_RELEASE);
}

/* The socket whose next packet is the oldest one, or CORA_NONE. */
static inline uint32_t cora_user_oldest(struct cora_user *u)
{
    uint32_t oldest = CORA_NONE;
    for (uint32_t i = 0; i < u->socket_count; i++) {
        if (u->heads[i] == CORA_NEVER) {
            const struct xdp_desc *next = cora_xsk_peek(&u->sockets[i]);
            if (!next)
                continue;
            u->heads[i] = cora_punt_time(u->frames.area + next->addr - CORA_PUNT_META);
        }
        if (oldest == CORA_NONE || u->heads[i] < u->heads[oldest])
            oldest = i;
    }
    return oldest;
}

/* A round of packets; returns how many there were. */
static uint32_t cora_user_round(struct cora_user *u)
{
    uint32_t n = 0, i;
    for (; n < CORA_USER_ROUND && (i = cora_user_oldest(u)) != CORA_NONE; n++) {
        struct cora_xsk *x = &u->sockets[i];
        uint64_t address = cora_xsk_peek(x)->addr;
        uint32_t length = cora_xsk_peek(x)->len;
        cora_xsk_taken(x);
        u->heads[i] = CORA_NEVER;
        u->current_sent = false;
        u->kernel.done[cora_user_queue(u, i)]++;
        cora_user_notices(u);
        cora_user_packet(u, i, address, length);
        if (!u->current_sent)
            cora_frame_free(&u->frames, address);
        u->current = NULL;
    }
    if (n)
        cora_user_publish(u);
    return n;
}

#endif
