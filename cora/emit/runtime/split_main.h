/* A stand-alone program around a split program, for runs under the sanitizers.
 *
 * Input file:  u32 options, u64 chance, u64 seed[8], the packed configuration, then packets as main.h has them.
 * Output file: sections of u64 size and content: the summary, the events, the statistics, then for every place every
 *              state's dump. All in native order. */
#ifndef CORA_SPLIT_MAIN_H
#define CORA_SPLIT_MAIN_H

#include "main_packet.h"

static void cora_main_report(struct cora_world *w, FILE *out)
{
    uint64_t totals[4 + 2 * CORA_PORTS + CORA_REASONS];
    cora_split_summary(w, totals);
    cora_main_section(out, totals, sizeof totals);
    size_t used;
    const uint8_t *events = cora_split_output(w, &used);
    cora_main_section(out, events, used);
    cora_main_section(out, w->statistics, sizeof w->statistics);
    for (uint32_t place = 0; place < CORA_PLACES; place++)
        for (uint32_t i = 0; i < cora_states[place]; i++) {
            size_t size = cora_split_state_size(w, place, i);
            uint8_t *rows = calloc(size + 1, 1);
            if (!rows)
                exit(2);
            cora_split_state_dump(w, place, i, rows);
            cora_main_section(out, rows, size);
            free(rows);
        }
}

int main(int argc, char **argv)
{
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
    FILE *out = in ? fopen(argv[2], "wb") : NULL;
    uint32_t options;
    uint64_t chance, seed[8];
    uint8_t config[CORA_CONFIG_SIZE + 1];
    if (!out || fread(&options, sizeof options, 1, in) != 1 || fread(&chance, sizeof chance, 1, in) != 1 ||
        fread(seed, sizeof seed, 1, in) != 1 || fread(config, 1, CORA_CONFIG_SIZE, in) != CORA_CONFIG_SIZE) {
        fprintf(stderr, "usage: %s INPUT OUTPUT\n", argv[0]);
        return 2;
    }
    struct cora_record *records = NULL;
    size_t count = 0, room = 0;
    for (struct cora_record record; cora_main_packet(in, &record);) {
        records = cora_grow(records, &room, count + 1, sizeof *records);
        records[count++] = record;
    }
    struct cora_world *w = cora_split_create(config, options, seed, chance);
    cora_split_output_mode(w, CORA_OUTPUT_EVENTS);
    if (!cora_split_run(w, records, count) || !cora_split_finish(w)) {
        fprintf(stderr, "the places stand still\n");
        return 3;
    }
    cora_main_report(w, out);
    cora_split_destroy(w);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)records[i].data);
    free(records);
    fclose(in);
    return fclose(out) == 0 ? 0 : 2;
}

#endif
