/* The world between the places: queues, channels, a seeded scheduler, and the interface of the compiled library.
 *
 * Each step the scheduler draws who goes on: the first place takes the next packet, a place the next item of its queue, or
 * a neighbour a message. How likely each is changes from phase to phase, so that some place falls far behind again and
 * again. A place that waits in the middle of a packet only lets places before it go on, so waiting always ends. */
#ifndef CORA_SPLIT_DRIVER_H
#define CORA_SPLIT_DRIVER_H

#include "split.h"

struct cora_queue {
    struct cora_item **items; /* a ring */
    size_t first, count, room;
};

struct cora_channel {
    struct cora_message *messages; /* a ring */
    size_t first, count, room;
};

/* By flow the packet that left last. */
struct cora_flows {
    struct cora_flow {
        uint64_t flow, index;
        bool used;
    } *at;
    size_t count, mask;
};

struct cora_world {
    struct cora_engine *engines[CORA_PLACES];
    struct cora_queue queues[CORA_PLACES];
    struct cora_channel up[CORA_PLACES], down[CORA_PLACES]; /* from the place to the one before it, and behind it */
    bool settled[CORA_PLACES];
    uint16_t verdicts[CORA_PLACES];
    uint64_t random;
    uint32_t weights[1 + 4 * CORA_PLACES], total;
    uint64_t phase_left;
    size_t queue_limit, queued;
    const struct cora_record *next, *end; /* packets yet to come */
    uint64_t arrived, clock, serial;
    uint64_t statistics[CORA_STATISTICS];
    bool stuck, prompt, gaps;
    uint32_t gaps_start, gaps_owner; /* where packets start that no rule serves, and where their entries are */
    uint32_t waiting; /* places that wait in the middle of a packet */
    struct cora_commit {
        uint64_t index, now;
    } *commits;
    size_t committed, commit_room;
    uint64_t overtaken_first; /* number of the first packet that left too late, and 1 */
    struct cora_flows flows;
    struct cora_digests digests;
    uint8_t *output;
    size_t output_used, output_room;
};

_Thread_local jmp_buf *cora_split_rescue;

/* --- chance --- */

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016). */
static inline uint64_t cora_draw(struct cora_world *w)
{
    uint64_t x = w->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    w->random = x;
    return x * 0x2545f4914f6cdd1d;
}

static inline uint32_t cora_below(struct cora_world *w, uint32_t limit)
{
    return (uint32_t)((cora_draw(w) >> 32) * limit >> 32);
}

/* Chances for a while: of each kind of step none, few, or most. */
CORA_COLD void cora_new_phase(struct cora_world *w)
{
    static const uint32_t choices[] = {0, 1, 2, 8, 32};
    w->total = 0;
    for (uint32_t i = 0; i < 1 + 4 * CORA_PLACES; i++) {
        w->weights[i] = choices[cora_below(w, 5)];
        w->total += w->weights[i];
    }
    w->phase_left = (uint64_t)16 << cora_below(w, 8);
    w->queue_limit = (size_t)1 << cora_below(w, 11);
}

/* --- queues and channels --- */

CORA_COLD void cora_queue_grow(struct cora_queue *q)
{
    size_t room = q->room ? 2 * q->room : 64;
    struct cora_item **items = malloc(room * sizeof *items);
    if (!items)
        cora_out_of_memory(room * sizeof *items);
    for (size_t i = 0; i < q->count; i++)
        items[i] = q->items[(q->first + i) & (q->room - 1)];
    free(q->items);
    *q = (struct cora_queue){items, 0, q->count, room};
}

void cora_world_push(struct cora_world *w, uint32_t place, struct cora_item *item)
{
    struct cora_queue *q = &w->queues[place];
    if (q->count == q->room)
        cora_queue_grow(q);
    q->items[(q->first + q->count++) & (q->room - 1)] = item;
    w->queued++;
}

CORA_COLD void cora_channel_grow(struct cora_channel *c)
{
    size_t room = c->room ? 2 * c->room : 64;
    struct cora_message *messages = malloc(room * sizeof *messages);
    if (!messages)
        cora_out_of_memory(room * sizeof *messages);
    for (size_t i = 0; i < c->count; i++)
        messages[i] = c->messages[(c->first + i) & (c->room - 1)];
    free(c->messages);
    *c = (struct cora_channel){messages, 0, c->count, room};
}

static inline void cora_send(struct cora_channel *c, const struct cora_message *message)
{
    if (c->count == c->room)
        cora_channel_grow(c);
    c->messages[(c->first + c->count++) & (c->room - 1)] = *message;
}

void cora_world_up(struct cora_world *w, uint32_t from, const struct cora_message *message)
{
    cora_send(&w->up[from], message);
}

void cora_world_down(struct cora_world *w, uint32_t from, const struct cora_message *message)
{
    cora_send(&w->down[from], message);
}

/* --- what places tell --- */

uint64_t *cora_world_statistics(struct cora_world *w) { return w->statistics; }
uint64_t cora_world_serial(struct cora_world *w) { return ++w->serial; }

uint64_t cora_world_harm(const struct cora_world *w, uint32_t place, uint32_t entry)
{
    (void)w;
    return cora_harm[place][entry];
}

bool cora_world_gaps(const struct cora_world *w) { return w->gaps; }
uint64_t cora_world_clock(const struct cora_world *w) { return w->clock; }

void cora_world_commit(struct cora_world *w, uint64_t index, uint64_t now)
{
    if (w->committed == w->commit_room) {
        size_t room = w->commit_room ? 2 * w->commit_room : 1024;
        struct cora_commit *commits = realloc(w->commits, room * sizeof *commits);
        if (!commits)
            cora_out_of_memory(room * sizeof *commits);
        w->commits = commits;
        w->commit_room = room;
    }
    w->commits[w->committed++] = (struct cora_commit){index, now};
}

bool cora_world_queued(const struct cora_world *w, uint32_t place, uint64_t flow)
{
    const struct cora_queue *q = &w->queues[place];
    for (size_t i = 0; i < q->count; i++) {
        const struct cora_item *item = q->items[(q->first + i) & (q->room - 1)];
        if (item->kind == CORA_ITEM_PACKET && item->flow == flow)
            return true;
    }
    return false;
}

void cora_world_through(struct cora_world *w, uint64_t index)
{
    if (!CORA_LENDINGS)
        return;
    struct cora_channel *c = &w->up[CORA_PLACES - 1];
    struct cora_message *last = c->count ? &c->messages[(c->first + c->count - 1) & (c->room - 1)] : NULL;
    if (last && last->kind == CORA_DONE) {
        last->number = index + 1;
        return;
    }
    struct cora_message message = {.kind = CORA_DONE, .number = index + 1};
    cora_send(c, &message);
}

void cora_world_ended(struct cora_world *w, uint64_t index, uint16_t verdict)
{
    for (uint32_t i = 0; i < CORA_PLACES; i++) {
        uint64_t waited;
        if (cora_places[i]->stalled(w->engines[i], &waited) && waited == index) {
            w->settled[i] = true;
            w->verdicts[i] = verdict;
        }
    }
}

CORA_COLD void cora_flows_grow(struct cora_flows *f)
{
    struct cora_flow *old = f->at;
    size_t mask = f->mask;
    f->mask = old ? 2 * mask + 1 : 1023;
    f->at = calloc(f->mask + 1, sizeof *f->at);
    if (!f->at)
        cora_out_of_memory((f->mask + 1) * sizeof *f->at);
    for (size_t i = 0; old && i <= mask; i++) {
        if (!old[i].used)
            continue;
        size_t at = old[i].flow & f->mask;
        while (f->at[at].used)
            at = (at + 1) & f->mask;
        f->at[at] = old[i];
    }
    free(old);
}

void cora_world_left(struct cora_world *w, uint64_t flow, uint64_t index)
{
    struct cora_flows *f = &w->flows;
    if (!f->at || f->count > f->mask / 2)
        cora_flows_grow(f);
    size_t at = flow & f->mask;
    while (f->at[at].used && f->at[at].flow != flow)
        at = (at + 1) & f->mask;
    f->count += !f->at[at].used;
    if (f->at[at].used && index < f->at[at].index) {
        w->statistics[CORA_OVERTAKEN]++;
        if (!w->overtaken_first || index + 1 < w->overtaken_first)
            w->overtaken_first = index + 1;
        return;
    }
    f->at[at] = (struct cora_flow){flow, index, true};
}

/* --- steps --- */

/* What a place wrote goes to the world's output, so that events stand in the order they happened. */
static inline void cora_collect(struct cora_world *w, uint32_t place)
{
    struct cora_core *core = cora_places[place]->core(w->engines[place]);
    if (CORA_LIKELY(!core->output_used))
        return;
    w->output = cora_grow(w->output, &w->output_room, w->output_used + core->output_used, 1);
    memcpy(w->output + w->output_used, core->output, core->output_used);
    w->output_used += core->output_used;
    core->output_used = 0;
}

static inline bool cora_stalled(struct cora_world *w, uint32_t place)
{
    uint64_t index;
    return CORA_UNLIKELY(cora_places[place]->stalled(w->engines[place], &index));
}

/* With rules in gaps a packet that started goes on to the owner before anything else happens: in between, rules would serve
 * packets that have a later time than it, but are before it. */
static inline bool cora_is_held_up(const struct cora_world *w, uint32_t place)
{
    if (!w->gaps)
        return false;
    uint32_t first = place > w->gaps_start ? place : w->gaps_start;
    for (uint32_t i = first + 1; i <= w->gaps_owner; i++)
        if (w->queues[i].count)
            return true;
    for (uint32_t i = w->gaps_start; !place && i <= w->gaps_owner; i++)
        if (cora_stalled(w, i))
            return true;
    return !place && w->waiting;
}

static inline bool cora_step_arrive(struct cora_world *w)
{
    if (w->next == w->end || w->queued > w->queue_limit || cora_stalled(w, 0) || cora_is_held_up(w, 0))
        return false;
    const struct cora_record *record = w->next++;
    if (record->time_ns > w->clock)
        w->clock = record->time_ns;
    cora_places[0]->arrive(w->engines[0], record, w->arrived++);
    cora_collect(w, 0);
    return true;
}

static inline bool cora_step_serve(struct cora_world *w, uint32_t place)
{
    struct cora_queue *q = &w->queues[place];
    if (!q->count || cora_stalled(w, place) || cora_is_held_up(w, place))
        return false;
    struct cora_item *item = q->items[q->first];
    q->first = (q->first + 1) & (q->room - 1);
    q->count--;
    w->queued--;
    cora_places[place]->serve(w->engines[place], item);
    cora_collect(w, place);
    return true;
}

static inline bool cora_step_channel(struct cora_world *w, struct cora_channel *c, uint32_t to, bool up)
{
    if (!c->count)
        return false;
    struct cora_message message = c->messages[c->first];
    c->first = (c->first + 1) & (c->room - 1);
    c->count--;
    bool all = message.kind == CORA_DONE;
    if (all || message.to == to)
        cora_places[to]->told(w->engines[to], &message);
    if (up && to > 0 && (all || message.to != to))
        cora_send(&w->up[to], &message);
    if (!up && message.to != to)
        cora_send(&w->down[to], &message);
    return true;
}

static inline bool cora_step_settle(struct cora_world *w, uint32_t place)
{
    if (!w->settled[place])
        return false;
    w->settled[place] = false;
    cora_places[place]->settle(w->engines[place], w->verdicts[place]);
    cora_collect(w, place);
    return true;
}

/* Step `kind` of one place; only places before `limit` run, and the one at it takes messages. */
static inline bool cora_step(struct cora_world *w, uint32_t kind, uint32_t limit)
{
    if (kind == 0)
        return cora_step_arrive(w);
    uint32_t place = (kind - 1) / 4;
    switch ((kind - 1) % 4) {
    case 0: return place && place < limit && cora_step_serve(w, place);
    case 1: return place && place <= limit && cora_step_channel(w, &w->up[place], place - 1, true);
    case 2: return place + 1 < CORA_PLACES && place < limit && cora_step_channel(w, &w->down[place], place + 1, false);
    default: return place < limit && cora_step_settle(w, place);
    }
}

/* One step drawn by chance, or the next one that is possible; false: none is. */
static bool cora_advance(struct cora_world *w, uint32_t limit)
{
    if (!w->prompt && !w->phase_left--)
        cora_new_phase(w);
    uint32_t kind = w->prompt;
    if (w->total && !w->prompt) {
        uint32_t drawn = cora_below(w, w->total);
        while (drawn >= w->weights[kind])
            drawn -= w->weights[kind++];
    }
    for (uint32_t i = 0; i < 1 + 4 * CORA_PLACES; i++) {
        if (cora_step(w, kind, limit))
            return true;
        kind = kind == 4 * CORA_PLACES ? 0 : kind + 1;
    }
    return false;
}

/* Nobody can go on although packets or answers are waited for: a fault, told to the caller. */
CORA_COLD void cora_stand_still(struct cora_world *w)
{
    w->stuck = true;
    if (cora_split_rescue)
        longjmp(*cora_split_rescue, 1);
    abort();
}

void cora_world_wait(struct cora_world *w, uint32_t place)
{
    w->waiting++;
    if (!cora_advance(w, place))
        cora_stand_still(w);
    w->waiting--;
}

/* Until no packet is to come and nothing is on its way. */
static void cora_advance_all(struct cora_world *w)
{
    while (cora_advance(w, CORA_PLACES))
        ;
    if (w->next != w->end)
        cora_stand_still(w);
}

/* --- the library --- */

static void cora_world_close(struct cora_world *w)
{
    for (uint32_t i = 0; i < CORA_PLACES; i++) {
        for (size_t k = 0; k < w->queues[i].count; k++)
            free(w->queues[i].items[(w->queues[i].first + k) & (w->queues[i].room - 1)]);
        free(w->queues[i].items);
        free(w->up[i].messages);
        free(w->down[i].messages);
        if (w->engines[i])
            cora_places[i]->destroy(w->engines[i]);
    }
    free(w->commits);
    free(w->flows.at);
    free(w->digests.at);
    free(w->output);
    free(w);
}

/* `seed`: keys of the hash functions; `chance`: of the scheduler. NULL: there is no memory. */
struct cora_world *cora_split_create(const uint8_t *config, uint32_t options, const uint64_t seed[8], uint64_t chance)
{
    struct cora_world *volatile w = calloc(1, sizeof *w);
    jmp_buf rescue;
    if (!w)
        return NULL;
    if (setjmp(rescue)) {
        cora_split_rescue = NULL;
        cora_world_close(w);
        return NULL;
    }
    cora_split_rescue = &rescue;
    w->random = (chance + 1) * 0x9e3779b97f4a7c15 | 1;
    for (int i = 0; i < 8; i++)
        cora_draw(w);
    cora_new_phase(w);
    for (uint32_t i = 0; i < CORA_PLACES; i++)
        w->engines[i] = cora_places[i]->create(config, options, seed, w);
    cora_split_rescue = NULL;
    return w;
}

void cora_split_destroy(struct cora_world *w) { cora_world_close(w); }

/* From now on nothing is left to chance: no packet comes while another one or a message is on its way. */
void cora_split_prompt(struct cora_world *w) { w->prompt = true; }

/* From now on rules are installed in gaps. */
void cora_split_gaps(struct cora_world *w, uint32_t start, uint32_t owner)
{
    w->gaps = true;
    w->gaps_start = start;
    w->gaps_owner = owner;
}

/* Pairs of a packet's number and its time, in the order in which they were committed. */
const uint64_t *cora_split_commits(const struct cora_world *w, size_t *count)
{
    *count = w->committed;
    return w->commits ? &w->commits[0].index : NULL;
}

/* CORA_OUTPUT_EVENTS or CORA_OUTPUT_DIGEST. */
void cora_split_output_mode(struct cora_world *w, uint32_t mode)
{
    for (uint32_t i = 0; i < CORA_PLACES; i++) {
        struct cora_core *core = cora_places[i]->core(w->engines[i]);
        core->output_mode = mode;
        core->output_port = CORA_NONE;
        core->digests = &w->digests;
    }
}

/* All packets, until nothing is on its way any more; false: memory ran out, the world can only be destroyed then. */
bool cora_split_run(struct cora_world *w, const struct cora_record *records, size_t count)
{
    jmp_buf rescue;
    if (setjmp(rescue)) {
        cora_split_rescue = NULL;
        return false;
    }
    cora_split_rescue = &rescue;
    w->next = records;
    w->end = records + count;
    cora_advance_all(w);
    cora_split_rescue = NULL;
    return true;
}

/* After the last packet: everything due is removed, everything lent comes back. */
bool cora_split_finish(struct cora_world *w)
{
    jmp_buf rescue;
    if (setjmp(rescue)) {
        cora_split_rescue = NULL;
        return false;
    }
    cora_split_rescue = &rescue;
    for (uint32_t i = CORA_PLACES; i-- > 0;) {
        cora_places[i]->expire(w->engines[i], w->clock);
        cora_places[i]->recall(w->engines[i]);
        cora_collect(w, i);
        cora_advance_all(w);
    }
    for (uint32_t i = 0; i < CORA_PLACES; i++)
        w->statistics[CORA_LEFT] += cora_places[i]->left(w->engines[i]);
    cora_split_rescue = NULL;
    return true;
}

const uint8_t *cora_split_output(const struct cora_world *w, size_t *used)
{
    *used = w->output_used;
    return w->output;
}

void cora_split_clear_output(struct cora_world *w) { w->output_used = 0; }

const uint64_t *cora_split_digests(const struct cora_world *w, size_t *count)
{
    *count = w->digests.count;
    return w->digests.at;
}

const uint64_t *cora_split_statistics(const struct cora_world *w) { return w->statistics; }
bool cora_split_stuck(const struct cora_world *w) { return w->stuck; }
uint64_t cora_split_overtaken(const struct cora_world *w) { return w->overtaken_first; }

/* As cora_summary, over all places. */
void cora_split_summary(const struct cora_world *w, uint64_t *out)
{
    enum { COUNT = 4 + 2 * CORA_PORTS + CORA_REASONS };
    uint64_t one[COUNT];
    memset(out, 0, sizeof one);
    for (uint32_t i = 0; i < CORA_PLACES; i++) {
        cora_places[i]->summary(w->engines[i], one);
        for (uint32_t k = 0; k < COUNT; k++)
            out[k] += one[k];
    }
}

size_t cora_split_state_size(const struct cora_world *w, uint32_t place, uint32_t state)
{
    return cora_places[place]->state_size(w->engines[place], state);
}

void cora_split_state_dump(const struct cora_world *w, uint32_t place, uint32_t state, uint8_t *out)
{
    cora_places[place]->state_dump(w->engines[place], state, out);
}

#ifdef CORA_MAIN
#include "split_main.h"
#endif

#endif
