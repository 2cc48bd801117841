/* Gives every record of a capture the port of the network function it arrives on.
 *
 * Two ways: by rules (source or destination address, source MAC, interface), or by which end of a flow started it.
 */
#ifndef CORA_PORTMAP_H
#define CORA_PORTMAP_H

#include <stdint.h>

#include "record.h"

/* An address range, both ends included, and the first rule that covers it. Ranges of one table are sorted and
 * disjoint. IPv4 addresses use `low` only; IPv6 addresses are two numbers, the leading half in `high`. */
struct cora_range {
    uint64_t first_high, first_low, last_high, last_low;
    uint32_t rank; /* the lower rank wins between tables */
    uint16_t port, reserved;
};

struct cora_range_table {
    uint64_t ranges; /* address of struct cora_range[count] */
    uint64_t count;
};

struct cora_portmap_rules {
    struct cora_range_table source4, source6, target4, target6, mac;
    uint64_t interfaces; /* address of uint32_t[interface_count]: rank << 16 | port, or all ones */
    uint64_t interface_count;
    uint32_t other;      /* port of packets that match no rule; CORA_PORT_NONE: they are left out */
    uint32_t reserved;
};

struct cora_portmap_stats {
    uint64_t unmatched; /* left out: no rule */
    uint64_t entries;   /* flows, fragments and address pairs remembered */
    uint64_t untracked; /* packets assigned by themselves, because the table was full */
    uint64_t counts;    /* address of uint64_t[ports]: packets per port */
};

struct cora_portmap;

/* NULL when memory is short. All port numbers are below `ports`. `initiator` maps the starter's packets to `first`, the answers to `second`; at most
 * `max_entries` things are remembered. `key` are 16 secret bytes of the hash. */
struct cora_portmap *cora_portmap_initiator(uint32_t ports, uint16_t first, uint16_t second, uint64_t max_entries,
                                            const uint8_t *key);
struct cora_portmap *cora_portmap_by_rules(uint32_t ports, const struct cora_portmap_rules *rules);
void cora_portmap_close(struct cora_portmap *map);
/* Sets `port` of `count` records; unmatched ones are removed. Returns how many records remain, at the front. */
uint64_t cora_portmap_assign(struct cora_portmap *map, struct cora_record *records, uint64_t count);
/* Another array in place of `interfaces`, after new interfaces were met. */
void cora_portmap_interfaces(struct cora_portmap *map, const uint32_t *interfaces, uint64_t count);
const struct cora_portmap_stats *cora_portmap_statistics(const struct cora_portmap *map);

#endif
