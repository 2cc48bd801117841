/* What a host program tells about itself, and what its control socket answers (control.h).
 *
 * Functions named `..._now` are errands: worker 0 runs them between two bursts, and has the others stand still where they
 * touch tables. What is written as JSON afterwards holds nobody up. */
#ifndef CORA_DPDK_REQUESTS_H
#define CORA_DPDK_REQUESTS_H

#include "../control.h"
#include "totals.h"

#define CORA_STAGED_MOST 64 /* loads in a transaction */

static struct cora_control cora_control;
static volatile sig_atomic_t cora_stop_signal;
static uint64_t cora_epoch = 1; /* of the state: transactions that were committed, and one */

/* --- status --- */

static void cora_json_count(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *cora_json_counters(void)
{
    uint64_t sums[CORA_SUMMARY];
    cora_host_summary(sums);
    json_t *out = json_object(), *forwarded = json_object(), *dropped = json_object();
    cora_json_count(out, "arrived", sums[0]);
    cora_json_count(out, "arrived_octets", sums[1]);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        cora_json_count(forwarded, cora_port_names[i], sums[4 + 2 * i]);
    for (uint32_t i = 0; i < CORA_REASONS; i++)
        if (sums[4 + 2 * CORA_PORTS + i])
            cora_json_count(dropped, cora_reason_names[i], sums[4 + 2 * CORA_PORTS + i]);
    json_object_set_new(out, "forwarded", forwarded);
    json_object_set_new(out, "dropped", dropped);
    cora_json_count(out, "held", sums[3]);
    cora_json_count(out, "errors_sent", sums[2]);
    return out;
}

static json_t *cora_json_tables(void)
{
    json_t *out = json_object();
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; i < states; i++) {
        json_t *table = json_object();
        json_object_set_new(table, "kind", json_string(cora_states[i].kind));
        cora_json_count(table, "capacity", cora_states[i].capacity);
        cora_json_count(table, "entries", cora_host_entries(i));
        if (cora_states[i].pool)
            cora_json_count(table, "free", cora_states[i].capacity - cora_host_entries(i));
        json_object_set_new(out, cora_states[i].name, table);
    }
    return out;
}

static json_t *cora_json_worker(const struct cora_worker *w)
{
    const struct cora_worker_counts *c = &w->counts;
    json_t *out = json_object();
    cora_json_count(out, "received", c->received);
    cora_json_count(out, "received_octets", c->received_octets);
    cora_json_count(out, "handed_over", c->handed_over);
    cora_json_count(out, "ran_alone", c->alone);
    cora_json_count(out, "inserts_refused", w->engine->shard.refused);
    cora_json_count(out, "refused_early", w->engine->shard.early);
    cora_json_count(out, "transmit_queue_full", c->unsent);
    cora_json_count(out, "no_buffer", c->no_buffer);
    cora_json_count(out, "too_long", c->too_long);
    cora_json_count(out, "cpu_ns", c->cpu_ns);
    return out;
}

/* What devices dropped before the program saw it. */
static json_t *cora_json_devices(void)
{
    json_t *out = json_object();
    struct rte_eth_stats stats;
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        if (cora_host.by_records || rte_eth_stats_get(cora_host.device[i], &stats) != 0)
            continue;
        json_t *device = json_object();
        cora_json_count(device, "receive_queue_full", stats.imissed);
        cora_json_count(device, "receive_errors", stats.ierrors);
        cora_json_count(device, "no_buffer", stats.rx_nombuf);
        cora_json_count(device, "transmit_errors", stats.oerrors);
        json_object_set_new(out, cora_port_names[i], device);
    }
    return out;
}

static json_t *cora_json_status(void)
{
    json_t *out = json_object(), *workers = json_object();
    char name[16];
    json_object_set_new(out, "program", json_string(CORA_NAME));
    json_object_set_new(out, "plan", json_string(CORA_PLAN));
    cora_json_count(out, "pid", (uint64_t)getpid());
    cora_json_count(out, "epoch", cora_epoch);
    cora_json_count(out, "shards", cora_host.workers);
    cora_json_count(out, "now_ns", cora_host_clock());
    cora_json_count(out, "uptime_ns", cora_host_clock() - cora_host.wall);
    json_object_set_new(out, "counters", cora_json_counters());
    json_object_set_new(out, "tables", cora_json_tables());
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        snprintf(name, sizeof name, "core %u", i);
        json_object_set_new(workers, name, cora_json_worker(&cora_host.worker[i]));
    }
    json_object_set_new(out, "workers", workers);
    json_object_set_new(out, "devices", cora_json_devices());
    return out;
}

static void cora_report_totals(void)
{
    json_t *status = cora_json_status();
    json_dumpf(status, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    fflush(stdout);
    json_decref(status);
}

static void cora_status_now(void *argument)
{
    cora_worker_halt(cora_self);
    *(json_t **)argument = cora_json_status();
    cora_worker_resume();
}

static json_t *cora_on_status(void)
{
    json_t *status = NULL;
    cora_control_call(&cora_control, 0, cora_status_now, &status);
    return status;
}

/* --- whole states --- */

static uint32_t cora_state_named(const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "state"));
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; name && i < states; i++)
        if (!strcmp(cora_states[i].name, name))
            return i;
    return CORA_NONE;
}

static json_t *cora_refuse_state(void)
{
    char known[512] = "states:";
    size_t used = strlen(known);
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; i < states && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", cora_states[i].name);
    return cora_control_refuse("there is no such state", "\"state\" names none of this program", known);
}

struct cora_staged {
    uint32_t state;
    uint8_t *rows;
    size_t size;
};

struct cora_dump {
    struct cora_staged of;
    uint64_t now;
};

static void cora_dump_now(void *argument)
{
    struct cora_dump *d = argument;
    cora_worker_halt(cora_self);
    d->now = cora_host_clock();
    d->of.rows = cora_host_dump(d->of.state, &d->of.size);
    cora_worker_resume();
}

static json_t *cora_on_dump(const json_t *request)
{
    struct cora_dump d = {.of.state = cora_state_named(request)};
    if (d.of.state == CORA_NONE)
        return cora_refuse_state();
    if (!cora_control_call(&cora_control, 0, cora_dump_now, &d) || !d.of.rows)
        return NULL;
    json_t *rows = cora_control_bytes(d.of.rows, d.of.size);
    free(d.of.rows);
    return rows ? json_pack("{sosI}", "rows", rows, "time_ns", (json_int_t)d.now) : NULL;
}

/* --- transactions --- */

/* At most one is open; it belongs to one connection and goes with it. */
static struct cora_transaction {
    uint64_t client; /* 0: none is open */
    struct cora_staged staged[CORA_STAGED_MOST];
    uint32_t count;
    uint32_t misfit; /* the state whose rows did not fit, or CORA_NONE */
} cora_transaction;

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
    struct cora_staged staged = {.state = cora_state_named(request)};
    if (t->client != client)
        return cora_refuse_outside();
    if (staged.state == CORA_NONE)
        return cora_refuse_state();
    uint32_t row = cora_states[staged.state].row;
    if (!row)
        return cora_control_refuse("the state cannot be loaded", "it is a tracker, or never changes",
                                   "load maps, meters, pools and counters");
    staged.rows = cora_control_decode(json_object_get(request, "rows"), &staged.size);
    if (!staged.rows || staged.size % row || t->count == CORA_STAGED_MOST) {
        free(staged.rows);
        return cora_control_refuse("the rows are not taken", t->count == CORA_STAGED_MOST ? "64 loads are staged already"
                                   : "they are no base64 of whole rows of this state", "give rows as dump gives them");
    }
    t->staged[t->count++] = staged;
    return json_pack("{sI}", "rows", (json_int_t)(staged.size / row));
}

/* The rows take the place of what was there. Pool values come and go with the entries that have them: of a pool's own
 * rows, only where its next search starts is taken, and its values must be those that the entries have. */
static bool cora_load_one(const struct cora_staged *s)
{
    struct cora_engine *E = cora_host.worker[0].engine;
    if (cora_states[s->state].pool)
        return cora_program_pool_position(E, s->state, s->rows, s->size);
    for (uint32_t i = 0; i < cora_host.workers; i++)
        cora_program_clear(cora_host.worker[i].engine, s->state);
    bool fits = cora_state_load(E, s->state, s->rows, s->size);
    cora_program_homecoming(E);
    return fits;
}

/* Loads in two rounds, entries before pools; returns the state that did not fit, or CORA_NONE. */
static uint32_t cora_load_all(const struct cora_staged *staged, uint32_t count)
{
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < count; i++)
            if (cora_states[staged[i].state].pool == (round == 1) && !cora_load_one(&staged[i]))
                return staged[i].state;
    return CORA_NONE;
}

/* All staged rows take the place of what was there, or nothing does. */
static void cora_commit_now(void *argument)
{
    struct cora_transaction *t = argument;
    struct cora_staged before[CORA_STAGED_MOST];
    uint32_t kept = 0;
    t->misfit = CORA_NONE;
    cora_worker_halt(cora_self);
    for (; kept < t->count; kept++) {
        before[kept].state = t->staged[kept].state;
        before[kept].rows = cora_host_dump(before[kept].state, &before[kept].size);
        if (!before[kept].rows)
            t->misfit = before[kept].state;
    }
    if (t->misfit == CORA_NONE) {
        t->misfit = cora_load_all(t->staged, t->count);
        if (t->misfit != CORA_NONE)
            cora_load_all(before, kept);
        cora_epoch += t->misfit == CORA_NONE;
    }
    cora_worker_resume();
    while (kept-- > 0)
        free(before[kept].rows);
}

static json_t *cora_on_commit(uint64_t client)
{
    struct cora_transaction *t = &cora_transaction;
    char why[256];
    if (t->client != client)
        return cora_refuse_outside();
    if (!cora_control_call(&cora_control, 0, cora_commit_now, t))
        return NULL;
    uint32_t misfit = t->misfit;
    cora_transaction_close(t);
    if (misfit == CORA_NONE)
        return json_pack("{sI}", "epoch", (json_int_t)cora_epoch);
    snprintf(why, sizeof why, "rows of '%s' do not fit it: too many, twice the same key, values of a pool that no entry has "
             "or that two have, or of another program", cora_states[misfit].name);
    return cora_control_refuse("nothing was loaded", why, "load all states of one dump of this program");
}

static json_t *cora_on_abort(uint64_t client)
{
    if (cora_transaction.client != client)
        return cora_refuse_outside();
    cora_transaction_close(&cora_transaction);
    return json_object();
}

/* --- traces: of the packets that worker 0 runs --- */

static void cora_trace_now(void *argument) { cora_host.worker[0].trace = argument; }

static json_t *cora_json_event(const struct cora_trace_event *e)
{
    json_t *out = json_object();
    cora_json_count(out, "packet", e->packet);
    cora_json_count(out, "time_ns", e->now);
    json_object_set_new(out, "place", json_string("host"));
    if (e->kind == CORA_TRACE_DECIDED) {
        bool dropped = e->verdict & CORA_DROP && e->verdict != CORA_HELD;
        json_object_set_new(out, "what", json_string(e->verdict == CORA_HELD ? "held" : dropped ? "dropped" : "forwarded"));
        if (dropped)
            json_object_set_new(out, "reason", json_string(cora_reason_names[e->verdict & ~(uint32_t)CORA_DROP]));
        else if (e->verdict != CORA_HELD)
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
    bool followed = cora_control_call(&cora_control, 0, cora_trace_now, trace);
    while (followed && patience-- > 0 && __atomic_load_n(&trace->packets, __ATOMIC_RELAXED) <= trace->wanted)
        nanosleep(&millisecond, NULL);
    if (!followed || !cora_control_call(&cora_control, 0, cora_trace_now, NULL))
        return NULL; /* the program is ending, and its worker may still write */
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
        return cora_control_refuse("the configuration stays as it is", "the program was built with it",
                                   "plan, build and run with --set NAME=VALUE; dump and load states to keep them");
    if (strcmp(what, "stop") != 0)
        return cora_control_refuse("there is no such request", what,
                                   "requests: status dump begin load commit abort trace stop");
    cora_stop_signal = SIGTERM;
    return json_object();
}

#endif
