/* Sends the frames of a capture over an interface, round and round, at an even pace in bursts.
 *
 * Nothing else runs on its core during a burst (SCHED_FIFO), so that receivers there find whole bursts. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256 }; /* a veth holds as many frames that nobody has received */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return fprintf(stderr, "usage: blast INTERFACE CAPTURE PPS PACKETS BURST\n"), 2;
    uint64_t pps = strtoull(argv[3], NULL, 10), packets = strtoull(argv[4], NULL, 10);
    unsigned burst = (unsigned)strtoul(argv[5], NULL, 10);
    if (!pps || !burst || burst > MOST)
        return fprintf(stderr, "the rate is at least 1, and a burst 1 to %d frames\n", MOST), 2;
    int file = open(argv[2], O_RDONLY);
    struct stat st;
    if (file < 0 || fstat(file, &st))
        fail(argv[2]);
    const uint8_t *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (base == MAP_FAILED)
        fail(argv[2]);
    size_t count = 0, room = 0;
    struct iovec *frames = NULL;
    for (size_t at = 24; at + 16 <= (size_t)st.st_size;) {
        uint32_t caplen;
        memcpy(&caplen, base + at + 8, sizeof caplen);
        if (at + 16 + caplen > (size_t)st.st_size)
            break;
        if (count == room)
            frames = realloc(frames, (room = room ? 2 * room : 1024) * sizeof *frames);
        frames[count++] = (struct iovec){(void *)(base + at + 16), caplen};
        at += 16 + caplen;
    }
    if (!count)
        return fprintf(stderr, "%s: no frames\n", argv[2]), 1;
    int s = socket(AF_PACKET, SOCK_RAW, 0);
    if (s < 0)
        fail("socket");
    int one = 1;
    setsockopt(s, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(argv[1])};
    if (bind(s, (struct sockaddr *)&to, sizeof to))
        fail(argv[1]);
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &first))
        fail("real-time priority");
    static struct mmsghdr messages[MOST];
    uint64_t start = now_ns(), sent = 0;
    size_t next = 0;
    while (sent < packets) {
        uint64_t due = (now_ns() - start) * pps / 1000000000u;
        if (due < sent + burst) {
            struct timespec nap = {0, (long)((sent + burst - due) * 1000000000u / pps)};
            nanosleep(&nap, NULL);
            continue;
        }
        for (unsigned i = 0; i < burst; i++) {
            messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &frames[next], .msg_iovlen = 1}};
            next = next + 1 == count ? 0 : next + 1;
        }
        for (unsigned done = 0; done < burst;) {
            int n = sendmmsg(s, messages + done, burst - done, 0);
            if (n < 0 && errno != ENOBUFS && errno != EAGAIN)
                fail("send");
            done += n > 0 ? (unsigned)n : 0;
        }
        sent += burst;
    }
    printf("{\"sent\": %llu, \"seconds\": %.6f}\n", (unsigned long long)sent, (now_ns() - start) / 1e9);
    return 0;
}
