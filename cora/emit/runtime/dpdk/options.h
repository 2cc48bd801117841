/* The command line of a host program, behind that of DPDK's environment layer. */
#ifndef CORA_DPDK_OPTIONS_H
#define CORA_DPDK_OPTIONS_H

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>

#include "worker.h"

struct cora_options {
    const char *socket;           /* NULL: no control socket */
    const char *records, *output; /* packets and their times from a file, results to another one */
    bool lockstep;                /* by records: a packet begins when the one before it is done */
    bool no_rss;
    uint32_t buffers, frame_room, descriptors;
    uint64_t packets; /* ends after so many; 0: does not */
    uint64_t idle_ms; /* ends when no packet came for so long; 0: does not */
};

static __attribute__((noreturn, format(printf, 1, 2))) void cora_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("cora: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static __attribute__((noreturn)) void cora_usage(const char *program)
{
    printf("usage: %s [EAL OPTIONS] -- --port NAME=DEVICE ... [OPTIONS]\n\n"
           "Runs " CORA_NAME " on DPDK devices until SIGTERM or SIGINT; prints totals as JSON at the end. One worker for each\n"
           "core of -l; EAL options are those of DPDK (-l 0,1, -a PCI, --vdev ..., --no-huge -m 512).\n\n"
           "  --port NAME=DEVICE   number or name of a device, one for each of:", program);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        printf(" %s", cora_port_names[i]);
    printf("\n  --socket PATH        a control socket\n"
           "  --buffers N          packet buffers (16383)\n"
           "  --frame-bytes N      longest frame (2048)\n"
           "  --descriptors N      of each receive and transmit queue (1024)\n"
           "  --no-rss             one receive queue a device; software leads packets to their cores\n"
           "  --packets N          end after N packets\n"
           "  --idle-ms N          end when no packet came for N ms\n"
           "  --records FILE       packets and their times from a file of records instead of devices\n"
           "  --output FILE        by records: what became of them, and the state at the end\n"
           "  --lockstep           by records: a packet begins when the one before it is done\n");
    exit(0);
}

static uint64_t cora_option_number(const char *name, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || !isdigit((unsigned char)*text) || n < low || n > high)
        cora_fail("--%s %s: give a number from %llu to %llu", name, text, (unsigned long long)low,
                  (unsigned long long)high);
    return n;
}

static uint16_t cora_option_device(const char *text, const char *name)
{
    uint16_t device;
    char *end;
    unsigned long n = strtoul(name, &end, 10);
    if (!*end && isdigit((unsigned char)*name)) {
        if (n >= RTE_MAX_ETHPORTS || !rte_eth_dev_is_valid_port((uint16_t)n))
            cora_fail("--port %s: there is no device %s; there are %u", text, name, rte_eth_dev_count_avail());
        return (uint16_t)n;
    }
    if (rte_eth_dev_get_port_by_name(name, &device) != 0)
        cora_fail("--port %s: there is no device %s; name its PCI address or --vdev name as given to the EAL", text, name);
    return device;
}

static void cora_option_port(bool given[CORA_PORTS], const char *text)
{
    const char *equal = strchr(text, '=');
    if (!equal || !equal[1])
        cora_fail("--port %s: write NAME=DEVICE", text);
    uint32_t i = 0;
    size_t length = (size_t)(equal - text);
    while (i < CORA_PORTS && (strlen(cora_port_names[i]) != length || strncmp(cora_port_names[i], text, length) != 0))
        i++;
    if (i == CORA_PORTS)
        cora_fail("--port %s: the program has no such port; --help lists its ports", text);
    if (given[i])
        cora_fail("--port %s: the port has a device already", text);
    uint16_t device = cora_option_device(text, equal + 1);
    for (uint32_t other = 0; other < CORA_PORTS; other++)
        if (given[other] && cora_host.device[other] == device)
            cora_fail("--port %s: the device is already that of port '%s'", text, cora_port_names[other]);
    cora_host.device[i] = device;
    given[i] = true;
}

static void cora_options_read(struct cora_options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"port", 1, NULL, 'p'}, {"socket", 1, NULL, 's'}, {"buffers", 1, NULL, 'b'}, {"frame-bytes", 1, NULL, 'f'},
        {"descriptors", 1, NULL, 'd'}, {"no-rss", 0, NULL, 'R'}, {"packets", 1, NULL, 'n'}, {"idle-ms", 1, NULL, 'i'},
        {"records", 1, NULL, 'r'}, {"output", 1, NULL, 'o'}, {"lockstep", 0, NULL, 'l'}, {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    bool given[CORA_PORTS] = {false};
    *o = (struct cora_options){.buffers = 16383, .frame_room = 2048, .descriptors = 1024};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 'p': cora_option_port(given, optarg); break;
        case 's': o->socket = optarg; break;
        case 'b': o->buffers = (uint32_t)cora_option_number("buffers", optarg, 255, 1 << 24); break;
        case 'f': o->frame_room = (uint32_t)cora_option_number("frame-bytes", optarg, 64, 65000); break;
        case 'd': o->descriptors = (uint32_t)cora_option_number("descriptors", optarg, 32, 32768); break;
        case 'R': o->no_rss = true; break;
        case 'n': o->packets = cora_option_number("packets", optarg, 1, UINT64_MAX); break;
        case 'i': o->idle_ms = cora_option_number("idle-ms", optarg, 1, 1 << 30); break;
        case 'r': o->records = optarg; break;
        case 'o': o->output = optarg; break;
        case 'l': o->lockstep = true; break;
        case 'h': cora_usage(argv[0]);
        default: exit(2);
        }
    if (optind < argc)
        cora_fail("'%s' is no option; --help lists them", argv[optind]);
    if (o->records && !o->output)
        cora_fail("--records needs --output");
    for (uint32_t i = 0; i < CORA_PORTS && !o->records; i++)
        if (!given[i])
            cora_fail("the port '%s' has no device: --port %s=DEVICE", cora_port_names[i], cora_port_names[i]);
}

#endif
