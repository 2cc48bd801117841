/* small: what its kernel half and its user half agree on.
 *
 * Numbers of the states of the kernel half, for cora_dump and cora_load:
 *   0: numbers (pool, whole)
 *   1: conns (map, whole)
 *   2: opened (counter, whole)
 */
#ifndef CORA_KERNEL_INTERFACE_H
#define CORA_KERNEL_INTERFACE_H

#include <stdbool.h>
#include <stdint.h>

#define CORA_PORTS 2
#define CORA_REASONS 5
#define CORA_LENDINGS 0
#define CORA_COUNTERS 1
#define CORA_KERNEL_STATES 3
#define CORA_ROW_LIMIT 0
#define CORA_PUNT_FIXED 96
#define CORA_PUNT_LIMIT 252
#define CORA_PROGRAM UINT64_C(0x4b4e47b5143b8359)
#define CORA_EPOCH 1
#define CORA_SWEEP_EVERY UINT64_C(1000000000)
#define CORA_PUNT_META 96

typedef unsigned __int128 cora_u128;

struct cora_kernel_config {
    uint32_t c_ext;
};
#define CORA_CONFIG_VALUES {0xcb007101u}

/* Fills the configuration from a packed row, as cora/emit/layout.py packs it. */
static inline __attribute__((unused)) void cora_config_read(struct cora_kernel_config *config,
                                                            const uint8_t *row)
{
    __builtin_memcpy(&config->c_ext, row + 0, 4);
}

#endif
