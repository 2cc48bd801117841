/* AF_XDP sockets in copy mode: one for each queue of each port, over one memory of frames, so that a frame that came on one
 * port leaves on another without being copied here. Copy mode runs on every driver and hands over XDP metadata.
 *
 * Packets are sent by the same sockets: no second kind of socket, no copy in user space, and a send returns only when the
 * driver has the packets, which is what the order of a flow needs (user.h). */
#ifndef CORA_XDP_XSK_H
#define CORA_XDP_XSK_H

#include <errno.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../base.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

/* What the kernel keeps before a received frame; the metadata stands at its end. */
#define CORA_XSK_HEADROOM 256
#define CORA_XSK_CHUNK_SMALL 2048u
#define CORA_XSK_CHUNK_LARGE 4096u

/* A ring shared with the kernel: one side produces, the other one consumes, both only count upwards. */
struct cora_ring {
    uint32_t *producer, *consumer;
    void *entries;
    uint32_t mask, size;
    void *map;
    size_t map_size;
};

struct cora_xsk {
    int fd;
    uint32_t port, queue, ifindex;
    struct cora_ring rx, tx, fill, completion;
    uint32_t rx_next, rx_end; /* frames of the receive ring seen and not read yet */
    uint32_t tx_next;         /* where the next frame to send goes */
};

/* Frames of one size in one piece of memory. */
struct cora_frames {
    uint8_t *area;
    uint32_t count, chunk;
    uint64_t *unused; /* a stack of addresses */
    uint32_t unused_count;
};

static inline uint32_t cora_ring_load(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void cora_ring_store(uint32_t *at, uint32_t v) { __atomic_store_n(at, v, __ATOMIC_RELEASE); }

static inline uint64_t *cora_ring_address(const struct cora_ring *r, uint32_t i)
{
    return (uint64_t *)r->entries + (i & r->mask);
}

static inline struct xdp_desc *cora_ring_frame(const struct cora_ring *r, uint32_t i)
{
    return (struct xdp_desc *)r->entries + (i & r->mask);
}

/* --- making --- */

CORA_COLD bool cora_frames_open(struct cora_frames *f, uint32_t count, uint32_t chunk)
{
    *f = (struct cora_frames){.count = count, .chunk = chunk};
    void *area = mmap(NULL, (size_t)count * chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    f->unused = malloc(count * sizeof *f->unused);
    if (area == MAP_FAILED || !f->unused)
        return false;
    f->area = area;
    for (uint32_t i = count; i-- > 0;)
        f->unused[f->unused_count++] = (uint64_t)i * chunk;
    return true;
}

CORA_COLD void cora_frames_close(struct cora_frames *f)
{
    if (f->area)
        munmap(f->area, (size_t)f->count * f->chunk);
    free(f->unused);
}

static bool cora_ring_map(struct cora_ring *r, int fd, const struct xdp_ring_offset *at, uint64_t where, uint32_t size,
                          size_t entry)
{
    r->map_size = at->desc + size * entry;
    r->map = mmap(NULL, r->map_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)where);
    if (r->map == MAP_FAILED) {
        r->map = NULL;
        return false;
    }
    r->producer = (uint32_t *)((uint8_t *)r->map + at->producer);
    r->consumer = (uint32_t *)((uint8_t *)r->map + at->consumer);
    r->entries = (uint8_t *)r->map + at->desc;
    r->size = size;
    r->mask = size - 1;
    return true;
}

static bool cora_xsk_map(struct cora_xsk *x, uint32_t size)
{
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    return getsockopt(x->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) == 0 &&
           cora_ring_map(&x->rx, x->fd, &at.rx, XDP_PGOFF_RX_RING, size, sizeof(struct xdp_desc)) &&
           cora_ring_map(&x->tx, x->fd, &at.tx, XDP_PGOFF_TX_RING, size, sizeof(struct xdp_desc)) &&
           cora_ring_map(&x->fill, x->fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, size, sizeof(uint64_t)) &&
           cora_ring_map(&x->completion, x->fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, size, sizeof(uint64_t));
}

/* One socket of rings of `size` entries (a power of two), bound to a queue. `owner`: NULL for the first one, which brings
 * the frames along; the others share its frames. What failed is in errno, and `*step` says it in words. */
static bool cora_xsk_open(struct cora_xsk *x, const struct cora_frames *f, const struct cora_xsk *owner, uint32_t size,
                          const char **step)
{
    x->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    *step = "make an AF_XDP socket";
    if (x->fd < 0)
        return false;
    struct xdp_umem_reg memory = {.addr = (uint64_t)(uintptr_t)f->area, .len = (uint64_t)f->count * f->chunk,
                                  .chunk_size = f->chunk};
    *step = "register the memory of the frames";
    if (!owner && setsockopt(x->fd, SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) != 0)
        return false;
    *step = "make the rings of an AF_XDP socket";
    int n = (int)size;
    if (setsockopt(x->fd, SOL_XDP, XDP_UMEM_FILL_RING, &n, sizeof n) != 0 ||
        setsockopt(x->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &n, sizeof n) != 0 ||
        setsockopt(x->fd, SOL_XDP, XDP_RX_RING, &n, sizeof n) != 0 ||
        setsockopt(x->fd, SOL_XDP, XDP_TX_RING, &n, sizeof n) != 0 || !cora_xsk_map(x, size))
        return false;
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_ifindex = x->ifindex, .sxdp_queue_id = x->queue,
                                   .sxdp_flags = owner ? XDP_SHARED_UMEM : XDP_COPY,
                                   .sxdp_shared_umem_fd = owner ? (uint32_t)owner->fd : 0};
    *step = "bind an AF_XDP socket";
    return bind(x->fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static void cora_ring_unmap(struct cora_ring *r)
{
    if (r->map)
        munmap(r->map, r->map_size);
}

CORA_COLD void cora_xsk_close(struct cora_xsk *x)
{
    cora_ring_unmap(&x->rx);
    cora_ring_unmap(&x->tx);
    cora_ring_unmap(&x->fill);
    cora_ring_unmap(&x->completion);
    if (x->fd >= 0)
        close(x->fd);
    x->fd = -1;
}

/* --- receiving --- */

/* Gives unused frames to the kernel until the socket's fill ring has them all. */
static inline void cora_xsk_refill(struct cora_xsk *x, struct cora_frames *f)
{
    uint32_t next = *x->fill.producer;
    uint32_t room = x->fill.size - (next - cora_ring_load(x->fill.consumer));
    room = cora_min32(room, f->unused_count);
    if (!room)
        return;
    for (uint32_t i = 0; i < room; i++)
        *cora_ring_address(&x->fill, next + i) = f->unused[--f->unused_count];
    cora_ring_store(x->fill.producer, next + room);
}

/* The next received frame, or NULL. It stays the caller's until cora_xsk_taken. */
static inline const struct xdp_desc *cora_xsk_peek(struct cora_xsk *x)
{
    if (x->rx_next == x->rx_end)
        x->rx_end = cora_ring_load(x->rx.producer);
    return x->rx_next == x->rx_end ? NULL : cora_ring_frame(&x->rx, x->rx_next);
}

static inline void cora_xsk_taken(struct cora_xsk *x)
{
    x->rx_next++;
    cora_ring_store(x->rx.consumer, x->rx_next);
}

/* Address of the frame's chunk: what goes back to a ring. */
static inline uint64_t cora_frame_chunk(const struct cora_frames *f, uint64_t address)
{
    return address & ~(uint64_t)(f->chunk - 1);
}

static inline void cora_frame_free(struct cora_frames *f, uint64_t address)
{
    f->unused[f->unused_count++] = cora_frame_chunk(f, address);
}

/* --- sending --- */

/* Takes back the frames that were sent. */
static inline void cora_xsk_complete(struct cora_xsk *x, struct cora_frames *f)
{
    uint32_t first = *x->completion.consumer, past = cora_ring_load(x->completion.producer);
    for (uint32_t i = first; i != past; i++)
        cora_frame_free(f, *cora_ring_address(&x->completion, i));
    if (first != past)
        cora_ring_store(x->completion.consumer, past);
}

/* Whether a frame can be queued for sending. The completion ring holds as many as the transmit ring, so a frame that is
 * neither waiting nor taken back takes room, too. */
static inline bool cora_xsk_has_room(const struct cora_xsk *x)
{
    return x->tx_next - *x->completion.consumer < x->tx.size;
}

static inline void cora_xsk_queue(struct cora_xsk *x, uint64_t address, uint32_t length)
{
    *cora_ring_frame(&x->tx, x->tx_next) = (struct xdp_desc){.addr = address, .len = length};
    x->tx_next++;
}

/* Frames queued that the kernel has not taken yet. */
static inline uint32_t cora_xsk_unsent(const struct cora_xsk *x) { return x->tx_next - cora_ring_load(x->tx.consumer); }

/* Hands the queued frames to the driver; returns how many it refused (they are lost). Frames stay queued only where the
 * interface takes none at all: then errno says why, and the caller tries again later. */
static uint32_t cora_xsk_flush(struct cora_xsk *x)
{
    enum { PATIENCE = 64 };
    uint32_t refused = 0;
    cora_ring_store(x->tx.producer, x->tx_next);
    for (uint32_t left = cora_xsk_unsent(x), tries = 0; left && tries < PATIENCE;) {
        errno = 0;
        long sent = sendto(x->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
        refused += sent < 0 && errno == EBUSY;
        uint32_t now = cora_xsk_unsent(x);
        tries = now == left ? tries + 1 : 0;
        left = now;
        if (sent < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS && errno != EINTR)
            break;
    }
    return refused;
}

/* Packets that the kernel could not put into the socket: no frame was left for it, it was too long, or the receive ring
 * was full. (The kernel counts a missing frame in rx_fill_ring_empty_descs, too.) */
CORA_COLD uint64_t cora_xsk_lost(const struct cora_xsk *x)
{
    struct xdp_statistics s = {0};
    socklen_t length = sizeof s;
    if (getsockopt(x->fd, SOL_XDP, XDP_STATISTICS, &s, &length) != 0)
        return 0;
    return s.rx_dropped + s.rx_ring_full;
}

#endif
