/* The command line of the user half, and what the interfaces are like. */
#ifndef CORA_XDP_OPTIONS_H
#define CORA_XDP_OPTIONS_H

#include <getopt.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "kernel.h"
#include "xsk.h"

#define CORA_PATH_ROOM 400

struct cora_options {
    char kernel[CORA_PATH_ROOM], pins[CORA_PATH_ROOM], socket[CORA_PATH_ROOM];
    uint32_t ring; /* entries of each AF_XDP ring */
    bool fresh;    /* nothing of an earlier run is kept */
    bool look;     /* only tell what is there */
};

static __attribute__((noreturn)) void cora_usage(void)
{
    printf("usage: %s --port NAME=INTERFACE ... [--kernel FILE] [--pins FOLDER] [--socket PATH] [--ring N] [--fresh]\n\n"
           "Runs %s on these interfaces until SIGTERM or SIGINT; prints totals as JSON at the end.\n"
           "  --port NAME=INTERFACE  one for each of:", CORA_NAME "-user", CORA_NAME);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        printf(" %s", cora_port_names[i]);
    printf("\n  --kernel FILE          the kernel half (as built: ../../kernel/build/%s.bpf.o)\n"
           "  --pins FOLDER          where maps are pinned (/sys/fs/bpf/cora/%s)\n"
           "  --socket PATH          the control socket (/run/cora/%s.sock)\n"
           "  --ring N               packets that wait for this program at each queue, a power of two (2048)\n"
           "  --fresh                forget what a killed program left pinned\n"
           "  --look                 only tell which halves are alive, as JSON\n",
           CORA_NAME, CORA_NAME, CORA_NAME);
    exit(0);
}

static void cora_option_port(struct cora_kernel *k, char *text)
{
    char *interface = strchr(text, '=');
    if (!interface || !interface[1])
        cora_fail("--port %s: write NAME=INTERFACE", text);
    *interface++ = 0;
    uint32_t i = 0;
    while (i < CORA_PORTS && strcmp(cora_port_names[i], text) != 0)
        i++;
    if (i == CORA_PORTS)
        cora_fail("--port %s=%s: the program has no port '%s'; --help lists its ports", text, interface, text);
    if (k->ports[i].interface)
        cora_fail("--port %s=%s: the port has an interface already", text, interface);
    for (uint32_t other = 0; other < CORA_PORTS; other++)
        if (k->ports[other].interface && !strcmp(k->ports[other].interface, interface))
            cora_fail("--port %s=%s: the interface is already that of port '%s'", text, interface,
                      cora_port_names[other]);
    k->ports[i].interface = interface;
}

static uint32_t cora_option_ring(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || n < 64 || n > 1 << 16 || n & (n - 1))
        cora_fail("--ring %s: give a power of two from 64 to 65536", text);
    return (uint32_t)n;
}

static void cora_option_path(char out[CORA_PATH_ROOM], const char *name, const char *text)
{
    if (snprintf(out, CORA_PATH_ROOM, "%s", text) >= CORA_PATH_ROOM)
        cora_fail("%s: the path is longer than %d bytes", name, CORA_PATH_ROOM - 1);
}

/* Where the build puts the kernel half, seen from this program. */
static void cora_default_kernel(char out[CORA_PATH_ROOM])
{
    char self[CORA_PATH_ROOM / 2] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
        self[0] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    snprintf(out, CORA_PATH_ROOM, "%s/../../kernel/build/" CORA_NAME ".bpf.o", self);
}

static void cora_options_read(struct cora_options *o, struct cora_kernel *k, int argc, char **argv)
{
    static const struct option names[] = {{"port", 1, NULL, 'p'}, {"kernel", 1, NULL, 'k'}, {"pins", 1, NULL, 'd'},
                                          {"socket", 1, NULL, 's'}, {"ring", 1, NULL, 'r'}, {"fresh", 0, NULL, 'f'},
                                          {"look", 0, NULL, 'l'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    cora_default_kernel(o->kernel);
    cora_option_path(o->pins, "--pins", "/sys/fs/bpf/cora/" CORA_NAME);
    cora_option_path(o->socket, "--socket", "/run/cora/" CORA_NAME ".sock");
    o->ring = 2048;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 'p': cora_option_port(k, optarg); break;
        case 'k': cora_option_path(o->kernel, "--kernel", optarg); break;
        case 'd': cora_option_path(o->pins, "--pins", optarg); break;
        case 's': cora_option_path(o->socket, "--socket", optarg); break;
        case 'r': o->ring = cora_option_ring(optarg); break;
        case 'f': o->fresh = true; break;
        case 'l': o->look = true; break;
        case 'h': cora_usage();
        default: exit(2);
        }
    if (optind < argc)
        cora_fail("'%s' is no option; --help lists them", argv[optind]);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        if (!k->ports[i].interface)
            cora_fail("the port '%s' has no interface: --port %s=INTERFACE", cora_port_names[i], cora_port_names[i]);
}

/* --- interfaces --- */

static void cora_interface_request(struct ifreq *request, const char *interface)
{
    memset(request, 0, sizeof *request);
    snprintf(request->ifr_name, sizeof request->ifr_name, "%s", interface);
}

/* Receive queues of an interface; drivers that do not tell have one. */
static uint32_t cora_interface_queues(int fd, const char *interface)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request;
    cora_interface_request(&request, interface);
    request.ifr_data = (char *)&channels;
    if (ioctl(fd, SIOCETHTOOL, &request) != 0)
        return 1;
    uint32_t queues = channels.rx_count + channels.combined_count;
    return queues ? queues : 1;
}

static void cora_interface_read(int fd, struct cora_kernel_port *port)
{
    enum { HEADERS = 18 }; /* Ethernet and one VLAN tag, which the MTU does not count */
    struct ifreq request;
    port->ifindex = if_nametoindex(port->interface);
    if (!port->ifindex)
        cora_fail("there is no interface '%s' (ip link)", port->interface);
    cora_interface_request(&request, port->interface);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0 || !(request.ifr_flags & IFF_UP))
        cora_fail("the interface %s is down: ip link set dev %s up", port->interface, port->interface);
    cora_interface_request(&request, port->interface);
    if (ioctl(fd, SIOCGIFMTU, &request) != 0)
        cora_fail("the MTU of %s cannot be read: %s", port->interface, strerror(errno));
    port->longest = (uint32_t)request.ifr_mtu + HEADERS;
    uint32_t most = CORA_XSK_CHUNK_LARGE - CORA_XSK_HEADROOM;
    if (port->longest > most)
        cora_fail("the MTU of %s is %d, and frames must fit %u bytes: ip link set dev %s mtu %u", port->interface,
                  request.ifr_mtu, most, port->interface, most - HEADERS);
    port->queues = cora_interface_queues(fd, port->interface);
}

static void cora_interfaces_read(struct cora_kernel *k)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        cora_interface_read(fd, &k->ports[i]);
        k->queues = k->ports[i].queues > k->queues ? k->ports[i].queues : k->queues;
    }
    close(fd);
    if (k->queues * CORA_PORTS > CORA_QUEUES)
        cora_fail("the interfaces have %u receive queues each, and %u ports can have %u: ethtool -L INTERFACE combined %u",
                  k->queues, (unsigned)CORA_PORTS, (unsigned)CORA_QUEUES / CORA_PORTS,
                  (unsigned)CORA_QUEUES / CORA_PORTS);
}

#endif
