/* The parts a table is made of: entry slots, hash indices onto them, expiry, and recency for `evict_lru`. The entries
 * themselves, key comparison and hashing are generated for each table. */
#ifndef CORA_TABLE_H
#define CORA_TABLE_H

#include "core.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* --- keyed hash: NH (UMAC, RFC 4418, section 5.2.2) over 64-bit words, so that whoever chooses keys cannot choose
 * collisions without the seed; then a mixing step that spreads it over bucket number (low) and tag (high). --- */

/* Words 2 * pair and 2 * pair + 1 of a key. */
static inline cora_u128 cora_nh(const uint64_t *seed, unsigned pair, uint64_t a, uint64_t b)
{
    return (cora_u128)(a + seed[2 + 2 * pair]) * (b + seed[3 + 2 * pair]);
}

static inline uint64_t cora_mix(const uint64_t *seed, cora_u128 sum)
{
    uint64_t x = (uint64_t)sum * (seed[0] | 1) + (uint64_t)(sum >> 64) * (seed[1] | 1);
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

/* --- slots: which entry numbers are in use --- */

struct cora_slots {
    uint32_t capacity, count;
    uint32_t top; /* entries from here on were never used */
    uint32_t free_count;
    uint32_t *free; /* returned entry numbers, last one used first while it is still cached */
};

CORA_COLD void cora_slots_init(struct cora_slots *s, uint32_t capacity)
{
    *s = (struct cora_slots){.capacity = capacity, .free = cora_zeroed(capacity, sizeof *s->free)};
}

CORA_COLD void cora_slots_close(struct cora_slots *s) { cora_release(s->free, s->capacity, sizeof *s->free); }

/* A free entry number; there must be one. */
static inline uint32_t cora_slots_take(struct cora_slots *s)
{
    s->count++;
    return s->free_count ? s->free[--s->free_count] : s->top++;
}

static inline void cora_slots_give(struct cora_slots *s, uint32_t entry)
{
    s->count--;
    s->free[s->free_count++] = entry;
}

/* --- hash index: buckets of one cache line; entries that found their bucket full are in a later one, and every bucket
 * they passed counts them, so a search ends at the first bucket nobody passed. --- */

#define CORA_BUCKET_SLOTS 8

struct cora_bucket {
    uint16_t tag[CORA_BUCKET_SLOTS]; /* 0: empty */
    uint32_t entry[CORA_BUCKET_SLOTS];
    uint32_t passed;
    uint32_t unused[3];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct cora_bucket) == 64, "a bucket is one cache line");

struct cora_index {
    struct cora_bucket *buckets;
    uint64_t mask;
    uint64_t count, limit; /* the index must grow when count reaches limit */
};

CORA_COLD void cora_index_init(struct cora_index *x, uint64_t buckets)
{
    x->buckets = cora_zeroed(buckets, sizeof *x->buckets);
    x->mask = buckets - 1;
    x->count = 0;
    x->limit = buckets * 5;
}

CORA_COLD void cora_index_close(struct cora_index *x)
{
    cora_release(x->buckets, x->mask + 1, sizeof *x->buckets);
}

static inline uint16_t cora_tag(uint64_t hash)
{
    uint16_t tag = (uint16_t)(hash >> 48);
    return tag ? tag : 1;
}

/* Bit i is set where slot i holds the tag. */
static inline uint32_t cora_bucket_match(const struct cora_bucket *b, uint16_t tag)
{
#ifdef __SSE2__
    __m128i tags = _mm_load_si128((const __m128i *)b->tag);
    __m128i equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16((short)tag));
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128()));
#else
    uint32_t found = 0;
    for (uint32_t i = 0; i < CORA_BUCKET_SLOTS; i++)
        found |= (uint32_t)(b->tag[i] == tag) << i;
    return found;
#endif
}

struct cora_probe {
    const struct cora_bucket *bucket;
    uint64_t at;
    uint32_t found;
    uint16_t tag;
};

static inline struct cora_probe cora_index_probe(const struct cora_index *x, uint64_t hash)
{
    const struct cora_bucket *bucket = &x->buckets[hash & x->mask];
    uint16_t tag = cora_tag(hash);
    return (struct cora_probe){bucket, hash & x->mask, cora_bucket_match(bucket, tag), tag};
}

/* The next entry that may have the key, or CORA_NONE. */
static inline uint32_t cora_index_next(const struct cora_index *x, struct cora_probe *probe)
{
    while (!probe->found) {
        if (CORA_LIKELY(!probe->bucket->passed))
            return CORA_NONE;
        probe->at = (probe->at + 1) & x->mask;
        probe->bucket = &x->buckets[probe->at];
        probe->found = cora_bucket_match(probe->bucket, probe->tag);
    }
    uint32_t slot = (uint32_t)__builtin_ctz(probe->found);
    probe->found &= probe->found - 1;
    return probe->bucket->entry[slot];
}

/* Adds an entry whose key is not there; the caller keeps count below limit. */
static inline void cora_index_add(struct cora_index *x, uint64_t hash, uint32_t entry)
{
    struct cora_bucket *b = &x->buckets[hash & x->mask];
    uint32_t empty;
    for (uint64_t at = hash & x->mask; !(empty = cora_bucket_match(b, 0)); b = &x->buckets[at]) {
        b->passed++;
        at = (at + 1) & x->mask;
    }
    uint32_t slot = (uint32_t)__builtin_ctz(empty);
    b->tag[slot] = cora_tag(hash);
    b->entry[slot] = entry;
    x->count++;
}

/* Removes an entry that was added under this hash. */
static inline void cora_index_remove(struct cora_index *x, uint64_t hash, uint32_t entry)
{
    uint16_t tag = cora_tag(hash);
    for (uint64_t at = hash & x->mask;; at = (at + 1) & x->mask) {
        struct cora_bucket *b = &x->buckets[at];
        for (uint32_t found = cora_bucket_match(b, tag); found; found &= found - 1) {
            uint32_t slot = (uint32_t)__builtin_ctz(found);
            if (b->entry[slot] != entry)
                continue;
            b->tag[slot] = 0;
            x->count--;
            return;
        }
        b->passed--;
    }
}

static inline void cora_prefetch(const void *at) { __builtin_prefetch(at, 0, 3); }

/* Notes the packet's first table access and asks for its bucket. */
static inline void cora_prefetch_key(struct cora_packet *p, const struct cora_index *x, uint64_t hash,
                                     const void *entries, uint32_t size)
{
    p->hash = hash;
    p->probe_index = x;
    p->probe_entries = entries;
    p->probe_size = size;
    cora_prefetch(&x->buckets[hash & x->mask]);
}

/* Asks for the entry that the noted access will probably find. */
static inline void cora_prefetch_entry(const struct cora_packet *p)
{
    const struct cora_bucket *b = &p->probe_index->buckets[p->hash & p->probe_index->mask];
    uint32_t found = cora_bucket_match(b, cora_tag(p->hash));
    if (!found)
        return;
    const uint8_t *at = p->probe_entries + (size_t)b->entry[__builtin_ctz(found)] * p->probe_size;
    __builtin_prefetch(at, 1, 3);
    if (p->probe_size > 64)
        __builtin_prefetch(at + 64, 1, 3);
}

/* --- expiry: a heap of deadlines. A refresh only moves `last` in the entry; the record of an entry is looked at when its
 * old deadline comes, and queued again when the entry is younger by then. So the earliest record is never later than
 * the earliest true deadline, and a packet pays one comparison. A record whose generation is not the entry's is stale. --- */

struct cora_timer {
    uint64_t deadline;
    uint32_t entry, generation;
};

struct cora_expiry {
    struct cora_timer *heap;
    size_t count, room;
    uint32_t capacity;
    uint32_t live;        /* entries that have a record that is not stale */
    uint32_t *generation; /* by entry */
    uint64_t *queued;     /* by entry: deadline of its record */
};

CORA_COLD void cora_expiry_init(struct cora_expiry *x, uint32_t capacity)
{
    *x = (struct cora_expiry){.capacity = capacity,
                              .generation = cora_zeroed(capacity, sizeof *x->generation),
                              .queued = cora_zeroed(capacity, sizeof *x->queued)};
}

CORA_COLD void cora_expiry_close(struct cora_expiry *x)
{
    free(x->heap);
    cora_release(x->generation, x->capacity, sizeof *x->generation);
    cora_release(x->queued, x->capacity, sizeof *x->queued);
}

static inline uint64_t cora_expiry_due(const struct cora_expiry *x)
{
    return x->count ? x->heap[0].deadline : CORA_NEVER;
}

static inline void cora_heap_up(struct cora_expiry *x, size_t at, struct cora_timer timer)
{
    while (at) {
        size_t parent = (at - 1) / 4;
        if (x->heap[parent].deadline <= timer.deadline)
            break;
        x->heap[at] = x->heap[parent];
        at = parent;
    }
    x->heap[at] = timer;
}

CORA_COLD void cora_heap_down(struct cora_expiry *x, size_t at, struct cora_timer timer)
{
    for (;;) {
        size_t child = 4 * at + 1;
        if (child >= x->count)
            break;
        size_t last = child + 4 < x->count ? child + 4 : x->count, best = child;
        for (size_t i = child + 1; i < last; i++)
            if (x->heap[i].deadline < x->heap[best].deadline)
                best = i;
        if (x->heap[best].deadline >= timer.deadline)
            break;
        x->heap[at] = x->heap[best];
        at = best;
    }
    x->heap[at] = timer;
}

/* Drops stale records; they are never more than the live ones and a few. */
CORA_COLD void cora_expiry_compact(struct cora_expiry *x)
{
    size_t kept = 0;
    for (size_t i = 0; i < x->count; i++)
        if (x->heap[i].generation == x->generation[x->heap[i].entry])
            x->heap[kept++] = x->heap[i];
    x->count = kept;
    for (size_t i = kept / 4 + 1; i-- > 0;)
        if (i < kept)
            cora_heap_down(x, i, x->heap[i]);
}

static inline void cora_expiry_push(struct cora_expiry *x, uint32_t entry, uint64_t deadline)
{
    if (CORA_UNLIKELY(x->count == x->room)) {
        if (x->count > 2 * (size_t)x->live + 64)
            cora_expiry_compact(x);
        else
            x->heap = cora_grow(x->heap, &x->room, x->count + 1, sizeof *x->heap);
    }
    x->queued[entry] = deadline;
    cora_heap_up(x, x->count++, (struct cora_timer){deadline, entry, x->generation[entry]});
}

static inline void cora_expiry_add(struct cora_expiry *x, uint32_t entry, uint64_t deadline)
{
    x->live++;
    cora_expiry_push(x, entry, deadline);
}

static inline void cora_expiry_remove(struct cora_expiry *x, uint32_t entry)
{
    x->live--;
    x->generation[entry]++;
}

/* The entry's deadline is now `deadline`; a record is only needed when that is earlier than the one it has. */
static inline void cora_expiry_move(struct cora_expiry *x, uint32_t entry, uint64_t deadline)
{
    if (deadline >= x->queued[entry])
        return;
    x->generation[entry]++;
    cora_expiry_push(x, entry, deadline);
}

/* Takes the earliest record off when its deadline is before `now`; CORA_NONE when there is none. Its entry either is
 * removed next, or queued again by cora_expiry_push. */
static inline uint32_t cora_expiry_pop(struct cora_expiry *x, uint64_t now)
{
    while (x->count && x->heap[0].deadline < now) {
        struct cora_timer first = x->heap[0];
        struct cora_timer last = x->heap[--x->count];
        if (x->count)
            cora_heap_down(x, 0, last);
        if (first.generation == x->generation[first.entry])
            return first.entry;
    }
    return CORA_NONE;
}

/* --- recency: a list of entries, the one used longest ago first --- */

struct cora_link {
    uint32_t before, after;
};

struct cora_recency {
    struct cora_link *links;
    uint32_t oldest, newest, capacity;
};

CORA_COLD void cora_recency_init(struct cora_recency *r, uint32_t capacity)
{
    *r = (struct cora_recency){cora_zeroed(capacity, sizeof *r->links), CORA_NONE, CORA_NONE, capacity};
}

CORA_COLD void cora_recency_close(struct cora_recency *r) { cora_release(r->links, r->capacity, sizeof *r->links); }

static inline void cora_recency_add(struct cora_recency *r, uint32_t entry)
{
    r->links[entry] = (struct cora_link){r->newest, CORA_NONE};
    if (r->newest == CORA_NONE)
        r->oldest = entry;
    else
        r->links[r->newest].after = entry;
    r->newest = entry;
}

static inline void cora_recency_remove(struct cora_recency *r, uint32_t entry)
{
    struct cora_link link = r->links[entry];
    if (link.before == CORA_NONE)
        r->oldest = link.after;
    else
        r->links[link.before].after = link.after;
    if (link.after == CORA_NONE)
        r->newest = link.before;
    else
        r->links[link.after].before = link.before;
}

static inline void cora_recency_use(struct cora_recency *r, uint32_t entry)
{
    if (r->newest == entry)
        return;
    cora_recency_remove(r, entry);
    cora_recency_add(r, entry);
}

/* --- what the profile build counts for each table --- */

#ifdef CORA_PROFILE
enum cora_table_event {
    CORA_HIT_FIRST, CORA_MISS_FIRST, CORA_HIT_SECOND, CORA_MISS_SECOND, /* look-ups by key number */
    CORA_INSERTED, CORA_FULL, CORA_DELETED, CORA_EXPIRED, CORA_EVICTED, CORA_TOUCHED, CORA_STORED,
    CORA_GREEN, CORA_YELLOW, CORA_RED, CORA_ENTRIES, CORA_PEAK, CORA_TABLE_EVENTS
};

struct cora_use {
    uint64_t first, last; /* times of the first and the latest access */
    uint64_t accesses, octets;
    uint64_t pause; /* longest time between two accesses */
    uint64_t alive;
};

struct cora_table_window {
    uint64_t distinct, inserts, expiries;
    uint64_t ends; /* entries gone for whatever reason, expiries among them */
    uint64_t peak; /* most entries after an insert; 0: nothing was inserted */
};

struct cora_table_profile {
    uint64_t events[CORA_TABLE_EVENTS];
    uint32_t capacity;
    struct cora_use *uses;   /* by entry, of the entries alive */
    uint32_t *window_marks;  /* by entry: 1 + the latest window it was used in */
    struct cora_use *ended;  /* of the entries gone, in the order they went */
    size_t ended_count, ended_room;
    struct cora_table_window *windows;
    uint64_t follow; /* 0, or 1 + the component's bits of a move */
    uint64_t stride, offset; /* entry e is number e * stride + offset of the component */
};

CORA_COLD void cora_profile_init(struct cora_table_profile *t, uint32_t capacity)
{
    t->capacity = capacity;
    t->uses = cora_zeroed(capacity, sizeof *t->uses);
    t->window_marks = cora_zeroed(capacity, sizeof *t->window_marks);
}

CORA_COLD void cora_profile_close(struct cora_table_profile *t)
{
    cora_release(t->uses, t->capacity, sizeof *t->uses);
    cora_release(t->window_marks, t->capacity, sizeof *t->window_marks);
    free(t->ended);
    free(t->windows);
}

static inline void cora_profile_move(const struct cora_table_profile *t, struct cora_core *core, enum cora_move kind,
                                     uint32_t entry)
{
    if (t->follow)
        cora_note_move(&core->profile, (t->follow - 1) + ((uint64_t)kind << CORA_MOVE_KIND) + entry * t->stride +
                                           t->offset);
}

/* An entry was accessed in any way. */
static inline void cora_profile_access(struct cora_table_profile *t, const struct cora_core *core, uint32_t entry)
{
    struct cora_use *use = &t->uses[entry];
    if (core->now - use->last > use->pause)
        use->pause = core->now - use->last;
    use->last = core->now;
    use->accesses++;
    use->octets += core->current_wirelen;
    if (t->windows && t->window_marks[entry] != core->profile.window + 1) {
        t->window_marks[entry] = (uint32_t)core->profile.window + 1;
        t->windows[core->profile.window].distinct++;
    }
}

/* A field of the entry has now another value, or it has another time-out. */
static inline void cora_profile_change(const struct cora_table_profile *t, struct cora_core *core, uint32_t entry)
{
    cora_profile_move(t, core, CORA_MOVE_CHANGE, entry);
}

/* An entry was found or charged. */
static inline void cora_profile_use(struct cora_table_profile *t, struct cora_core *core, uint32_t entry)
{
    cora_profile_move(t, core, CORA_MOVE_USE, entry);
    cora_profile_access(t, core, entry);
}

static inline void cora_profile_insert(struct cora_table_profile *t, struct cora_core *core, uint32_t entry)
{
    cora_profile_move(t, core, CORA_MOVE_MAKE, entry);
    t->uses[entry] = (struct cora_use){.first = core->now, .last = core->now, .alive = 1};
    t->window_marks[entry] = 0;
    t->events[CORA_INSERTED]++;
    if (++t->events[CORA_ENTRIES] > t->events[CORA_PEAK])
        t->events[CORA_PEAK] = t->events[CORA_ENTRIES];
    if (t->windows) {
        struct cora_table_window *window = &t->windows[core->profile.window];
        window->inserts++;
        if (t->events[CORA_ENTRIES] > window->peak)
            window->peak = t->events[CORA_ENTRIES];
    }
    cora_profile_access(t, core, entry);
}

/* A hit in a read-only table, whose entries count from their first use on. */
static inline void cora_profile_read(struct cora_table_profile *t, const struct cora_core *core, uint32_t entry)
{
    if (!t->uses[entry].alive) {
        t->uses[entry] = (struct cora_use){.first = core->now, .last = core->now, .alive = 1};
        t->events[CORA_ENTRIES]++;
        t->events[CORA_PEAK]++;
    }
    cora_profile_access(t, core, entry);
}

CORA_COLD void cora_profile_end(struct cora_table_profile *t, struct cora_core *core, uint32_t entry)
{
    cora_profile_move(t, core, CORA_MOVE_END, entry);
    if (t->windows)
        t->windows[core->profile.window].ends++;
    t->events[CORA_ENTRIES]--;
    t->ended = cora_grow(t->ended, &t->ended_room, t->ended_count + 1, sizeof *t->ended);
    t->uses[entry].alive = 0;
    t->ended[t->ended_count++] = t->uses[entry];
}

/* An entry dies of age, or is evicted. */
static inline void cora_profile_expiry(struct cora_table_profile *t, const struct cora_core *core,
                                       enum cora_table_event why)
{
    t->events[why]++;
    if (t->windows)
        t->windows[core->profile.window].expiries++;
}
#endif

#endif
