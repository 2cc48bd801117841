/* Runs one place of a split program for the world (split.h). Included last in the place's file. */
#ifndef CORA_PLACE_DRIVER_H
#define CORA_PLACE_DRIVER_H

#define CORA_API static __attribute__((unused))

static inline void cora_program_prefix(struct cora_engine *E, struct cora_packet *p) { cora_program_run(E, p); }
static inline void cora_program_finish(struct cora_engine *E, struct cora_packet *p) { (void)E, (void)p; }

#include "driver.h"
#include "flow.h"

/* The clock moved on to the packet's time. */
static inline void cora_place_expire(struct cora_engine *E, uint64_t now)
{
    struct cora_core *core = &E->core;
    core->now = now;
    if (CORA_UNLIKELY(core->next_due < now)) {
        core->next_due = CORA_NEVER;
        cora_program_expire(E);
        core->next_due = cora_min64(core->next_due, cora_program_due(E));
    }
}

/* One packet at this place: the program from where it stands, and what its end means. */
static inline void cora_place_packet(struct cora_engine *E, struct cora_packet *p)
{
    E->core.current_wirelen = p->wirelen;
    cora_place_expire(E, p->now);
    cora_program_run(E, p);
    cora_leave(E, p);
#if CORA_TRACKERS
    if (CORA_UNLIKELY(p->tracked)) {
        bool undecided = false;
        for (uint32_t i = 0; i < CORA_TRACKERS; i++) {
            if (p->punt_to && p->tracking[i].role == CORA_DECIDES)
                undecided = true;
            else
                cora_after_fragment(E, p, cora_program_tracker(E, i));
        }
        if (undecided) {
            E->place.waiting = *p;
            E->place.stalled = true;
            E->place.stalled_index = p->index;
            cora_count_event(E, CORA_STALLED);
        }
    }
#endif
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        if (cora_owner_of[c] == CORA_PLACE)
            cora_owner_after(E, c, p->flow);
}

static void cora_place_arrive(struct cora_engine *E, const struct cora_record *record, uint64_t index)
{
    struct cora_batch *batch = &E->batch;
    struct cora_packet *p = &batch->packets[0];
    E->core.arrived.packets++;
    E->core.arrived.octets += record->wirelen;
#ifdef CORA_EXACT_FRAMES
    uint8_t *frame = malloc(record->caplen ? record->caplen : 1);
    if (!frame)
        cora_out_of_memory(record->caplen);
#else
    if (CORA_UNLIKELY(record->caplen + (size_t)64 > batch->room))
        batch->frames = cora_grow(batch->frames, &batch->room, record->caplen + (size_t)64, 1);
    uint8_t *frame = batch->frames;
#endif
    cora_arrive(E, p, record, frame, index);
    p->flow = cora_flow_of(p);
    cora_place_packet(E, p);
#ifdef CORA_EXACT_FRAMES
    free(frame);
#endif
}

/* A packet as its punt header and values tell, its frame and the record it stands for; false: the header is not of this
 * program. */
static inline bool cora_punt_decode(struct cora_engine *E, struct cora_packet *p, const uint8_t *bytes,
                                    const struct cora_record *record, uint8_t *frame)
{
    struct cora_punt_head head;
    memcpy(&head, bytes, sizeof head);
    if (head.program != CORA_PROGRAM || head.epoch != CORA_EPOCH || head.values > CORA_PUNT_LIMIT - sizeof head)
        return false;
    cora_begin(E, p, record, frame);
    p->now = head.now;
#ifdef CORA_GAPS
    /* A match-action engine stamps no time: the packet has that of the place where it starts. */
    if (CORA_LENDINGS && head.flags & CORA_PUNT_ANEW && cora_in_gaps(E, 0))
        p->now = cora_world_clock(E->place.world);
#endif
    p->wirelen = head.wirelen;
    p->present = head.present;
    p->l3 = head.l3, p->l4 = head.l4, p->end = head.end;
    p->fragment_start = head.fragment_start, p->fragment_offset = head.fragment_offset;
    p->fragment_id = head.fragment_id;
    p->quoted = head.quoted, p->quoted_l4 = head.quoted_l4;
    p->port = head.port, p->resume = head.entry, p->eth_type = head.eth_type;
    p->tags = head.tags, p->family = head.family, p->upper = head.upper;
    p->quoted_family = head.quoted_family, p->quoted_upper = head.quoted_upper;
    p->is_fragment = head.flags & CORA_PUNT_FRAGMENT;
    p->more_fragments = head.flags & CORA_PUNT_MORE;
    p->released = head.flags & CORA_PUNT_RELEASED;
    p->follower = head.flags & CORA_PUNT_FOLLOWER;
    memcpy(p->inherited, head.inherited, sizeof p->inherited);
    p->l4_header = p->follower ? p->inherited : p->data + p->l4;
    memcpy(p->values, bytes + sizeof head, head.values);
    p->punt_size = head.values;
    return true;
}

static void cora_place_told(struct cora_engine *E, const struct cora_message *message)
{
    if (message->kind == CORA_DONE)
        E->place.through = message->number;
    else if (message->kind >= CORA_RETURNED)
        cora_owner_told(E, message);
    else
        cora_lent_told(E, message);
}

/* What goes on after this place: the packet's end is known to the places behind, too. */
static inline void cora_place_pass(struct cora_engine *E, struct cora_item *item)
{
    if (CORA_PLACE + 1 < CORA_PLACES) {
        cora_world_push(E->place.world, CORA_PLACE + 1, item);
        return;
    }
    cora_world_through(E->place.world, item->index);
    free(item);
}

static void cora_place_serve(struct cora_engine *E, struct cora_item *item)
{
    if (item->kind == CORA_ITEM_PASSED) {
        cora_place_pass(E, item);
        return;
    }
    if (item->to != CORA_PLACE) {
        struct cora_punt_head head;
        memcpy(&head, item->head, sizeof head);
        if (item->kind == CORA_ITEM_PACKET)
            cora_place_note(E, item->to, head.entry, item->index);
        cora_world_push(E->place.world, CORA_PLACE + 1, item);
        return;
    }
    if (item->kind != CORA_ITEM_PACKET) {
        cora_owner_item(E, item);
        free(item);
        return;
    }
    struct cora_packet *p = &E->batch.packets[0];
    if (!cora_punt_decode(E, p, item->head, &item->record, item->frame)) {
        cora_count_event(E, CORA_STRAY);
        free(item);
        return;
    }
    p->index = item->index;
    p->flow = item->flow;
    p->caplen = item->caplen;
    cora_place_packet(E, p);
    if (CORA_LENDINGS && CORA_PLACE == cora_owner_of[0])
        cora_commit(E, p);
    if (p->punt_to) {
        free(item);
        return;
    }
    item->kind = CORA_ITEM_PASSED;
    cora_place_pass(E, item);
}

/* The verdict on the first fragment that was handed on: what it decides about the others. */
static void cora_place_settle(struct cora_engine *E, uint16_t verdict)
{
    E->place.stalled = false;
#if CORA_TRACKERS
    struct cora_packet p = E->place.waiting;
    p.verdict = verdict;
    for (uint32_t i = 0; i < CORA_TRACKERS; i++)
        if (p.tracking[i].role == CORA_DECIDES)
            cora_after_fragment(E, &p, cora_program_tracker(E, i));
#else
    (void)verdict;
#endif
}

static struct cora_engine *cora_place_create(const uint8_t *config, uint32_t options, const uint64_t seed[8],
                                             struct cora_world *world)
{
    struct cora_engine *E = cora_make(config, options, seed);
    if (!E)
        return NULL;
    E->place.world = world;
    for (uint32_t c = 0; c < CORA_LENDINGS; c++) {
        struct cora_owned *owned = &E->place.owned[c];
        struct cora_lent *lent = &E->place.lent[c];
        owned->used = CORA_NONE;
        if (cora_owner_of[c] == CORA_PLACE) {
            owned->capacity = cora_split_capacity[c];
            owned->entries = cora_zeroed(owned->capacity, sizeof *owned->entries);
        }
        if (cora_near_of[c] == CORA_PLACE) {
            lent->capacity = cora_lent_most[c];
            lent->owner_capacity = cora_split_capacity[c];
            lent->entries = cora_zeroed(lent->capacity, sizeof *lent->entries);
            lent->by_slot = cora_zeroed(lent->owner_capacity, sizeof *lent->by_slot);
            memset(lent->by_slot, 0xff, lent->owner_capacity * sizeof *lent->by_slot);
        }
    }
    return E;
}

static void cora_place_destroy(struct cora_engine *E)
{
    for (uint32_t c = 0; c < CORA_LENDINGS; c++) {
        cora_release(E->place.owned[c].entries, E->place.owned[c].capacity, sizeof *E->place.owned[c].entries);
        cora_release(E->place.lent[c].entries, E->place.lent[c].capacity, sizeof *E->place.lent[c].entries);
        cora_release(E->place.lent[c].by_slot, E->place.lent[c].owner_capacity, sizeof *E->place.lent[c].by_slot);
    }
    cora_destroy(E);
}

/* Takes everything back that is lent; only in between packets. */
static void cora_place_recall(struct cora_engine *E)
{
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        for (uint32_t at = 0; at < E->place.owned[c].capacity; at++)
            if (E->place.owned[c].entries[at].state) {
                cora_world_statistics(E->place.world)[CORA_RECALLED]--;
                cora_owner_recall(E, c, at);
            }
}

static uint64_t cora_place_left(const struct cora_engine *E)
{
    uint64_t left = 0;
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        if (cora_near_of[c] == CORA_PLACE)
            left += cora_split_count(E, c);
    return left;
}

static bool cora_place_stalled(const struct cora_engine *E, uint64_t *index)
{
    *index = E->place.stalled_index;
    return E->place.stalled;
}

static struct cora_core *cora_place_core(struct cora_engine *E) { return &E->core; }

#define CORA_OPS_OF(n) cora_place_##n
#define CORA_OPS(n) CORA_OPS_OF(n)
const struct cora_place_ops CORA_OPS(CORA_PLACE) = {
    cora_place_create, cora_place_destroy, cora_place_arrive, cora_place_serve, cora_place_told, cora_place_settle,
    cora_place_expire, cora_place_recall, cora_place_left, cora_place_stalled, cora_place_core, cora_summary,
    cora_state_size, cora_state_dump,
};

#endif
