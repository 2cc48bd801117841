/* What the user half tells about itself: status, totals, and messages. */
#ifndef CORA_XDP_REPORT_H
#define CORA_XDP_REPORT_H

#include <jansson.h>

#include "user.h"

static void cora_json_count(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

/* Both halves together; packets that were handed on are counted once. */
static void cora_json_counters(struct cora_user *u, const struct cora_counts *kernel, json_t *out)
{
    const struct cora_core *core = &u->engine->core;
    json_t *forwarded = json_object(), *octets = json_object(), *dropped = json_object();
    cora_json_count(out, "arrived", kernel->arrived.packets);
    cora_json_count(out, "arrived_octets", kernel->arrived.octets);
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        cora_json_count(forwarded, cora_port_names[i], kernel->forwarded[i].packets + core->forwarded[i].packets);
        cora_json_count(octets, cora_port_names[i], kernel->forwarded[i].octets + core->forwarded[i].octets);
    }
    for (uint32_t i = 0; i < CORA_REASONS; i++)
        if (kernel->dropped[i] + core->dropped[i])
            cora_json_count(dropped, cora_reason_names[i], kernel->dropped[i] + core->dropped[i]);
    json_object_set_new(out, "forwarded", forwarded);
    json_object_set_new(out, "forwarded_octets", octets);
    json_object_set_new(out, "dropped", dropped);
    cora_json_count(out, "held", core->held);
    cora_json_count(out, "errors_sent", core->errors_sent);
}

static json_t *cora_json_port(const struct cora_port_counts *c)
{
    json_t *out = json_object();
    cora_json_count(out, "received", c->received);
    cora_json_count(out, "received_octets", c->octets);
    cora_json_count(out, "stray", c->stray);
    cora_json_count(out, "punt_queue_full", c->lost);
    cora_json_count(out, "transmit_queue_full", c->unsent);
    cora_json_count(out, "refused_by_driver", c->refused);
    cora_json_count(out, "longer_than_mtu", c->long_frames);
    return out;
}

/* What each half did by itself, and what got lost between them. */
static json_t *cora_json_halves(struct cora_user *u, const struct cora_counts *kernel)
{
    static const char *const faults[CORA_KERNEL_FAULTS] = {
        [CORA_FAULT_PORT] = "no port", [CORA_FAULT_DEVICE] = "no device", [CORA_FAULT_USER] = "no user half",
        [CORA_FAULT_META] = "no room for the punt header", [CORA_FAULT_RACED] = "raced"};
    json_t *out = json_object(), *user = json_object(), *kernel_faults = json_object();
    uint64_t punted = 0;
    for (uint32_t i = 0; i < u->socket_count; i++)
        punted += cora_kernel_punted(&u->kernel, cora_user_queue(u, i));
    for (uint32_t i = 0; i < CORA_KERNEL_FAULTS; i++)
        cora_json_count(kernel_faults, faults[i], kernel->faults[i]);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        json_object_set_new(user, cora_port_names[i], cora_json_port(&u->counts[i]));
    cora_json_count(out, "punted", punted);
    cora_json_count(out, "abandoned", u->ledger->abandoned);
    cora_json_count(out, "paused", u->ledger->paused);
    cora_json_count(out, "notices_lost", kernel->notices_lost);
    json_object_set_new(out, "kernel_faults", kernel_faults);
    json_object_set_new(out, "user_ports", user);
    return out;
}

static json_t *cora_json_statistics(const struct cora_user *u, const struct cora_counts *kernel)
{
    static const char *const names[CORA_STATISTICS] = {
        "fast", "punted", "waited", "lent", "used", "recalled", "asked", "evicted", "refused", "stalled", "overtaken",
        "left", "stray", "peak"};
    json_t *out = json_object();
    for (uint32_t i = 0; i < CORA_STATISTICS; i++)
        cora_json_count(out, names[i], u->world.statistics[i] + kernel->statistics[i]);
    return out;
}

/* Entries of a state that only the kernel half has. */
static uint64_t cora_kernel_entries(struct cora_kernel *k, uint32_t state)
{
    uint64_t count = 0;
    for (uint32_t from = 0; from != CORA_ROWS_END;) {
        struct cora_rows_call call = {.state = state, .from = from};
        cora_kernel_call(k->dump, &call, sizeof call, "cora_dump");
        count += call.count;
        from = call.next;
    }
    return count;
}

static json_t *cora_json_table(struct cora_user *u, const struct cora_state *s)
{
    json_t *out = json_object();
    bool keyed = !strcmp(s->kind, "map") || !strcmp(s->kind, "meter");
    json_object_set_new(out, "kind", json_string(s->kind));
    json_object_set_new(out, "role", json_string(s->role));
    cora_json_count(out, "capacity", s->capacity);
    if (s->here >= 0 && strcmp(s->kind, "counter") != 0) {
        cora_json_count(out, "entries", cora_program_entries(u->engine, (uint32_t)s->here));
        cora_json_count(out, "refused", u->engine->core.refused[s->here]);
    } else if (s->kernel >= 0 && keyed) {
        cora_json_count(out, "entries", cora_kernel_entries(&u->kernel, (uint32_t)s->kernel));
    }
    if (s->lending >= 0)
        cora_json_count(out, "lent", u->engine->place.owned[s->lending].lent);
    return out;
}

static json_t *cora_json_tables(struct cora_user *u)
{
    json_t *out = json_object();
    for (uint32_t i = 0; i < CORA_ALL_STATES; i++)
        json_object_set_new(out, cora_states[i].name, cora_json_table(u, &cora_states[i]));
    return out;
}

static json_t *cora_json_places(const struct cora_user *u)
{
    uint32_t gone;
    return json_pack("{s{sb}s{sb}}", "kernel", "alive", !u->orphaned && cora_kernel_attached(&u->kernel, &gone), "user",
                     "alive", 1);
}

static json_t *cora_json_status(struct cora_user *u)
{
    struct cora_counts kernel;
    cora_kernel_totals(&u->kernel, &kernel);
    json_t *out = json_object(), *ports = json_object();
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        json_object_set_new(ports, cora_port_names[i], json_string(u->kernel.ports[i].interface));
    json_object_set_new(out, "program", json_string(CORA_NAME));
    json_object_set_new(out, "plan", json_string(CORA_PLAN));
    json_object_set_new(out, "pid", json_integer(getpid()));
    json_object_set_new(out, "ports", ports);
    json_object_set_new(out, "places", cora_json_places(u));
    cora_json_count(out, "epoch", CORA_EPOCH);
    cora_json_count(out, "now_ns", cora_kernel_now(&u->kernel));
    cora_json_count(out, "uptime_ns", cora_kernel_now(&u->kernel) - u->started);
    cora_json_counters(u, &kernel, out);
    json_object_set_new(out, "halves", cora_json_halves(u, &kernel));
    if (CORA_LENDINGS)
        json_object_set_new(out, "lending", cora_json_statistics(u, &kernel));
    json_object_set_new(out, "tables", cora_json_tables(u));
    if (u->lost)
        json_object_set(out, "lost", u->lost);
    return out;
}

static void cora_report_totals(struct cora_user *u, FILE *to)
{
    json_t *status = cora_json_status(u);
    json_dumpf(status, to, JSON_COMPACT);
    fputc('\n', to);
    fflush(to);
    json_decref(status);
}

/* Notes what is gone, for the status too, and says it. */
static void cora_report_lost(struct cora_user *u, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "cora: lost: %s\n", text);
    if (!u->lost)
        u->lost = json_array();
    json_array_append_new(u->lost, json_string(text));
}

/* What became of the entries of a user half that was killed: those lent to the kernel half come back from there, all
 * others are lost. */
static void cora_report_resumed(struct cora_user *u)
{
    typedef unsigned long long number;
    uint64_t held = cora_ledger_resume(u->ledger, &u->engine->core), back = 0;
    fputs("cora: " CORA_NAME " goes on with the kernel half of a user half that was killed\n", stderr);
    for (uint32_t c = 0; c < CORA_LENDINGS; c++)
        back += cora_user_adopt(u, c);
    for (uint32_t i = 0; i < CORA_ALL_STATES; i++) {
        const struct cora_state *s = &cora_states[i];
        if (s->here < 0)
            continue;
        uint64_t before = u->ledger->entries[s->here], now = cora_program_entries(u->engine, (uint32_t)s->here);
        if (before > now)
            cora_report_lost(u, "%llu of %llu %s of %s", (number)(before - now), (number)before,
                             strcmp(s->kind, "pool") ? "entries" : "values in use", s->name);
        if (!strcmp(s->kind, "counter"))
            cora_report_lost(u, "what %s counted in user space", s->name);
    }
    if (held)
        cora_report_lost(u, "%llu held fragments", (number)held);
    if (CORA_LENDINGS)
        fprintf(stderr, "cora: %llu lent entries came back from the kernel half\n", (number)back);
}

static void cora_report_running(const struct cora_user *u)
{
    fputs("cora: " CORA_NAME " runs on", stderr);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        fprintf(stderr, " %s=%s", cora_port_names[i], u->kernel.ports[i].interface);
    fputc('\n', stderr);
}

/* The kernel half is no longer on a port's interface: nothing can be served, so this half ends, too. */
static void cora_user_orphaned(struct cora_user *u, uint32_t port)
{
    fprintf(stderr, "cora: the kernel half of " CORA_NAME " is gone from %s, the interface of port '%s': it was detached, "
                    "or the interface was removed; ending\n", u->kernel.ports[port].interface, cora_port_names[port]);
    u->orphaned = true;
}

#endif
