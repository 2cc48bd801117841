/* The near side of lending in the kernel (docs/splitting.md): when a lent entry may be used, what its owner is told, and
 * which one makes room. The tables' part is generated. */
#ifndef CORA_BPF_LENT_H
#define CORA_BPF_LENT_H

#include "punt.h"
#include "table.h"

#define CORA_GAP_UNKNOWN UINT64_MAX /* the flow had one packet */

/* The admission policy's constants; their reasons are in docs/profile.md, "Lending entries". */
#define CORA_SMOOTHING 8
#define CORA_SILENCE 16
#define CORA_PROOF 8
#define CORA_FASTER 2

/* Entries looked at for the one that is idle longest, in turn from where the last search ended. */
#define CORA_SAMPLE 64

struct cora_idle {
    uint64_t used;
    uint32_t found;
};

/* The flow of an entry had one more packet. */
static inline void cora_note_gap(struct cora_lent_entry *l, uint64_t now)
{
    uint64_t pause = now > l->used ? now - l->used : 0;
    l->gap = l->gap == CORA_GAP_UNKNOWN ? pause : l->gap - l->gap / CORA_SMOOTHING + pause / CORA_SMOOTHING;
    l->used = now > l->used ? now : l->used;
}

/* Closes the open round where the one before it is through. Who hands a packet on counts it before it reads `open`, and
 * here `open` is raised before the counts are read (both by atomic steps, which are barriers): whoever noted the number of
 * the round that is closed here has been counted. */
static inline bool cora_close_round(void)
{
    struct cora_rounds *rounds = &cora_shared.rounds;
    uint32_t most = CORA_PORTS * cora_shared.queues;
    CORA_LOOP
    for (uint32_t q = 0; q < CORA_QUEUES; q++) {
        if (q >= most)
            break;
        if ((int64_t)(cora_volatile(&cora_shared.done[q]) - rounds->closing[q]) < 0)
            return false;
    }
    uint64_t closed = __sync_fetch_and_add(&rounds->open, 1);
    *(volatile uint64_t *)&rounds->through = closed - 1;
    CORA_LOOP
    for (uint32_t q = 0; q < CORA_QUEUES; q++) {
        if (q >= most)
            break;
        rounds->closing[q] = cora_volatile(&cora_shared.punted[q]);
    }
    return true;
}

/* Two rounds in one go where nothing is on its way. One CPU at a time; others find out with their next packet. */
CORA_ALONE int cora_close_rounds(void)
{
    if (__sync_lock_test_and_set(&cora_shared.rounds.busy, 1))
        return 0;
    if (cora_close_round())
        cora_close_round();
    __sync_lock_test_and_set(&cora_shared.rounds.busy, 0);
    return 0;
}

static inline bool cora_is_through(uint64_t round)
{
    return cora_volatile(&cora_shared.rounds.through) >= round;
}

/* Before the entry is locked: closes rounds where that may let it be used. */
static inline void cora_lent_look(const struct cora_lent_entry *l, uint32_t lending)
{
    uint64_t guard = cora_volatile(&cora_shared.guard[lending]);
    if (CORA_LIKELY(!l->pending && cora_is_through(guard)))
        return;
    if (!cora_is_through(l->round > guard ? l->round : guard))
        cora_close_rounds();
}

/* Whether all packets that the entry must not overtake are through; else later ones follow those. */
static inline bool cora_lent_is_clear(struct cora_lent_entry *l, uint32_t lending)
{
    uint64_t guard = cora_volatile(&cora_shared.guard[lending]);
    if (CORA_LIKELY(!l->pending && cora_is_through(guard)))
        return true;
    for (int side = 0; side < 2; side++)
        if ((int64_t)(cora_volatile(&cora_shared.done[l->queue[side] % CORA_QUEUES]) - l->number[side]) < 0)
            return false;
    if (!cora_is_through(l->round > guard ? l->round : guard))
        return false;
    l->pending = false;
    return true;
}

/* Tells the owner; false: it has not read the notices before. Written under the entry's lock, so before any packet behind
 * this one can be handed on. */
static inline bool cora_notify(struct cora_counts *counts, enum cora_item_kind kind, const struct cora_lent_entry *l,
                               uint32_t lending, uint64_t deadline)
{
    /* Room is kept for other CPUs that are here at the same time. */
    if (cora_volatile(&cora_shared.notice_head) - cora_volatile(&cora_shared.notice_tail) > CORA_NOTICES - 512) {
        counts->notices_lost++;
        return false;
    }
    uint64_t number = __sync_fetch_and_add(&cora_shared.notice_head, 1);
    struct cora_notice *notice = &cora_shared.notices[number % CORA_NOTICES];
    notice->kind = kind;
    notice->lending = lending;
    notice->slot = l->slot;
    notice->serial = l->serial;
    notice->deadline = deadline;
    __sync_lock_test_and_set(&notice->ready, number + 1);
    return true;
}

/* A look-up found a lent entry, which is locked and not due; whether it may be used now. */
static inline bool cora_lent_use(struct cora_counts *counts, struct cora_lent_entry *l, uint32_t lending, uint64_t now)
{
    if (CORA_UNLIKELY(!cora_lent_is_clear(l, lending))) {
        counts->statistics[CORA_WAITED]++;
        return false;
    }
    if (CORA_UNLIKELY(!l->active)) {
        if (!cora_notify(counts, CORA_ITEM_ACTIVE, l, lending, 0))
            return false;
        l->active = true;
        counts->statistics[CORA_USED]++;
    }
    cora_note_gap(l, now);
    return true;
}

/* A refresh put the entry into a class in which it is due earlier than its owner knows. Where that cannot be told, the
 * owner keeps the entry until the later time, and the next refresh tells it. */
static inline void cora_lent_sooner(struct cora_counts *counts, struct cora_lent_entry *l, uint32_t lending,
                                    uint64_t deadline)
{
    if (cora_notify(counts, CORA_ITEM_SOONER, l, lending, deadline))
        l->known = deadline;
}

/* Whether a flow may take the place of a lent entry. */
static inline bool cora_lent_replaces(const struct cora_message *m, uint64_t other_used, uint64_t other_gap)
{
    uint64_t idle = m->used > other_used ? m->used - other_used : 0;
    if (m->gap == CORA_GAP_UNKNOWN || idle <= m->gap)
        return false;
    if (other_gap == CORA_GAP_UNKNOWN || idle / CORA_SILENCE >= other_gap)
        return true;
    return m->seen >= CORA_PROOF && m->gap <= other_gap / CORA_FASTER;
}

#endif
