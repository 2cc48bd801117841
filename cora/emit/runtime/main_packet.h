/* Packets and sections in the files of the stand-alone programs (main.h, split_main.h). */
#ifndef CORA_MAIN_PACKET_H
#define CORA_MAIN_PACKET_H

#include "base.h"
#include "record.h"

struct cora_main_head {
    uint64_t time_ns;
    uint32_t caplen, wirelen;
    uint16_t port, ethertype;
    uint32_t stored;
};

static bool cora_main_packet(FILE *in, struct cora_record *record)
{
    struct cora_main_head head;
    if (fread(&head, sizeof head, 1, in) != 1)
        return false;
    uint8_t *bytes = malloc(head.stored ? head.stored : 1);
    if (!bytes || fread(bytes, 1, head.stored, in) != head.stored) {
        free(bytes);
        return false;
    }
    *record = (struct cora_record){.time_ns = head.time_ns, .data = (uint64_t)(uintptr_t)bytes, .caplen = head.caplen,
                                   .wirelen = head.wirelen, .port = head.port, .ethertype = head.ethertype};
    return true;
}

static void cora_main_section(FILE *out, const void *bytes, uint64_t size)
{
    if (fwrite(&size, sizeof size, 1, out) != 1 || (size && fwrite(bytes, 1, size, out) != size)) {
        perror("cora: output");
        exit(2);
    }
}

#endif
