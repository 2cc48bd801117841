/* Several threads run frames through one loaded XDP program at the same time, another one sweeps its tables. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel_interface.h"
#include "bpf/abi.h"

struct job {
    int program, cpu;
    const uint8_t *frames;
    uint32_t size, count, rounds, step;
    uint64_t failures;
};

static struct bpf_object *object;
static struct cora_shared *shared;
static struct cora_rows *rows;
static atomic_bool running;

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
    (void)level, (void)format, (void)arguments;
    return 0;
}

static int program_of(const char *name)
{
    struct bpf_program *program = bpf_object__find_program_by_name(object, name);
    return program ? bpf_program__fd(program) : -1;
}

static void *memory_of(const char *name, size_t size)
{
    int fd = bpf_object__find_map_fd_by_name(object, name);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Everything arrives from the loopback interface, which is the first port's. */
int race_open(const char *path)
{
    libbpf_set_print(silent);
    object = bpf_object__open_file(path, NULL);
    if (!object || bpf_object__load(object) != 0)
        return -1;
    shared = memory_of(".data.shared", sizeof *shared);
    rows = memory_of("cora_rows", sizeof *rows);
    if (!shared || !rows)
        return -1;
    for (int i = 0; i < CORA_SEEDS; i++)
        shared->seed[i] = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
    shared->queues = 1;
    shared->ifindex[0] = 1;
    int devices = bpf_object__find_map_fd_by_name(object, "cora_devices");
    for (uint32_t port = 0, interface = 1; port < CORA_PORTS; port++)
        bpf_map_update_elem(devices, &port, &interface, BPF_ANY);
    return 0;
}

void race_close(void) { bpf_object__close(object); }

static void *run(void *argument)
{
    struct job *job = argument;
    for (uint32_t i = 0; i < job->rounds; i++) {
        const uint8_t *frame = job->frames + (size_t)((uint64_t)i * job->step % job->count) * job->size;
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = job->size, .repeat = 1);
        job->failures += bpf_prog_test_run_opts(job->program, &options) != 0;
    }
    return NULL;
}

static void *sweep(void *argument)
{
    int program = *(int *)argument;
    while (atomic_load(&running)) {
        struct cora_sweep_call call = {0};
        LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &call, .ctx_size_in = sizeof call);
        bpf_prog_test_run_opts(program, &options);
    }
    return NULL;
}

/* `threads` threads send `rounds` frames each; returns runs that failed. */
uint64_t race_run(const uint8_t *frames, uint32_t size, uint32_t count, uint32_t threads, uint32_t rounds, bool sweeping)
{
    pthread_t ids[16], sweeper;
    struct job jobs[16];
    uint64_t failures = 0;
    int swept = program_of("cora_sweep");
    atomic_store(&running, true);
    if (sweeping)
        pthread_create(&sweeper, NULL, sweep, &swept);
    for (uint32_t i = 0; i < threads; i++) {
        jobs[i] = (struct job){program_of("cora_xdp"), (int)i, frames, size, count, rounds, 2 * i + 1, 0};
        pthread_create(&ids[i], NULL, run, &jobs[i]);
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        failures += jobs[i].failures;
    }
    atomic_store(&running, false);
    if (sweeping)
        pthread_join(sweeper, NULL);
    return failures;
}

/* Sums of a word of cora_counts over all CPUs. */
uint64_t race_count(uint32_t offset)
{
    int cpus = libbpf_num_possible_cpus(), fd = bpf_object__find_map_fd_by_name(object, "cora_counts");
    size_t each = (sizeof(struct cora_counts) + 7) / 8 * 8;
    uint8_t *all = calloc((size_t)cpus, each);
    uint32_t zero = 0;
    uint64_t sum = 0;
    bpf_map_lookup_elem(fd, &zero, all);
    for (int cpu = 0; cpu < cpus; cpu++) {
        uint64_t one;
        memcpy(&one, all + (size_t)cpu * each + offset, sizeof one);
        sum += one;
    }
    free(all);
    return sum;
}

/* Rows of a state from an entry on, at `out`; the number of rows, and where to go on. */
uint32_t race_dump(uint32_t state, uint32_t *next, uint8_t *out)
{
    struct cora_rows_call call = {.now = 1, .state = state, .from = *next};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &call, .ctx_size_in = sizeof call);
    bpf_prog_test_run_opts(program_of("cora_dump"), &options);
    memcpy(out, rows->bytes, sizeof rows->bytes);
    *next = call.next;
    return call.count;
}

enum { RACE_ARRIVED = offsetof(struct cora_counts, arrived), RACE_FORWARDED = offsetof(struct cora_counts, forwarded),
       RACE_DROPPED = offsetof(struct cora_counts, dropped), RACE_FAULTS = offsetof(struct cora_counts, faults) };
uint32_t race_offset(uint32_t which)
{
    static const uint32_t offsets[] = {RACE_ARRIVED, RACE_FORWARDED, RACE_DROPPED, RACE_FAULTS};
    return offsets[which];
}
