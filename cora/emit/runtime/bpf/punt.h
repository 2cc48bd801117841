/* Handing packets on to the user half: the order in which it is counted, the header before the frame, the socket. */
#ifndef CORA_BPF_PUNT_H
#define CORA_BPF_PUNT_H

#include "core.h"

/* What the near place keeps of an entry that is lent to it, beside the entry. */
struct cora_lent_entry {
    bool pending;        /* packets that it must not overtake may be on their way */
    bool active;         /* it was used here, so its values count */
    uint32_t slot;       /* at its owner */
    uint64_t used, gap;  /* the flow's latest packet and the mean of its pauses, as the owner keeps them */
    uint64_t known;      /* the deadline its owner knows */
    uint64_t serial;
    uint64_t round;      /* all handed on up to this round come before it */
    uint64_t number[2];  /* ... and so many of these two queues (a direction of a flow has one queue as a rule) */
    uint32_t queue[2];
};

static inline uint32_t cora_queue(struct xdp_md *ctx, const struct cora_packet *p)
{
    return (p->port * cora_shared.queues + ctx->rx_queue_index) % CORA_QUEUES;
}

/* The packet will be handed on, and the entry it met follows it. It is counted first: a round that is closed after that
 * covers it, and one that was closed before is not noted here. So the notes need no lock; one that is overwritten or late only
 * makes the entry wait longer. Called before the packet lets go of its entry. */
static inline void cora_handed_on(struct cora_counts *counts, struct cora_packet *p, uint32_t queue)
{
    uint64_t number = __sync_fetch_and_add(&cora_shared.punted[queue], 1) + 1;
    struct cora_lent_entry *met = p->met;
    counts->statistics[CORA_PUNTED]++;
    if (!met)
        return;
    uint32_t side = p->port & 1;
    if (met->queue[side] != queue) {
        /* Those of the other queue are covered by the round. */
        if (met->pending)
            met->round = cora_volatile(&cora_shared.rounds.open);
        met->queue[side] = queue;
    }
    met->number[side] = number;
    *(volatile bool *)&met->pending = true;
}

/* It was counted, but no socket will have it: the user half counts it as through when all before it are. */
static inline int cora_not_handed_on(struct cora_counts *counts, uint32_t queue, enum cora_kernel_fault fault)
{
    __sync_fetch_and_add(&cora_shared.lost[queue], 1);
    return cora_fault(counts, fault);
}

/* Makes room for CORA_PUNT_META bytes before the frame and writes the punt header; NULL: the driver has none. */
static inline uint8_t *cora_punt_head(struct xdp_md *ctx, const struct cora_packet *p, uint16_t entry, uint8_t values)
{
    if (bpf_xdp_adjust_meta(ctx, -CORA_PUNT_META))
        return NULL;
    uint8_t *meta = (uint8_t *)(long)ctx->data_meta, *data = (uint8_t *)(long)ctx->data;
    if (meta + CORA_PUNT_META > data)
        return NULL;
    struct cora_punt_head *head = (struct cora_punt_head *)meta;
    head->program = CORA_PROGRAM;
    head->now = p->now;
    head->epoch = CORA_EPOCH;
    head->wirelen = p->wirelen;
    head->present = p->present;
    head->l3 = p->l3;
    head->l4 = p->l4;
    head->end = p->end;
    head->fragment_start = p->fragment_start;
    head->quoted = p->quoted;
    head->quoted_l4 = p->quoted_l4;
    head->fragment_id = p->fragment_id;
    head->port = p->port;
    head->entry = entry;
    head->fragment_offset = (uint16_t)p->fragment_offset;
    head->eth_type = p->eth_type;
    head->tags = p->tags;
    head->family = p->family;
    head->upper = p->upper;
    head->quoted_family = p->quoted_family;
    head->quoted_upper = p->quoted_upper;
    head->flags = (uint8_t)(p->is_fragment * CORA_PUNT_FRAGMENT | p->more_fragments * CORA_PUNT_MORE);
    /* Nothing here follows a first fragment: trackers are in user space. */
    __builtin_memset(head->inherited, 0, sizeof head->inherited);
    head->values = values;
    __builtin_memset(head->unused, 0, sizeof head->unused);
    return meta;
}

static inline int cora_punt(struct cora_counts *counts, uint32_t queue)
{
    if (CORA_UNLIKELY(cora_shared.test_run)) {
        cora_shared.verdict = CORA_VERDICT_PUNT;
        return XDP_REDIRECT;
    }
    if (!cora_shared.attached || bpf_redirect_map(&cora_xsks, queue, 0) != XDP_REDIRECT)
        return cora_not_handed_on(counts, queue, CORA_FAULT_USER);
    return XDP_REDIRECT;
}

#endif
