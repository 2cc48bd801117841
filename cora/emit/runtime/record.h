/* One captured packet as the capture reader hands it to a native engine: 40 bytes, no padding.
 *
 * The same layout is the numpy dtype RECORD of cora.frontends.traffic.capture; a test compares the two. The bytes behind
 * `data` belong to the reader and stay valid until the capture is closed.
 */
#ifndef CORA_RECORD_H
#define CORA_RECORD_H

#include <stdint.h>
#include <string.h>

struct cora_record {
    uint64_t time_ns;   /* nanoseconds since the epoch, clamped to the range of the field */
    uint64_t data;      /* address of the first captured byte after the replaced link header, or of the frame itself */
    uint32_t caplen;    /* captured bytes of the frame, the synthesised header included; never more than wirelen */
    uint32_t wirelen;   /* length of the whole frame as Ethernet, the synthesised header included */
    uint32_t origlen;   /* original length in the file, link header included (the captured length where that is more) */
    uint16_t port;      /* index of the network function's port the packet arrives on */
    uint16_t ethertype; /* 0: `data` is a whole Ethernet frame; else a synthesised Ethernet header comes before it */
    uint16_t flags;     /* CORA_RECORD_* */
    uint16_t iface;     /* interface, numbered over the whole file in the order of its interface blocks */
    uint32_t reserved;  /* 0 */
};

/* The six bytes of the sender's address stand 10 (Linux SLL) or 8 (Linux SLL2) bytes before `data`. */
#define CORA_RECORD_SOURCE_AT_10 0x0001
#define CORA_RECORD_SOURCE_AT_8 0x0002
/* The link header names no EtherType (or was not captured): `ethertype` is CORA_ETHERTYPE_UNKNOWN. */
#define CORA_RECORD_UNKNOWN_PROTOCOL 0x0004
/* The file gives no time for this packet (simple packet block): `time_ns` repeats the packet before it. */
#define CORA_RECORD_NO_TIME 0x0008
/* The file gives an original length below the captured one: the captured length is used for both. */
#define CORA_RECORD_LENGTH_RAISED 0x0010

#define CORA_ETHERNET_HEADER 14
/* IEEE 802 local experimental EtherType 1 (RFC 9542, section 3.2.1): no protocol a program parses. */
#define CORA_ETHERTYPE_UNKNOWN 0x88b5
/* No port-map rule applies to the packet; such records never leave the port map. */
#define CORA_PORT_NONE 0xffff

/* Bytes of the frame that stand in memory at `data`. */
static inline uint32_t cora_record_stored(const struct cora_record *record)
{
    return record->ethertype ? record->caplen - CORA_ETHERNET_HEADER : record->caplen;
}

/* The synthesised header of a record whose ethertype is not 0: destination 02:00:00:00:00:02, source
 * 02:00:00:00:00:01 (both locally administered) or the sender's address where the link header carries one. */
static inline void cora_record_header(const struct cora_record *record, uint8_t out[CORA_ETHERNET_HEADER])
{
    static const uint8_t fixed[12] = {0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01};
    memcpy(out, fixed, sizeof fixed);
    if (record->flags & CORA_RECORD_SOURCE_AT_10)
        memcpy(out + 6, (const uint8_t *)(uintptr_t)record->data - 10, 6);
    else if (record->flags & CORA_RECORD_SOURCE_AT_8)
        memcpy(out + 6, (const uint8_t *)(uintptr_t)record->data - 8, 6);
    out[12] = (uint8_t)(record->ethertype >> 8);
    out[13] = (uint8_t)record->ethertype;
}

/* Copies the captured frame (caplen bytes) to `out`. */
static inline void cora_record_frame(const struct cora_record *record, uint8_t *out)
{
    if (record->ethertype) {
        cora_record_header(record, out);
        out += CORA_ETHERNET_HEADER;
    }
    memcpy(out, (const uint8_t *)(uintptr_t)record->data, cora_record_stored(record));
}

#endif
