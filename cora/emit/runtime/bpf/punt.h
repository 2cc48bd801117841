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

/* The packet will be handed on: it is counted, once. */
static inline void cora_hand_on(struct xdp_md *ctx, struct cora_counts *counts, struct cora_packet *p)
{
    if (p->number)
        return;
    p->queue = cora_queue(ctx, p);
    p->number = __sync_fetch_and_add(&cora_shared.punted[p->queue], 1) + 1;
    counts->statistics[CORA_PUNTED]++;
}

/* The entry, whose lock is held, must not overtake the packet, which was counted before: a round that is closed after that
 * covers it, and the number of one that was closed before is not noted here. */
static inline void cora_follow(const struct cora_packet *p, struct cora_lent_entry *l)
{
    uint32_t side = p->port & 1;
    if (l->queue[side] != p->queue) {
        /* Those of the other queue are covered by the round. */
        if (l->pending)
            l->round = cora_volatile(&cora_shared.rounds.open);
        l->queue[side] = p->queue;
    }
    l->number[side] = p->number;
    l->pending = true;
}

/* It was counted, but no socket will have it: the user half counts it as through when all before it are. */
static inline int cora_not_handed_on(struct cora_counts *counts, const struct cora_packet *p,
                                     enum cora_kernel_fault fault)
{
    __sync_fetch_and_add(&cora_shared.lost[p->queue % CORA_QUEUES], 1);
    return cora_fault(counts, fault);
}

/* Makes room for CORA_PUNT_META bytes before the frame and writes the punt header; NULL: the driver has none. */
static inline uint8_t *cora_punt_head(struct xdp_md *ctx, const struct cora_packet *p, uint16_t entry, uint8_t values)
{
    if (bpf_xdp_adjust_meta(ctx, -CORA_PUNT_META))
        return NULL;
    uint8_t *meta = cora_pointer(ctx->data_meta), *data = cora_pointer(ctx->data);
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

static inline int cora_punt(struct cora_counts *counts, const struct cora_packet *p)
{
    if (CORA_UNLIKELY(cora_shared.test_run)) {
        cora_shared.verdict = CORA_VERDICT_PUNT;
        return XDP_REDIRECT;
    }
    if (!cora_shared.attached || bpf_redirect_map(&cora_xsks, p->queue, 0) != XDP_REDIRECT)
        return cora_not_handed_on(counts, p, CORA_FAULT_USER);
    return XDP_REDIRECT;
}

#endif
