/* Starting, running and ending the user half: `main` of the generated program. Included last. */
#ifndef CORA_XDP_RUN_H
#define CORA_XDP_RUN_H

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include "look.h"
#include "requests.h"

#define CORA_MILLISECOND UINT64_C(1000000)
#define CORA_TICK (20 * CORA_MILLISECOND)  /* housekeeping */
#define CORA_WATCH (500 * CORA_MILLISECOND) /* is the kernel half still there? */
#define CORA_MARGIN CORA_MILLISECOND       /* the kernel half stamps and hands on a packet faster than this */

static void cora_on_signal(int number) { cora_stop_signal = number; }

static uint64_t cora_wall(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- starting --- */

/* Half-started: the kernel half goes away again, unless it was there before this process. */
static void cora_user_undo(void)
{
    struct cora_kernel *k = &cora_user.kernel;
    unlink(cora_user.control.path);
    if (!k->pins[0] || k->resumed)
        return;
    cora_kernel_detach(k);
    cora_kernel_unpin(k);
}

/* A fault while it runs: as if it was killed, the kernel half and its pins stay for the next user half. */
static void cora_user_leave(void) { unlink(cora_user.control.path); }

/* Listens for requests, which are answered from the first round on. Only one program at a time has a socket's path. */
static void cora_user_control(struct cora_user *u, const char *path)
{
    char folder[CORA_PATH_ROOM];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = 0;
        mkdir(folder, 0755);
    }
    if (cora_control_open(&u->control, path, 1, cora_on_request, NULL))
        return;
    if (errno == EADDRINUSE)
        cora_fail("another program listens on %s: stop it, or give this one its own --socket and --pins", path);
    cora_fail("the control socket %s cannot be made: %s", path, strerror(errno));
}

static void cora_user_sockets(struct cora_user *u, uint32_t ring)
{
    struct cora_kernel *k = &u->kernel;
    uint32_t count = CORA_PORTS * k->queues, chunk = CORA_XSK_CHUNK_SMALL;
    const struct cora_xsk *owner = NULL;
    const char *step;
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        if (k->ports[i].longest > CORA_XSK_CHUNK_SMALL - CORA_XSK_HEADROOM)
            chunk = CORA_XSK_CHUNK_LARGE;
    u->sockets = calloc(count, sizeof *u->sockets);
    u->heads = malloc(count * sizeof *u->heads);
    u->losses = calloc(count, sizeof *u->losses);
    u->original = malloc(chunk);
    /* Every ring of every socket can be full at once. */
    if (!u->sockets || !u->heads || !u->losses || !u->original ||
        !cora_frames_open(&u->frames, 3 * ring * count + CORA_USER_ROUND, chunk))
        cora_fail("there is no memory for the frames of %u queues: give a smaller --ring", count);
    for (uint32_t port = 0; port < CORA_PORTS; port++)
        for (uint32_t queue = 0; queue < k->ports[port].queues; queue++) {
            struct cora_xsk *x = &u->sockets[u->socket_count];
            *x = (struct cora_xsk){.fd = -1, .port = port, .queue = queue, .ifindex = k->ports[port].ifindex};
            if (!cora_xsk_open(x, &u->frames, owner, ring, &step))
                cora_fail("cannot %s for %s, queue %u: %s", step, k->ports[port].interface, queue, strerror(errno));
            owner = owner ? owner : x;
            u->heads[u->socket_count++] = CORA_NEVER;
            u->outputs[port] = queue ? u->outputs[port] : x;
            cora_xsk_refill(x, &u->frames);
        }
}

static void cora_user_engine(struct cora_user *u)
{
    uint64_t seed[8];
    if (getrandom(seed, sizeof seed, 0) != sizeof seed)
        cora_fail("there are no random numbers: %s", strerror(errno));
    u->world.kernel = &u->kernel;
    /* Serials are never used twice, not by another process either. */
    u->world.serial = cora_wall();
    u->engine = cora_place_create(cora_config_row, 0, seed, &u->world);
    if (!u->engine)
        cora_fail("there is no memory for the tables");
    u->world.engine = u->engine;
    u->engine->core.output_mode = CORA_OUTPUT_LIVE;
}

static void cora_user_ledger(struct cora_user *u)
{
    u->ledger = cora_ledger_open(&u->kernel);
    u->counts = u->ledger->ports;
    u->started = cora_kernel_now(&u->kernel);
}

/* The kernel half begins to hand packets on. */
static void cora_user_open(struct cora_user *u)
{
    struct cora_kernel *k = &u->kernel;
    struct timespec grace = {.tv_nsec = 20000000};
    /* What a killed user half had not served yet is lost; programs that run now end within the grace. */
    __atomic_store_n(&k->shared->attached, 0, __ATOMIC_RELEASE);
    if (k->resumed)
        nanosleep(&grace, NULL);
    for (uint32_t i = 0; i < u->socket_count; i++) {
        struct cora_xsk *x = &u->sockets[i];
        uint32_t queue = cora_user_queue(u, i);
        u->losses[i].before = cora_kernel_lost(k, queue);
        u->ledger->abandoned += cora_kernel_punted(k, queue) - k->shared->done[queue];
        k->done[queue] = cora_kernel_punted(k, queue);
        cora_kernel_done(k, queue);
        cora_kernel_socket(k, queue, x->fd);
    }
    __atomic_store_n(&k->shared->attached, 1, __ATOMIC_RELEASE);
    cora_kernel_attach(k);
}

/* --- running --- */

/* What is due here is removed when nothing is on its way that was stamped before. */
static void cora_user_expire(struct cora_user *u)
{
    uint64_t now = cora_kernel_now(&u->kernel);
    for (uint32_t i = 0; i < u->socket_count; i++)
        if (!cora_user_idle(u, i))
            return;
    if (now > CORA_MARGIN && now - CORA_MARGIN > u->engine->core.now)
        cora_place_expire(u->engine, now - CORA_MARGIN);
}

static void cora_user_tick(struct cora_user *u, uint64_t wall)
{
    static uint64_t next_sweep, next_watch;
    cora_user_notices(u);
    cora_user_losses(u);
    cora_user_publish(u);
    cora_user_expire(u);
    cora_user_account(u);
    if (CORA_SWEEP_EVERY && wall >= next_sweep) {
        cora_kernel_sweep(&u->kernel, 0);
        next_sweep = wall + CORA_SWEEP_EVERY;
    }
    if (wall >= next_watch) {
        uint32_t gone;
        if (!cora_stop_signal && !cora_kernel_attached(&u->kernel, &gone))
            cora_user_orphaned(u, gone);
        next_watch = wall + CORA_WATCH;
    }
}

static void cora_user_wait(struct cora_user *u, struct pollfd *polled)
{
    if (poll(polled, u->socket_count + 1, CORA_TICK / CORA_MILLISECOND) > 0 && polled[u->socket_count].revents)
        cora_control_awake(&u->control, 0);
}

static void cora_user_loop(struct cora_user *u)
{
    struct pollfd *polled = calloc(u->socket_count + 1, sizeof *polled);
    if (!polled)
        cora_fail("there is no memory");
    for (uint32_t i = 0; i < u->socket_count; i++)
        polled[i] = (struct pollfd){.fd = u->sockets[i].fd, .events = POLLIN};
    polled[u->socket_count] = (struct pollfd){.fd = u->control.wake[0], .events = POLLIN};
    for (uint64_t next = 0; !cora_stop_signal && !u->orphaned;) {
        uint32_t n = cora_user_round(u);
        uint64_t wall = cora_wall();
        if (wall >= next) {
            cora_user_tick(u, wall);
            next = wall + CORA_TICK;
        }
        cora_control_poll(&u->control, 0);
        if (!n)
            cora_user_wait(u, polled);
    }
    free(polled);
}

/* --- ending --- */

/* All packets that the kernel half handed on before it was detached are served. */
static void cora_user_finish(struct cora_user *u)
{
    enum { PATIENCE = 500 };
    struct timespec millisecond = {.tv_nsec = 1000000};
    for (int quiet = 0, tries = 0; quiet < 20 && tries < PATIENCE; tries++) {
        while (cora_user_round(u))
            quiet = 0;
        cora_user_losses(u);
        cora_user_publish(u);
        bool idle = true;
        for (uint32_t i = 0; i < u->socket_count; i++)
            idle &= cora_user_idle(u, i) && !cora_xsk_unsent(&u->sockets[i]);
        quiet = idle ? quiet + 1 : 0;
        nanosleep(&millisecond, NULL);
    }
    cora_place_recall(u->engine);
}

static void cora_user_close(struct cora_user *u)
{
    u->kernel.shared->attached = 0;
    for (uint32_t i = 0; i < u->socket_count; i++)
        cora_xsk_close(&u->sockets[i]);
    cora_frames_close(&u->frames);
    cora_place_destroy(u->engine);
    cora_kernel_unpin(&u->kernel);
    bpf_object__close(u->kernel.object);
    free(u->sockets);
    free(u->heads);
    free(u->losses);
    free(u->original);
    json_decref(u->lost);
}

static void cora_user_signals(void)
{
    struct sigaction action = {.sa_handler = cora_on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
    struct cora_user *u = &cora_user;
    struct cora_options options;
    cora_options_read(&options, &u->kernel, argc, argv);
    if (options.look)
        return cora_look(&u->kernel, &options);
    cora_user_signals();
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    cora_interfaces_read(&u->kernel);
    cora_user_control(u, options.socket);
    cora_before_failing = cora_user_undo;
    cora_kernel_load(&u->kernel, options.kernel, options.pins, options.fresh);
    cora_user_engine(u);
    cora_user_ledger(u);
    cora_user_sockets(u, options.ring);
    cora_kernel_prepare(&u->kernel);
    /* Only now, when nothing can be wrong any more with the start, are entries taken back from the kernel half. */
    if (u->kernel.resumed)
        cora_report_resumed(u);
    cora_user_open(u);
    cora_before_failing = cora_user_leave;
    cora_report_running(u);
    cora_user_loop(u);
    cora_kernel_detach(&u->kernel);
    cora_user_finish(u);
    cora_report_totals(u, stdout);
    cora_before_failing = NULL;
    cora_control_close(&u->control);
    bool orphaned = u->orphaned;
    cora_user_close(u);
    return orphaned ? 1 : 0;
}

#endif
