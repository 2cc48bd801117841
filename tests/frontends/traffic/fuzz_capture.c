/* Reads captures, as they are and changed at random, through the reader and both kinds of port map. Built with
 * sanitizers: any read outside the file ends the program. Arguments: seed, changed copies per file, files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "portmap.h"

enum { BATCH = 7, FRAME = CORA_MAX_CAPLEN + CORA_ETHERNET_HEADER };

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

static uint64_t run(const uint8_t *data, uint64_t size)
{
    static uint8_t frame[FRAME];
    static const struct cora_range all4 = {0, 0x0a000000, 0, 0x0affffff, 1, 1, 0};
    static const struct cora_range all6 = {0, 0, UINT64_MAX, UINT64_MAX, 2, 0, 0};
    static const struct cora_range mac = {0, 0, 0, 0x7fffffffffff, 0, 1, 0};
    static const uint32_t interfaces[2] = {3u << 16, UINT32_MAX};
    const uint8_t key[16] = {1, 2, 3};
    struct cora_capture *capture;
    uint64_t detail, packets = 0;
    if (cora_capture_open(data, size, &capture, &detail) != CORA_OPEN_OK)
        return 0;
    struct cora_portmap_rules rules = {
        .source4 = {(uintptr_t)&all4, 1}, .target6 = {(uintptr_t)&all6, 1}, .mac = {(uintptr_t)&mac, next() & 1},
        .interfaces = (uintptr_t)interfaces, .interface_count = 2, .other = CORA_PORT_NONE,
    };
    struct cora_portmap *by_flow = cora_portmap_initiator(2, 0, 1, 1 + next() % 4096, key);
    struct cora_portmap *by_rules = cora_portmap_by_rules(2, &rules);
    struct cora_record batch[BATCH];
    uint64_t count;
    while ((count = cora_capture_read(capture, batch, BATCH))) {
        for (uint64_t i = 0; i < count; i++) {
            require(batch[i].caplen <= FRAME && batch[i].caplen <= batch[i].wirelen, "captured within wire length");
            cora_frame_copy(&batch[i], frame);
        }
        packets += count;
        require(cora_portmap_assign(by_flow, batch, count) == count, "every packet has a side");
        require(cora_portmap_assign(by_rules, batch, count) <= count, "rules add no packet");
    }
    require(cora_capture_stats(capture)->packets == packets, "packets are counted");
    require(cora_capture_stats(capture)->offset <= size, "reading stays inside");
    uint32_t links, notes;
    const uint64_t *totals;
    const struct cora_link *link = cora_capture_links(capture, &links);
    for (uint32_t i = 0; i < links; i++)
        for (uint32_t j = 0; link[i].name && j < link[i].name_length; j++)
            frame[0] ^= ((const uint8_t *)(uintptr_t)link[i].name)[j];
    cora_capture_notes(capture, &notes, &totals);
    require(notes <= CORA_NOTES_KEPT * CORA_NOTE_KINDS, "notes are bounded");
    cora_portmap_close(by_flow);
    cora_portmap_close(by_rules);
    cora_capture_close(capture);
    return packets;
}

/* Changes up to eight places, with a taste for lengths, and sometimes cuts the end off. Returns the new size. */
static uint64_t change(uint8_t *data, uint64_t size)
{
    static const uint32_t words[] = {0, 1, 4, 0xffffffff, 0x7fffffff, 0x80000000, 262144, 262145, 0x0a0d0d0a};
    for (uint64_t n = 1 + next() % 8; n && size; n--) {
        uint64_t at = next() % (next() & 1 ? size : size < 256 ? size : 256);
        if (next() & 1) {
            data[at] = (uint8_t)next();
            continue;
        }
        uint32_t word = words[next() % (sizeof words / sizeof *words)];
        at &= ~3ull;
        memcpy(data + at, &word, size - at < 4 ? size - at : 4);
    }
    return next() % 4 ? size : next() % (size + 1);
}

int main(int argc, char **argv)
{
    uint64_t packets = 0, changed_packets = 0;
    state = strtoull(argv[1], NULL, 10) | 1;
    uint64_t copies = strtoull(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        require(file != NULL, argv[i]);
        fseek(file, 0, SEEK_END);
        uint64_t size = (uint64_t)ftell(file);
        rewind(file);
        uint8_t *data = malloc(size);
        require(fread(data, 1, size, file) == size, "file is readable");
        fclose(file);
        packets += run(data, size);
        for (uint64_t n = 0; n < copies; n++) {
            /* An allocation of exactly the size: one byte too far is found. */
            uint8_t *scratch = malloc(size);
            memcpy(scratch, data, size);
            uint64_t cut = change(scratch, size);
            uint8_t *exact = malloc(cut ? cut : 1);
            memcpy(exact, scratch, cut);
            free(scratch);
            changed_packets += run(exact, cut);
            free(exact);
        }
        free(data);
    }
    printf("%llu %llu\n", (unsigned long long)packets, (unsigned long long)changed_packets);
    return 0;
}
