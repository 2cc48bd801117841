/* The admission simulator: what lending entries of tables to a nearer place would have done to the packets of a profile
 * run. The policy is described in docs/profile.md, "Lending entries"; tests/runtime/slow_admission.py is the same policy
 * written down plainly, and both must agree exactly.
 *
 * It reads the moves of a profile run (moves.h). Every component has several ways of being lent, which differ in the
 * paths that are aligned; every way has up to 64 points (capacity, threshold), simulated side by side: bit p of an entry's
 * mask says that point p has it lent. A packet of a lent entry therefore costs one look at the mask, whatever the number
 * of points.
 *
 * Capacities are not known before the run, so every threshold starts with one point without a bound. When it is about to
 * lend more entries than the next capacity allows, a point with that capacity is forked off it: up to then, the two are
 * the same. */
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "moves.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define WAYS 2
#define POINTS 64
#define AHEAD 48 /* so many words ahead, entries are fetched into the cache */
#define UNBOUNDED UINT64_MAX
#define UNKNOWN UINT64_MAX
#define NO_ROW UINT32_MAX

/* The policy's constants; their reasons are in docs/profile.md. */
#define SMOOTHING 8 /* an entry's gap is the running mean of about so many gaps */
#define SILENCE 16  /* an entry idle for so many of its own gaps is over */
#define PROOF 8     /* packets at the owner that a flow needs to replace one that is not over */
#define FASTER 2    /* and how many times smaller its gap must be */

typedef unsigned __int128 wide;

struct record {
    uint64_t last, entry;
};

struct totals {
    uint64_t installs, removals, recalls, peak;
};

struct point {
    uint64_t capacity, threshold;
    uint64_t next; /* of a point without a bound: the capacity that is forked off next */
    uint32_t parent;
    uint64_t born; /* the window in which it was forked off; windows before are the parent's */
    uint64_t lent, busiest;
    struct totals whole, window;
    wide area; /* entries times nanoseconds lent, up to `changed` */
    uint64_t changed;
    struct record *heap; /* by last use as it was when the record was written: never later than the true one */
    size_t count, room;
};

/* Counters of one aligned path: packets on the fast path by point. */
struct served {
    uint64_t path;
    uint64_t whole[POINTS], window[POINTS];
};

struct way {
    bool active; /* a packet has taken an aligned path */
    uint32_t points;
    uint64_t full;           /* points, as bits, that have lent all they may */
    uint64_t oldest[POINTS]; /* of these: no lent entry was last used before this */
    uint8_t threshold[POINTS];
    struct point point[POINTS];
    struct served *served;
    size_t rows, room;
};

/* What an entry is to one way: the points that have it lent, as bits; and by point the packets at the owner since it came
 * back to it, at most 255. */
struct hold {
    uint64_t mask;
    uint8_t seen[POINTS];
};

struct entry {
    uint64_t last, gap; /* the time of the latest packet; the running mean of the times between two, or UNKNOWN */
    struct hold hold[WAYS];
};

struct component {
    struct entry *entries;
    size_t room;
    uint64_t changed; /* number of the latest packet that changed an entry */
    struct way ways[WAYS];
};

struct path {
    uint64_t id, window_packets;
    bool known;
    uint32_t *row; /* by component and way: its counters where it is aligned, or NO_ROW */
};

struct taken {
    uint64_t window, path, packets;
};

struct touch {
    uint32_t component;
    bool made, gone;
    uint64_t entry;
};

struct log {
    uint64_t *words;
    size_t count, room;
};

struct cora_admission {
    uint64_t window_start, window_length, window_count, window, now;
    uint64_t packets;
    uint32_t components;
    uint32_t unchanging; /* ways, as bits, in which a packet that changes its entry needs the owner */
    uint32_t *row; /* by component and way: where the present packet counts if it is aligned, or NO_ROW */
    struct component *component;
    struct path *paths; /* hash table by id */
    size_t path_mask, path_count;
    uint64_t unknown; /* the path that is not registered yet */
    struct touch *touches;
    size_t touch_count, touch_room;
    struct taken *taken;
    size_t taken_count, taken_room;
    struct log log;
    jmp_buf rescue;
};

static void *grown(struct cora_admission *S, void *at, size_t *room, size_t needed, size_t size)
{
    size_t more = *room ? *room : 16;
    while (more < needed)
        more *= 2;
    if (more == *room)
        return at;
    void *bigger = realloc(at, more * size);
    if (!bigger)
        longjmp(S->rescue, 1);
    *room = more;
    return bigger;
}

/* --- the entries a point has lent, the one idle longest first --- */

static inline bool earlier(struct record a, struct record b)
{
    return a.last != b.last ? a.last < b.last : a.entry < b.entry;
}

static void heap_down(struct point *P, size_t at, struct record moved)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= P->count)
            break;
        child += child + 1 < P->count && earlier(P->heap[child + 1], P->heap[child]);
        if (!earlier(P->heap[child], moved))
            break;
        P->heap[at] = P->heap[child];
        at = child;
    }
    P->heap[at] = moved;
}

static void heap_pop(struct point *P)
{
    struct record last = P->heap[--P->count];
    if (P->count)
        heap_down(P, 0, last);
}

static int by_age(const void *left, const void *right)
{
    const struct record *a = left, *b = right;
    return earlier(*a, *b) ? -1 : earlier(*b, *a);
}

/* Entries that were taken back leave records behind: drops these, and what stands there twice. */
static void heap_compact(const struct component *C, uint32_t w, uint32_t p, struct point *P)
{
    size_t kept = 0;
    for (size_t i = 0; i < P->count; i++)
        if (C->entries[P->heap[i].entry].hold[w].mask >> p & 1)
            P->heap[kept++] = (struct record){C->entries[P->heap[i].entry].last, P->heap[i].entry};
    qsort(P->heap, kept, sizeof *P->heap, by_age); /* a sorted array is a heap */
    P->count = 0;
    for (size_t i = 0; i < kept; i++)
        if (!P->count || P->heap[P->count - 1].entry != P->heap[i].entry)
            P->heap[P->count++] = P->heap[i];
}

static void heap_push(struct cora_admission *S, const struct component *C, uint32_t w, uint32_t p, struct point *P,
                      struct record added)
{
    if (P->count > 2 * P->lent + 64)
        heap_compact(C, w, p, P);
    P->heap = grown(S, P->heap, &P->room, P->count + 1, sizeof *P->heap);
    size_t at = P->count++;
    for (; at && earlier(added, P->heap[(at - 1) / 2]); at = (at - 1) / 2)
        P->heap[at] = P->heap[(at - 1) / 2];
    P->heap[at] = added;
}

/* The lent entry idle longest, of at least one. */
static uint64_t idle_longest(const struct component *C, uint32_t w, uint32_t p, struct point *P)
{
    for (;;) {
        struct record first = P->heap[0];
        const struct entry *e = &C->entries[first.entry];
        if (!(e->hold[w].mask >> p & 1))
            heap_pop(P);
        else if (e->last != first.last)
            heap_down(P, 0, (struct record){e->last, first.entry});
        else
            return first.entry;
    }
}

/* --- lending and taking back --- */

static void change_lent(const struct cora_admission *S, struct point *P, int64_t by)
{
    P->area += (wide)P->lent * (S->now - P->changed);
    P->changed = S->now;
    P->lent += (uint64_t)by;
}

/* Whether a point without room can be told from the others, and how old its entries may be at most. */
static void note_room(struct way *W, uint32_t p)
{
    const struct point *P = &W->point[p];
    uint64_t bit = (uint64_t)1 << p;
    bool full = P->lent == P->capacity;
    W->full = full ? W->full | bit : W->full & ~bit;
    W->oldest[p] = full && P->count ? P->heap[0].last : 0;
}

static void give_back(const struct cora_admission *S, struct component *C, uint32_t w, uint32_t p, uint64_t entry)
{
    struct hold *hold = &C->entries[entry].hold[w];
    change_lent(S, &C->ways[w].point[p], -1);
    hold->mask &= ~((uint64_t)1 << p);
    hold->seen[p] = 0;
}

static void give_back_everywhere(const struct cora_admission *S, struct component *C, uint32_t w, uint64_t entry,
                                 bool recall)
{
    struct hold *hold = &C->entries[entry].hold[w];
    for (uint64_t left = hold->mask; left; left &= left - 1) {
        uint32_t p = (uint32_t)__builtin_ctzll(left);
        struct point *P = &C->ways[w].point[p];
        change_lent(S, P, -1);
        note_room(&C->ways[w], p);
        *(recall ? &P->whole.recalls : &P->whole.removals) += 1;
        *(recall ? &P->window.recalls : &P->window.removals) += 1;
    }
    hold->mask = 0;
    memset(hold->seen, 0, sizeof hold->seen);
}

static void lend(struct cora_admission *S, struct component *C, uint32_t w, uint32_t p, uint64_t entry)
{
    struct point *P = &C->ways[w].point[p];
    change_lent(S, P, 1);
    C->entries[entry].hold[w].mask |= (uint64_t)1 << p;
    P->whole.installs++;
    P->window.installs++;
    if (P->lent > P->whole.peak)
        P->whole.peak = P->lent;
    if (P->lent > P->window.peak)
        P->window.peak = P->lent;
    if (P->capacity != UNBOUNDED)
        heap_push(S, C, w, p, P, (struct record){C->entries[entry].last, entry});
    note_room(&C->ways[w], p);
}

/* Whether a candidate of which the owner has seen so many packets may take the place of a lent entry. */
static bool replaces(const struct cora_admission *S, const struct entry *candidate, uint8_t seen,
                     const struct entry *other)
{
    uint64_t idle = S->now - other->last, gap = candidate->gap;
    if (gap == UNKNOWN || idle <= gap)
        return false;
    if (other->gap == UNKNOWN || idle / SILENCE >= other->gap)
        return true;
    return seen >= PROOF && gap <= other->gap / FASTER;
}

/* A point without a bound is about to lend one entry more than `capacity`. */
static uint32_t fork_point(struct cora_admission *S, struct component *C, uint32_t w, uint32_t from, uint64_t capacity)
{
    struct way *W = &C->ways[w];
    uint32_t p = W->points++;
    struct point *P = &W->point[p];
    *P = W->point[from];
    P->capacity = capacity;
    P->parent = from;
    P->born = S->window;
    P->heap = NULL;
    P->count = P->room = 0;
    P->heap = grown(S, NULL, &P->room, P->lent, sizeof *P->heap);
    W->threshold[p] = W->threshold[from];
    for (size_t e = 0; e < C->room; e++) {
        struct hold *hold = &C->entries[e].hold[w];
        hold->seen[p] = hold->seen[from];
        if (!(hold->mask >> from & 1))
            continue;
        hold->mask |= (uint64_t)1 << p;
        P->heap[P->count++] = (struct record){C->entries[e].last, e};
    }
    qsort(P->heap, P->count, sizeof *P->heap, by_age);
    for (size_t row = 0; row < W->rows; row++) {
        W->served[row].whole[p] = W->served[row].whole[from];
        W->served[row].window[p] = W->served[row].window[from];
    }
    note_room(W, p);
    return p;
}

/* Offers an entry with enough packets to a point that has not lent it. */
static void offer(struct cora_admission *S, struct component *C, uint32_t w, uint32_t p, uint64_t entry)
{
    struct way *W = &C->ways[w];
    struct point *P = &W->point[p];
    if (P->capacity == UNBOUNDED && P->lent == P->next && W->points < POINTS) {
        uint32_t fork = fork_point(S, C, w, p, P->next);
        P->next *= 4;
        offer(S, C, w, fork, entry);
    }
    if (P->lent == P->capacity) {
        uint64_t other = idle_longest(C, w, p, P);
        W->oldest[p] = P->heap[0].last;
        const struct entry *candidate = &C->entries[entry];
        if (!replaces(S, candidate, candidate->hold[w].seen[p], &C->entries[other]))
            return;
        give_back(S, C, w, p, other);
        P->whole.removals++;
        P->window.removals++;
    }
    lend(S, C, w, p, entry);
}

/* Points, as bits, for which the owner has seen enough packets of the entry. */
static uint64_t ready(const uint8_t *seen, const uint8_t *threshold)
{
    uint64_t found = 0;
#ifdef __SSE2__
    for (int at = 0; at < POINTS; at += 16) {
        __m128i have = _mm_loadu_si128((const __m128i *)(seen + at));
        __m128i need = _mm_loadu_si128((const __m128i *)(threshold + at));
        __m128i enough = _mm_cmpeq_epi8(_mm_max_epu8(have, need), have);
        found |= (uint64_t)(uint16_t)_mm_movemask_epi8(enough) << at;
    }
#else
    for (int p = 0; p < POINTS; p++)
        found |= (uint64_t)(seen[p] >= threshold[p]) << p;
#endif
    return found;
}

/* The owner has seen a packet of this entry. */
static void note_seen(struct cora_admission *S, struct component *C, uint32_t w, uint64_t entry)
{
    const struct way *W = &C->ways[w];
    uint64_t gap = C->entries[entry].gap;
    struct hold *hold = &C->entries[entry].hold[w];
    for (uint32_t p = 0; p < POINTS; p++)
        hold->seen[p] += hold->seen[p] != UINT8_MAX;
    uint64_t all = W->points == POINTS ? UINT64_MAX : ((uint64_t)1 << W->points) - 1;
    uint64_t left = ~hold->mask & all & ready(hold->seen, W->threshold);
    if (gap == UNKNOWN)
        left &= ~W->full;
    for (; left; left &= left - 1) {
        uint32_t p = (uint32_t)__builtin_ctzll(left);
        if (W->full >> p & 1 && S->now - W->oldest[p] <= gap) /* then it is so for the true last use too */
            continue;
        offer(S, C, w, p, entry);
    }
}

/* --- packets --- */

static void need_entry(struct cora_admission *S, struct component *C, uint64_t entry)
{
    if (entry < C->room)
        return;
    size_t more = C->room ? C->room : 64;
    while (more <= entry)
        more *= 2;
    struct entry *bigger = realloc(C->entries, more * sizeof *bigger);
    if (!bigger)
        longjmp(S->rescue, 1);
    memset(bigger + C->room, 0, (more - C->room) * sizeof *bigger);
    C->entries = bigger;
    C->room = more;
}

static struct touch *touched(struct cora_admission *S, uint32_t component, uint64_t entry)
{
    for (size_t i = S->touch_count; i-- > 0;)
        if (S->touches[i].entry == entry && S->touches[i].component == component && !S->touches[i].gone)
            return &S->touches[i];
    return NULL;
}

static void add_touch(struct cora_admission *S, uint32_t component, uint64_t entry, bool made)
{
    S->touches = grown(S, S->touches, &S->touch_room, S->touch_count + 1, sizeof *S->touches);
    S->touches[S->touch_count++] = (struct touch){component, made, false, entry};
}

static void serve(struct way *W, uint32_t row, uint64_t mask)
{
    struct served *served = &W->served[row];
    for (uint32_t p = 0; p < POINTS; p++) {
        uint64_t lent = mask >> p & 1;
        served->window[p] += lent;
    }
}

static void use_entry(struct cora_admission *S, uint32_t c, uint64_t entry)
{
    struct component *C = &S->component[c];
    need_entry(S, C, entry);
    if (touched(S, c, entry))
        return;
    add_touch(S, c, entry, false);
    for (uint32_t w = 0; w < WAYS; w++) {
        struct way *W = &C->ways[w];
        uint32_t row = S->row[c * WAYS + w];
        if (!W->active)
            continue;
        uint64_t mask = C->entries[entry].hold[w].mask;
        if (row == NO_ROW)
            give_back_everywhere(S, C, w, entry, true);
        else if (mask)
            serve(W, row, mask);
    }
}

static void make_entry(struct cora_admission *S, uint32_t c, uint64_t entry)
{
    struct component *C = &S->component[c];
    need_entry(S, C, entry);
    C->entries[entry].last = S->now;
    C->entries[entry].gap = UNKNOWN;
    add_touch(S, c, entry, true);
}

static void end_entry(struct cora_admission *S, uint32_t c, uint64_t entry)
{
    struct component *C = &S->component[c];
    need_entry(S, C, entry);
    for (uint32_t w = 0; w < WAYS; w++)
        give_back_everywhere(S, C, w, entry, false);
    struct touch *gone = touched(S, c, entry);
    if (gone)
        gone->gone = true;
}

/* The packet is the latest of an entry it has touched. */
static void note_use(struct cora_admission *S, struct touch touch)
{
    if (touch.made)
        return;
    struct entry *e = &S->component[touch.component].entries[touch.entry];
    uint64_t gap = S->now - e->last;
    e->gap = e->gap == UNKNOWN ? gap : e->gap - e->gap / SMOOTHING + gap / SMOOTHING;
    e->last = S->now;
}

/* After that, the entry may be lent. */
static void settle(struct cora_admission *S, struct touch touch)
{
    struct component *C = &S->component[touch.component];
    for (uint32_t w = 0; w < WAYS; w++) {
        bool aligned = S->row[touch.component * WAYS + w] != NO_ROW;
        if (C->ways[w].active && (aligned || touch.made))
            note_seen(S, C, w, touch.entry);
    }
}

static void log_word(struct cora_admission *S, uint64_t word)
{
    S->log.words = grown(S, S->log.words, &S->log.room, S->log.count + 1, sizeof *S->log.words);
    S->log.words[S->log.count++] = word;
}

/* Writes down what a way did in the window that ends: [window, way, points, rows], then installs, removals, recalls and
 * peak by point, then the packets by row and point. */
static void log_way(struct cora_admission *S, uint32_t number, struct way *W)
{
    log_word(S, S->window);
    log_word(S, number);
    log_word(S, W->points);
    log_word(S, W->rows);
    for (uint32_t p = 0; p < W->points; p++) {
        struct point *P = &W->point[p];
        if (P->window.installs > P->busiest)
            P->busiest = P->window.installs;
        const uint64_t row[] = {P->window.installs, P->window.removals, P->window.recalls, P->window.peak};
        for (int i = 0; i < 4; i++)
            log_word(S, row[i]);
        P->window = (struct totals){.peak = P->lent};
    }
    for (size_t row = 0; row < W->rows; row++) {
        for (uint32_t p = 0; p < W->points; p++) {
            log_word(S, W->served[row].window[p]);
            W->served[row].whole[p] += W->served[row].window[p];
        }
        memset(W->served[row].window, 0, sizeof W->served[row].window);
    }
}

static void end_window(struct cora_admission *S)
{
    for (size_t i = 0; i <= S->path_mask; i++) {
        struct path *path = &S->paths[i];
        if (!path->window_packets)
            continue;
        S->taken = grown(S, S->taken, &S->taken_room, S->taken_count + 1, sizeof *S->taken);
        S->taken[S->taken_count++] = (struct taken){S->window, path->id, path->window_packets};
        path->window_packets = 0;
    }
    for (uint32_t n = 0; n < S->components * WAYS; n++) {
        struct way *W = &S->component[n / WAYS].ways[n % WAYS];
        if (W->active)
            log_way(S, n, W);
    }
}

static void move_clock(struct cora_admission *S, uint64_t now)
{
    S->now = now;
    uint64_t window = now < S->window_start ? 0 : (now - S->window_start) / S->window_length;
    if (window >= S->window_count)
        window = S->window_count - 1;
    if (window == S->window)
        return;
    end_window(S);
    S->window = window;
}

static inline uint32_t component_of(uint64_t move)
{
    return (uint32_t)(move >> CORA_MOVE_COMPONENT) & (CORA_MOVE_COMPONENTS - 1);
}

static inline uint64_t entry_of(uint64_t move) { return move & (((uint64_t)1 << CORA_MOVE_COMPONENT) - 1); }

static void run_moves(struct cora_admission *S, const uint64_t *moves, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t c = component_of(moves[i]);
        uint64_t entry = entry_of(moves[i]);
        switch (moves[i] >> CORA_MOVE_KIND) {
        case CORA_MOVE_USE: use_entry(S, c, entry); break;
        case CORA_MOVE_MAKE: make_entry(S, c, entry); break;
        case CORA_MOVE_END: end_entry(S, c, entry); break;
        default: break;
        }
    }
}

/* Where the packet counts in every way, and which ways it is the first aligned packet of. */
static void place_packet(struct cora_admission *S, const struct path *path)
{
    for (uint32_t n = 0; n < S->components * WAYS; n++) {
        struct component *C = &S->component[n / WAYS];
        bool refused = S->unchanging >> (n % WAYS) & 1 && C->changed == S->packets;
        S->row[n] = refused ? NO_ROW : path->row[n];
        if (S->row[n] != NO_ROW)
            C->ways[n % WAYS].active = true;
    }
}

static void run_packet(struct cora_admission *S, struct path *path, uint64_t now, const uint64_t *moves, size_t count)
{
    move_clock(S, now);
    path->window_packets++;
    S->packets++;
    S->touch_count = 0;
    for (size_t i = 0; i < count; i++)
        if (moves[i] >> CORA_MOVE_KIND == CORA_MOVE_CHANGE)
            S->component[component_of(moves[i])].changed = S->packets;
    place_packet(S, path);
    run_moves(S, moves, count);
    for (size_t i = 0; i < S->touch_count; i++)
        if (!S->touches[i].gone)
            note_use(S, S->touches[i]);
    for (size_t i = 0; i < S->touch_count; i++)
        if (!S->touches[i].gone)
            settle(S, S->touches[i]);
}

/* --- paths --- */

static struct path *find_path(const struct cora_admission *S, uint64_t id)
{
    uint64_t at = (id * 0x9e3779b97f4a7c15) >> 20;
    while (S->paths[at & S->path_mask].known && S->paths[at & S->path_mask].id != id)
        at++;
    return &S->paths[at & S->path_mask];
}

static void double_paths(struct cora_admission *S)
{
    size_t old_mask = S->path_mask;
    struct path *old = S->paths;
    struct path *bigger = calloc(2 * (old_mask + 1), sizeof *bigger);
    if (!bigger)
        longjmp(S->rescue, 1);
    S->paths = bigger;
    S->path_mask = 2 * old_mask + 1;
    for (size_t i = 0; i <= old_mask; i++)
        if (old[i].known)
            *find_path(S, old[i].id) = old[i];
    free(old);
}

static void add_path(struct cora_admission *S, uint64_t id, const uint8_t *aligned)
{
    if (4 * (S->path_count + 1) > 3 * (S->path_mask + 1))
        double_paths(S);
    uint32_t total = S->components * WAYS;
    uint32_t *rows = malloc((total + 1) * sizeof *rows);
    if (!rows)
        longjmp(S->rescue, 1);
    struct path *path = find_path(S, id);
    *path = (struct path){.id = id, .known = true, .row = rows};
    S->path_count++;
    for (uint32_t n = 0; n < total; n++)
        rows[n] = NO_ROW;
    for (uint32_t n = 0; n < total; n++) {
        struct way *W = &S->component[n / WAYS].ways[n % WAYS];
        if (!aligned[n])
            continue;
        W->served = grown(S, W->served, &W->room, W->rows + 1, sizeof *W->served);
        W->served[W->rows] = (struct served){.path = id};
        rows[n] = (uint32_t)W->rows++;
    }
}

/* --- the interface; functions that can run out of memory say false or SIZE_MAX then --- */

void cora_admission_close(struct cora_admission *S)
{
    if (!S)
        return;
    for (uint32_t c = 0; S->component && c < S->components; c++) {
        struct component *C = &S->component[c];
        for (uint32_t w = 0; w < WAYS; w++) {
            for (uint32_t p = 0; p < C->ways[w].points; p++)
                free(C->ways[w].point[p].heap);
            free(C->ways[w].served);
        }
        free(C->entries);
    }
    for (size_t i = 0; S->paths && i <= S->path_mask; i++)
        free(S->paths[i].row);
    free(S->component);
    free(S->row);
    free(S->paths);
    free(S->touches);
    free(S->taken);
    free(S->log.words);
    free(S);
}

/* Windows are those of the profile. `unchanging`: ways, as bits, in which a packet that changes its entry needs the owner.
 * `smallest`: the least capacity of a point; each further one is four times larger. Thresholds are at most 255. */
struct cora_admission *cora_admission_open(uint64_t start, uint64_t length, uint64_t count, uint32_t components,
                                           uint32_t unchanging, uint64_t smallest, const uint64_t *thresholds,
                                           uint32_t threshold_count)
{
    struct cora_admission *S = calloc(1, sizeof *S);
    if (!S)
        return NULL;
    S->window_start = S->now = start;
    S->window_length = length;
    S->window_count = count;
    S->components = components;
    S->unchanging = unchanging;
    S->row = calloc(components * WAYS + 1, sizeof *S->row);
    S->path_mask = 63;
    S->paths = calloc(S->path_mask + 1, sizeof *S->paths);
    S->component = calloc(components + 1, sizeof *S->component);
    if (!S->paths || !S->component || !S->row) {
        cora_admission_close(S);
        return NULL;
    }
    for (uint32_t n = 0; n < components * WAYS * threshold_count; n++) {
        uint32_t t = n % threshold_count, number = n / threshold_count;
        struct way *W = &S->component[number / WAYS].ways[number % WAYS];
        W->threshold[W->points] = (uint8_t)thresholds[t];
        W->point[W->points++] = (struct point){.capacity = UNBOUNDED, .threshold = thresholds[t], .next = smallest,
                                               .changed = start};
    }
    return S;
}

/* Asks for the entry of a move; a word that is something else does no harm. */
static inline void fetch(const struct cora_admission *S, uint64_t word)
{
    uint32_t c = component_of(word);
    uint64_t entry = entry_of(word);
    if (c >= S->components || entry >= S->component[c].room)
        return;
    const char *at = (const char *)&S->component[c].entries[entry];
    for (size_t line = 0; line < sizeof(struct entry); line += 64)
        __builtin_prefetch(at + line, 1);
}

/* Reads moves until a packet takes a path that was not registered; returns how many words were read. */
size_t cora_admission_run(struct cora_admission *S, const uint64_t *words, size_t count)
{
    if (setjmp(S->rescue))
        return SIZE_MAX;
    size_t at = 0;
    while (at < count) {
        size_t end = at;
        for (; end < count && words[end] >> CORA_MOVE_KIND != CORA_MOVE_PACKET; end++)
            if (end + AHEAD < count)
                fetch(S, words[end + AHEAD]);
        if (end == count) /* entries that went behind the last packet */
            return run_moves(S, words + at, end - at), count;
        struct path *path = find_path(S, words[end + 1]);
        if (!path->known) {
            S->unknown = words[end + 1];
            break;
        }
        run_packet(S, path, words[end + 2], words + at, end - at);
        at = end + 3;
    }
    return at;
}

uint64_t cora_admission_unknown(const struct cora_admission *S) { return S->unknown; }

/* `aligned`: by component and way, whether the path is aligned to its end. */
bool cora_admission_register(struct cora_admission *S, uint64_t path, const uint8_t *aligned)
{
    if (setjmp(S->rescue))
        return false;
    add_path(S, path, aligned);
    return true;
}

/* All packets have been; once. */
bool cora_admission_finish(struct cora_admission *S)
{
    if (setjmp(S->rescue))
        return false;
    end_window(S);
    for (uint32_t n = 0; n < S->components * WAYS; n++) {
        struct way *W = &S->component[n / WAYS].ways[n % WAYS];
        for (uint32_t p = 0; p < W->points; p++)
            change_lent(S, &W->point[p], 0);
    }
    return true;
}

static const struct way *way_of(const struct cora_admission *S, uint32_t number)
{
    return &S->component[number / WAYS].ways[number % WAYS];
}

/* Points and rows of a way; the way's number is component * ways + way. */
void cora_admission_size(const struct cora_admission *S, uint32_t number, uint64_t out[2])
{
    out[0] = way_of(S, number)->points;
    out[1] = way_of(S, number)->rows;
}

/* Ten words a point: capacity (UINT64_MAX: without a bound), threshold, lent at the end, installs, removals, recalls,
 * peak, busiest, and the area in two words, the low one first. */
void cora_admission_points(const struct cora_admission *S, uint32_t number, uint64_t *out)
{
    const struct way *W = way_of(S, number);
    for (uint32_t p = 0; p < W->points; p++) {
        const struct point *P = &W->point[p];
        const uint64_t row[] = {P->capacity, P->threshold, P->lent, P->whole.installs, P->whole.removals,
                                P->whole.recalls, P->whole.peak, P->busiest, (uint64_t)P->area,
                                (uint64_t)(P->area >> 64)};
        memcpy(out, row, sizeof row);
        out += sizeof row / sizeof *row;
    }
}

/* A row: the path, then the packets on the fast path by point. */
void cora_admission_served(const struct cora_admission *S, uint32_t number, uint64_t *out)
{
    const struct way *W = way_of(S, number);
    for (size_t row = 0; row < W->rows; row++) {
        *out++ = W->served[row].path;
        memcpy(out, W->served[row].whole, W->points * sizeof *out);
        out += W->points;
    }
}

/* The point that had these numbers in a window: points forked off later were their parents then. */
static uint32_t ancestor(const struct way *W, uint32_t p, uint64_t window)
{
    while (W->point[p].capacity != UNBOUNDED && W->point[p].born > window)
        p = W->point[p].parent;
    return p;
}

/* One window of a way: installs, removals, recalls and peak by point, then packets by row and point. False: nothing was
 * lent up to then. */
bool cora_admission_window(const struct cora_admission *S, uint32_t number, uint64_t window, uint64_t *out)
{
    const struct way *W = way_of(S, number);
    const uint64_t *at = S->log.words, *end = S->log.words + S->log.count;
    while (at < end && !(at[0] == window && at[1] == number))
        at += 4 + at[2] * 4 + at[2] * at[3];
    if (at >= end)
        return false;
    uint64_t points = at[2], rows = at[3];
    const uint64_t *totals = at + 4, *served = totals + 4 * points;
    for (uint32_t p = 0; p < W->points; p++, out += 4)
        memcpy(out, totals + 4 * ancestor(W, p, window), 4 * sizeof *out);
    for (size_t row = 0; row < W->rows; row++)
        for (uint32_t p = 0; p < W->points; p++)
            *out++ = row < rows ? served[row * points + ancestor(W, p, window)] : 0;
    return true;
}

/* Packets by window and path; `out` NULL: only how many rows. */
size_t cora_admission_taken(const struct cora_admission *S, struct taken *out)
{
    if (out && S->taken_count)
        memcpy(out, S->taken, S->taken_count * sizeof *out);
    return S->taken_count;
}
