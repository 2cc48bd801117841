#include "capture.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000ull

enum {
    MAGIC_MICRO = 0xa1b2c3d4u,
    MAGIC_NANO = 0xa1b23c4du,
    MAGIC_MODIFIED = 0xa1b2cd34u,
    BLOCK_SECTION = 0x0a0d0d0au,
    SECTION_ORDER = 0x1a2b3c4du,
};

enum { PCAP_HEADER = 24, PCAP_RECORD = 16, BLOCK_OVERHEAD = 12, SECTION_MINIMUM = 28 };

/* Block types of pcapng that matter here. */
enum { BLOCK_INTERFACE = 1, BLOCK_PACKET = 2, BLOCK_SIMPLE = 3, BLOCK_ENHANCED = 6 };

/* https://www.tcpdump.org/linktypes.html; 12 and 14 are the values of DLT_RAW that reached files. */
enum {
    LINK_NULL = 0, LINK_ETHERNET = 1, LINK_RAW_BSD = 12, LINK_RAW_OPENBSD = 14, LINK_RAW = 101, LINK_LOOP = 108,
    LINK_SLL = 113, LINK_IPV4 = 228, LINK_IPV6 = 229, LINK_SLL2 = 276,
};

enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd, ETHERTYPE_MINIMUM = 0x0600, LENGTH_MAXIMUM = 0x05dc };

enum { MAX_NOTES = CORA_NOTES_KEPT * CORA_NOTE_KINDS };

struct cora_capture {
    const uint8_t *data;
    struct cora_capture_stats stats;
    struct cora_link *links;
    uint32_t link_count, link_room;
    uint32_t section_first; /* first link of the section being read */
    uint32_t pcapng, swap, done;
    uint32_t time_unit;     /* pcap: nanoseconds of one unit of the sub-second field */
    uint32_t lengths_swapped; /* pcap before 2.3: original length first; 2.3: either (2) */
    uint32_t note_count;
    struct cora_note notes[MAX_NOTES];
    uint64_t note_totals[CORA_NOTE_KINDS];
};

static inline uint16_t load16(const uint8_t *p, uint32_t swap)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return swap ? __builtin_bswap16(v) : v;
}

static inline uint32_t load32(const uint8_t *p, uint32_t swap)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return swap ? __builtin_bswap32(v) : v;
}

static inline uint16_t network16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t network32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void note(struct cora_capture *c, uint32_t kind, uint64_t offset, uint64_t a, uint64_t b)
{
    c->stats.errors += kind >= CORA_NOTE_FIRST_ERROR;
    if (c->note_totals[kind]++ < CORA_NOTES_KEPT)
        c->notes[c->note_count++] = (struct cora_note){.offset = offset, .a = a, .b = b, .kind = kind};
}

static void stop(struct cora_capture *c, uint32_t kind, uint64_t offset, uint64_t a, uint64_t b)
{
    note(c, kind, offset, a, b);
    c->done = 1;
}

static int link_supported(uint16_t type)
{
    switch (type) {
    case LINK_NULL: case LINK_ETHERNET: case LINK_RAW_BSD: case LINK_RAW_OPENBSD: case LINK_RAW: case LINK_LOOP:
    case LINK_SLL: case LINK_IPV4: case LINK_IPV6: case LINK_SLL2:
        return 1;
    default:
        return 0;
    }
}

static struct cora_link *add_link(struct cora_capture *c, uint16_t type, uint64_t offset)
{
    if (c->link_count == c->link_room) {
        uint32_t room = c->link_room ? 2 * c->link_room : 4;
        struct cora_link *grown = realloc(c->links, room * sizeof *grown);
        if (!grown)
            return NULL;
        c->links = grown;
        c->link_room = room;
    }
    struct cora_link *link = &c->links[c->link_count++];
    *link = (struct cora_link){.offset = offset, .type = type, .supported = (uint8_t)link_supported(type),
                               .resolution = 6};
    return link;
}

/* ---- frames: what stands before the EtherType's payload, per link type ---- */

struct frame {
    uint32_t header; /* bytes of the link header that is replaced */
    uint16_t ethertype, flags;
};

static struct frame unknown_protocol(uint32_t header)
{
    return (struct frame){header, CORA_ETHERTYPE_UNKNOWN, CORA_RECORD_UNKNOWN_PROTOCOL};
}

static struct frame raw_ip(const uint8_t *p, uint32_t caplen)
{
    uint8_t version = caplen ? p[0] >> 4 : 0;
    if (version == 4)
        return (struct frame){0, ETHERTYPE_IPV4, 0};
    if (version == 6)
        return (struct frame){0, ETHERTYPE_IPV6, 0};
    return unknown_protocol(0);
}

/* Address families: AF_INET is 2 everywhere; AF_INET6 is 24 (NetBSD, OpenBSD), 28 (FreeBSD), 30 (macOS), 10 (Linux).
 * A file of link type NULL has them in the byte order of the machine that captured, which is not always the file's. */
static struct frame loopback(const uint8_t *p, uint32_t caplen)
{
    if (caplen < 4)
        return unknown_protocol(caplen);
    uint32_t family = network32(p);
    if (family > 0xffff)
        family = __builtin_bswap32(family);
    switch (family) {
    case 2:
        return (struct frame){4, ETHERTYPE_IPV4, 0};
    case 10: case 24: case 28: case 30:
        return (struct frame){4, ETHERTYPE_IPV6, 0};
    default:
        return unknown_protocol(4);
    }
}

/* The protocol field of a cooked header is an EtherType, or a small number of Linux's own: 1 (IPX in 802.3) and 4 (LLC)
 * mean that the type field of Ethernet would be a length. */
static struct frame cooked(const uint8_t *p, uint32_t caplen, uint32_t origlen, uint32_t header, uint32_t protocol_at,
                           uint32_t address_length, uint16_t source_flag)
{
    if (caplen < header)
        return unknown_protocol(caplen);
    struct frame frame = {header, network16(p + protocol_at), address_length == 6 ? source_flag : 0};
    uint32_t payload = origlen - header;
    if (frame.ethertype >= ETHERTYPE_MINIMUM)
        return frame;
    if ((frame.ethertype == 1 || frame.ethertype == 4) && payload && payload <= LENGTH_MAXIMUM) {
        frame.ethertype = (uint16_t)payload;
        return frame;
    }
    frame.ethertype = CORA_ETHERTYPE_UNKNOWN;
    frame.flags |= CORA_RECORD_UNKNOWN_PROTOCOL;
    return frame;
}

static struct frame describe(uint16_t type, const uint8_t *p, uint32_t caplen, uint32_t origlen)
{
    switch (type) {
    case LINK_SLL:
        return cooked(p, caplen, origlen, 16, 14, caplen < 16 ? 0 : network16(p + 4), CORA_RECORD_SOURCE_AT_10);
    case LINK_SLL2:
        return cooked(p, caplen, origlen, 20, 0, caplen < 20 ? 0 : p[11], CORA_RECORD_SOURCE_AT_8);
    case LINK_NULL: case LINK_LOOP:
        return loopback(p, caplen);
    case LINK_IPV4:
        return (struct frame){0, ETHERTYPE_IPV4, 0};
    case LINK_IPV6:
        return (struct frame){0, ETHERTYPE_IPV6, 0};
    default:
        return raw_ip(p, caplen);
    }
}

/* Fills one record; the caller has checked that `caplen` bytes stand at `p`. Returns 0 when the record is unusable. */
static inline int deliver(struct cora_capture *c, uint32_t index, uint64_t offset, uint64_t time_ns, const uint8_t *p,
                          uint32_t caplen, uint32_t origlen, uint16_t flags, struct cora_record *r)
{
    struct cora_capture_stats *s = &c->stats;
    struct cora_link *link = &c->links[index];
    if (!link->supported) {
        if (!link->skipped++)
            note(c, CORA_NOTE_LINK_SKIPPED, offset, index, link->type);
        s->skipped++;
        return 0;
    }
    if (origlen > CORA_MAX_ORIGLEN) {
        note(c, CORA_NOTE_ORIGLEN, offset, origlen, 0);
        s->skipped++;
        return 0;
    }
    if (origlen < caplen) {
        note(c, CORA_NOTE_RAISED, offset, origlen, caplen);
        origlen = caplen;
        flags |= CORA_RECORD_LENGTH_RAISED;
    }
    r->time_ns = time_ns;
    r->data = (uintptr_t)p;
    r->caplen = caplen;
    r->wirelen = r->origlen = origlen;
    r->port = 0;
    r->ethertype = 0;
    r->iface = (uint16_t)index;
    r->reserved = 0;
    if (link->type != LINK_ETHERNET) {
        struct frame frame = describe(link->type, p, caplen, origlen);
        r->data += frame.header;
        r->caplen = caplen - frame.header + CORA_ETHERNET_HEADER;
        r->wirelen = origlen - frame.header + CORA_ETHERNET_HEADER;
        r->ethertype = frame.ethertype;
        flags |= frame.flags;
    }
    r->flags = flags;
    if (!s->packets)
        s->first_ns = s->earliest_ns = s->latest_ns = s->last_ns = time_ns;
    s->backward += time_ns < s->last_ns;
    s->earliest_ns = time_ns < s->earliest_ns ? time_ns : s->earliest_ns;
    s->latest_ns = time_ns > s->latest_ns ? time_ns : s->latest_ns;
    s->last_ns = time_ns;
    s->packets++;
    s->bytes += origlen;
    s->captured += caplen;
    s->truncated += caplen < origlen;
    link->packets++;
    return 1;
}

/* ---- pcap ---- */

static int open_pcap(struct cora_capture *c, uint32_t magic, uint64_t *detail)
{
    if (c->stats.size < PCAP_HEADER)
        return CORA_OPEN_SHORT;
    uint32_t major = load16(c->data + 4, c->swap), minor = load16(c->data + 6, c->swap);
    *detail = (uint64_t)major << 16 | minor;
    if (major != 2 || minor > 4)
        return CORA_OPEN_VERSION;
    /* Writers before 2.3 put the original length first; writers of 2.3 did either (libpcap, sf-pcap.c). */
    c->lengths_swapped = minor < 3 ? 1 : minor == 3 ? 2 : 0;
    c->time_unit = magic == MAGIC_NANO ? 1 : 1000;
    uint32_t word = load32(c->data + 20, c->swap);
    struct cora_link *link = add_link(c, (uint16_t)word, 0);
    if (!link)
        return CORA_OPEN_NO_MEMORY;
    link->snaplen = load32(c->data + 16, c->swap);
    link->resolution = magic == MAGIC_NANO ? 9 : 6;
    *detail = link->type;
    if (!link->supported)
        return CORA_OPEN_LINK;
    /* Bit 26: the four highest bits give the length of the frame check sequence in 16-bit words. */
    if ((word & 0x04000000u) && word >> 28)
        note(c, CORA_NOTE_FCS, 20, 2 * (word >> 28), 0);
    c->stats.offset = PCAP_HEADER;
    c->stats.sections = 1;
    return CORA_OPEN_OK;
}

static uint64_t read_pcap(struct cora_capture *c, struct cora_record *out, uint64_t max)
{
    const uint32_t swap = c->swap, unit = c->time_unit;
    uint64_t n = 0;
    while (n < max && !c->done) {
        const uint64_t at = c->stats.offset, left = c->stats.size - at;
        if (left < PCAP_RECORD) {
            c->done = 1;
            if (left)
                note(c, CORA_NOTE_CUT_RECORD_HEADER, at, left, 0);
            break;
        }
        const uint8_t *p = c->data + at;
        uint32_t sub = load32(p + 4, swap), caplen = load32(p + 8, swap), origlen = load32(p + 12, swap);
        if (c->lengths_swapped == 1 || (c->lengths_swapped == 2 && caplen > origlen)) {
            uint32_t first = caplen;
            caplen = origlen;
            origlen = first;
        }
        if (caplen > CORA_MAX_CAPLEN) {
            stop(c, CORA_NOTE_CAPLEN, at, caplen, left);
            break;
        }
        if (caplen > left - PCAP_RECORD) {
            stop(c, CORA_NOTE_CUT_RECORD, at, PCAP_RECORD + (uint64_t)caplen, left);
            break;
        }
        if (sub >= NS_PER_S / unit)
            note(c, CORA_NOTE_SUBSECOND, at, sub, 0);
        uint64_t time_ns = load32(p, swap) * NS_PER_S + (uint64_t)sub * unit;
        n += (uint64_t)deliver(c, 0, at, time_ns, p + PCAP_RECORD, caplen, origlen, 0, &out[n]);
        c->stats.offset = at + PCAP_RECORD + caplen;
    }
    return n;
}

/* ---- pcapng ---- */

/* if_tsresol: nanoseconds = ticks * scale / divisor, or ticks * scale >> shift. */
static unsigned __int128 ticks_to_ns(uint64_t ticks, uint8_t resolution)
{
    unsigned __int128 value = ticks;
    uint32_t n = resolution & 0x7f;
    if (resolution & 0x80) {
        value *= NS_PER_S;
        return n < 128 ? value >> n : 0;
    }
    for (; n < 9; n++)
        value *= 10;
    /* 2^64 < 10^20, so nothing is left after twenty divisions. */
    for (uint32_t i = 9; i < n && value; i++)
        value /= 10;
    return value;
}

static uint64_t interface_time(struct cora_capture *c, const struct cora_link *link, uint64_t ticks, uint64_t at)
{
    unsigned __int128 since_offset = ticks_to_ns(ticks, link->resolution);
    __int128 total = (__int128)since_offset + (__int128)link->time_offset * (__int128)NS_PER_S;
    if (total >= 0 && total <= (__int128)UINT64_MAX)
        return (uint64_t)total;
    note(c, CORA_NOTE_TIME_RANGE, at, 0, 0);
    return total < 0 ? 0 : UINT64_MAX;
}

static void interface_option(struct cora_capture *c, struct cora_link *link, uint64_t at, uint16_t code,
                             const uint8_t *value, uint32_t length)
{
    uint32_t index = c->link_count - 1;
    if (code == 2) {
        link->name = (uintptr_t)value;
        link->name_length = length;
        return;
    }
    if (code == 9 && length == 1) {
        link->resolution = value[0];
        if ((value[0] & 0x7f) > 9)
            note(c, CORA_NOTE_RESOLUTION, at, index, value[0]);
        return;
    }
    if (code == 13 && length == 1) {
        if (value[0])
            note(c, CORA_NOTE_FCS, at, value[0], 0);
        return;
    }
    if (code == 14 && length == 8) {
        uint64_t first = load32(value, c->swap), second = load32(value + 4, c->swap);
        int big = c->swap == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
        link->time_offset = (int64_t)(big ? first << 32 | second : second << 32 | first);
        return;
    }
    if (code == 9 || code == 13 || code == 14)
        note(c, CORA_NOTE_OPTION, at, code, length);
}

static void read_interface(struct cora_capture *c, uint64_t at, const uint8_t *body, uint32_t length)
{
    if (length < 8) {
        note(c, CORA_NOTE_BLOCK_BODY, at, BLOCK_INTERFACE, length);
        return;
    }
    if (c->link_count > UINT16_MAX) {
        stop(c, CORA_NOTE_TOO_MANY_INTERFACES, at, 0, 0);
        return;
    }
    struct cora_link *link = add_link(c, load16(body, c->swap), at);
    if (!link) {
        stop(c, CORA_NOTE_NO_MEMORY, at, 0, 0);
        return;
    }
    link->snaplen = load32(body + 4, c->swap);
    link->section = (uint32_t)c->stats.sections - 1;
    link->local = c->link_count - 1 - c->section_first;
    for (uint32_t i = 8; length - i >= 4;) {
        uint16_t code = load16(body + i, c->swap), size = load16(body + i + 2, c->swap);
        if (code == 0)
            return;
        if (size > length - i - 4) {
            note(c, CORA_NOTE_OPTION, at, code, size);
            return;
        }
        interface_option(c, link, at, code, body + i + 4, size);
        uint32_t step = 4 + ((size + 3u) & ~3u);
        if (step > length - i)
            return;
        i += step;
    }
}

/* Enhanced (20 bytes before the data) and obsolete (same size, shorter interface number) packet blocks. */
static int read_packet(struct cora_capture *c, uint64_t at, uint32_t type, const uint8_t *body, uint32_t length,
                       struct cora_record *out)
{
    if (length < 20) {
        note(c, CORA_NOTE_BLOCK_BODY, at, type, length);
        c->stats.skipped++;
        return 0;
    }
    uint32_t local = type == BLOCK_ENHANCED ? load32(body, c->swap) : load16(body, c->swap);
    if (local >= c->link_count - c->section_first) {
        note(c, CORA_NOTE_UNKNOWN_INTERFACE, at, local, 0);
        c->stats.skipped++;
        return 0;
    }
    uint32_t caplen = load32(body + 12, c->swap), origlen = load32(body + 16, c->swap);
    if (caplen > length - 20 || caplen > CORA_MAX_CAPLEN) {
        note(c, CORA_NOTE_BLOCK_CAPLEN, at, caplen, length - 20);
        c->stats.skipped++;
        return 0;
    }
    uint32_t index = c->section_first + local;
    uint64_t ticks = (uint64_t)load32(body + 4, c->swap) << 32 | load32(body + 8, c->swap);
    uint64_t time_ns = interface_time(c, &c->links[index], ticks, at);
    return deliver(c, index, at, time_ns, body + 20, caplen, origlen, 0, out);
}

static int read_simple(struct cora_capture *c, uint64_t at, const uint8_t *body, uint32_t length,
                       struct cora_record *out)
{
    if (length < 4) {
        note(c, CORA_NOTE_BLOCK_BODY, at, BLOCK_SIMPLE, length);
        c->stats.skipped++;
        return 0;
    }
    if (c->link_count == c->section_first) {
        note(c, CORA_NOTE_UNKNOWN_INTERFACE, at, 0, 0);
        c->stats.skipped++;
        return 0;
    }
    /* The block has no captured length: it is the original one, bounded by the snap length of interface 0. */
    uint32_t origlen = load32(body, c->swap), snaplen = c->links[c->section_first].snaplen;
    uint32_t caplen = snaplen && snaplen < origlen ? snaplen : origlen;
    if (caplen > length - 4 || caplen > CORA_MAX_CAPLEN) {
        note(c, CORA_NOTE_BLOCK_CAPLEN, at, caplen, length - 4);
        c->stats.skipped++;
        return 0;
    }
    if (!c->note_totals[CORA_NOTE_NO_TIME])
        note(c, CORA_NOTE_NO_TIME, at, 0, 0);
    return deliver(c, c->section_first, at, c->stats.last_ns, body + 4, caplen, origlen, CORA_RECORD_NO_TIME, out);
}

/* Byte order of a section from its magic; 0 when the word is neither form of it. */
static int section_order(const uint8_t *p, uint32_t *swap)
{
    uint32_t word = load32(p, 0);
    *swap = word != SECTION_ORDER;
    return word == SECTION_ORDER || word == __builtin_bswap32(SECTION_ORDER);
}

static void read_section(struct cora_capture *c, uint64_t at, const uint8_t *body, uint32_t length)
{
    if (length < SECTION_MINIMUM - BLOCK_OVERHEAD) {
        stop(c, CORA_NOTE_BLOCK_BODY, at, BLOCK_SECTION, length);
        return;
    }
    uint16_t major = load16(body + 4, c->swap), minor = load16(body + 6, c->swap);
    /* Minor 2 was written by some programs and means the same as 0 (the draft's section 4.1). */
    if (major != 1 || (minor != 0 && minor != 2)) {
        stop(c, CORA_NOTE_SECTION_VERSION, at, major, minor);
        return;
    }
    c->stats.sections++;
    c->section_first = c->link_count;
}

/* The block at `at`: its type and length, with everything about its frame checked. 0: reading ends here. */
static int enter_block(struct cora_capture *c, uint64_t at, uint32_t *type, uint32_t *total)
{
    const uint64_t left = c->stats.size - at;
    const uint8_t *p = c->data + at;
    if (left < BLOCK_OVERHEAD) {
        c->done = 1;
        if (left)
            note(c, CORA_NOTE_CUT_BLOCK_HEADER, at, left, 0);
        return 0;
    }
    *type = load32(p, c->swap);
    if (*type == BLOCK_SECTION && !section_order(p + 8, &c->swap)) {
        stop(c, CORA_NOTE_SECTION_MAGIC, at, load32(p + 8, 0), 0);
        return 0;
    }
    *total = load32(p + 4, c->swap);
    if (*total < BLOCK_OVERHEAD || *total % 4) {
        stop(c, CORA_NOTE_BLOCK_LENGTH, at, *total, 0);
        return 0;
    }
    if (*total > left) {
        stop(c, CORA_NOTE_CUT_BLOCK, at, *total, left);
        return 0;
    }
    uint32_t trailer = load32(p + *total - 4, c->swap);
    if (trailer != *total) {
        stop(c, CORA_NOTE_BLOCK_TRAILER, at, *total, trailer);
        return 0;
    }
    return 1;
}

static uint64_t read_pcapng(struct cora_capture *c, struct cora_record *out, uint64_t max)
{
    uint64_t n = 0;
    while (n < max && !c->done) {
        const uint64_t at = c->stats.offset;
        uint32_t type, total;
        if (!enter_block(c, at, &type, &total))
            break;
        const uint8_t *body = c->data + at + 8;
        const uint32_t length = total - BLOCK_OVERHEAD;
        c->stats.offset = at + total;
        switch (type) {
        case BLOCK_SECTION:
            read_section(c, at, body, length);
            break;
        case BLOCK_INTERFACE:
            read_interface(c, at, body, length);
            break;
        case BLOCK_ENHANCED: case BLOCK_PACKET:
            n += (uint64_t)read_packet(c, at, type, body, length, &out[n]);
            break;
        case BLOCK_SIMPLE:
            n += (uint64_t)read_simple(c, at, body, length, &out[n]);
            break;
        default:
            c->stats.other_blocks++;
        }
    }
    return n;
}

static int open_pcapng(struct cora_capture *c, uint64_t *detail)
{
    uint32_t type, total;
    c->pcapng = 1;
    if (c->stats.size < SECTION_MINIMUM)
        return CORA_OPEN_SHORT;
    if (!section_order(c->data + 8, &c->swap))
        return CORA_OPEN_UNKNOWN;
    if (load32(c->data + 4, c->swap) > c->stats.size)
        return CORA_OPEN_SHORT;
    if (!enter_block(c, 0, &type, &total))
        return CORA_OPEN_BAD_SECTION;
    read_section(c, 0, c->data + 8, total - BLOCK_OVERHEAD);
    *detail = (uint64_t)load16(c->data + 12, c->swap) << 16 | load16(c->data + 14, c->swap);
    if (c->done)
        return c->note_totals[CORA_NOTE_SECTION_VERSION] ? CORA_OPEN_VERSION : CORA_OPEN_BAD_SECTION;
    c->stats.offset = total;
    return CORA_OPEN_OK;
}

/* ---- interface ---- */

static int open_any(struct cora_capture *c, uint64_t *detail)
{
    if (c->stats.size < 4)
        return CORA_OPEN_UNKNOWN;
    uint32_t word = load32(c->data, 0);
    if (word == BLOCK_SECTION)
        return c->stats.size < 12 ? CORA_OPEN_SHORT : open_pcapng(c, detail);
    uint32_t other = __builtin_bswap32(word);
    c->swap = other == MAGIC_MICRO || other == MAGIC_NANO || other == MAGIC_MODIFIED;
    uint32_t magic = c->swap ? other : word;
    if (magic == MAGIC_MODIFIED)
        return CORA_OPEN_MODIFIED;
    if (magic != MAGIC_MICRO && magic != MAGIC_NANO)
        return CORA_OPEN_UNKNOWN;
    return open_pcap(c, magic, detail);
}

int cora_capture_open(const uint8_t *data, uint64_t size, struct cora_capture **out, uint64_t *detail)
{
    *out = NULL;
    *detail = 0;
    struct cora_capture *c = calloc(1, sizeof *c);
    if (!c)
        return CORA_OPEN_NO_MEMORY;
    c->data = data;
    c->stats.size = size;
    int status = open_any(c, detail);
    if (status != CORA_OPEN_OK) {
        cora_capture_close(c);
        return status;
    }
    *out = c;
    return CORA_OPEN_OK;
}

void cora_capture_close(struct cora_capture *capture)
{
    if (!capture)
        return;
    free(capture->links);
    free(capture);
}

uint64_t cora_capture_read(struct cora_capture *capture, struct cora_record *out, uint64_t max)
{
    return capture->pcapng ? read_pcapng(capture, out, max) : read_pcap(capture, out, max);
}

const struct cora_capture_stats *cora_capture_stats(const struct cora_capture *capture)
{
    return &capture->stats;
}

const struct cora_link *cora_capture_links(const struct cora_capture *capture, uint32_t *count)
{
    *count = capture->link_count;
    return capture->links;
}

const struct cora_note *cora_capture_notes(const struct cora_capture *capture, uint32_t *count,
                                           const uint64_t **totals)
{
    *count = capture->note_count;
    *totals = capture->note_totals;
    return capture->notes;
}

int cora_capture_format(const struct cora_capture *capture)
{
    return capture->pcapng ? 2 : 1;
}

void cora_frame_copy(const struct cora_record *record, uint8_t *out)
{
    cora_record_frame(record, out);
}
