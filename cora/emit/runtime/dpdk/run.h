/* Starting, running and ending a host program: `main` of the generated file. Included last.
 *
 * One worker runs on each core of EAL's -l, worker 0 on the main one. The control socket has a thread of its own. */
#ifndef CORA_DPDK_RUN_H
#define CORA_DPDK_RUN_H

#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "ports.h"
#include "records.h"
#include "requests.h"

static struct cora_options cora_options;

static void cora_on_signal(int number) { cora_stop_signal = number; }

static uint64_t cora_time(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t cora_wall(void) { return cora_time(CLOCK_MONOTONIC); }

/* --- running --- */

/* A worker's next packets, from its queues and from other workers; returns how many. */
static inline uint32_t cora_worker_round(struct cora_worker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->queue_count; i++)
        n += cora_worker_receive(w, &w->queues[i]);
    if (cora_host.workers > 1)
        n += cora_worker_incoming(w);
    cora_worker_flush_all(w);
    return n;
}

/* Whether the program is to end. Worker 0 asks. */
static bool cora_host_ends(uint32_t came)
{
    static uint64_t last;
    uint64_t received = 0, now;
    if (cora_stop_signal)
        return true;
    if (CORA_LIKELY(!cora_options.packets && !cora_options.idle_ms))
        return false;
    for (uint32_t i = 0; i < cora_host.workers; i++)
        received += __atomic_load_n(&cora_host.worker[i].counts.received, __ATOMIC_RELAXED);
    if (cora_options.packets && received >= cora_options.packets)
        return true;
    if (!cora_options.idle_ms)
        return false;
    static uint64_t before;
    now = cora_wall();
    if (came || received != before || !last)
        last = now;
    before = received;
    return now - last > cora_options.idle_ms * 1000000;
}

static int cora_worker_main(void *argument)
{
    struct cora_worker *w = argument;
    struct cora_host *h = &cora_host;
    uint64_t began = cora_time(CLOCK_THREAD_CPUTIME_ID);
    cora_self = w;
    while (!__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE)) {
        uint32_t n = cora_worker_round(w);
        cora_control_poll(&cora_control, w->number);
        if (!n)
            cora_worker_expire(w->engine, cora_host_clock());
        if (w->number == 0 && cora_host_ends(n))
            __atomic_store_n(&h->stop, true, __ATOMIC_RELEASE);
    }
    w->counts.cpu_ns = cora_time(CLOCK_THREAD_CPUTIME_ID) - began;
    cora_worker_finish(w);
    return 0;
}

/* The same by records: worker 0 reads the file, the others run what they are handed. */
static int cora_worker_by_records(void *argument)
{
    struct cora_worker *w = argument;
    struct cora_host *h = &cora_host;
    cora_self = w;
    while (!__atomic_load_n(&h->stop, __ATOMIC_ACQUIRE)) {
        uint32_t n = w->number == 0 ? cora_records_receive(w) : cora_worker_incoming(w);
        if (w->number == 0 && !n)
            __atomic_store_n(&h->stop, true, __ATOMIC_RELEASE);
        if (w->number != 0 && !n) {
            cora_worker_expire(w->engine, cora_host_clock());
            sched_yield(); /* worker 0 may have the same processor */
        }
    }
    cora_worker_finish(w);
    return 0;
}

/* --- starting and ending --- */

static void cora_clock_open(void)
{
    cora_host.wall = cora_wall();
    cora_host.cycles = rte_rdtsc();
    cora_host.rate = (uint64_t)(((cora_u128)1000000000 << 32) / rte_get_tsc_hz());
}

static void cora_engines_open(void)
{
    uint64_t seed[8];
    if (getrandom(seed, sizeof seed, 0) != sizeof seed)
        cora_fail("there are no random numbers: %s", strerror(errno));
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        struct cora_worker *w = &cora_host.worker[i];
        w->number = i;
        w->engine = cora_create(cora_config_row, 0, seed);
        if (!w->engine)
            cora_fail("there is no memory for the tables");
        w->engine->core.output_mode = CORA_OUTPUT_LIVE;
        w->engine->core.now = cora_options.records ? 0 : cora_host.wall;
    }
}

static void cora_host_open(void)
{
    cora_host.workers = rte_lcore_count();
    if (cora_host.workers > CORA_WORKERS_MOST)
        cora_fail("%u cores are more than %u: fewer with -l", cora_host.workers, CORA_WORKERS_MOST);
    if (CORA_ONE_CORE[0] && cora_host.workers > 1)
        cora_fail("this program runs on one core: %s; give one with -l", CORA_ONE_CORE);
    rte_spinlock_init(&cora_host.alone);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        rte_spinlock_init(&cora_host.send_lock[i]);
    cora_steer_open(cora_host.workers);
    cora_clock_open();
    cora_pool_open(&cora_options);
    cora_engines_open();
    cora_rings_open();
    if (cora_options.records)
        cora_records_open(&cora_options);
    else
        cora_devices_open(&cora_options);
}

static void cora_host_run(lcore_function_t *worker)
{
    uint32_t core, next = 1;
    RTE_LCORE_FOREACH_WORKER(core)
        rte_eal_remote_launch(worker, &cora_host.worker[next++], core);
    worker(&cora_host.worker[0]);
    rte_eal_mp_wait_lcore();
}

static void cora_host_close(void)
{
    cora_shards.halt = false;
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        free(cora_host.worker[i].queues);
        free(cora_host.worker[i].engine->shard.away);
    }
    for (uint32_t i = cora_host.workers; i-- > 0;)
        cora_destroy(cora_host.worker[i].engine);
}

static void cora_control_start(const char *path)
{
    if (!cora_control_open(&cora_control, path, cora_host.workers, cora_on_request, NULL))
        cora_fail("the control socket %s cannot be served: %s", path,
                  errno == EADDRINUSE ? "another program serves it" : strerror(errno));
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = cora_on_signal};
    int eal = rte_eal_init(argc, argv);
    if (eal < 0)
        cora_fail("DPDK does not start: %s", rte_strerror(rte_errno));
    cora_options_read(&cora_options, argc - eal, argv + eal);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    cora_host_open();
    if (cora_options.socket)
        cora_control_start(cora_options.socket);
    cora_host_run(cora_options.records ? cora_worker_by_records : cora_worker_main);
    if (cora_options.socket)
        cora_control_close(&cora_control);
    if (cora_options.records)
        cora_records_report();
    cora_report_totals();
    if (!cora_options.records)
        cora_devices_close();
    cora_host_close();
    rte_eal_cleanup();
    return 0;
}

#endif
