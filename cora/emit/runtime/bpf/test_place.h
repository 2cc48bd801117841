/* The kernel half as a place of the in-process execution of a split program (../split.h): packets go through
 * BPF_PROG_TEST_RUN in virtual time, messages through cora_told, and what the kernel half reports goes to the world.
 *
 * Included last, behind the defines of ../split.h and kernel_interface.h. One receive queue a port. Linked with libbpf. */
#ifndef CORA_BPF_TEST_PLACE_H
#define CORA_BPF_TEST_PLACE_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "../base.h"
#include "../core.h"
#include "../split.h"
#include "../flow.h"
#include "abi.h"

#define CORA_TEST_ROOM 4096

struct cora_engine {
    struct cora_core core;
    struct cora_world *world;
    struct bpf_object *object;
    struct cora_shared *shared;
    struct cora_rows *rows;
    int xdp, told, sweep, dump, counts;
    struct cora_test_punt {
        uint64_t index;
        uint32_t queue;
    } *punted; /* packets handed on, in order */
    size_t punted_count, punted_room, through;
    uint64_t swept; /* up to this time */
    uint64_t notices;
    uint64_t faults;
    uint8_t *dumped; /* the state asked for last */
    size_t dumped_size, dumped_room;
    uint8_t out[CORA_TEST_ROOM];
};

/* The object the next engine takes over: opened before, so that what the kernel says about it can be told. */
static struct bpf_object *cora_kernel_opened;

static int cora_kernel_silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
    (void)level, (void)format, (void)arguments;
    return 0;
}

/* Loads the object file; false with the verifier's last words in `log`. */
bool cora_kernel_open(const char *path, char *log, size_t size)
{
    libbpf_set_print(cora_kernel_silent);
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    log[0] = 0;
    cora_kernel_opened = bpf_object__open_file(path, NULL);
    if (!cora_kernel_opened) {
        snprintf(log, size, "%s", strerror(errno));
        return false;
    }
    struct bpf_program *program;
    bpf_object__for_each_program(program, cora_kernel_opened)
        bpf_program__set_log_buf(program, log, size);
    if (bpf_object__load(cora_kernel_opened) == 0)
        return true;
    if (!log[0])
        snprintf(log, size, "%s", strerror(errno));
    bpf_object__close(cora_kernel_opened);
    cora_kernel_opened = NULL;
    return false;
}

static int cora_kernel_program(const struct bpf_object *object, const char *name)
{
    struct bpf_program *program = bpf_object__find_program_by_name(object, name);
    return program ? bpf_program__fd(program) : -1;
}

static void *cora_kernel_memory(const struct bpf_object *object, const char *name, size_t size)
{
    struct bpf_map *map = bpf_object__find_map_by_name(object, name);
    void *at = map ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0) : MAP_FAILED;
    if (at == MAP_FAILED)
        cora_out_of_memory(size);
    return at;
}

/* The kernel writes what the program left in the context back to where it came from. */
static void cora_kernel_run(int program, void *context, size_t size)
{
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = context, .ctx_size_in = (uint32_t)size);
    if (bpf_prog_test_run_opts(program, &options) != 0) {
        fprintf(stderr, "cora: a kernel program cannot be run: %s\n", strerror(errno));
        abort();
    }
}

static void cora_place_destroy(struct cora_engine *E)
{
    if (E->shared)
        munmap(E->shared, sizeof *E->shared);
    if (E->rows)
        munmap(E->rows, sizeof *E->rows);
    bpf_object__close(E->object);
    free(E->core.forwarded);
    free(E->core.dropped);
    free(E->core.dropped_at);
    free(E->core.output);
    free(E->punted);
    free(E->dumped);
    free(E);
}

static struct cora_engine *cora_place_create(const uint8_t *config, uint32_t options, const uint64_t seed[8],
                                             struct cora_world *world)
{
    struct cora_engine *E = calloc(1, sizeof *E);
    if (!E || !cora_kernel_opened)
        cora_out_of_memory(sizeof *E);
    (void)options;
    E->world = world;
    E->object = cora_kernel_opened;
    cora_kernel_opened = NULL;
    E->core.forwarded = calloc(CORA_PORTS + 1, sizeof *E->core.forwarded);
    E->core.dropped = calloc(CORA_REASONS + 1, sizeof *E->core.dropped);
    E->core.dropped_at = calloc(CORA_PORTS + 1, sizeof *E->core.dropped_at);
    E->shared = cora_kernel_memory(E->object, ".data.shared", sizeof *E->shared);
    E->rows = cora_kernel_memory(E->object, "cora_rows", sizeof *E->rows);
    struct cora_kernel_config *settings = cora_kernel_memory(E->object, ".data.config", sizeof *settings);
    cora_config_read(settings, config);
    munmap(settings, sizeof *settings);
    E->xdp = cora_kernel_program(E->object, "cora_xdp");
    E->told = cora_kernel_program(E->object, "cora_told");
    E->sweep = cora_kernel_program(E->object, "cora_sweep");
    E->dump = cora_kernel_program(E->object, "cora_dump");
    E->counts = bpf_object__find_map_fd_by_name(E->object, "cora_counts");
    cora_seed(&E->core, seed);
    memcpy(E->shared->seed, E->core.seed, sizeof E->shared->seed);
    E->shared->test_run = 1;
    E->shared->queues = 1;
    E->shared->attached = 1;
    return E;
}

static void cora_kernel_sweep(struct cora_engine *E)
{
    struct cora_sweep_call call = {0};
    cora_kernel_run(E->sweep, &call, sizeof call);
}

/* What the kernel half told of its own accord goes through the queue, before any packet behind it. */
static void cora_kernel_notices(struct cora_engine *E)
{
    while (E->notices < E->shared->notice_head) {
        const struct cora_notice *notice = &E->shared->notices[E->notices % CORA_NOTICES];
        struct cora_item *item = cora_item_new((enum cora_item_kind)notice->kind, 1, 0);
        item->lending = notice->lending;
        item->slot = notice->slot;
        item->serial = notice->serial;
        item->deadline = notice->deadline;
        cora_world_push(E->world, 1, item);
        E->shared->notice_tail = ++E->notices;
    }
}

static void cora_kernel_hand_over(struct cora_engine *E, const struct cora_packet *p, uint32_t size)
{
    uint32_t caplen = size - CORA_PUNT_META;
    struct cora_item *item = cora_item_new(CORA_ITEM_PACKET, 1, caplen);
    memcpy(item->head, E->out, CORA_PUNT_META);
    item->index = p->index;
    item->flow = p->flow;
    item->record = *p->record;
    memcpy(item->frame, E->out + CORA_PUNT_META, caplen);
    E->punted = cora_grow(E->punted, &E->punted_room, E->punted_count + 1, sizeof *E->punted);
    E->punted[E->punted_count++] = (struct cora_test_punt){p->index, p->port};
    cora_world_push(E->world, 1, item);
}

static void cora_place_arrive(struct cora_engine *E, const struct cora_record *record, uint64_t index)
{
    uint8_t frame[CORA_TEST_ROOM];
    struct cora_packet p = {.data = frame, .record = record, .index = index, .port = record->port,
                            .caplen = record->caplen, .wirelen = record->wirelen};
    if (record->caplen > sizeof frame)
        cora_out_of_memory(record->caplen);
    cora_record_frame(record, frame);
    p.flow = cora_flow_of(&p);
    E->core.arrived.packets++;
    E->core.arrived.octets += record->wirelen;
    if (record->time_ns > E->core.arrived_now)
        E->core.arrived_now = record->time_ns;
    E->core.now = E->shared->virtual_now = E->core.arrived_now;
    E->shared->test_port = record->port;
    if (E->swept < E->core.now)
        cora_kernel_sweep(E);
    E->swept = E->core.now;
    struct xdp_md context = {.data_end = record->caplen};
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = record->caplen, .data_out = E->out,
                .data_size_out = sizeof E->out, .ctx_in = &context, .ctx_size_in = sizeof context, .ctx_out = &context,
                .ctx_size_out = sizeof context);
    if (bpf_prog_test_run_opts(E->xdp, &run) != 0) {
        fprintf(stderr, "cora: a frame of %u bytes cannot be run: %s\n", record->caplen, strerror(errno));
        abort();
    }
    cora_kernel_notices(E);
    if (E->shared->verdict == CORA_VERDICT_PUNT) {
        cora_kernel_hand_over(E, &p, run.data_size_out);
        return;
    }
    E->faults += E->shared->verdict > CORA_VERDICT_PUNT;
    p.verdict = (uint16_t)E->shared->verdict;
    p.data = E->out;
    p.caplen = p.wirelen = run.data_size_out;
    if (p.verdict & CORA_DROP) {
        cora_drop(&E->core, index, p.verdict & ~CORA_DROP & 0xffff, false);
        E->core.dropped_at[p.port]++;
    } else {
        cora_forward(&E->core, &p);
        cora_world_left(E->world, p.flow, index);
    }
    cora_world_ended(E->world, index, p.verdict);
}

static void cora_place_told(struct cora_engine *E, const struct cora_message *message)
{
    if (message->kind == CORA_DONE) {
        while (E->through < E->punted_count && E->punted[E->through].index < message->number)
            E->shared->done[E->punted[E->through++].queue]++;
        return;
    }
    struct cora_kernel_call call = {.message = *message};
    cora_kernel_run(E->told, &call, sizeof call);
    if (!call.answered)
        return;
    call.answer.to = 1;
    cora_world_down(E->world, 0, &call.answer);
}

static void cora_place_expire(struct cora_engine *E, uint64_t now)
{
    E->core.now = E->shared->virtual_now = now;
    cora_kernel_sweep(E);
}

/* The sum of a number of cora_counts over all CPUs. */
static uint64_t cora_kernel_sum(const struct cora_engine *E, size_t offset)
{
    int cpus = libbpf_num_possible_cpus();
    size_t each = (sizeof(struct cora_counts) + 7) / 8 * 8;
    uint8_t *all = calloc((size_t)cpus, each);
    uint32_t zero = 0;
    uint64_t sum = 0, one;
    if (!all)
        cora_out_of_memory((size_t)cpus * each);
    if (bpf_map_lookup_elem(E->counts, &zero, all) == 0)
        for (int cpu = 0; cpu < cpus; cpu++) {
            memcpy(&one, all + (size_t)cpu * each + offset, sizeof one);
            sum += one;
        }
    free(all);
    return sum;
}

/* Entries still here at the end; also the time to add what the kernel half counted to the world's statistics. */
static uint64_t cora_place_left(const struct cora_engine *E)
{
    for (uint32_t i = 0; i < CORA_STATISTICS; i++)
        cora_world_statistics(E->world)[i] +=
            cora_kernel_sum(E, offsetof(struct cora_counts, statistics) + i * sizeof(uint64_t));
    cora_world_statistics(E->world)[CORA_STRAY] += E->faults;
    return 0;
}

static bool cora_place_stalled(const struct cora_engine *E, uint64_t *index)
{
    (void)E, (void)index;
    return false;
}

static void cora_place_serve(struct cora_engine *E, struct cora_item *item) { (void)E, free(item); }
static void cora_place_settle(struct cora_engine *E, uint16_t verdict) { (void)E, (void)verdict; }
static void cora_place_recall(struct cora_engine *E) { (void)E; }
static struct cora_core *cora_place_core(struct cora_engine *E) { return &E->core; }

static void cora_place_summary(const struct cora_engine *E, uint64_t *out)
{
    *out++ = E->core.arrived.packets;
    *out++ = E->core.arrived.octets;
    *out++ = 0;
    *out++ = 0;
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        *out++ = E->core.forwarded[i].packets;
        *out++ = E->core.forwarded[i].octets;
    }
    for (uint32_t i = 0; i < CORA_REASONS; i++)
        *out++ = E->core.dropped[i];
}

static size_t cora_place_state_size(const struct cora_engine *constant, uint32_t state)
{
    struct cora_engine *E = (struct cora_engine *)(uintptr_t)constant;
    E->dumped_size = 0;
    if (state >= CORA_STATES)
        return 0;
    struct cora_rows_call call = {.state = state, .next = 0};
    do {
        call.from = call.next;
        cora_kernel_run(E->dump, &call, sizeof call);
        size_t bytes = (size_t)call.count * cora_row_sizes[state];
        E->dumped = cora_grow(E->dumped, &E->dumped_room, E->dumped_size + bytes, 1);
        memcpy(E->dumped + E->dumped_size, E->rows->bytes, bytes);
        E->dumped_size += bytes;
    } while (call.next != CORA_ROWS_END);
    return E->dumped_size;
}

static void cora_place_state_dump(const struct cora_engine *E, uint32_t state, uint8_t *out)
{
    (void)state;
    memcpy(out, E->dumped, E->dumped_size);
}

const struct cora_place_ops cora_place_0 = {
    cora_place_create, cora_place_destroy, cora_place_arrive, cora_place_serve, cora_place_told, cora_place_settle,
    cora_place_expire, cora_place_recall, cora_place_left, cora_place_stalled, cora_place_core, cora_place_summary,
    cora_place_state_size, cora_place_state_dump,
};

#endif
