/* Runs the user half on packets from a file, without a kernel half: frames and headers as hostile as the file has them.
 * Built with -DPROGRAM="NAME.c" under the sanitizers; around each frame memory may not be touched.
 *
 * Input: u32 port, u32 length, CORA_PUNT_META bytes, the frame; again and again. Output, per packet: u32 1 where its
 * header was believed, else 0, u32 frames sent, and each of those as u32 port, u32 length, bytes. */
#define main cora_real_main
#include PROGRAM
#undef main

#include <sanitizer/asan_interface.h>

#define CHUNK CORA_XSK_CHUNK_SMALL
#define RING 64

/* The kernel half that never used what it was lent. */
int bpf_prog_test_run_opts(int program, struct bpf_test_run_opts *options)
{
    (void)program;
    if (options->ctx_size_in != sizeof(struct cora_kernel_call))
        return 0;
    struct cora_kernel_call *call = (struct cora_kernel_call *)(uintptr_t)options->ctx_in;
    call->answered = call->message.kind == CORA_RECALL || call->message.kind == CORA_ASK;
    call->answer = call->message;
    call->answer.kind = call->message.kind == CORA_RECALL ? CORA_RETURNED : CORA_ANSWER;
    call->answer.active = false;
    return 0;
}

static void make_ring(struct cora_ring *r, size_t entry)
{
    *r = (struct cora_ring){.producer = calloc(1, 4), .consumer = calloc(1, 4), .entries = calloc(RING, entry),
                            .mask = RING - 1, .size = RING};
}

static void make_user(struct cora_user *u)
{
    u->kernel.shared = calloc(1, sizeof *u->kernel.shared);
    u->kernel.queues = 1;
    u->ledger = calloc(1, sizeof *u->ledger);
    u->counts = u->ledger->ports;
    u->sockets = calloc(CORA_PORTS, sizeof *u->sockets);
    u->original = malloc(CHUNK);
    u->frames = (struct cora_frames){.area = aligned_alloc(4096, 32 * CHUNK), .count = 32, .chunk = CHUNK,
                                     .unused = malloc(32 * sizeof(uint64_t))};
    for (uint32_t i = 1; i < 32; i++)
        u->frames.unused[u->frames.unused_count++] = i * CHUNK;
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        u->kernel.ports[i].longest = CHUNK - CORA_XSK_HEADROOM;
        u->sockets[i] = (struct cora_xsk){.fd = -1, .port = i};
        make_ring(&u->sockets[i].tx, sizeof(struct xdp_desc));
        make_ring(&u->sockets[i].completion, sizeof(uint64_t));
        u->outputs[i] = &u->sockets[i];
        u->socket_count++;
    }
    cora_user_engine(u);
}

static void put32(FILE *out, uint32_t value) { fwrite(&value, sizeof value, 1, out); }

/* Writes what was sent, and gives frames back as the kernel would. */
static void collect(struct cora_user *u, FILE *out)
{
    uint32_t sent = 0;
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        sent += cora_xsk_unsent(&u->sockets[i]);
    put32(out, sent);
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        struct cora_xsk *x = &u->sockets[i];
        for (uint32_t k = *x->tx.consumer; k != x->tx_next; k++) {
            const struct xdp_desc *d = cora_ring_frame(&x->tx, k);
            put32(out, i);
            put32(out, d->len);
            fwrite(u->frames.area + d->addr, d->len, 1, out);
            if (d->addr / CHUNK)
                cora_frame_free(&u->frames, d->addr);
        }
        *x->tx.consumer = *x->tx.producer = *x->completion.consumer = *x->completion.producer = x->tx_next;
    }
}

static bool one_packet(struct cora_user *u, FILE *in, FILE *out)
{
    uint32_t port, length;
    uint64_t address = CORA_XSK_HEADROOM, stray;
    if (fread(&port, 4, 1, in) != 1 || fread(&length, 4, 1, in) != 1)
        return false;
    uint8_t *head = u->frames.area + address - CORA_PUNT_META;
    if (port >= CORA_PORTS || length > CHUNK - CORA_XSK_HEADROOM || fread(head, CORA_PUNT_META + length, 1, in) != 1)
        exit(3);
    ASAN_POISON_MEMORY_REGION(u->frames.area, address - CORA_PUNT_META);
    ASAN_POISON_MEMORY_REGION(head + CORA_PUNT_META + length, CHUNK - address - length);
    stray = u->counts[port].stray;
    u->current_sent = false;
    cora_user_packet(u, port, address, length);
    u->current = NULL;
    put32(out, stray == u->counts[port].stray);
    collect(u, out);
    ASAN_UNPOISON_MEMORY_REGION(u->frames.area, CHUNK);
    return true;
}

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL, *out = in ? fopen(argv[2], "wb") : NULL;
    if (!out)
        return 2;
    make_user(&cora_user);
    while (one_packet(&cora_user, in, out))
        ;
    cora_place_recall(cora_user.engine);
    cora_place_destroy(cora_user.engine);
    fclose(in);
    return fclose(out) == 0 ? 0 : 2;
}
