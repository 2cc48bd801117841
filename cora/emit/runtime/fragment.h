/* Virtual reassembly (docs/semantics.md, section 4): datagrams by their identity, the ranges received, and copies of the
 * fragments that wait for the first one. */
#ifndef CORA_FRAGMENT_H
#define CORA_FRAGMENT_H

#include "table.h"

/* In the order of FRAGMENT_OUTCOMES. */
enum cora_track_outcome {
    CORA_TRACK_OK, CORA_TRACK_HOLD, CORA_TRACK_MALFORMED, CORA_TRACK_TINY, CORA_TRACK_OVERLAP, CORA_TRACK_DUPLICATE,
    CORA_TRACK_TOO_MANY, CORA_TRACK_DEAD, CORA_TRACK_FULL
};

enum cora_datagram_state { CORA_WAITING, CORA_OPEN, CORA_CONDEMNED };

#define CORA_RANGES 16

struct cora_range {
    uint32_t first, past; /* bytes first .. past - 1 */
};

/* A fragment as it arrived. */
struct cora_held {
    struct cora_held *next;
    uint64_t index;
    uint32_t caplen, wirelen;
    uint16_t port;
    uint8_t frame[];
};

struct cora_datagram_key {
    uint8_t source[16], destination[16]; /* IPv4: in the first four bytes, the others zero */
    uint32_t id;
    uint8_t family, proto; /* proto: 0 for IPv6 */
    uint8_t zero[2];
};

struct cora_datagram {
    struct cora_datagram_key key;
    uint64_t hash;
    uint64_t made;
    uint32_t before, after; /* by age */
    int32_t end;            /* length of the datagram's data, -1 while unknown */
    uint16_t range_count, recent_count, held_count;
    uint8_t state, live;
    uint8_t first_bytes[8];
    struct cora_held *held, *held_last;
    struct cora_range ranges[CORA_RANGES]; /* merged, ascending, not touching each other */
    struct cora_range recent[CORA_RANGES]; /* as they arrived, a ring */
};

struct cora_tracker {
    struct cora_datagram *datagrams;
    struct cora_slots slots;
    struct cora_index index;
    uint32_t oldest, newest;
    uint64_t timeout;
    uint32_t max_held;
    uint32_t number; /* of the tracker in the program */
    uint32_t peak;   /* most datagrams at a time */
    uint32_t reason_timeout, reason_first, reason_condemned;
};

CORA_COLD void cora_tracker_init(struct cora_tracker *t, uint32_t capacity, uint64_t timeout, uint32_t max_held)
{
    cora_slots_init(&t->slots, capacity);
    cora_index_init(&t->index, 16);
    t->datagrams = cora_zeroed(capacity, sizeof *t->datagrams);
    t->oldest = t->newest = CORA_NONE;
    t->timeout = timeout;
    t->max_held = max_held;
}

/* A datagram in a state dump: this, and after all of them the packet numbers of the held fragments in the same order. */
struct cora_datagram_row {
    uint8_t source[16], destination[16];
    uint32_t id;
    uint8_t family, proto, state, range_count;
    uint64_t made;
    int32_t end;
    uint32_t held_count;
    struct cora_range ranges[CORA_RANGES];
};

static inline uint64_t cora_datagram_hash(const struct cora_core *core, const struct cora_datagram_key *key)
{
    uint64_t w[5];
    memcpy(w, key, sizeof w);
    cora_u128 sum = cora_nh(core->seed, 0, w[0], w[1]) + cora_nh(core->seed, 1, w[2], w[3]) +
                    cora_nh(core->seed, 2, w[4], 0);
    return cora_mix(core->seed, sum);
}

_Static_assert(sizeof(struct cora_datagram_key) == 40, "the key is hashed as five words");

CORA_COLD void cora_tracker_grow_index(struct cora_tracker *t)
{
    struct cora_index old = t->index;
    cora_index_init(&t->index, 2 * (old.mask + 1));
    for (uint32_t i = 0; i < t->slots.top; i++)
        if (t->datagrams[i].live)
            cora_index_add(&t->index, t->datagrams[i].hash, i);
    cora_index_close(&old);
}

CORA_COLD uint32_t cora_tracker_find(const struct cora_tracker *t, uint64_t hash, const struct cora_datagram_key *key)
{
    struct cora_probe probe = cora_index_probe(&t->index, hash);
    uint32_t entry;
    while ((entry = cora_index_next(&t->index, &probe)) != CORA_NONE)
        if (!memcmp(&t->datagrams[entry].key, key, sizeof *key))
            break;
    return entry;
}

CORA_COLD uint32_t cora_tracker_add(struct cora_tracker *t, uint64_t hash, const struct cora_datagram_key *key,
                                    uint64_t now)
{
    if (t->index.count >= t->index.limit)
        cora_tracker_grow_index(t);
    uint32_t entry = cora_slots_take(&t->slots);
    struct cora_datagram *d = &t->datagrams[entry];
    *d = (struct cora_datagram){.key = *key, .hash = hash, .made = now, .before = t->newest, .after = CORA_NONE,
                                .end = -1, .live = 1};
    if (t->newest == CORA_NONE)
        t->oldest = entry;
    else
        t->datagrams[t->newest].after = entry;
    t->newest = entry;
    if (t->slots.count > t->peak)
        t->peak = t->slots.count;
    cora_index_add(&t->index, hash, entry);
    return entry;
}

CORA_COLD void cora_tracker_remove(struct cora_tracker *t, uint32_t entry)
{
    struct cora_datagram *d = &t->datagrams[entry];
    cora_index_remove(&t->index, d->hash, entry);
    if (d->before == CORA_NONE)
        t->oldest = d->after;
    else
        t->datagrams[d->before].after = d->after;
    if (d->after == CORA_NONE)
        t->newest = d->before;
    else
        t->datagrams[d->after].before = d->before;
    d->live = 0;
    cora_slots_give(&t->slots, entry);
}

/* Drops what an entry holds, in arrival order. */
CORA_COLD void cora_tracker_drop_held(struct cora_core *core, struct cora_datagram *d, uint32_t reason)
{
    struct cora_held *held = d->held;
    d->held = d->held_last = NULL;
    d->held_count = 0;
    while (held) {
        struct cora_held *next = held->next;
        cora_drop(core, held->index, reason, true);
        free(held);
        held = next;
    }
}

CORA_COLD void cora_tracker_close(struct cora_tracker *t)
{
    for (uint32_t i = t->oldest; i != CORA_NONE; i = t->datagrams[i].after)
        for (struct cora_held *held = t->datagrams[i].held, *next; held; held = next) {
            next = held->next;
            free(held);
        }
    cora_release(t->datagrams, t->slots.capacity, sizeof *t->datagrams);
    cora_index_close(&t->index);
    cora_slots_close(&t->slots);
}

static inline uint64_t cora_tracker_due(const struct cora_tracker *t)
{
    return t->oldest == CORA_NONE ? CORA_NEVER : cora_add_capped(t->datagrams[t->oldest].made, t->timeout);
}

CORA_COLD void cora_tracker_expire(struct cora_core *core, struct cora_tracker *t)
{
    while (cora_tracker_due(t) < core->now) {
        uint32_t entry = t->oldest;
        cora_tracker_drop_held(core, &t->datagrams[entry], t->reason_timeout);
        cora_tracker_remove(t, entry);
    }
}

static inline enum cora_track_outcome cora_condemn(struct cora_core *core, const struct cora_tracker *t,
                                                   struct cora_datagram *d, enum cora_track_outcome outcome)
{
    d->state = CORA_CONDEMNED;
    cora_tracker_drop_held(core, d, t->reason_condemned);
    return outcome;
}

static inline bool cora_is_recent(const struct cora_datagram *d, struct cora_range range)
{
    uint32_t kept = cora_min32(d->recent_count, CORA_RANGES);
    for (uint32_t i = 0; i < kept; i++)
        if (d->recent[i].first == range.first && d->recent[i].past == range.past)
            return true;
    return false;
}

/* Adds a range to the merged ones; false (and nothing changed) when it overlaps one or would be the 17th. */
static inline bool cora_add_range(struct cora_datagram *d, struct cora_range range)
{
    uint32_t count = d->range_count, at = 0;
    while (at < count && d->ranges[at].past < range.first)
        at++;
    bool joins_left = at < count && d->ranges[at].past == range.first;
    uint32_t right = joins_left ? at + 1 : at;
    if (right < count && d->ranges[right].first < range.past)
        return false;
    bool joins_right = right < count && d->ranges[right].first == range.past;
    if (joins_left && joins_right) {
        d->ranges[at].past = d->ranges[right].past;
        memmove(&d->ranges[right], &d->ranges[right + 1], (count - right - 1) * sizeof *d->ranges);
        d->range_count--;
    } else if (joins_left) {
        d->ranges[at].past = range.past;
    } else if (joins_right) {
        d->ranges[right].first = range.first;
    } else {
        if (count == CORA_RANGES)
            return false;
        memmove(&d->ranges[at + 1], &d->ranges[at], (count - at) * sizeof *d->ranges);
        d->ranges[at] = range;
        d->range_count++;
    }
    return true;
}

/* Whether the range contradicts what is known about the datagram's end. */
static inline bool cora_ends_badly(const struct cora_datagram *d, struct cora_range range, bool more)
{
    if (d->end >= 0 && range.past > (uint32_t)d->end)
        return true;
    if (more)
        return false;
    uint32_t received = d->range_count ? d->ranges[d->range_count - 1].past : 0;
    return (d->end >= 0 && range.past != (uint32_t)d->end) || range.past < received;
}

/* Steps 1 and 2: what is wrong with the fragment alone. */
static inline enum cora_track_outcome cora_check_fragment(const struct cora_packet *p, uint32_t length)
{
    if (!length || (p->more_fragments && length % 8) || p->fragment_offset + length > 65535)
        return CORA_TRACK_MALFORMED;
    if (p->upper == 6 && p->fragment_offset == 8)
        return CORA_TRACK_TINY;
    if (p->fragment_offset)
        return CORA_TRACK_OK;
    uint32_t wanted = 0;
    if (p->upper == 6)
        wanted = p->family == 4 ? 16 : 20;
    else if (p->upper == 17 || p->upper == 1 || p->upper == 58)
        wanted = 8;
    return p->end - p->l4 < wanted ? CORA_TRACK_TINY : CORA_TRACK_OK;
}

static inline struct cora_datagram_key cora_datagram_key(const struct cora_packet *p, bool v6)
{
    struct cora_datagram_key key = {.family = v6 ? 6 : 4, .id = p->fragment_id};
    const uint8_t *h = p->data + p->l3;
    if (v6) {
        memcpy(key.source, h + 8, 16);
        memcpy(key.destination, h + 24, 16);
    } else {
        memcpy(key.source, h + 12, 4);
        memcpy(key.destination, h + 16, 4);
        key.proto = h[9];
    }
    return key;
}

/* What the packet owes tracker `t` when it ends. */
static inline struct cora_tracking *cora_tracking_of(struct cora_packet *p, const struct cora_tracker *t)
{
    if (!p->tracked)
        memset(p->tracking, 0, sizeof p->tracking);
    p->tracked = true;
    return &p->tracking[t->number];
}

/* A fragment that is no copy of an earlier one: fits it into its datagram (steps 5 to 7). */
static inline enum cora_track_outcome cora_place_fragment(struct cora_core *core, struct cora_tracker *t,
                                                          struct cora_packet *p, uint32_t entry, uint32_t length)
{
    struct cora_datagram *d = &t->datagrams[entry];
    struct cora_range range = {p->fragment_offset, p->fragment_offset + length};
    if (cora_is_recent(d, range))
        return CORA_TRACK_DUPLICATE;
    if (cora_ends_badly(d, range, p->more_fragments) || !cora_add_range(d, range))
        return cora_condemn(core, t, d, CORA_TRACK_OVERLAP);
    d->recent[d->recent_count % CORA_RANGES] = range;
    d->recent_count = (uint16_t)(d->recent_count + 1 < 2 * CORA_RANGES ? d->recent_count + 1 : CORA_RANGES);
    if (!p->more_fragments)
        d->end = (int32_t)range.past;
    struct cora_tracking *tracking = cora_tracking_of(p, t);
    tracking->entry = entry;
    if (!p->fragment_offset) {
        if (p->l4 < p->caplen)
            memcpy(d->first_bytes, p->data + p->l4, cora_min32(8, p->caplen - p->l4));
        tracking->role = CORA_DECIDES;
        return CORA_TRACK_OK;
    }
    if (d->state == CORA_OPEN) {
        tracking->role = CORA_FOLLOWS;
        cora_follow(p, d->first_bytes);
        return CORA_TRACK_OK;
    }
    if (d->held_count >= t->max_held)
        return cora_condemn(core, t, d, CORA_TRACK_TOO_MANY);
    tracking->role = CORA_WAITS;
    return CORA_TRACK_HOLD;
}

/* A packet that needs no table to be tracked: no fragment at all, or one that was just released. */
static inline bool cora_tracks_trivially(const struct cora_packet *p)
{
    return CORA_LIKELY(!p->is_fragment) || p->released;
}

CORA_COLD enum cora_track_outcome cora_track(struct cora_core *core, struct cora_tracker *t, struct cora_packet *p,
                                             bool v6)
{
    uint32_t length = p->end - p->fragment_start;
    enum cora_track_outcome outcome = cora_check_fragment(p, length);
    if (outcome != CORA_TRACK_OK)
        return outcome;
    struct cora_datagram_key key = cora_datagram_key(p, v6);
    uint64_t hash = cora_datagram_hash(core, &key);
    uint32_t entry = cora_tracker_find(t, hash, &key);
    if (entry == CORA_NONE) {
        if (t->slots.count == t->slots.capacity)
            return CORA_TRACK_FULL;
        entry = cora_tracker_add(t, hash, &key, core->now);
        core->next_due = cora_min64(core->next_due, cora_tracker_due(t));
    }
    if (t->datagrams[entry].state == CORA_CONDEMNED)
        return CORA_TRACK_DEAD;
    return cora_place_fragment(core, t, p, entry, length);
}

/* Keeps a copy of the packet as it arrived with an entry for which it waits. */
CORA_COLD void cora_tracker_hold(struct cora_datagram *d, const struct cora_packet *p)
{
    struct cora_held *held = malloc(sizeof *held + p->caplen);
    if (!held)
        cora_out_of_memory(sizeof *held + p->caplen);
    held->next = NULL;
    held->index = p->index;
    held->caplen = p->caplen;
    held->wirelen = p->wirelen;
    held->port = p->port;
    cora_record_frame(p->record, held->frame);
    if (d->held_last)
        d->held_last->next = held;
    else
        d->held = held;
    d->held_last = held;
    d->held_count++;
}

CORA_COLD size_t cora_tracker_size(const struct cora_tracker *t)
{
    size_t size = t->slots.count * sizeof(struct cora_datagram_row);
    for (uint32_t i = t->oldest; i != CORA_NONE; i = t->datagrams[i].after)
        size += t->datagrams[i].held_count * sizeof(uint64_t);
    return size;
}

CORA_COLD void cora_tracker_dump(const struct cora_tracker *t, uint8_t *out)
{
    uint8_t *held_out = out + t->slots.count * sizeof(struct cora_datagram_row);
    for (uint32_t i = t->oldest; i != CORA_NONE; i = t->datagrams[i].after) {
        const struct cora_datagram *d = &t->datagrams[i];
        struct cora_datagram_row row = {.id = d->key.id, .family = d->key.family, .proto = d->key.proto,
                                        .state = d->state, .range_count = (uint8_t)d->range_count, .made = d->made,
                                        .end = d->end, .held_count = d->held_count};
        memcpy(row.source, d->key.source, sizeof row.source);
        memcpy(row.destination, d->key.destination, sizeof row.destination);
        memcpy(row.ranges, d->ranges, sizeof row.ranges);
        memcpy(out, &row, sizeof row);
        out += sizeof row;
        for (const struct cora_held *held = d->held; held; held = held->next, held_out += 8)
            memcpy(held_out, &held->index, 8);
    }
}

/* After a packet of an open datagram: forget the datagram once all of it has come. */
CORA_COLD void cora_tracker_settle(struct cora_tracker *t, uint32_t entry)
{
    const struct cora_datagram *d = &t->datagrams[entry];
    if (d->state == CORA_OPEN && d->range_count == 1 && !d->ranges[0].first && d->end == (int32_t)d->ranges[0].past)
        cora_tracker_remove(t, entry);
}

#endif
