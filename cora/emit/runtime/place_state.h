/* Lending at a place: the owner's side and the near side. Included after the tables and the functions generated for split
 * states (cora_split_row, _apply, _expired, _deadline, _live, _install, _remove, _oldest, _count). */
#ifndef CORA_PLACE_STATE_H
#define CORA_PLACE_STATE_H

#include "place.h"

/* Build-time faults, for tests of the verification only. */
enum cora_fault {
    CORA_SOUND, CORA_NO_RECALL, CORA_EARLY_REMOVAL, CORA_SHARED_WRITER, CORA_LOST_COUNT, CORA_OVERTAKING,
    CORA_EXPIRES_UNASKED, CORA_STALE_VALUE, CORA_POOL_TWICE, CORA_STALE_ENTRY, CORA_NO_UPDATE
};
#ifndef CORA_FAULT
#define CORA_FAULT CORA_SOUND
#endif
static inline void cora_count_event(struct cora_engine *E, enum cora_statistic what)
{
    cora_world_statistics(E->place.world)[what]++;
}

CORA_VALUE static const uint32_t cora_near_of[] = CORA_NEAR_PLACES, cora_owner_of[] = CORA_OWNER_PLACES;
CORA_VALUE static const uint32_t cora_by_rules[] = CORA_BY_RULES; /* the near place runs decided paths only */
CORA_VALUE static const uint32_t cora_lent_most[] = CORA_LENT_MOST, cora_lent_after[] = CORA_LENT_AFTER;

/* The admission policy's constants; their reasons are in docs/profile.md, "Lending entries". */
#define CORA_SMOOTHING 8
#define CORA_SILENCE 16
#define CORA_PROOF 8
#define CORA_FASTER 2

/* Whether a lending's rules are installed in gaps. Worlds in which they wait for counts have nothing to say about it. */
static inline bool cora_in_gaps(const struct cora_engine *E, uint32_t c)
{
#ifdef CORA_GAPS
    return cora_by_rules[c] && cora_world_gaps(E->place.world);
#else
    (void)E, (void)c;
    return false;
#endif
}

/* The place is through with a packet, at its time. */
static inline void cora_commit(struct cora_engine *E, const struct cora_packet *p)
{
#ifdef CORA_GAPS
    if (cora_in_gaps(E, 0) && !p->released)
        cora_world_commit(E->place.world, p->index, p->now);
#else
    (void)E, (void)p;
#endif
}

/* Whether another packet of the flow waits at this place. */
static inline bool cora_more_of(const struct cora_engine *E, uint64_t flow)
{
#ifdef CORA_GAPS
    return cora_world_queued(E->place.world, CORA_PLACE, flow);
#else
    (void)E, (void)flow;
    return false;
#endif
}

/* The flow of an entry had one more packet. */
static inline void cora_note_gap(uint64_t *used, uint64_t *gap, uint64_t now)
{
    uint64_t pause = now > *used ? now - *used : 0;
    *gap = *gap == CORA_GAP_UNKNOWN ? pause : *gap - *gap / CORA_SMOOTHING + pause / CORA_SMOOTHING;
    *used = now > *used ? now : *used;
}

/* --- the owner's side --- */

CORA_COLD void cora_owner_say(struct cora_engine *E, enum cora_message_kind kind, uint32_t c, uint32_t at,
                              uint64_t number)
{
    struct cora_message message = {.kind = kind, .to = cora_near_of[c], .lending = c, .slot = at,
                                   .serial = E->place.owned[c].entries[at].serial, .number = number,
                                   .used = E->place.owned[c].entries[at].used,
                                   .gap = E->place.owned[c].entries[at].gap,
                                   .seen = E->place.owned[c].entries[at].seen};
    if (kind == CORA_LEND || kind == CORA_UPDATE)
        cora_split_row(E, c, at, message.row);
    cora_world_up(E->place.world, CORA_PLACE, &message);
}

CORA_COLD void cora_owner_back(struct cora_engine *E, uint32_t c, uint32_t at)
{
    struct cora_owned *owned = &E->place.owned[c];
    owned->entries[at].state = CORA_HERE;
    owned->entries[at].seen = 0;
    owned->lent--;
}

/* Takes a lent entry back and waits until it is here. */
CORA_COLD void cora_owner_recall(struct cora_engine *E, uint32_t c, uint32_t at)
{
    struct cora_owned_entry *o = &E->place.owned[c].entries[at];
    uint64_t serial = o->serial;
    cora_count_event(E, CORA_RECALLED);
    if (CORA_FAULT == CORA_SHARED_WRITER) {
        o->answered = false;
        cora_owner_say(E, CORA_ASK, c, at, 0);
        while (o->state && o->serial == serial && !o->answered)
            cora_world_wait(E->place.world, CORA_PLACE);
        return;
    }
    cora_owner_say(E, CORA_RECALL, c, at, 0);
    if (CORA_FAULT == CORA_EARLY_REMOVAL) {
        cora_owner_back(E, c, at);
        o->serial = 0;
        return;
    }
    while (o->state && o->serial == serial)
        cora_world_wait(E->place.world, CORA_PLACE);
}

/* A look-up found entry `at`. `anchored`: by the key that was looked up in the lent table before, so that a lent entry is
 * not in use while this packet is not through. Returns CORA_NONE for an entry that turns out to be dead. */
CORA_SHARED uint32_t cora_owner_found(struct cora_engine *E, uint32_t c, uint32_t at, bool anchored)
{
    if (at == CORA_NONE)
        return at;
    struct cora_owned *owned = &E->place.owned[c];
    uint8_t state = owned->entries[at].state;
    if (anchored || cora_by_rules[c])
        owned->used = at;
    else
        owned->unaligned = true, owned->entries[at].seen = 0;
    if (state && !anchored)
        owned->unaligned = true;
    if (CORA_LIKELY(!state) || (state == CORA_OFFERED && anchored) || CORA_FAULT == CORA_NO_RECALL)
        return at;
    cora_owner_recall(E, c, at);
    if (!cora_split_expired(E, c, at, E->core.now))
        return at;
    if (owned->used == at)
        owned->used = CORA_NONE;
    cora_split_remove(E, c, at);
    return CORA_NONE;
}

/* An insert made entry `at`. */
static inline uint32_t cora_owner_made(struct cora_engine *E, uint32_t c, uint32_t at)
{
    if (at == CORA_NONE)
        return at;
    E->place.owned[c].entries[at] = (struct cora_owned_entry){.used = E->core.now, .gap = CORA_GAP_UNKNOWN};
    E->place.owned[c].used = at;
    E->place.owned[c].made = true;
    return at;
}

/* A packet comes with a reference to the lent entry it used at the near place: back to the owner's own entry. */
CORA_COLD uint32_t cora_owner_resume(struct cora_engine *E, uint32_t c, uint32_t at)
{
    struct cora_owned *owned = &E->place.owned[c];
    if (at >= owned->capacity || !cora_split_live(E, c, at)) {
        cora_count_event(E, CORA_STRAY);
        return 0;
    }
    if (owned->entries[at].state && CORA_FAULT != CORA_NO_RECALL)
        cora_owner_recall(E, c, at);
    return at;
}

/* The entry seems to be due, but it is lent: its last use is known elsewhere. */
CORA_COLD void cora_owner_ask(struct cora_engine *E, uint32_t c, uint32_t at, uint64_t now)
{
    struct cora_owned_entry *o = &E->place.owned[c].entries[at];
    uint64_t serial = o->serial;
    if (CORA_FAULT == CORA_EXPIRES_UNASKED)
        return;
    o->answered = false;
    cora_count_event(E, CORA_ASKED);
    cora_owner_say(E, CORA_ASK, c, at, now);
    while (o->state && o->serial == serial && !o->answered)
        cora_world_wait(E->place.world, CORA_PLACE);
}

/* The entry is removed: first from where it is lent to. What it has become there does not matter any more. */
CORA_COLD void cora_owner_withdraw(struct cora_engine *E, uint32_t c, uint32_t at)
{
    if (CORA_FAULT == CORA_STALE_ENTRY) {
        cora_owner_back(E, c, at);
        E->place.owned[c].entries[at].serial = 0;
        return;
    }
    cora_owner_recall(E, c, at);
    if (CORA_FAULT == CORA_SHARED_WRITER)
        cora_owner_back(E, c, at);
}

/* The packet at hand, of a flow, is through here: lend its entry, or tell of its change where it was offered. */
static inline void cora_owner_after(struct cora_engine *E, uint32_t c, uint64_t flow)
{
    struct cora_owned *owned = &E->place.owned[c];
    uint32_t at = owned->used;
    bool made = owned->made, counts = made || !owned->unaligned;
    owned->used = CORA_NONE;
    owned->made = owned->unaligned = false;
    if (at == CORA_NONE || !cora_split_live(E, c, at))
        return;
    struct cora_owned_entry *o = &owned->entries[at];
    if (!made)
        cora_note_gap(&o->used, &o->gap, E->core.now);
    if (o->state) {
        if (CORA_FAULT != CORA_NO_UPDATE)
            cora_owner_say(E, CORA_UPDATE, c, at, 0);
        return;
    }
    owned->aligned |= counts && !made;
    o->seen = counts && owned->aligned ? o->seen + 1 : 0;
    if (!o->seen || o->seen < cora_lent_after[c])
        return;
    /* A gap is where no packet of the flow waits here; one may still be on its way. */
    if (cora_in_gaps(E, c) && cora_more_of(E, flow))
        return;
    o->serial = cora_world_serial(E->place.world);
    o->state = CORA_OFFERED;
    owned->lent++;
    cora_count_event(E, CORA_LENT);
    cora_owner_say(E, CORA_LEND, c, at, 0);
    if (CORA_FAULT == CORA_POOL_TWICE)
        cora_split_leak(E, c, at);
}

/* RETURNED, ANSWER and REFUSAL. */
CORA_COLD void cora_owner_told(struct cora_engine *E, const struct cora_message *m)
{
    struct cora_owned_entry *o = &E->place.owned[m->lending].entries[m->slot];
    if (!o->state || o->serial != m->serial) {
        if (CORA_FAULT == CORA_SOUND)
            cora_count_event(E, CORA_STRAY);
        return;
    }
    if (m->active) {
        cora_split_apply(E, m->lending, m->slot, m->row);
        o->used = m->used;
        o->gap = m->gap;
    }
    uint32_t seen = o->seen;
    if (m->kind != CORA_ANSWER)
        cora_owner_back(E, m->lending, m->slot);
    if (m->kind == CORA_REFUSAL)
        o->seen = seen;
    o->answered = true;
}

CORA_COLD void cora_owner_item(struct cora_engine *E, const struct cora_item *item)
{
    struct cora_owned_entry *o = &E->place.owned[item->lending].entries[item->slot];
    if (!o->state || o->serial != item->serial)
        return;
    if (item->kind == CORA_ITEM_ACTIVE)
        o->state = CORA_ACTIVE;
    else
        cora_split_due(E, item->lending, item->slot, item->deadline);
}

/* --- the near side --- */

CORA_COLD void cora_lent_say(struct cora_engine *E, enum cora_message_kind kind, uint32_t c, uint32_t at)
{
    const struct cora_lent_entry *l = &E->place.lent[c].entries[at];
    struct cora_message message = {.kind = kind, .to = cora_owner_of[c], .lending = c, .slot = l->slot,
                                   .serial = l->serial, .used = l->used, .gap = l->gap, .active = l->active};
    cora_split_row(E, c, at, message.row);
    cora_world_down(E->place.world, CORA_PLACE, &message);
}

CORA_COLD void cora_lent_return(struct cora_engine *E, uint32_t c, uint32_t at)
{
    struct cora_lent *lent = &E->place.lent[c];
    cora_lent_say(E, CORA_RETURNED, c, at);
    lent->by_slot[lent->entries[at].slot] = CORA_NONE;
    cora_split_remove(E, c, at);
    if (CORA_FAULT == CORA_LOST_COUNT)
        cora_split_forget_counts(E);
}

CORA_COLD void cora_lent_tell(struct cora_engine *E, uint32_t c, uint32_t at, enum cora_item_kind kind,
                              uint64_t deadline)
{
    struct cora_item *item = cora_item_new(kind, cora_owner_of[c], 0);
    item->lending = c;
    item->slot = E->place.lent[c].entries[at].slot;
    item->serial = E->place.lent[c].entries[at].serial;
    item->deadline = deadline;
    cora_world_push(E->place.world, CORA_PLACE + 1, item);
}

/* A look-up found lent entry `at`; whether it may be used now. Packets of the flow, or of others that may change it, are
 * on their way else, or it is too old; the packet follows them then. */
CORA_SHARED uint32_t cora_lent_found(struct cora_engine *E, struct cora_packet *p, uint32_t c, uint32_t at)
{
    if (at == CORA_NONE)
        return at;
    struct cora_lent *lent = &E->place.lent[c];
    struct cora_lent_entry *l = &lent->entries[at];
    bool clear = E->place.through >= l->wait && E->place.through >= lent->guard;
    if (CORA_FAULT == CORA_OVERTAKING || cora_in_gaps(E, c))
        clear = true;
    if (!clear || cora_split_expired(E, c, at, p->now)) {
        cora_count_event(E, CORA_WAITED);
        l->wait = p->index + 1;
        return CORA_NONE;
    }
    if (CORA_UNLIKELY(!l->active)) {
        l->active = true;
        cora_count_event(E, CORA_USED);
        cora_lent_tell(E, c, at, CORA_ITEM_ACTIVE, 0);
    }
    cora_note_gap(&l->used, &l->gap, p->now);
    cora_split_recent(E, c, at);
    p->lent_at[c] = at;
    return at;
}

/* A refresh put the entry into a class in which it is due earlier than its owner knows. */
CORA_COLD void cora_lent_sooner(struct cora_engine *E, uint32_t c, uint32_t at, uint64_t deadline)
{
    E->place.lent[c].entries[at].known = deadline;
    cora_lent_tell(E, c, at, CORA_ITEM_SOONER, deadline);
}

CORA_COLD void cora_lent_refuse(struct cora_engine *E, const struct cora_message *m)
{
    struct cora_message refusal = *m;
    refusal.kind = CORA_REFUSAL;
    refusal.to = cora_owner_of[m->lending];
    refusal.active = false;
    cora_count_event(E, CORA_REFUSED);
    cora_world_down(E->place.world, CORA_PLACE, &refusal);
}

/* Whether a flow may take the place of a lent entry: docs/profile.md, "Lending entries". */
CORA_COLD bool cora_lent_replaces(const struct cora_message *m, const struct cora_lent_entry *other)
{
    uint64_t idle = m->used > other->used ? m->used - other->used : 0;
    if (m->gap == CORA_GAP_UNKNOWN || idle <= m->gap)
        return false;
    if (other->gap == CORA_GAP_UNKNOWN || idle / CORA_SILENCE >= other->gap)
        return true;
    return m->seen >= CORA_PROOF && m->gap <= other->gap / CORA_FASTER;
}

/* A new lent entry; where the table is full, the one idle longest may have to go. */
CORA_COLD void cora_lent_install(struct cora_engine *E, const struct cora_message *m)
{
    uint32_t c = m->lending;
    struct cora_lent *lent = &E->place.lent[c];
    if (cora_split_count(E, c) == lent->capacity) {
        uint32_t oldest = cora_split_oldest(E, c);
        if (!cora_lent_replaces(m, &lent->entries[oldest])) {
            cora_lent_refuse(E, m);
            return;
        }
        cora_count_event(E, CORA_EVICTED);
        cora_lent_return(E, c, oldest);
    }
    uint32_t at = cora_split_install(E, c, m->row);
    if (at == CORA_NONE) {
        cora_count_event(E, CORA_STRAY);
        cora_lent_refuse(E, m);
        return;
    }
    lent->by_slot[m->slot] = at;
    lent->entries[at] = (struct cora_lent_entry){.serial = m->serial, .wait = E->place.punted, .slot = m->slot,
                                                 .known = cora_split_deadline(E, c, at), .used = m->used,
                                                 .gap = m->gap};
    uint64_t *peak = &cora_world_statistics(E->place.world)[CORA_PEAK];
    if (cora_split_count(E, c) > *peak)
        *peak = cora_split_count(E, c);
}

/* LEND, UPDATE, RECALL and ASK. */
CORA_COLD void cora_lent_told(struct cora_engine *E, const struct cora_message *m)
{
    struct cora_lent *lent = &E->place.lent[m->lending];
    if (m->kind == CORA_LEND) {
        cora_lent_install(E, m);
        return;
    }
    uint32_t at = lent->by_slot[m->slot];
    /* It went back by itself in the meantime; its owner learns that from the message that is on its way. */
    if (at == CORA_NONE || lent->entries[at].serial != m->serial)
        return;
    struct cora_lent_entry *l = &lent->entries[at];
    if (m->kind == CORA_UPDATE) {
        if (l->active)
            cora_count_event(E, CORA_STRAY);
        cora_split_apply(E, m->lending, at, m->row);
        l->known = cora_split_deadline(E, m->lending, at);
        l->used = m->used;
        l->gap = m->gap;
    } else if (m->kind == CORA_RECALL) {
        cora_lent_return(E, m->lending, at);
    } else {
        l->known = cora_split_deadline(E, m->lending, at);
        cora_lent_say(E, CORA_ANSWER, m->lending, at);
    }
}

/* --- handing packets on --- */

/* What a packet that is handed on, or passes, may do to entries lent here holds all of them up. */
static inline void cora_place_note(struct cora_engine *E, uint32_t to, uint32_t entry, uint64_t index)
{
    E->place.punted = index + 1;
    uint64_t harm = cora_world_harm(E->place.world, to, entry);
    for (; harm; harm &= harm - 1) {
        uint32_t c = (uint32_t)__builtin_ctzll(harm);
        if (cora_near_of[c] == CORA_PLACE)
            E->place.lent[c].guard = index + 1;
    }
}

static inline void cora_punt_encode(const struct cora_packet *p, uint8_t *out)
{
    struct cora_punt_head head = {
        .program = CORA_PROGRAM, .now = p->now, .epoch = CORA_EPOCH, .wirelen = p->wirelen, .present = p->present,
        .l3 = p->l3, .l4 = p->l4, .end = p->end, .fragment_start = p->fragment_start, .quoted = p->quoted,
        .quoted_l4 = p->quoted_l4, .fragment_id = p->fragment_id, .port = p->port, .entry = p->resume,
        .fragment_offset = (uint16_t)p->fragment_offset, .eth_type = p->eth_type, .tags = p->tags,
        .family = p->family, .upper = p->upper, .quoted_family = p->quoted_family,
        .quoted_upper = p->quoted_upper, .values = p->punt_size,
        .flags = (uint8_t)(p->is_fragment * CORA_PUNT_FRAGMENT | p->more_fragments * CORA_PUNT_MORE |
                           p->follower * CORA_PUNT_FOLLOWER | p->released * CORA_PUNT_RELEASED)};
    if (p->follower)
        memcpy(head.inherited, p->inherited, sizeof head.inherited);
#if CORA_LATER
    head.flags |= (uint8_t)(p->anew * CORA_PUNT_ANEW);
#endif
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, p->values, p->punt_size);
}

CORA_SHARED void cora_place_hand_over(struct cora_engine *E, struct cora_packet *p)
{
    struct cora_item *item = cora_item_new(CORA_ITEM_PACKET, p->punt_to, p->caplen);
#if CORA_LATER
    if (p->anew) {
        cora_record_frame(p->record, p->data);
        p->present = 0;
        p->follower = false;
    }
#endif
    cora_punt_encode(p, item->head);
    item->index = p->index;
    item->flow = p->flow;
    item->record = *p->record;
    memcpy(item->frame, p->data, p->caplen);
    /* The bytes of a released fragment go with it; nobody asks for them as they arrived. */
    if (p->released)
        item->record.data = (uint64_t)(uintptr_t)item->frame;
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        if (p->lent_at[c] != CORA_NONE)
            E->place.lent[c].entries[p->lent_at[c]].wait = p->index + 1;
    cora_place_note(E, p->punt_to, p->resume, p->index);
    cora_count_event(E, CORA_PUNTED);
    cora_world_push(E->place.world, CORA_PLACE + 1, item);
}

/* Called where a packet leaves; whether it is handed on. */
static inline bool cora_place_leave(struct cora_engine *E, struct cora_packet *p)
{
    if (p->punt_to) {
        cora_place_hand_over(E, p);
        return true;
    }
#if CORA_LATER
    for (uint32_t i = 0; i < p->later_count; i++) {
        p->later[i].total[0]++;
        p->later[i].total[1] += p->later[i].octets;
    }
    cora_split_refresh(E, p);
#endif
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        if (p->lent_at[c] != CORA_NONE) {
            cora_count_event(E, CORA_FAST);
            break;
        }
    if (CORA_LENDINGS && CORA_PLACE < cora_owner_of[0])
        cora_commit(E, p);
    if (!(p->verdict & CORA_DROP) && !p->released)
        cora_world_left(E->place.world, p->flow, p->index);
    if (!p->released)
        cora_world_ended(E->place.world, p->index, p->verdict);
    return false;
}

#endif
