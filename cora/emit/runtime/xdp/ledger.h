/* What outlives a killed user half beside the kernel half's maps: its totals, and how many entries it held that no other
 * place had. The ledger is a pinned map in which the running process counts. */
#ifndef CORA_XDP_LEDGER_H
#define CORA_XDP_LEDGER_H

#include "kernel.h"

#define CORA_SUMMARY_WORDS (4 + 2 * CORA_PORTS + CORA_REASONS)

/* What happened at one port, in packets. */
struct cora_port_counts {
    uint64_t received, octets; /* from the kernel half */
    uint64_t stray;            /* with a header that cannot be believed */
    uint64_t lost;             /* handed on by the kernel half, but the socket had no room */
    uint64_t unsent;           /* decided, but the transmit queue had no room or no frame was left */
    uint64_t refused;          /* the driver took it and dropped it */
    uint64_t long_frames;      /* longer than the interface's MTU lets pass */
};

struct cora_ledger {
    char plan[CORA_DIGEST_ROOM]; /* of which plan the pins are */
    uint64_t starts;             /* user halves that have used these pins */
    uint64_t abandoned;          /* packets handed on to a user half that was killed before it served them */
    uint64_t paused;             /* packets dropped while states of the kernel half were replaced */
    struct cora_port_counts ports[CORA_PORTS];
    uint64_t totals[CORA_SUMMARY_WORDS]; /* cora_summary of the user half */
    uint64_t statistics[CORA_STATISTICS];
    uint64_t entries[CORA_STATES + 1]; /* by state: entries here */
    uint64_t lent[CORA_LENDINGS + 1];  /* by lending: of them, lent to the kernel half */
};

static size_t cora_page_round(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

static int cora_ledger_find(const struct cora_kernel *k, const char *path)
{
    int fd = bpf_obj_get(path);
    struct bpf_map_info info = {0};
    uint32_t length = sizeof info;
    if (fd < 0)
        return -1;
    if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0 || info.value_size != sizeof(struct cora_ledger))
        cora_fail("%s is not of this plan: --fresh removes what the other one left in %s", path, k->pins);
    return fd;
}

static struct cora_ledger *cora_ledger_open(const struct cora_kernel *k)
{
    char path[CORA_PIN_ROOM];
    cora_pin_path(k, "", "ledger", path);
    int fd = cora_ledger_find(k, path);
    if (fd < 0) {
        struct bpf_map_create_opts options = {.sz = sizeof options, .map_flags = BPF_F_MMAPABLE};
        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "cora_ledger", 4, sizeof(struct cora_ledger), 1, &options);
        if (fd < 0 || bpf_obj_pin(fd, path) != 0)
            cora_fail("the user half's ledger cannot be made in %s: %s", k->pins, strerror(errno));
    }
    struct cora_ledger *ledger = mmap(NULL, cora_page_round(sizeof *ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED)
        cora_fail("%s cannot be mapped: %s", path, strerror(errno));
    close(fd);
    if (!ledger->plan[0])
        snprintf(ledger->plan, sizeof ledger->plan, "%s", CORA_PLAN);
    if (strcmp(ledger->plan, CORA_PLAN) != 0)
        cora_fail("the maps in %s are of the plan %.16s, this program is of %.16s: --fresh removes them", k->pins,
                  ledger->plan, CORA_PLAN);
    ledger->starts++;
    return ledger;
}

/* Totals go on where the killed user half stopped; packets it held are gone. */
static uint64_t cora_ledger_resume(const struct cora_ledger *ledger, struct cora_core *core)
{
    const uint64_t *at = ledger->totals + 2;
    core->errors_sent = *at++;
    uint64_t held = *at++;
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        core->forwarded[i].packets = *at++;
        core->forwarded[i].octets = *at++;
    }
    for (uint32_t i = 0; i < CORA_REASONS; i++)
        core->dropped[i] = *at++;
    return held;
}

#endif
