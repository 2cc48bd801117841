/* The kernel half as the user half sees it (bpf/abi.h): loading it, its maps under a folder of the BPF file system, its
 * programs on the ports' interfaces, messages to it, and its counts.
 *
 * Maps and links are pinned, so that the kernel half goes on forwarding what it can decide alone when the user half is
 * killed, and the next user half finds its entries and counts. */
#ifndef CORA_XDP_KERNEL_H
#define CORA_XDP_KERNEL_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "../bpf/abi.h"
#include "fault.h"

#define CORA_BPF_FS_MAGIC 0xcafe4a11
#define CORA_PIN_ROOM 512

struct cora_kernel_port {
    const char *interface;
    uint32_t ifindex, queues, longest; /* longest: bytes of a frame that the interface's MTU lets pass */
    struct bpf_link *link;
};

struct cora_kernel {
    struct bpf_object *object;
    struct cora_kernel_port ports[CORA_PORTS];
    struct cora_shared *shared;
    struct cora_rows *rows; /* where whole states are handed over */
    int told, sweep, dump, load, counts, xsks;
    int paused, stand_in;     /* 0: not needed yet */
    char pins[CORA_PIN_ROOM]; /* folder of the maps and links */
    bool resumed;             /* the maps were there: another user half was killed */
    uint32_t queues;          /* receive queues of each port */
    uint64_t done[CORA_QUEUES]; /* what becomes shared->done when the packets have been sent */
};

/* --- maps --- */

/* Name of a map's pin: the BPF file system keeps dots for itself. */
static bool cora_pin_path(const struct cora_kernel *k, const char *kind, const char *name, char out[CORA_PIN_ROOM])
{
    int length = snprintf(out, CORA_PIN_ROOM, "%s/%s%s", k->pins, kind, *name == '.' ? name + 1 : name);
    for (char *at = out + strlen(k->pins) + 1; *at; at++)
        if (*at == '.')
            *at = '_';
    return length > 0 && length < CORA_PIN_ROOM;
}

static void *cora_kernel_map(struct cora_kernel *k, const char *name, size_t size)
{
    int fd = bpf_object__find_map_fd_by_name(k->object, name);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        cora_fail("the kernel half has no map '%s' of %zu bytes that can be mapped (%s): build both halves from one plan",
                  name, size, strerror(errno));
    return at;
}

static int cora_kernel_program(const struct cora_kernel *k, const char *name)
{
    const struct bpf_program *program = bpf_object__find_program_by_name(k->object, name);
    if (!program)
        cora_fail("the kernel half has no program '%s': build both halves from one plan", name);
    return bpf_program__fd(program);
}

/* Maps that are made anew each time: constants, and the devices and sockets of this process. */
static bool cora_kernel_renews(const struct bpf_map *map)
{
    enum bpf_map_type type = bpf_map__type(map);
    return type == BPF_MAP_TYPE_DEVMAP || type == BPF_MAP_TYPE_XSKMAP || strstr(bpf_map__name(map), "rodata");
}

/* Every other map gets a pin, and is taken from there where one stands already. */
static void cora_kernel_pins(struct cora_kernel *k)
{
    struct bpf_map *map;
    char path[CORA_PIN_ROOM];
    bpf_object__for_each_map(map, k->object) {
        if (cora_kernel_renews(map))
            continue;
        if (!cora_pin_path(k, "", bpf_map__name(map), path) || bpf_map__set_pin_path(map, path) != 0)
            cora_fail("the map '%s' cannot be pinned in %s: %s", bpf_map__name(map), k->pins, strerror(errno));
    }
}

/* The folder of the pins, made where it is missing. */
static void cora_kernel_folder(struct cora_kernel *k, const char *root)
{
    struct statfs fs;
    if (snprintf(k->pins, sizeof k->pins, "%s", root) >= (int)sizeof k->pins - 128)
        cora_fail("%s: the path is too long", root);
    for (char *at = k->pins + 1;; at++) {
        char kept = *at;
        if (kept && kept != '/')
            continue;
        *at = 0;
        if (mkdir(k->pins, 0700) != 0 && errno != EEXIST)
            cora_fail("the folder %s for pins cannot be made: %s; is the BPF file system there? "
                      "(mount -t bpf bpf /sys/fs/bpf)", k->pins, strerror(errno));
        *at = kept;
        if (!kept)
            break;
    }
    if (statfs(k->pins, &fs) != 0 || (uint32_t)fs.f_type != CORA_BPF_FS_MAGIC)
        cora_fail("%s is in no BPF file system, where maps are pinned: mount -t bpf bpf /sys/fs/bpf, or name another "
                  "folder with --pins", k->pins);
}

static bool cora_folder_is_empty(const char *path)
{
    DIR *folder = opendir(path);
    bool empty = true;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        empty &= entry->d_name[0] == '.';
    if (folder)
        closedir(folder);
    return empty;
}

/* Removes what is pinned, and the folder; links are detached. */
static void cora_kernel_unpin(const struct cora_kernel *k)
{
    DIR *folder = opendir(k->pins);
    char path[CORA_PIN_ROOM + 256];
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", k->pins, entry->d_name);
        struct bpf_link *link = strncmp(entry->d_name, "link_", 5) ? NULL : bpf_link__open(path);
        if (link) {
            bpf_link__detach(link);
            bpf_link__destroy(link);
        }
        unlink(path);
    }
    if (folder)
        closedir(folder);
    rmdir(k->pins);
}

/* --- loading --- */

/* libbpf says more than one line about what failed: the last lines are kept for the message. */
static char cora_libbpf_said[4096];

static int cora_libbpf_print(enum libbpf_print_level level, const char *format, va_list arguments)
{
    if (level == LIBBPF_DEBUG || level == LIBBPF_INFO)
        return 0;
    size_t used = strlen(cora_libbpf_said);
    if (used > sizeof cora_libbpf_said / 2)
        used = 0;
    return vsnprintf(cora_libbpf_said + used, sizeof cora_libbpf_said - used, format, arguments);
}

static void cora_kernel_load(struct cora_kernel *k, const char *file, const char *pins, bool fresh)
{
    libbpf_set_print(cora_libbpf_print);
    cora_kernel_folder(k, pins);
    if (fresh) {
        cora_kernel_unpin(k);
        cora_kernel_folder(k, pins);
    }
    k->resumed = !cora_folder_is_empty(k->pins);
    k->object = bpf_object__open_file(file, NULL);
    if (!k->object)
        cora_fail("the kernel half %s cannot be read: %s; build it first (make)", file, strerror(errno));
    cora_kernel_pins(k);
    if (bpf_object__load(k->object) != 0) {
        int error = errno;
        if (!k->resumed)
            cora_kernel_unpin(k);
        cora_fail("the kernel half %s cannot be loaded (%s)%s%s\n%s", file, strerror(error),
                  k->resumed ? "; the maps pinned by an earlier run may be of another plan: --fresh removes " : "",
                  k->resumed ? k->pins : "", cora_libbpf_said);
    }
    k->shared = cora_kernel_map(k, ".data.shared", sizeof *k->shared);
    k->rows = cora_kernel_map(k, "cora_rows", sizeof *k->rows);
    k->told = cora_kernel_program(k, "cora_told");
    k->sweep = cora_kernel_program(k, "cora_sweep");
    k->dump = cora_kernel_program(k, "cora_dump");
    k->load = cora_kernel_program(k, "cora_load");
    k->counts = bpf_object__find_map_fd_by_name(k->object, "cora_counts");
    k->xsks = bpf_object__find_map_fd_by_name(k->object, "cora_xsks");
}

/* Where the packets of the ports come and go; before the first packet. */
static void cora_kernel_prepare(struct cora_kernel *k)
{
    struct bpf_map *devices = bpf_object__find_map_by_name(k->object, "cora_devices");
    uint8_t value[16] = {0};
    k->shared->queues = k->queues;
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        k->shared->ifindex[i] = k->ports[i].ifindex;
        memcpy(value, &k->ports[i].ifindex, 4);
        if (!devices || bpf_map_update_elem(bpf_map__fd(devices), &i, value, 0) != 0)
            cora_fail("the interface %s cannot be entered in the kernel half's devices: %s", k->ports[i].interface,
                      strerror(errno));
    }
    if (!k->resumed && getrandom(k->shared->seed, sizeof k->shared->seed, 0) != sizeof k->shared->seed)
        cora_fail("there are no random numbers: %s", strerror(errno));
}

static void cora_kernel_socket(struct cora_kernel *k, uint32_t queue, int fd)
{
    if (bpf_map_update_elem(k->xsks, &queue, &fd, 0) != 0)
        cora_fail("an AF_XDP socket cannot be entered in the kernel half's sockets: %s", strerror(errno));
}

/* The interface a link is on, 0: on none any more. */
static uint32_t cora_link_ifindex(const struct bpf_link *link)
{
    struct bpf_link_info info = {0};
    uint32_t length = sizeof info;
    if (bpf_obj_get_info_by_fd(bpf_link__fd(link), &info, &length) != 0)
        return 0;
    return info.xdp.ifindex;
}

/* The link that an earlier user half left pinned, now with the program of this one; NULL: there is none for the port. */
static struct bpf_link *cora_kernel_relink(const struct cora_kernel *k, uint32_t ifindex, struct bpf_program *program,
                                           const char *path)
{
    (void)k;
    struct bpf_link *link = bpf_link__open(path);
    if (!link)
        return NULL;
    if (cora_link_ifindex(link) == ifindex && bpf_link__update_program(link, program) == 0)
        return link;
    bpf_link__detach(link);
    bpf_link__unpin(link);
    bpf_link__destroy(link);
    return NULL;
}

static void cora_kernel_attach(struct cora_kernel *k)
{
    struct bpf_program *program = bpf_object__find_program_by_name(k->object, "cora_xdp");
    char path[CORA_PIN_ROOM];
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        struct cora_kernel_port *port = &k->ports[i];
        cora_pin_path(k, "link_", cora_port_names[i], path);
        port->link = cora_kernel_relink(k, port->ifindex, program, path);
        if (port->link)
            continue;
        port->link = bpf_program__attach_xdp(program, (int)port->ifindex);
        if (!port->link)
            cora_fail("the kernel half cannot be attached to %s (%s): another XDP program may be there "
                      "(ip link set dev %s xdp off), or its MTU may be too large for XDP on its driver", port->interface,
                      strerror(errno), port->interface);
        if (bpf_link__pin(port->link, path) != 0)
            cora_fail("the link to %s cannot be pinned in %s: %s", port->interface, k->pins, strerror(errno));
    }
}

/* Whether the kernel half is still on every port; if not, `*gone` is the port. */
static bool cora_kernel_attached(const struct cora_kernel *k, uint32_t *gone)
{
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        if (k->ports[i].link && cora_link_ifindex(k->ports[i].link) != k->ports[i].ifindex) {
            *gone = i;
            return false;
        }
    return true;
}

/* From now on no packet comes any more: the drivers have left the program when this returns. */
static void cora_kernel_detach(struct cora_kernel *k)
{
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        if (!k->ports[i].link)
            continue;
        bpf_link__detach(k->ports[i].link);
        bpf_link__unpin(k->ports[i].link);
        bpf_link__destroy(k->ports[i].link);
        k->ports[i].link = NULL;
    }
}

/* --- pausing --- */

/* Takes the place of `cora_xdp` while whole states of the kernel half are replaced: counts packets in its map, drops them.
 * Built here, so that the kernel half has nothing in the way of its packets for it. */
static void cora_kernel_stand_in(struct cora_kernel *k)
{
    enum { LOOK_UP = 1, DROP = 1 };
    k->paused = bpf_map_create(BPF_MAP_TYPE_ARRAY, "cora_paused", 4, 8, 1, NULL);
    struct bpf_insn code[] = {
        {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .off = -4, .imm = 0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
        {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = k->paused},
        {0},
        {.code = BPF_JMP | BPF_CALL, .imm = LOOK_UP},
        {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = 2, .imm = 0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
        {.code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_1, .imm = BPF_ADD},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = DROP},
        {.code = BPF_JMP | BPF_EXIT},
    };
    struct bpf_prog_load_opts options = {.sz = sizeof options, .expected_attach_type = BPF_XDP};
    k->stand_in = bpf_prog_load(BPF_PROG_TYPE_XDP, "cora_stand_in", "GPL", code, sizeof code / sizeof *code, &options);
}

static bool cora_kernel_relay(struct cora_kernel *k, int program)
{
    struct timespec grace = {.tv_nsec = 10000000};
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        if (bpf_link_update(bpf_link__fd(k->ports[i].link), program, NULL) != 0)
            return false;
    nanosleep(&grace, NULL); /* programs that were running end */
    return true;
}

/* From now on no packet uses the kernel half; false: it goes on. */
static bool cora_kernel_pause(struct cora_kernel *k)
{
    if (!k->stand_in)
        cora_kernel_stand_in(k);
    return k->stand_in > 0 && cora_kernel_relay(k, k->stand_in);
}

/* Packets go through the kernel half again; returns how many were dropped meanwhile. */
static uint64_t cora_kernel_resume(struct cora_kernel *k)
{
    uint64_t dropped = 0, none = 0;
    uint32_t zero = 0;
    cora_kernel_relay(k, cora_kernel_program(k, "cora_xdp"));
    bpf_map_lookup_elem(k->paused, &zero, &dropped);
    bpf_map_update_elem(k->paused, &zero, &none, 0);
    return dropped;
}

/* --- talking --- */

CORA_COLD void cora_kernel_silent(const struct cora_kernel *k)
{
    (void)k;
    cora_fail("the kernel half gave no answer to a message about a lent entry: it is not of this plan");
}

static void cora_kernel_call(int program, void *context, size_t size, const char *name)
{
    struct bpf_test_run_opts options = {.sz = sizeof options, .ctx_in = context, .ctx_size_in = (uint32_t)size};
    if (bpf_prog_test_run_opts(program, &options) != 0)
        cora_fail("the kernel half's program '%s' cannot be run: %s", name, strerror(errno));
}

/* A message to the kernel half; whether `*answer` is what it says to that. */
static bool cora_kernel_tell(struct cora_kernel *k, const struct cora_message *message, struct cora_message *answer)
{
    struct cora_kernel_call call = {.message = *message};
    cora_kernel_call(k->told, &call, sizeof call, "cora_told");
    if (call.answered)
        *answer = call.answer;
    return call.answered;
}

/* Removes what is due at a time (0: now) in the kernel; returns how many entries. */
static uint64_t cora_kernel_sweep(struct cora_kernel *k, uint64_t now)
{
    struct cora_sweep_call call = {.now = now};
    cora_kernel_call(k->sweep, &call, sizeof call, "cora_sweep");
    return call.removed;
}

/* The clock that packets are stamped with, in nanoseconds. */
static uint64_t cora_kernel_now(const struct cora_kernel *k)
{
    struct timespec now;
    if (k->shared->virtual_now)
        return k->shared->virtual_now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- packets that are through --- */

static inline void cora_kernel_done(struct cora_kernel *k, uint32_t queue)
{
    __atomic_store_n(&k->shared->done[queue], k->done[queue], __ATOMIC_RELEASE);
}

static inline uint64_t cora_kernel_punted(const struct cora_kernel *k, uint32_t queue)
{
    return __atomic_load_n(&k->shared->punted[queue], __ATOMIC_ACQUIRE);
}

/* Packets of a queue that were counted as handed on and could not be. */
static inline uint64_t cora_kernel_lost(const struct cora_kernel *k, uint32_t queue)
{
    return __atomic_load_n(&k->shared->lost[queue], __ATOMIC_ACQUIRE);
}

/* Sums the counts of all CPUs. */
static void cora_kernel_totals(const struct cora_kernel *k, struct cora_counts *out)
{
    int cpus = libbpf_num_possible_cpus();
    uint32_t zero = 0;
    memset(out, 0, sizeof *out);
    size_t words = sizeof *out / sizeof(uint64_t);
    uint64_t *all = calloc((size_t)(cpus > 0 ? cpus : 1), sizeof *out);
    if (!all || cpus <= 0 || bpf_map_lookup_elem(k->counts, &zero, all) != 0) {
        free(all);
        return;
    }
    for (size_t cpu = 0; cpu < (size_t)cpus; cpu++)
        for (size_t i = 0; i < words; i++)
            ((uint64_t *)out)[i] += all[cpu * words + i];
    free(all);
}

#endif
