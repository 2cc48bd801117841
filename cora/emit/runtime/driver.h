/* Runs a generated program over batches of records, and the interface of the compiled library.
 *
 * Included last. The generated part before it defines `struct cora_engine` (with `core`, `batch` and the tables), and
 *   cora_program_open, _close           the tables
 *   cora_program_prefix, _finish        one packet: up to the first access to a table, and the rest
 *   cora_program_expire, _due           what dies before a packet; when the next entry may
 *   cora_program_size, _dump, _load     one state as rows
 *   cora_program_tracker                a fragment tracker by number
 * and CORA_PORTS, CORA_REASONS, CORA_CONFIG_SIZE.
 *
 * A batch goes through three passes, so that the cache misses of its packets overlap: the part of the program before the
 * first table access, which depends on nothing but the packet, and a prefetch of the bucket; a prefetch of the entry; the
 * rest of the program, packet by packet in order, with the look-up done properly. */
#ifndef CORA_DRIVER_H
#define CORA_DRIVER_H

#include "core.h"
#include "fragment.h"
#include "icmp.h"
#ifdef CORA_RETURNS
#include "returns.h"
#endif

/* Functions of the compiled library; those of a place are its own. */
#ifndef CORA_API
#define CORA_API
#endif

static inline void cora_begin(struct cora_engine *E, struct cora_packet *p, const struct cora_record *record,
                              uint8_t *frame)
{
    p->data = frame;
    p->record = record;
    p->caplen = record->caplen;
    p->wirelen = record->wirelen;
    p->port = record->port;
    p->present = 0;
    p->fragment_offset = 0;
    p->tags = p->family = p->upper = p->quoted_upper = 0;
    p->options = (uint8_t)E->core.options;
    p->is_fragment = p->more_fragments = p->follower = p->released = false;
    p->verdict = p->resume = 0;
    p->reject.family = 0;
    p->tracked = false;
    p->probe_index = NULL;
#ifdef CORA_PLACES
    cora_place_begin(p);
#endif
    CORA_IF_PROFILE(p->path = 0;)
}

/* One packet of the batch: its private copy, the clock at its arrival. */
static inline void cora_arrive(struct cora_engine *E, struct cora_packet *p, const struct cora_record *record,
                               uint8_t *frame, uint64_t index)
{
    struct cora_core *core = &E->core;
    cora_record_frame(record, frame);
    cora_begin(E, p, record, frame);
    if (record->time_ns > core->arrived_now)
        core->arrived_now = record->time_ns;
    p->now = core->arrived_now;
    p->index = index;
}

CORA_COLD void cora_send_error(struct cora_core *core, const struct cora_packet *p)
{
    uint8_t error[CORA_ERROR_ROOM];
    uint32_t length = cora_build_error(p, error);
    core->errors_sent += length != 0;
    if (length && core->output_mode != CORA_OUTPUT_NONE)
        cora_write_event(core, CORA_EVENT_ERROR, p->index, p->port, error, length, length);
}

static inline void cora_leave(struct cora_engine *E, struct cora_packet *p)
{
    struct cora_core *core = &E->core;
#ifdef CORA_PLACES
    if (cora_place_leave(E, p))
        return;
#endif
    CORA_IF_PROFILE(cora_count_path(core, p);)
    if (p->verdict == CORA_HELD) {
        cora_hold(core, p);
        return;
    }
    if (CORA_LIKELY(!(p->verdict & CORA_DROP))) {
        cora_forward(core, p);
        return;
    }
    cora_drop(core, p->index, p->verdict & ~CORA_DROP & 0xffff, p->released);
    if (CORA_LIKELY(p->port < CORA_PORTS && !p->released))
        core->dropped_at[p->port]++;
    if (p->reject.family)
        cora_send_error(core, p);
}

/* The first fragment was forwarded: the held ones follow at once, in the order they came. */
CORA_COLD void cora_release_held(struct cora_engine *E, struct cora_datagram *d)
{
    struct cora_held *held = d->held;
    d->held = d->held_last = NULL;
    d->held_count = 0;
    while (held) {
        struct cora_held *next = held->next;
        struct cora_record record = {.data = (uint64_t)(uintptr_t)held->frame, .caplen = held->caplen,
                                     .wirelen = held->wirelen, .port = held->port};
        struct cora_packet p;
        cora_begin(E, &p, &record, held->frame);
        p.now = E->core.now;
        p.index = held->index;
        p.released = true;
        cora_follow(&p, d->first_bytes);
        E->core.current_wirelen = p.wirelen;
        cora_program_prefix(E, &p);
        if (p.resume)
            cora_program_finish(E, &p);
        cora_leave(E, &p);
        free(held);
        held = next;
    }
}

/* Settles with one tracker what the packet's end means for its datagram. */
CORA_COLD void cora_after_fragment(struct cora_engine *E, const struct cora_packet *p, struct cora_tracker *t)
{
    struct cora_tracking tracking = p->tracking[t->number];
    if (tracking.role == CORA_UNTRACKED)
        return;
    struct cora_datagram *d = &t->datagrams[tracking.entry];
    if (tracking.role == CORA_WAITS) {
        if (p->verdict == CORA_HELD)
            cora_tracker_hold(d, p);
        return;
    }
    if (tracking.role == CORA_DECIDES && p->verdict & CORA_DROP) {
        d->state = CORA_CONDEMNED;
        cora_tracker_drop_held(&E->core, d, t->reason_first);
        return;
    }
    if (tracking.role == CORA_DECIDES) {
        d->state = CORA_OPEN;
        cora_release_held(E, d);
    }
    cora_tracker_settle(t, tracking.entry);
}

static inline void cora_complete(struct cora_engine *E, struct cora_packet *p)
{
    struct cora_core *core = &E->core;
    core->now = p->now;
    core->current_wirelen = p->wirelen;
    core->arrived.packets++;
    core->arrived.octets += p->wirelen;
    CORA_IF_PROFILE(cora_count_arrival(core, p);)
    if (CORA_UNLIKELY(core->next_due < core->now)) {
        cora_program_expire(E);
        core->next_due = cora_program_due(E);
    }
    if (CORA_LIKELY(p->resume))
        cora_program_finish(E, p);
    cora_leave(E, p);
#if CORA_TRACKERS
    if (CORA_UNLIKELY(p->tracked))
        for (uint32_t i = 0; i < CORA_TRACKERS; i++)
            cora_after_fragment(E, p, cora_program_tracker(E, i));
#endif
}

#ifdef CORA_EXACT_FRAMES
/* For the address sanitizer: every frame in an allocation of its own size. */
static size_t cora_read_batch(struct cora_engine *E, const struct cora_record *records, size_t count)
{
    size_t n = count < CORA_BATCH ? count : CORA_BATCH;
    for (size_t i = 0; i < n; i++) {
        uint8_t *frame = malloc(records[i].caplen ? records[i].caplen : 1);
        if (!frame)
            cora_out_of_memory(records[i].caplen);
        cora_arrive(E, &E->batch.packets[i], &records[i], frame, E->core.arrived.packets + i);
        cora_program_prefix(E, &E->batch.packets[i]);
    }
    return n;
}

static void cora_end_batch(struct cora_engine *E, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(E->batch.packets[i].data);
}
#else
/* Reads as many packets as fit one batch and the frame buffer, and runs their first part. */
static size_t cora_read_batch(struct cora_engine *E, const struct cora_record *records, size_t count)
{
    struct cora_batch *batch = &E->batch;
    size_t n = 0, used = 0;
    if (records[0].caplen + (size_t)64 > batch->room)
        batch->frames = cora_grow(batch->frames, &batch->room, records[0].caplen + (size_t)64, 1);
    for (; n < count && n < CORA_BATCH; n++) {
        size_t size = ((size_t)records[n].caplen + 63) & ~(size_t)63;
        if (used + size > batch->room)
            break;
        cora_arrive(E, &batch->packets[n], &records[n], batch->frames + used, E->core.arrived.packets + n);
        used += size;
        cora_program_prefix(E, &batch->packets[n]);
    }
    return n;
}

static void cora_end_batch(struct cora_engine *E, size_t n) { (void)E, (void)n; }
#endif

CORA_COLD size_t cora_run_batches(struct cora_engine *E, const struct cora_record *records, size_t count,
                                  uint16_t *verdicts, size_t output_limit)
{
    size_t done = 0;
    E->core.verdicts = verdicts;
    E->core.verdict_base = E->core.arrived.packets;
    while (done < count && (!E->core.output_used || E->core.output_used < output_limit)) {
        const struct cora_record *next = records + done;
        size_t most = count - done;
#ifdef CORA_RETURNS
        struct cora_record arrived;
        if (E->core.returns) {
            /* Each packet may depend on what the one before it has taught. */
            arrived = cora_returns_before(&E->core, next);
            next = &arrived;
            most = 1;
            if (E->core.arrivals)
                cora_keep_arrival(E->core.arrivals, &arrived);
        }
#endif
        size_t n = cora_read_batch(E, next, most);
        for (size_t i = 0; i < n; i++)
            if (E->batch.packets[i].probe_index)
                cora_prefetch_entry(&E->batch.packets[i]);
        for (size_t i = 0; i < n; i++)
            cora_complete(E, &E->batch.packets[i]);
#ifdef CORA_RETURNS
        if (E->core.returns)
            cora_returns_after(&E->core, &E->batch.packets[0]);
#endif
        cora_end_batch(E, n);
        done += n;
    }
    E->core.verdicts = NULL;
    return done;
}

/* Processes records until all are done or the output buffer holds `output_limit` bytes; returns how many were, or
 * SIZE_MAX when memory ran out: the engine can only be destroyed then. `verdicts`: NULL, or room for `count`. */
CORA_API size_t cora_run(struct cora_engine *E, const struct cora_record *records, size_t count, uint16_t *verdicts,
                size_t output_limit)
{
    jmp_buf rescue;
    if (setjmp(rescue)) {
        cora_rescue = NULL;
        return SIZE_MAX;
    }
    cora_rescue = &rescue;
    size_t done = cora_run_batches(E, records, count, verdicts, output_limit);
    cora_rescue = NULL;
    return done;
}

CORA_COLD struct cora_engine *cora_make(const uint8_t *config, uint32_t options, const uint64_t seed[8])
{
    struct cora_engine *E = aligned_alloc(64, (sizeof *E + 63) & ~(size_t)63);
    if (!E)
        return NULL;
    memset(E, 0, sizeof *E);
#ifdef CORA_SHARDS
    cora_shard_begin(E);
#endif
    E->core.next_due = CORA_NEVER;
    E->core.options = options;
    E->core.output_port = CORA_NONE;
    cora_seed(&E->core, seed);
    E->core.forwarded = calloc(CORA_PORTS + 1, sizeof *E->core.forwarded);
    E->core.dropped = calloc(CORA_REASONS + 1, sizeof *E->core.dropped);
    E->core.dropped_at = calloc(CORA_PORTS + 1, sizeof *E->core.dropped_at);
    if (!E->core.forwarded || !E->core.dropped || !E->core.dropped_at)
        cora_out_of_memory(CORA_REASONS);
    E->batch.frames = cora_grow(NULL, &E->batch.room, 1 << 18, 1);
    cora_program_open(E, config);
#ifdef CORA_PROFILE
    struct cora_core_profile *c = &E->core.profile;
    c->path_total = CORA_PATHS;
    c->path_mask = c->path_total > CORA_PATH_ARRAY ? 1023 : c->path_total;
    c->paths = cora_zeroed(c->path_mask + 1, sizeof *c->paths);
#endif
    return E;
}

/* `config`: CORA_CONFIG_SIZE packed bytes; `seed`: keys of the hash functions, which no result depends on. NULL: there
 * is no memory for the tables. */
CORA_API struct cora_engine *cora_create(const uint8_t *config, uint32_t options, const uint64_t seed[8])
{
    jmp_buf rescue;
    if (setjmp(rescue)) {
        cora_rescue = NULL;
        return NULL;
    }
    cora_rescue = &rescue;
    struct cora_engine *E = cora_make(config, options, seed);
    cora_rescue = NULL;
    return E;
}

CORA_API void cora_destroy(struct cora_engine *E)
{
    cora_program_close(E);
#ifdef CORA_PROFILE
    cora_release(E->core.profile.paths, E->core.profile.path_mask + 1, sizeof *E->core.profile.paths);
    free(E->core.profile.windows);
    free(E->core.profile.moves);
    free(E->core.profile.moves_before);
#endif
    free(E->core.forwarded);
    free(E->core.dropped);
    free(E->core.dropped_at);
#ifdef CORA_RETURNS
    cora_returns_close(&E->core);
#endif
    free(E->core.output);
    free(E->core.resolutions);
    if (E->core.arrivals) {
        free(E->core.arrivals->records);
        free(E->core.arrivals->bytes);
        free(E->core.arrivals);
    }
    free(E->core.own_digests.at);
    free(E->batch.frames);
    free(E);
}

CORA_API void cora_set_output(struct cora_engine *E, uint32_t mode, uint32_t port)
{
    E->core.output_mode = mode;
    E->core.output_port = port;
}

/* What has been written since the last cora_clear_output; valid until the next call. */
CORA_API const uint8_t *cora_output(const struct cora_engine *E, size_t *used)
{
    *used = E->core.output_used;
    return E->core.output;
}

/* Sums digests of events per packet instead of writing them. */
CORA_API void cora_set_digests(struct cora_engine *E)
{
    E->core.digests = &E->core.own_digests;
    E->core.output_mode = CORA_OUTPUT_DIGEST;
}

CORA_API const uint64_t *cora_digests(const struct cora_engine *E, size_t *count)
{
    *count = E->core.own_digests.count;
    return E->core.own_digests.at;
}

/* From now on every packet is kept as the program gets it; for captures taken on one side. */
CORA_API bool cora_keep_arrivals(struct cora_engine *E)
{
    E->core.arrivals = calloc(1, sizeof *E->core.arrivals);
    return E->core.arrivals;
}

CORA_API const struct cora_arrivals *cora_kept_arrivals(const struct cora_engine *E) { return E->core.arrivals; }

CORA_API void cora_clear_output(struct cora_engine *E) { E->core.output_used = 0; }

/* Verdicts of packets that had been held, since the last call of cora_clear_resolutions. */
CORA_API const struct cora_resolution *cora_resolutions(const struct cora_engine *E, size_t *count)
{
    *count = E->core.resolution_count;
    return E->core.resolutions;
}

CORA_API void cora_clear_resolutions(struct cora_engine *E) { E->core.resolution_count = 0; }

CORA_API uint64_t cora_clock(const struct cora_engine *E) { return E->core.now; }

/* packets, octets, errors sent, held; then packets and octets of every port; then packets of every drop reason. */
CORA_API void cora_summary(const struct cora_engine *E, uint64_t *out)
{
    const struct cora_core *core = &E->core;
    *out++ = core->arrived.packets;
    *out++ = core->arrived.octets;
    *out++ = core->errors_sent;
    *out++ = core->held;
    const uint32_t ports = CORA_PORTS, reasons = CORA_REASONS;
    for (uint32_t i = 0; i < ports; i++) {
        *out++ = core->forwarded[i].packets;
        *out++ = core->forwarded[i].octets;
    }
    for (uint32_t i = 0; i < reasons; i++)
        *out++ = core->dropped[i];
}

/* Dropped packets by the port they had arrived on, CORA_PORTS numbers. */
CORA_API const uint64_t *cora_dropped_at(const struct cora_engine *E) { return E->core.dropped_at; }

#ifdef CORA_RETURNS
/* The capture shows packets as they look at `port`; `limit` flows are remembered. Once, before any packet. */
void cora_set_captured_at(struct cora_engine *E, uint32_t port, uint64_t limit)
{
    cora_returns_close(&E->core);
    cora_returns_open(&E->core, port, limit);
}

/* Packets that were translated; how often the older half of the flows was forgotten. */
void cora_returns_counts(const struct cora_engine *E, uint64_t out[2])
{
    const struct cora_returns *r = E->core.returns;
    out[0] = r ? r->translated : 0;
    out[1] = r ? r->flows.forgotten : 0;
}
#endif

CORA_API size_t cora_state_size(const struct cora_engine *E, uint32_t state) { return cora_program_size(E, state); }
CORA_API void cora_state_dump(const struct cora_engine *E, uint32_t state, uint8_t *out) { cora_program_dump(E, state, out); }

/* Adds the rows of a dump to an empty state; false when they do not fit it. */
CORA_API bool cora_state_load(struct cora_engine *E, uint32_t state, const uint8_t *rows, size_t size)
{
    bool fits = cora_program_load(E, state, rows, size);
    E->core.next_due = cora_program_due(E);
    return fits;
}

/* Empties every table; totals and the clock stay. */
CORA_API void cora_state_clear(struct cora_engine *E, const uint8_t *config)
{
    cora_program_close(E);
    cora_program_open(E, config);
    E->core.next_due = CORA_NEVER;
    E->core.held = 0;
}

#ifdef CORA_PROFILE
void cora_profile_windows(struct cora_engine *E, uint64_t start, uint64_t length, uint64_t count)
{
    struct cora_core_profile *c = &E->core.profile;
    free(c->windows);
    c->window_start = start;
    c->window_length = count ? length : 0;
    c->window_count = count;
    c->windows = calloc(count + 1, sizeof *c->windows);
    if (!c->windows)
        cora_out_of_memory(count);
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; i < states; i++) {
        struct cora_table_profile *t = cora_program_profile(E, i);
        if (!t)
            continue;
        free(t->windows);
        t->windows = calloc(count + 1, sizeof *t->windows);
        if (!t->windows)
            cora_out_of_memory(count);
    }
}

/* From now on moves (moves.h) are written down. */
void cora_profile_follow(struct cora_engine *E) { E->core.profile.following = true; }

/* Those of this state too, as the entries `offset`, `offset` + `stride` ... of a component; false when it has none. */
bool cora_profile_follow_table(struct cora_engine *E, uint32_t state, uint32_t component, uint32_t stride,
                               uint32_t offset)
{
    struct cora_table_profile *t = cora_program_profile(E, state);
    if (!t || component >= CORA_MOVE_COMPONENTS)
        return false;
    t->follow = ((uint64_t)component << CORA_MOVE_COMPONENT) + 1;
    t->stride = stride;
    t->offset = offset;
    return true;
}

/* The moves since the last call; valid until the next one, while the engine may run. */
const uint64_t *cora_profile_moves(struct cora_engine *E, size_t *count)
{
    struct cora_core_profile *c = &E->core.profile;
    uint64_t *moves = c->moves;
    size_t room = c->move_room;
    *count = c->move_count;
    c->moves = c->moves_before;
    c->move_room = c->room_before;
    c->move_count = 0;
    c->moves_before = moves;
    c->room_before = room;
    return moves;
}

const uint64_t *cora_profile_sizes(const struct cora_engine *E) { return E->core.profile.sizes; }
const struct cora_total *cora_profile_totals(const struct cora_engine *E) { return E->core.profile.windows; }

/* The paths that were taken; `out` NULL: only their number. */
size_t cora_profile_paths(const struct cora_engine *E, struct cora_path_count *out)
{
    const struct cora_core_profile *c = &E->core.profile;
    size_t n = 0;
    for (uint64_t i = 0; i <= c->path_mask; i++)
        if (c->paths[i].used) {
            if (out)
                out[n] = c->paths[i];
            n++;
        }
    return n;
}

/* NULL for a state that has no entries of its own (counters, pools, trackers). */
const struct cora_table_profile *cora_profile_table(struct cora_engine *E, uint32_t state)
{
    return cora_program_profile(E, state);
}

const uint64_t *cora_profile_events(const struct cora_table_profile *t) { return t->events; }
const struct cora_table_window *cora_profile_table_windows(const struct cora_table_profile *t) { return t->windows; }

/* First the entries gone, then those alive (`*ended` tells them apart); `out` NULL: only their number. */
size_t cora_profile_uses(const struct cora_table_profile *t, struct cora_use *out, size_t *ended)
{
    size_t n = t->ended_count;
    *ended = n;
    if (out && n)
        memcpy(out, t->ended, n * sizeof *out);
    for (uint32_t i = 0; i < t->capacity && n - t->ended_count < t->events[CORA_ENTRIES]; i++)
        if (t->uses[i].alive) {
            if (out)
                out[n] = t->uses[i];
            n++;
        }
    return n;
}
#endif

#if defined(CORA_MAIN) && !defined(CORA_PLACES)
#include "main.h"
#endif

#endif
