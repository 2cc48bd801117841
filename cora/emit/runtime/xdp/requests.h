/* What the control socket of the user half answers (control.h): status, whole states, transactions, traces.
 *
 * Functions named `..._now` are errands: they run on the packets' thread between two rounds. */
#ifndef CORA_XDP_REQUESTS_H
#define CORA_XDP_REQUESTS_H

#include "../control.h"
#include "report.h"

#define CORA_STAGED_MOST 64 /* loads in a transaction */

struct cora_staged {
    const struct cora_state *state;
    uint8_t *rows;
    size_t size;
};

/* Set by SIGTERM, SIGINT or a request; the loop ends then. */
static volatile sig_atomic_t cora_stop_signal;

/* At most one transaction is open; it belongs to one connection and goes with it. */
struct cora_transaction {
    uint64_t client; /* 0: none is open */
    struct cora_staged staged[CORA_STAGED_MOST];
    uint32_t count;
    const struct cora_state *misfit; /* the state whose rows did not fit */
    bool unpaused;                   /* the kernel half could not be paused */
};

static struct cora_transaction cora_transaction;

/* --- status --- */

static void cora_status_now(void *argument) { *(json_t **)argument = cora_json_status(&cora_user); }

static json_t *cora_on_status(void)
{
    json_t *status = NULL;
    cora_control_call(&cora_user.control, 0, cora_status_now, &status);
    return status;
}

/* --- whole states --- */

static const struct cora_state *cora_state_named(const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "state"));
    for (uint32_t i = 0; name && i < CORA_ALL_STATES; i++)
        if (!strcmp(cora_states[i].name, name))
            return &cora_states[i];
    return NULL;
}

static json_t *cora_refuse_state(const json_t *request)
{
    char known[512] = "states:";
    size_t used = strlen(known);
    (void)request;
    for (uint32_t i = 0; i < CORA_ALL_STATES && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", cora_states[i].name);
    return cora_control_refuse("there is no such state", "\"state\" names none of this program", known);
}

struct cora_dump {
    const struct cora_state *state;
    uint8_t *rows;
    size_t size;
    uint64_t now;
};

/* Rows of a state of the kernel half, behind those that are there. */
static void cora_dump_kernel(struct cora_dump *d)
{
    struct cora_kernel *k = &cora_user.kernel;
    for (uint32_t from = 0; from != CORA_ROWS_END;) {
        struct cora_rows_call call = {.state = (uint32_t)d->state->kernel, .from = from};
        cora_kernel_call(k->dump, &call, sizeof call, "cora_dump");
        size_t more = (size_t)call.count * d->state->row;
        uint8_t *rows = more <= CORA_ROWS_ROOM ? realloc(d->rows, d->size + more + 1) : NULL;
        if (!rows)
            return;
        d->rows = rows;
        memcpy(d->rows + d->size, k->rows->bytes, more);
        d->size += more;
        from = call.next;
    }
}

/* Entries that are lent have their fields in the kernel half. */
static void cora_dump_ask(struct cora_engine *E, uint32_t lending)
{
    const struct cora_owned *owned = &E->place.owned[lending];
    for (uint32_t at = 0; at < owned->capacity; at++)
        if (owned->entries[at].state) {
            cora_world_statistics(E->place.world)[CORA_ASKED]--;
            cora_owner_ask(E, lending, at, E->core.now);
        }
}

/* Adds what the kernel half counted to what was counted here. */
static void cora_dump_sums(struct cora_dump *d)
{
    struct cora_dump kernel = {.state = d->state};
    cora_dump_kernel(&kernel);
    for (size_t i = 0; i + 8 <= d->size && i + 8 <= kernel.size; i += 8) {
        uint64_t sum = cora_raw64(d->rows + i) + cora_raw64(kernel.rows + i);
        memcpy(d->rows + i, &sum, sizeof sum);
    }
    free(kernel.rows);
}

static void cora_dump_now(void *argument)
{
    struct cora_dump *d = argument;
    struct cora_engine *E = cora_user.engine;
    const struct cora_state *s = d->state;
    d->now = cora_kernel_now(&cora_user.kernel);
    if (s->here < 0) {
        if (s->kernel >= 0 && s->row)
            cora_dump_kernel(d);
        return;
    }
    if (s->lending >= 0)
        cora_dump_ask(E, (uint32_t)s->lending);
    d->size = cora_program_size(E, (uint32_t)s->here);
    d->rows = malloc(d->size + 1);
    if (!d->rows)
        return;
    cora_program_dump(E, (uint32_t)s->here, d->rows);
    if (s->kernel >= 0 && !strcmp(s->kind, "counter"))
        cora_dump_sums(d);
}

static json_t *cora_on_dump(const json_t *request)
{
    struct cora_dump d = {.state = cora_state_named(request)};
    if (!d.state)
        return cora_refuse_state(request);
    if (!cora_control_call(&cora_user.control, 0, cora_dump_now, &d))
        return NULL;
    json_t *rows = cora_control_bytes(d.rows, d.rows ? d.size : 0);
    free(d.rows);
    return rows ? json_pack("{sosI}", "rows", rows, "time_ns", (json_int_t)d.now) : NULL;
}

/* --- transactions --- */

static void cora_transaction_close(struct cora_transaction *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        free(t->staged[i].rows);
    memset(t, 0, sizeof *t);
}

static json_t *cora_on_begin(uint64_t client)
{
    struct cora_transaction *t = &cora_transaction;
    if (t->client)
        return cora_control_refuse("no transaction can begin", "another one is open",
                                   "commit or abort it, or close its connection");
    t->client = client;
    return json_object();
}

static json_t *cora_refuse_outside(void)
{
    return cora_control_refuse("nothing is changed", "this connection has no open transaction",
                               "begin one with {\"do\": \"begin\"} first");
}

static json_t *cora_on_load(uint64_t client, const json_t *request)
{
    struct cora_transaction *t = &cora_transaction;
    const struct cora_state *s = cora_state_named(request);
    if (t->client != client)
        return cora_refuse_outside();
    if (!s)
        return cora_refuse_state(request);
    if ((s->here < 0 && s->kernel < 0) || !s->row || (s->here < 0 && !strcmp(s->kind, "counter")))
        return cora_control_refuse("the state cannot be loaded", "it is a tracker, counts in the kernel half, or never "
                                   "changes", "load maps, meters and pools, and counters of user space");
    struct cora_staged staged = {.state = s};
    staged.rows = cora_control_decode(json_object_get(request, "rows"), &staged.size);
    if (!staged.rows || staged.size % s->row || t->count == CORA_STAGED_MOST) {
        free(staged.rows);
        return cora_control_refuse("the rows are not taken", t->count == CORA_STAGED_MOST ? "64 loads are staged already"
                                   : "they are no base64 of whole rows of this state", "give rows as dump gives them");
    }
    t->staged[t->count++] = staged;
    return json_pack("{sI}", "rows", (json_int_t)(staged.size / s->row));
}

/* The rows that are staged for a state last, or NULL. */
static const struct cora_staged *cora_staged_for(const struct cora_transaction *t, const struct cora_state *s)
{
    for (uint32_t i = t->count; i-- > 0;)
        if (t->staged[i].state == s)
            return &t->staged[i];
    return NULL;
}

static bool cora_load_here(struct cora_engine *E, const struct cora_staged *s)
{
    cora_program_renew(E, (uint32_t)s->state->here);
    return cora_program_load(E, (uint32_t)s->state->here, s->rows, s->size);
}

/* --- states that only the kernel half has --- */

static bool cora_is_kernels(const struct cora_state *s)
{
    return s->here < 0 && s->kernel >= 0 && (!strcmp(s->kind, "map") || !strcmp(s->kind, "meter") ||
                                             !strcmp(s->kind, "pool"));
}

/* Hands rows to an empty state of the kernel half; false: they do not fit. */
static bool cora_load_kernel(struct cora_kernel *k, const struct cora_staged *s)
{
    size_t most = CORA_ROWS_ROOM / s->state->row, rows = s->size / s->state->row;
    for (size_t at = 0; at < rows; at += most) {
        uint32_t count = (uint32_t)(rows - at < most ? rows - at : most);
        struct cora_rows_call call = {.state = (uint32_t)s->state->kernel, .count = count};
        memcpy(k->rows->bytes, s->rows + at * s->state->row, (size_t)count * s->state->row);
        cora_kernel_call(k->load, &call, sizeof call, "cora_load");
        if (call.next != count)
            return false;
    }
    return true;
}

/* Empties the kernel half's tables and fills them: maps and meters first, then pools, whose values they hold. Returns the
 * state that did not fit, or NULL. */
static const struct cora_state *cora_refill_kernel(struct cora_kernel *k, const struct cora_staged *rows)
{
    cora_kernel_sweep(k, CORA_NEVER - 1);
    for (int pools = false; pools <= true; pools++)
        for (uint32_t i = 0; i < CORA_ALL_STATES; i++) {
            const struct cora_state *s = rows[i].state;
            bool is_pool = s && !strcmp(s->kind, "pool");
            if (!s || is_pool != pools)
                continue;
            bool emptied = is_pool || cora_kernel_entries(k, (uint32_t)s->kernel) == 0;
            if (!emptied || !cora_load_kernel(k, &rows[i]))
                return s;
        }
    return NULL;
}

/* Replaces staged states of the kernel half; all others of it stay. Packets that come meanwhile are dropped and counted. */
static const struct cora_state *cora_commit_kernel(struct cora_user *u, struct cora_transaction *t)
{
    struct cora_dump before[CORA_ALL_STATES + 1] = {{0}};
    struct cora_staged old[CORA_ALL_STATES + 1] = {{0}}, new[CORA_ALL_STATES + 1] = {{0}};
    t->unpaused = !cora_kernel_pause(&u->kernel);
    if (t->unpaused)
        return t->staged[0].state;
    for (uint32_t i = 0; i < CORA_ALL_STATES; i++) {
        if (!cora_is_kernels(&cora_states[i]))
            continue;
        const struct cora_staged *staged = cora_staged_for(t, &cora_states[i]);
        before[i].state = &cora_states[i];
        cora_dump_kernel(&before[i]);
        old[i] = (struct cora_staged){&cora_states[i], before[i].rows, before[i].size};
        new[i] = staged ? *staged : old[i];
    }
    const struct cora_state *misfit = cora_refill_kernel(&u->kernel, new);
    if (misfit)
        cora_refill_kernel(&u->kernel, old);
    u->ledger->paused += cora_kernel_resume(&u->kernel);
    for (uint32_t i = 0; i < CORA_ALL_STATES; i++)
        free(before[i].rows);
    return misfit;
}

/* Rows of the staged states as they are now, to go back to. */
static bool cora_keep_before(struct cora_engine *E, const struct cora_transaction *t, struct cora_staged *before)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const struct cora_state *s = t->staged[i].state;
        if (s->here < 0)
            continue;
        before[i] = (struct cora_staged){.state = s, .size = cora_program_size(E, (uint32_t)s->here)};
        before[i].rows = malloc(before[i].size + 1);
        if (!before[i].rows)
            return false;
        cora_program_dump(E, (uint32_t)s->here, before[i].rows);
    }
    return true;
}

/* All staged rows take the place of what was there, or nothing does. */
static void cora_commit_now(void *argument)
{
    struct cora_transaction *t = argument;
    struct cora_engine *E = cora_user.engine;
    struct cora_staged before[CORA_STAGED_MOST] = {{0}};
    bool kernels = false;
    cora_place_recall(E);
    if (!cora_keep_before(E, t, before))
        t->misfit = t->staged[0].state;
    uint32_t loaded = 0;
    for (; loaded < t->count && !t->misfit; loaded++) {
        kernels |= t->staged[loaded].state->here < 0;
        if (t->staged[loaded].state->here >= 0 && !cora_load_here(E, &t->staged[loaded]))
            t->misfit = t->staged[loaded].state;
    }
    if (kernels && !t->misfit)
        t->misfit = cora_commit_kernel(&cora_user, t);
    while (t->misfit && loaded-- > 0)
        if (before[loaded].rows)
            cora_load_here(E, &before[loaded]);
    cora_program_remark(E);
    E->core.next_due = cora_program_due(E);
    for (uint32_t i = 0; i < t->count; i++)
        free(before[i].rows);
}

/* A map of the kernel half whose pools are not loaded with it, or NULL. */
static const struct cora_state *cora_without_pools(const struct cora_transaction *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        for (uint32_t pool = 0; pool < CORA_ALL_STATES && pool < 64; pool++)
            if (t->staged[i].state->here < 0 && t->staged[i].state->pools >> pool & 1 &&
                !cora_staged_for(t, &cora_states[pool]))
                return t->staged[i].state;
    return NULL;
}

static json_t *cora_on_commit(uint64_t client)
{
    struct cora_transaction *t = &cora_transaction;
    char why[200];
    if (t->client != client)
        return cora_refuse_outside();
    const struct cora_state *alone = cora_without_pools(t);
    if (!alone && !cora_control_call(&cora_user.control, 0, cora_commit_now, t))
        return NULL;
    const struct cora_state *misfit = t->misfit;
    bool unpaused = t->unpaused;
    cora_transaction_close(t);
    if (unpaused)
        return cora_control_refuse("nothing was loaded", "the kernel half cannot be paused: another program took its "
                                   "place on an interface", "end the run and start it again");
    if (alone) {
        snprintf(why, sizeof why, "'%s' is in the kernel half and holds values of a pool that is not loaded with it",
                 alone->name);
        return cora_control_refuse("nothing was loaded", why, "load the map and its pools in one transaction");
    }
    if (!misfit)
        return json_pack("{si}", "epoch", CORA_EPOCH);
    snprintf(why, sizeof why, "rows of '%s' do not fit it: too many, twice the same key, or of another program%s",
             misfit->name, misfit->here < 0 ? "; or its entries never expire, and it is not empty" : "");
    return cora_control_refuse("nothing was loaded", why, "load rows that were dumped from this program");
}

static json_t *cora_on_abort(uint64_t client)
{
    if (cora_transaction.client != client)
        return cora_refuse_outside();
    cora_transaction_close(&cora_transaction);
    return json_object();
}

/* --- traces --- */

static void cora_trace_now(void *argument)
{
    cora_user.trace = argument;
}

static json_t *cora_json_event(const struct cora_trace_event *e)
{
    json_t *out = json_object();
    cora_json_count(out, "packet", e->packet);
    cora_json_count(out, "time_ns", e->now);
    json_object_set_new(out, "place", json_string("user"));
    if (e->kind == CORA_TRACE_DECIDED) {
        bool dropped = e->verdict & CORA_DROP && e->verdict != CORA_HELD;
        const char *what = e->verdict == CORA_HELD ? "held" : dropped ? "dropped" : "forwarded";
        json_object_set_new(out, "what", json_string(what));
        if (dropped && (e->verdict & ~(uint32_t)CORA_DROP) < CORA_REASONS)
            json_object_set_new(out, "reason", json_string(cora_reason_names[e->verdict & ~(uint32_t)CORA_DROP]));
        if (e->verdict < CORA_PORTS)
            json_object_set_new(out, "port", json_string(cora_port_names[e->verdict]));
        return out;
    }
    char text[2 * CORA_TRACE_BYTES + 1] = "";
    for (uint32_t i = 0; i < cora_min32(e->length, CORA_TRACE_BYTES); i++)
        snprintf(text + 2 * i, 3, "%02x", e->bytes[i]);
    json_object_set_new(out, "what", json_string(e->kind == CORA_TRACE_ARRIVED ? "arrived" : "left"));
    json_object_set_new(out, "port", json_string(cora_port_names[e->port]));
    cora_json_count(out, "length", e->length);
    json_object_set_new(out, "bytes", json_string(text));
    if (e->kind == CORA_TRACE_ARRIVED && e->entry <= CORA_ENTRIES && cora_entry_labels[e->entry])
        json_object_set_new(out, "entry", json_string(cora_entry_labels[e->entry]));
    return out;
}

static json_t *cora_on_trace(const json_t *request)
{
    json_int_t wanted = json_integer_value(json_object_get(request, "packets"));
    json_int_t patience = json_integer_value(json_object_get(request, "wait_ms"));
    if (wanted < 1 || wanted > CORA_TRACE_MOST || patience < 0 || patience > 10000)
        return cora_control_refuse("no packets are followed", "\"packets\" is not 1 to 4096, or \"wait_ms\" not 0 to 10000",
                                   "write {\"do\": \"trace\", \"packets\": 10, \"wait_ms\": 500}");
    struct cora_trace *trace = calloc(1, sizeof *trace);
    struct timespec millisecond = {.tv_nsec = 1000000};
    if (!trace)
        return NULL;
    trace->wanted = (uint32_t)wanted;
    bool followed = cora_control_call(&cora_user.control, 0, cora_trace_now, trace);
    for (; followed && patience-- > 0 && __atomic_load_n(&trace->packets, __ATOMIC_RELAXED) <= trace->wanted;)
        nanosleep(&millisecond, NULL);
    if (!followed || !cora_control_call(&cora_user.control, 0, cora_trace_now, NULL)) {
        cora_user.trace = NULL;
        free(trace);
        return NULL;
    }
    json_t *events = json_array();
    for (uint32_t i = 0; i < trace->count; i++)
        json_array_append_new(events, cora_json_event(&trace->events[i]));
    uint32_t packets = cora_min32(trace->packets, trace->wanted);
    free(trace);
    return json_pack("{siso}", "packets", packets, "events", events);
}

/* --- all of them --- */

static json_t *cora_on_request(void *context, uint64_t client, const json_t *request)
{
    (void)context;
    if (!request) {
        if (cora_transaction.client == client)
            cora_transaction_close(&cora_transaction);
        return NULL;
    }
    const char *what = json_string_value(json_object_get(request, "do"));
    if (!strcmp(what, "status"))
        return cora_on_status();
    if (!strcmp(what, "dump"))
        return cora_on_dump(request);
    if (!strcmp(what, "begin"))
        return cora_on_begin(client);
    if (!strcmp(what, "load"))
        return cora_on_load(client, request);
    if (!strcmp(what, "commit"))
        return cora_on_commit(client);
    if (!strcmp(what, "abort"))
        return cora_on_abort(client);
    if (!strcmp(what, "trace"))
        return cora_on_trace(request);
    if (!strcmp(what, "config"))
        return cora_control_refuse("the configuration stays as it is", "both halves were built with it",
                                   "plan, build and run with --set NAME=VALUE; dump and load states to keep them");
    if (strcmp(what, "stop") != 0)
        return cora_control_refuse("there is no such request", what,
                                   "requests: status dump begin load commit abort trace stop");
    cora_stop_signal = SIGTERM;
    return json_object();
}

#endif
