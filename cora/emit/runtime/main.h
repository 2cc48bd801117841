/* A stand-alone program around an engine, for runs under the sanitizers.
 *
 * Input file:  u32 options, u32 port the capture was taken at (UINT32_MAX: not said), u64 seed[8], the packed
 *              configuration, then for every packet u64 time, u32 caplen, u32 wirelen, u16 port, u16 ethertype, u32
 *              bytes stored, and those bytes.
 * Output file: sections of u64 size and content: the summary, the events, every state's dump. All in native order. */
#ifndef CORA_MAIN_H
#define CORA_MAIN_H

#include "main_packet.h"

static void cora_main_report(struct cora_engine *E, FILE *out)
{
    uint64_t totals[4 + 2 * CORA_PORTS + CORA_REASONS];
    cora_summary(E, totals);
    cora_main_section(out, totals, sizeof totals);
    size_t used;
    const uint8_t *events = cora_output(E, &used);
    cora_main_section(out, events, used);
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; i < states; i++) {
        size_t size = cora_state_size(E, i);
        uint8_t *rows = calloc(size + 1, 1);
        if (!rows)
            exit(2);
        cora_state_dump(E, i, rows);
        cora_main_section(out, rows, size);
        free(rows);
    }
}

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
    FILE *out = in ? fopen(argv[2], "wb") : NULL;
    uint32_t options, captured_at;
    uint64_t seed[8];
    uint8_t config[CORA_CONFIG_SIZE + 1];
    if (!out || fread(&options, sizeof options, 1, in) != 1 ||
        fread(&captured_at, sizeof captured_at, 1, in) != 1 || fread(seed, sizeof seed, 1, in) != 1 ||
        fread(config, 1, CORA_CONFIG_SIZE, in) != CORA_CONFIG_SIZE) {
        fprintf(stderr, "usage: %s INPUT OUTPUT\n", argv[0]);
        return 2;
    }
    struct cora_record *records = NULL;
    size_t count = 0, room = 0;
    for (struct cora_record record; cora_main_packet(in, &record);) {
        records = cora_grow(records, &room, count + 1, sizeof *records);
        records[count++] = record;
    }
    struct cora_engine *E = cora_create(config, options, seed);
    cora_set_output(E, CORA_OUTPUT_EVENTS, CORA_NONE);
#ifdef CORA_RETURNS
    if (captured_at != CORA_NONE)
        cora_set_captured_at(E, captured_at, 1 << 20);
#else
    if (captured_at != CORA_NONE) {
        fprintf(stderr, "compiled without CORA_RETURNS\n");
        return 2;
    }
#endif
    cora_run(E, records, count, NULL, SIZE_MAX);
    cora_main_report(E, out);
    cora_destroy(E);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)records[i].data);
    free(records);
    fclose(in);
    return fclose(out) == 0 ? 0 : 2;
}

#endif
