/* Reader of pcap and pcapng files that stand in memory (a mapped file or a buffer).
 *
 * Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. The reader never reads outside [data, data + size),
 * never trusts a length, and needs memory only for the interfaces of the file.
 */
#ifndef CORA_CAPTURE_H
#define CORA_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "record.h"

/* Longest captured frame accepted, the limit libpcap has for network link types. */
#define CORA_MAX_CAPLEN 262144u
/* Longest original length believed; no link carries longer frames, so more is a corrupt header. */
#define CORA_MAX_ORIGLEN (16u << 20)
/* Notes kept of every kind; later ones are only counted. */
#define CORA_NOTES_KEPT 8

enum cora_open_status {
    CORA_OPEN_OK = 0,
    CORA_OPEN_NO_MEMORY,
    CORA_OPEN_UNKNOWN,     /* no magic number of a capture */
    CORA_OPEN_SHORT,       /* ends inside the file header */
    CORA_OPEN_MODIFIED,    /* the modified pcap format of A. Kuznetzov's patch */
    CORA_OPEN_VERSION,     /* detail: major << 16 | minor */
    CORA_OPEN_LINK,        /* detail: link type */
    CORA_OPEN_BAD_SECTION, /* first section header block is corrupt */
};

/* What the reader met besides packets; `a` and `b` are explained beside each kind. From CORA_NOTE_FIRST_ERROR on the
 * file is damaged; before it, the note only tells how something was read. */
enum cora_note_kind {
    CORA_NOTE_LINK_SKIPPED = 0, /* a: interface, b: link type */
    CORA_NOTE_RESOLUTION,       /* a: interface, b: if_tsresol; finer than 1 ns, truncated */
    CORA_NOTE_NO_TIME,          /* simple packet block */
    CORA_NOTE_FCS,              /* a: octets of the frame check sequence after each frame */
    CORA_NOTE_FIRST_ERROR,
    CORA_NOTE_CUT_RECORD_HEADER = CORA_NOTE_FIRST_ERROR, /* a: bytes left */
    CORA_NOTE_CUT_RECORD,                                /* a: bytes the record needs, b: bytes left */
    CORA_NOTE_CAPLEN,                                    /* a: captured length, b: bytes left */
    CORA_NOTE_ORIGLEN,                                   /* a: original length; the record is skipped */
    CORA_NOTE_RAISED,                                    /* a: original length, b: captured length */
    CORA_NOTE_SUBSECOND,                                 /* a: value of the field */
    CORA_NOTE_TIME_RANGE,                                /* time outside what the record can hold */
    CORA_NOTE_CUT_BLOCK_HEADER,                          /* a: bytes left */
    CORA_NOTE_CUT_BLOCK,                                 /* a: bytes the block needs, b: bytes left */
    CORA_NOTE_BLOCK_LENGTH,                              /* a: block length */
    CORA_NOTE_BLOCK_TRAILER,                             /* a: length at the start, b: at the end */
    CORA_NOTE_BLOCK_BODY,                                /* a: block type, b: body length; too short, skipped */
    CORA_NOTE_BLOCK_CAPLEN,                              /* a: captured length, b: room in the block; skipped */
    CORA_NOTE_UNKNOWN_INTERFACE,                         /* a: interface in the section; skipped */
    CORA_NOTE_SECTION_MAGIC,                             /* a: the word */
    CORA_NOTE_SECTION_VERSION,                           /* a: major, b: minor */
    CORA_NOTE_OPTION,                                    /* a: option code, b: length */
    CORA_NOTE_TOO_MANY_INTERFACES,
    CORA_NOTE_NO_MEMORY,
    CORA_NOTE_KINDS
};

struct cora_note {
    uint64_t offset; /* in the (decompressed) file */
    uint64_t a, b;
    uint32_t kind;
    uint32_t reserved;
};

/* One interface: of a pcap file the only one, of a pcapng file one interface description block. */
struct cora_link {
    uint64_t offset;      /* of the block */
    uint64_t name;        /* address of if_name, 0 without one */
    int64_t time_offset;  /* if_tsoffset, seconds */
    uint64_t packets;     /* delivered */
    uint64_t skipped;     /* not delivered because the link type is not supported */
    uint32_t name_length;
    uint32_t snaplen;     /* 0: no limit */
    uint32_t section;     /* from 0 */
    uint32_t local;       /* id inside the section */
    uint16_t type;        /* link type */
    uint8_t resolution;   /* as if_tsresol */
    uint8_t supported;
    uint32_t reserved;
};

struct cora_capture_stats {
    uint64_t packets;       /* delivered */
    uint64_t bytes;         /* sum of origlen */
    uint64_t captured;      /* sum of captured lengths as in the file */
    uint64_t truncated;     /* captured length below the original one */
    uint64_t skipped;       /* not delivered: unsupported link type, unknown interface or unusable lengths */
    uint64_t errors;        /* notes from CORA_NOTE_FIRST_ERROR on */
    uint64_t first_ns;      /* time of the first packet */
    uint64_t last_ns;       /* of the last packet */
    uint64_t earliest_ns;
    uint64_t latest_ns;
    uint64_t backward;      /* packets with a time before the packet before them */
    uint64_t offset;        /* where reading stands */
    uint64_t size;
    uint64_t sections;
    uint64_t other_blocks;  /* blocks that carry no packet and no interface */
};

struct cora_capture;

/* Checks the file header. On success *out must be closed; on refusal *detail explains the status. */
int cora_capture_open(const uint8_t *data, uint64_t size, struct cora_capture **out, uint64_t *detail);
void cora_capture_close(struct cora_capture *capture);
/* Up to `max` records, 0 only at the end of what can be read. */
uint64_t cora_capture_read(struct cora_capture *capture, struct cora_record *out, uint64_t max);
const struct cora_capture_stats *cora_capture_stats(const struct cora_capture *capture);
const struct cora_link *cora_capture_links(const struct cora_capture *capture, uint32_t *count);
/* Notes kept, in file order, and the total of every kind (CORA_NOTE_KINDS numbers). */
const struct cora_note *cora_capture_notes(const struct cora_capture *capture, uint32_t *count,
                                           const uint64_t **totals);
/* 1 for pcap, 2 for pcapng. */
int cora_capture_format(const struct cora_capture *capture);
/* Copies the captured frame of a record (caplen bytes, a synthesised header included) to `out`. */
void cora_frame_copy(const struct cora_record *record, uint8_t *out);

#endif
