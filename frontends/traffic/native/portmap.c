#include "portmap.h"

#include <stdlib.h>
#include <string.h>

enum {
    ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_ARP = 0x0806, ETHERTYPE_IPV6 = 0x86dd,
    TPID_CUSTOMER = 0x8100, TPID_SERVICE = 0x88a8, TPID_LEGACY = 0x9100,
};
enum { PROTO_ICMP = 1, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_DCCP = 33, PROTO_ICMPV6 = 58, PROTO_SCTP = 132,
       PROTO_UDPLITE = 136 };
enum { TCP_SYN = 0x02, TCP_ACK = 0x10 };
enum { MAX_TAGS = 8, MAX_EXTENSIONS = 8 };

/* What an entry of the flow table stands for; part of its key. */
enum kind { KIND_NONE = 0, KIND_PORTS, KIND_QUERY, KIND_FRAGMENT, KIND_PAIR, KIND_MAC };

/* Who started the flow, as far as this packet tells. */
enum evidence { EVIDENCE_NONE, EVIDENCE_SENDER, EVIDENCE_RECEIVER };

struct address {
    uint64_t high, low; /* IPv4: low only */
};

/* What is read of one packet. `at`/`left` are the cursor over the captured bytes. */
struct packet {
    struct address source, target;
    const struct cora_record *record;
    const uint8_t *at;
    uint32_t left;
    uint32_t fragment_id;
    uint16_t source_port, target_port;
    uint8_t version; /* 4, 6, or 0: addresses not known */
    uint8_t proto;
    uint8_t kind;
    uint8_t evidence;
    uint8_t first_fragment;
    uint8_t quotes; /* ICMP error: `at` is at the quoted packet */
};

static inline uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(v) : v;
}

static inline uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static inline uint64_t get48(const uint8_t *p)
{
    return (uint64_t)get16(p) << 32 | get32(p + 2);
}

static inline void skip(struct packet *k, uint32_t n)
{
    k->at += n;
    k->left -= n;
}

/* ---- headers ---- */

/* Starts a packet; returns the EtherType behind the tags, 0 when it was not captured. */
static inline uint16_t read_ethernet(const struct cora_record *r, struct packet *k)
{
    memset(k, 0, sizeof *k);
    k->record = r;
    k->at = (const uint8_t *)(uintptr_t)r->data;
    k->left = cora_record_stored(r);
    uint16_t type = r->ethertype;
    if (!type) {
        if (k->left < CORA_ETHERNET_HEADER)
            return 0;
        type = get16(k->at + 12);
        skip(k, CORA_ETHERNET_HEADER);
    }
    for (int tags = 0; type == TPID_CUSTOMER || type == TPID_SERVICE || type == TPID_LEGACY; tags++) {
        if (tags == MAX_TAGS || k->left < 4)
            return 0;
        type = get16(k->at + 2);
        skip(k, 4);
    }
    return type;
}

/* The two MAC addresses; octets that were not captured count as 0. */
static void read_macs(const struct cora_record *r, uint64_t *source, uint64_t *target)
{
    uint8_t header[CORA_ETHERNET_HEADER] = {0};
    if (r->ethertype)
        cora_record_header(r, header);
    else
        memcpy(header, (const uint8_t *)(uintptr_t)r->data, r->caplen < sizeof header ? r->caplen : sizeof header);
    *target = get48(header);
    *source = get48(header + 6);
}

/* Cuts the captured bytes to the payload that the IP header announces: what follows is link padding. */
static inline void bound(struct packet *k, uint32_t payload)
{
    if (payload < k->left)
        k->left = payload;
}

/* Addresses of an IPv4 packet; 0 when there is no usable header. */
static inline int addresses4(struct packet *k)
{
    if (k->left < 20 || k->at[0] >> 4 != 4)
        return 0;
    uint32_t header = 4u * (k->at[0] & 15), total = get16(k->at + 2);
    if (header < 20 || (total && total < header))
        return 0;
    k->version = 4;
    k->source = (struct address){0, get32(k->at + 12)};
    k->target = (struct address){0, get32(k->at + 16)};
    return 1;
}

static inline int addresses6(struct packet *k)
{
    if (k->left < 40 || k->at[0] >> 4 != 6)
        return 0;
    k->version = 6;
    k->source = (struct address){get64(k->at + 8), get64(k->at + 16)};
    k->target = (struct address){get64(k->at + 24), get64(k->at + 32)};
    return 1;
}

/* ARP for IPv4 over Ethernet counts as a packet between the two protocol addresses. */
static inline int addresses_arp(struct packet *k)
{
    if (k->left < 28 || get16(k->at + 2) != ETHERTYPE_IPV4 || k->at[4] != 6 || k->at[5] != 4)
        return 0;
    k->version = 4;
    k->source = (struct address){0, get32(k->at + 14)};
    k->target = (struct address){0, get32(k->at + 24)};
    return 1;
}

/* The fixed header and options; leaves the cursor at the payload. Returns 0 when there is no usable header. */
static inline int read_ipv4(struct packet *k)
{
    if (!addresses4(k))
        return 0;
    const uint8_t *p = k->at;
    uint32_t header = 4u * (p[0] & 15), total = get16(p + 2), fragment = get16(p + 6);
    k->proto = p[9];
    k->kind = KIND_PORTS;
    if (fragment & 0x3fff) {
        k->fragment_id = get16(p + 4);
        k->first_fragment = !(fragment & 0x1fff);
        if (fragment & 0x1fff)
            k->kind = KIND_FRAGMENT;
    }
    skip(k, header < k->left ? header : k->left);
    /* A total length of 0 comes from segmentation offload: the real length is the frame's. */
    if (total)
        bound(k, total - header);
    return 1;
}

/* Walks the extension headers; leaves the cursor at the upper layer, or kind PAIR where the chain cannot be followed. */
static void read_extensions(struct packet *k, uint8_t next)
{
    for (int count = 0; count <= MAX_EXTENSIONS; count++) {
        uint32_t length;
        switch (next) {
        case 0: case 43: case 60: case 135: case 139: case 140:
            length = k->left < 2 ? 8 : 8u * (k->at[1] + 1u);
            break;
        case 51:
            length = k->left < 2 ? 8 : 4u * (k->at[1] + 2u);
            break;
        case 44:
            length = 8;
            break;
        default:
            k->proto = next;
            k->kind = KIND_PORTS;
            return;
        }
        if (k->left < length || count == MAX_EXTENSIONS)
            break;
        if (next == 44) {
            uint16_t field = get16(k->at + 2);
            if (field & 0xfff8) {
                k->kind = KIND_FRAGMENT;
                k->fragment_id = get32(k->at + 4);
                return;
            }
            if (field & 1) {
                k->first_fragment = 1;
                k->fragment_id = get32(k->at + 4);
            }
        }
        next = k->at[0];
        skip(k, length);
    }
    k->kind = KIND_PAIR;
}

static inline int read_ipv6(struct packet *k)
{
    if (!addresses6(k))
        return 0;
    uint32_t payload = get16(k->at + 4);
    uint8_t next = k->at[6];
    skip(k, 40);
    /* 0: a jumbogram, or segmentation offload; the real length is the frame's. */
    if (payload)
        bound(k, payload);
    read_extensions(k, next);
    return 1;
}

static inline void read_network(struct packet *k, uint16_t ethertype)
{
    if (ethertype == ETHERTYPE_IPV4)
        read_ipv4(k);
    else if (ethertype == ETHERTYPE_IPV6)
        read_ipv6(k);
    else if (ethertype == ETHERTYPE_ARP && addresses_arp(k))
        k->kind = KIND_PAIR;
}

/* Only the addresses: all that rules need. */
static inline void read_addresses(struct packet *k, uint16_t ethertype)
{
    if (ethertype == ETHERTYPE_IPV4)
        addresses4(k);
    else if (ethertype == ETHERTYPE_IPV6)
        addresses6(k);
    else if (ethertype == ETHERTYPE_ARP)
        addresses_arp(k);
}

static void read_query(struct packet *k, int request)
{
    if (k->left < 6) {
        k->kind = KIND_PAIR;
        return;
    }
    k->kind = KIND_QUERY;
    k->source_port = k->target_port = get16(k->at + 4);
    k->evidence = request ? EVIDENCE_SENDER : EVIDENCE_RECEIVER;
}

static void read_icmp(struct packet *k)
{
    if (!k->left) {
        k->kind = KIND_PAIR;
        return;
    }
    switch (k->at[0]) {
    case 8: case 13: case 15: case 17:
        read_query(k, 1);
        return;
    case 0: case 14: case 16: case 18:
        read_query(k, 0);
        return;
    case 3: case 4: case 5: case 11: case 12:
        k->quotes = k->left >= 8;
        k->kind = KIND_PAIR;
        if (k->quotes)
            skip(k, 8);
        return;
    default:
        k->kind = KIND_PAIR;
    }
}

static void read_icmpv6(struct packet *k)
{
    uint8_t type = k->left ? k->at[0] : 0;
    k->kind = KIND_PAIR;
    if (type == 128 || type == 129)
        read_query(k, type == 128);
    else if (type >= 1 && type <= 4 && k->left >= 8) {
        k->quotes = 1;
        skip(k, 8);
    }
}

/* Ports, identifiers and what the packet says about who started. */
static inline void read_transport(struct packet *k)
{
    switch (k->proto) {
    case PROTO_TCP: case PROTO_UDP: case PROTO_SCTP: case PROTO_DCCP: case PROTO_UDPLITE:
        if (k->left < 4) {
            k->kind = KIND_PAIR;
            return;
        }
        k->source_port = get16(k->at);
        k->target_port = get16(k->at + 2);
        if (k->proto == PROTO_TCP && k->left >= 14 && k->at[13] & TCP_SYN)
            k->evidence = k->at[13] & TCP_ACK ? EVIDENCE_RECEIVER : EVIDENCE_SENDER;
        return;
    case PROTO_ICMP:
        if (k->version == 4)
            read_icmp(k);
        return;
    case PROTO_ICMPV6:
        if (k->version == 6)
            read_icmpv6(k);
        return;
    default:
        return;
    }
}

/* ---- rules ---- */

static inline int below(struct address a, uint64_t high, uint64_t low)
{
    return a.high < high || (a.high == high && a.low < low);
}

static inline const struct cora_range *find_range(const struct cora_range_table *table, struct address a)
{
    const struct cora_range *ranges = (const struct cora_range *)(uintptr_t)table->ranges;
    uint64_t from = 0, to = table->count;
    while (from < to) {
        uint64_t middle = (from + to) / 2;
        const struct cora_range *range = &ranges[middle];
        if (below(a, range->first_high, range->first_low))
            to = middle;
        else if (below((struct address){range->last_high, range->last_low}, a.high, a.low))
            from = middle + 1;
        else
            return range;
    }
    return NULL;
}

struct choice {
    uint32_t rank, port;
};

static inline void consider(struct choice *best, const struct cora_range_table *table, struct address a)
{
    if (!table->count)
        return;
    const struct cora_range *range = find_range(table, a);
    if (range && range->rank < best->rank)
        *best = (struct choice){range->rank, range->port};
}

static uint32_t port_by_rules(const struct cora_portmap_rules *rules, const struct cora_record *r)
{
    struct packet k;
    read_addresses(&k, read_ethernet(r, &k));
    struct choice best = {UINT32_MAX, rules->other};
    if (k.version == 4) {
        consider(&best, &rules->source4, k.source);
        consider(&best, &rules->target4, k.target);
    } else if (k.version == 6) {
        consider(&best, &rules->source6, k.source);
        consider(&best, &rules->target6, k.target);
    }
    if (rules->mac.count) {
        uint64_t source, target;
        read_macs(r, &source, &target);
        consider(&best, &rules->mac, (struct address){0, source});
    }
    if (r->iface < rules->interface_count) {
        uint32_t entry = ((const uint32_t *)(uintptr_t)rules->interfaces)[r->iface];
        if (entry != UINT32_MAX && entry >> 16 < best.rank)
            best = (struct choice){entry >> 16, entry & 0xffff};
    }
    return best.port;
}

/* ---- the flow table ---- */

/* Keys of IPv4 take two words, all others five; each size has its own open-addressing table. The last word holds
 * ports, protocol and kind in its lower 48 bits; the value is in the bits above them. */
enum { WORDS4 = 2, WORDS6 = 5 };
#define META_MASK 0x0000ffffffffffffull
#define VALUE_USED 0x8000000000000000ull
#define VALUE_CERTAIN 0x4000000000000000ull /* a SYN or an echo told who started */
#define VALUE_HIGH 0x2000000000000000ull    /* the greater end started; for fragments: second port */

struct table {
    uint64_t *slots;
    uint64_t mask, count;
    uint32_t words;
};

struct key {
    uint64_t words[WORDS6];
    uint64_t hash;
    uint32_t size;
    uint32_t swapped; /* the sender is the greater end */
    uint32_t equal;   /* both ends are one */
};

struct cora_portmap {
    struct cora_portmap_stats stats;
    struct cora_portmap_rules rules;
    struct table small, large;
    uint64_t max_entries, secret0, secret1;
    uint64_t *counts;
    uint32_t by_rules;
    uint16_t first, second;
};

#define ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))

#define SIPROUND                                                                                                       \
    do {                                                                                                               \
        v0 += v1, v1 = ROTL(v1, 13) ^ v0, v0 = ROTL(v0, 32);                                                           \
        v2 += v3, v3 = ROTL(v3, 16) ^ v2;                                                                              \
        v0 += v3, v3 = ROTL(v3, 21) ^ v0;                                                                              \
        v2 += v1, v1 = ROTL(v1, 17) ^ v2, v2 = ROTL(v2, 32);                                                           \
    } while (0)

/* SipHash-1-3 (Aumasson, Bernstein 2012) over whole words: peers choose the keys, so the hash is keyed. */
static inline uint64_t hash_words(const struct cora_portmap *m, const uint64_t *words, uint32_t count)
{
    uint64_t v0 = m->secret0 ^ 0x736f6d6570736575ull, v1 = m->secret1 ^ 0x646f72616e646f6dull;
    uint64_t v2 = m->secret0 ^ 0x6c7967656e657261ull, v3 = m->secret1 ^ 0x7465646279746573ull;
    for (uint32_t i = 0; i < count; i++) {
        v3 ^= words[i];
        SIPROUND;
        v0 ^= words[i];
    }
    uint64_t last = (uint64_t)(8 * count) << 56;
    v3 ^= last;
    SIPROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIPROUND;
    SIPROUND;
    SIPROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

static inline uint64_t *probe(const struct table *t, const uint64_t *words, uint64_t hash, uint32_t size)
{
    for (uint64_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        uint64_t *slot = t->slots + i * size;
        uint64_t meta = slot[size - 1];
        if (!(meta & VALUE_USED))
            return slot;
        uint64_t difference = (meta ^ words[size - 1]) & META_MASK;
        for (uint32_t w = 0; w + 1 < size; w++)
            difference |= slot[w] ^ words[w];
        if (!difference)
            return slot;
    }
}

static int grow(const struct cora_portmap *m, struct table *t)
{
    uint64_t slots = 2 * (t->mask + 1);
    struct table larger = {calloc(slots, t->words * sizeof(uint64_t)), slots - 1, t->count, t->words};
    if (!larger.slots)
        return 0;
    for (uint64_t i = 0; i <= t->mask; i++) {
        uint64_t *slot = t->slots + i * t->words;
        if (!(slot[t->words - 1] & VALUE_USED))
            continue;
        uint64_t words[WORDS6];
        memcpy(words, slot, t->words * sizeof *words);
        words[t->words - 1] &= META_MASK;
        memcpy(probe(&larger, words, hash_words(m, words, t->words), t->words), slot, t->words * sizeof *slot);
    }
    free(t->slots);
    *t = larger;
    return 1;
}

static inline uint64_t *find(struct cora_portmap *m, const struct key *key)
{
    return key->size == WORDS4 ? probe(&m->small, key->words, key->hash, WORDS4)
                               : probe(&m->large, key->words, key->hash, WORDS6);
}

/* Stores the key with a value in the free slot that find() gave; 0 when the map is full. */
static int insert(struct cora_portmap *m, const struct key *key, uint64_t *slot, uint64_t value)
{
    struct table *t = key->size == WORDS4 ? &m->small : &m->large;
    if (m->stats.entries >= m->max_entries)
        return 0;
    /* At most two thirds full: linear probing stays short. */
    if (3 * (t->count + 1) > 2 * (t->mask + 1)) {
        if (!grow(m, t))
            return 0;
        slot = probe(t, key->words, key->hash, t->words);
    }
    memcpy(slot, key->words, key->size * sizeof *slot);
    slot[key->size - 1] |= value | VALUE_USED;
    t->count++;
    m->stats.entries++;
    return 1;
}

static inline uint64_t meta_word(uint64_t low_port, uint64_t high_port, uint64_t proto, uint64_t kind)
{
    return low_port | high_port << 16 | proto << 32 | kind << 40;
}

static inline void fill_key(const struct cora_portmap *m, struct key *key, int small, struct address a,
                            struct address b, uint64_t meta)
{
    if (small) {
        key->size = WORDS4;
        key->words[0] = a.low | b.low << 32;
        key->words[1] = meta;
        key->hash = hash_words(m, key->words, WORDS4);
        return;
    }
    key->size = WORDS6;
    key->words[0] = a.high, key->words[1] = a.low, key->words[2] = b.high, key->words[3] = b.low;
    key->words[4] = meta;
    key->hash = hash_words(m, key->words, WORDS6);
}

/* The two ends in one order, whoever sends. */
static inline void make_key(const struct cora_portmap *m, const struct packet *k, uint32_t kind, struct key *key)
{
    struct address a = k->source, b = k->target;
    uint64_t pa = k->source_port, pb = k->target_port, proto = k->proto;
    int small = k->version == 4;
    if (kind == KIND_MAC) {
        small = 0;
        a.high = b.high = 0;
        read_macs(k->record, &a.low, &b.low);
    }
    if (kind == KIND_MAC || kind == KIND_PAIR)
        pa = pb = proto = 0;
    int same = a.high == b.high && a.low == b.low;
    key->swapped = below(b, a.high, a.low) || (same && pb < pa);
    key->equal = same && pa == pb;
    uint64_t meta = key->swapped ? meta_word(pb, pa, proto, kind) : meta_word(pa, pb, proto, kind);
    fill_key(m, key, small, key->swapped ? b : a, key->swapped ? a : b, meta);
}

/* Fragments of one datagram; directed. IPv6 has no protocol in this key (RFC 8200, section 4.5). */
static void fragment_key(const struct cora_portmap *m, const struct packet *k, struct key *key)
{
    uint64_t proto = k->version == 4 ? k->proto : 0;
    uint64_t meta = meta_word(k->fragment_id & 0xffff, k->fragment_id >> 16, proto, KIND_FRAGMENT);
    key->swapped = key->equal = 0;
    fill_key(m, key, k->version == 4, k->source, k->target, meta);
}

/* 0: the packet goes from the starter to the other end; 1: it is an answer. */
static inline uint32_t side_of(const struct key *key, uint64_t value)
{
    return key->swapped != !!(value & VALUE_HIGH);
}

/* The side of a packet that no entry decides, by itself; and the value that remembers it. */
static inline uint64_t fresh_value(const struct key *key, uint32_t evidence)
{
    /* From an end to itself (a LAND packet) there is no direction: the sender is the starter. */
    uint32_t starter_high = evidence == EVIDENCE_RECEIVER && !key->equal ? !key->swapped : key->swapped;
    return (starter_high ? VALUE_HIGH : 0) | (evidence ? VALUE_CERTAIN : 0);
}

static uint32_t side_by_pair(struct cora_portmap *m, const struct packet *k, uint32_t kind)
{
    struct key key;
    make_key(m, k, kind, &key);
    uint64_t *slot = find(m, &key);
    uint64_t value = slot[key.size - 1];
    if (value & VALUE_USED)
        return side_of(&key, value);
    value = fresh_value(&key, EVIDENCE_NONE);
    if (!insert(m, &key, slot, value))
        m->stats.untracked++;
    return side_of(&key, value);
}

/* Remembers for the two addresses who started their first flow: packets without ports follow it. */
static void note_pair(struct cora_portmap *m, const struct packet *k, uint32_t side)
{
    struct key key;
    make_key(m, k, KIND_PAIR, &key);
    uint64_t *slot = find(m, &key);
    if (slot[key.size - 1] & VALUE_USED)
        return;
    insert(m, &key, slot, fresh_value(&key, side ? EVIDENCE_RECEIVER : EVIDENCE_NONE));
}

static uint32_t side_by_flow(struct cora_portmap *m, const struct packet *k, const struct key *key)
{
    uint64_t *slot = find(m, key);
    uint64_t value = slot[key->size - 1];
    if (!(value & VALUE_USED)) {
        value = fresh_value(key, k->evidence);
        uint32_t side = side_of(key, value);
        if (insert(m, key, slot, value))
            note_pair(m, k, side);
        else
            m->stats.untracked++;
        return side;
    }
    if (k->evidence && !(value & VALUE_CERTAIN)) {
        /* A handshake corrects the guess of the first packet; once certain, the ends keep their places. */
        value = fresh_value(key, k->evidence);
        slot[key->size - 1] = (slot[key->size - 1] & ~VALUE_HIGH) | value;
    }
    return side_of(key, value);
}

static uint32_t side_by_fragment(struct cora_portmap *m, const struct packet *k)
{
    struct key key;
    fragment_key(m, k, &key);
    uint64_t value = find(m, &key)[key.size - 1];
    if (value & VALUE_USED)
        return !!(value & VALUE_HIGH);
    return side_by_pair(m, k, KIND_PAIR);
}

static void note_fragment(struct cora_portmap *m, const struct packet *k, uint32_t side)
{
    struct key key;
    fragment_key(m, k, &key);
    uint64_t *slot = find(m, &key);
    uint64_t value = side ? VALUE_HIGH : 0;
    if (slot[key.size - 1] & VALUE_USED)
        slot[key.size - 1] = (slot[key.size - 1] & ~VALUE_HIGH) | value;
    else
        insert(m, &key, slot, value);
}

/* The packet an ICMP error quotes, when its network header is there. A quoted ICMP error counts as its address pair. */
static int read_quoted(const struct packet *outer, struct packet *k)
{
    memset(k, 0, sizeof *k);
    k->at = outer->at;
    k->left = outer->left;
    if (!(outer->version == 4 ? read_ipv4(k) : read_ipv6(k)))
        return 0;
    if (k->kind == KIND_PORTS)
        read_transport(k);
    return 1;
}

static uint32_t side_of_packet(struct cora_portmap *m, const struct packet *k)
{
    if (k->kind == KIND_FRAGMENT)
        return side_by_fragment(m, k);
    if (k->kind == KIND_NONE)
        return side_by_pair(m, k, KIND_MAC);
    if (k->kind == KIND_PAIR)
        return side_by_pair(m, k, KIND_PAIR);
    struct key key;
    make_key(m, k, k->kind, &key);
    return side_by_flow(m, k, &key);
}

static uint32_t side_of_error(struct cora_portmap *m, const struct packet *k)
{
    struct packet quoted;
    if (!read_quoted(k, &quoted))
        return side_by_pair(m, k, KIND_PAIR);
    return !side_of_packet(m, &quoted);
}

enum { GROUP = 32 };

/* Packets are read in groups: all are parsed and their table lines fetched before the first look-up waits. */
static void assign_group(struct cora_portmap *m, struct cora_record *records, uint64_t count)
{
    struct packet packets[GROUP];
    struct key keys[GROUP];
    for (uint64_t i = 0; i < count; i++) {
        struct packet *k = &packets[i];
        read_network(k, read_ethernet(&records[i], k));
        if (k->kind == KIND_PORTS)
            read_transport(k);
        if (k->kind != KIND_PORTS && k->kind != KIND_QUERY)
            continue;
        make_key(m, k, k->kind, &keys[i]);
        const struct table *t = keys[i].size == WORDS4 ? &m->small : &m->large;
        __builtin_prefetch(t->slots + (keys[i].hash & t->mask) * t->words, 1);
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct packet *k = &packets[i];
        uint32_t side;
        if (k->quotes)
            side = side_of_error(m, k);
        else if (k->kind == KIND_PORTS || k->kind == KIND_QUERY)
            side = side_by_flow(m, k, &keys[i]);
        else
            side = side_of_packet(m, k);
        if (k->first_fragment)
            note_fragment(m, k, side);
        records[i].port = side ? m->second : m->first;
        m->counts[records[i].port]++;
    }
}

/* ---- interface ---- */

static int make_table(struct table *t, uint32_t words)
{
    enum { INITIAL = 1024 };
    *t = (struct table){calloc(INITIAL, words * sizeof(uint64_t)), INITIAL - 1, 0, words};
    return t->slots != NULL;
}

static struct cora_portmap *make_map(uint32_t ports)
{
    struct cora_portmap *m = calloc(1, sizeof *m);
    uint64_t *counts = calloc(ports, sizeof *counts);
    if (!m || !counts) {
        free(m);
        free(counts);
        return NULL;
    }
    m->counts = counts;
    m->stats.counts = (uintptr_t)counts;
    return m;
}

struct cora_portmap *cora_portmap_initiator(uint32_t ports, uint16_t first, uint16_t second, uint64_t max_entries,
                                            const uint8_t *key)
{
    struct cora_portmap *m = make_map(ports);
    if (!m)
        return NULL;
    m->first = first;
    m->second = second;
    m->max_entries = max_entries;
    memcpy(&m->secret0, key, 8);
    memcpy(&m->secret1, key + 8, 8);
    if (make_table(&m->small, WORDS4) && make_table(&m->large, WORDS6))
        return m;
    cora_portmap_close(m);
    return NULL;
}

struct cora_portmap *cora_portmap_by_rules(uint32_t ports, const struct cora_portmap_rules *rules)
{
    struct cora_portmap *m = make_map(ports);
    if (!m)
        return NULL;
    m->by_rules = 1;
    m->rules = *rules;
    return m;
}

void cora_portmap_close(struct cora_portmap *map)
{
    if (!map)
        return;
    free(map->small.slots);
    free(map->large.slots);
    free(map->counts);
    free(map);
}

static uint64_t assign_by_rules(struct cora_portmap *m, struct cora_record *records, uint64_t count)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t port = port_by_rules(&m->rules, &records[i]);
        if (port == CORA_PORT_NONE)
            continue;
        if (kept != i)
            records[kept] = records[i];
        records[kept++].port = (uint16_t)port;
        m->counts[port]++;
    }
    m->stats.unmatched += count - kept;
    return kept;
}

uint64_t cora_portmap_assign(struct cora_portmap *map, struct cora_record *records, uint64_t count)
{
    if (map->by_rules)
        return assign_by_rules(map, records, count);
    for (uint64_t i = 0; i < count; i += GROUP)
        assign_group(map, records + i, count - i < GROUP ? count - i : GROUP);
    return count;
}

void cora_portmap_interfaces(struct cora_portmap *map, const uint32_t *interfaces, uint64_t count)
{
    map->rules.interfaces = (uintptr_t)interfaces;
    map->rules.interface_count = count;
}

const struct cora_portmap_stats *cora_portmap_statistics(const struct cora_portmap *map)
{
    return &map->stats;
}
