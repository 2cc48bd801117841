/* What all workers have together: counters and states. */
#ifndef CORA_DPDK_TOTALS_H
#define CORA_DPDK_TOTALS_H

#include "options.h"

/* The numbers of cora_summary (driver.h). */
#define CORA_SUMMARY (4 + 2 * CORA_PORTS + CORA_REASONS)

static void cora_host_summary(uint64_t out[CORA_SUMMARY])
{
    uint64_t part[CORA_SUMMARY];
    memset(out, 0, CORA_SUMMARY * sizeof *out);
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        cora_summary(cora_host.worker[i].engine, part);
        for (uint32_t k = 0; k < CORA_SUMMARY; k++)
            out[k] += part[k];
    }
}

/* Adds what one worker has counted. */
static bool cora_host_add(const struct cora_engine *E, uint32_t state, uint8_t *sums, size_t size)
{
    uint8_t *part = malloc(size + 1);
    if (!part)
        return false;
    cora_state_dump(E, state, part);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t sum = cora_raw64(sums + i) + cora_raw64(part + i);
        memcpy(sums + i, &sum, sizeof sum);
    }
    free(part);
    return true;
}

/* A state of all workers together, which the caller frees; NULL: there is no memory. Nothing may run meanwhile. */
static uint8_t *cora_host_dump(uint32_t state, size_t *size)
{
    const bool shared = cora_states[state].pool, summed = cora_states[state].counter;
    uint32_t parts = shared || summed ? 1 : cora_host.workers;
    *size = 0;
    for (uint32_t i = 0; i < parts; i++)
        *size += cora_state_size(cora_host.worker[i].engine, state);
    uint8_t *rows = calloc(*size + 1, 1), *at = rows;
    for (uint32_t i = 0; rows && i < parts && !summed; i++) {
        cora_state_dump(cora_host.worker[i].engine, state, at);
        at += cora_state_size(cora_host.worker[i].engine, state);
    }
    for (uint32_t i = 0; rows && i < cora_host.workers && summed; i++)
        if (!cora_host_add(cora_host.worker[i].engine, state, rows, *size)) {
            free(rows);
            return NULL;
        }
    return rows;
}

static uint64_t cora_host_entries(uint32_t state)
{
    uint64_t count = 0;
    uint32_t parts = cora_states[state].pool ? 1 : cora_host.workers;
    for (uint32_t i = 0; i < parts; i++)
        count += cora_program_entries(cora_host.worker[i].engine, state);
    return count;
}

#endif
