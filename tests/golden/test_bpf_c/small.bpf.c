/* small, from small.nf: what runs at kernel */
#include "kernel_interface.h"

#define CORA_TABLES 1
#define CORA_HEADER_LIMIT 0

#include "bpf/core.h"
#include "bpf/meter.h"
#include "bpf/pool.h"
#include "bpf/table.h"
#include "bpf/punt.h"

char _license[] SEC("license") = "GPL";

/* numbers: 1024 values */
uint64_t t_numbers_used[16];
uint64_t t_numbers_next;

static inline bool t_numbers_is_used(uint32_t index)
{
    return index / 64 >= 16 || t_numbers_used[index / 64] >> (index % 64) & 1;
}

static inline bool t_numbers_claim(uint32_t index)
{
    uint32_t word = index / 64;
    uint64_t bit = 1ull << (index % 64);
    return word < 16 && !(__sync_fetch_and_or(&t_numbers_used[word], bit) & bit);
}

static inline void t_numbers_give(uint32_t index)
{
    uint32_t word = index / 64;
    if (word < 16)
        __sync_fetch_and_and(&t_numbers_used[word], ~(1ull << (index % 64)));
}

static long t_numbers_look(uint32_t i, struct cora_pool_search *search)
{
    uint32_t word = search->word;
    (void)i;
    if (word >= 16 || word * 64 >= search->to)
        return 1;
    uint64_t open = ~t_numbers_used[word] & search->bits;
    if (!open) {
        search->word = word + 1;
        search->bits = search->mask;
        return 0;
    }
    uint32_t index = word * 64 + cora_lowest_bit(open);
    if (index >= search->to)
        return 1;
    /* Where another CPU was quicker, the word is looked at again. */
    if (!t_numbers_claim(index))
        return 0;
    search->found = index;
    return 1;
}

/* Claims the lowest free index in [from, to) whose bit is in the mask (of indices modulo 64). */
CORA_ALONE uint32_t t_numbers_scan(uint32_t from, uint32_t to, uint64_t mask)
{
    struct cora_pool_search search = {.bits = mask & (UINT64_MAX << (from % 64)), .mask = mask,
                                      .word = from / 64, .to = to, .found = CORA_NONE};
    bpf_loop(80, t_numbers_look, &search, 0);
    return search.found;
}

static CORA_ALONE uint32_t t_numbers_around(uint32_t from, uint32_t to, uint32_t start, uint64_t mask)
{
    uint32_t found = t_numbers_scan(start, to, mask);
    return found != CORA_NONE ? found : t_numbers_scan(from, start, mask);
}

/* Takes the lowest free index at or after the one past the previous allocation; CORA_NONE: none. */
CORA_ALONE uint32_t t_numbers_take(void)
{
    uint32_t found = t_numbers_around(0, 1024u, (uint32_t)t_numbers_next, CORA_POOL_ALL);
    if (found != CORA_NONE)
        *(volatile uint64_t *)&t_numbers_next = found + 1 == 1024u ? 0 : found + 1;
    return found;
}

/* Takes `wanted` or the value that comes next in the order of preference. */
CORA_ALONE uint32_t t_numbers_take_near(uint32_t wanted)
{
    if (t_numbers_claim(wanted))
        return wanted;
    return t_numbers_around(0, 1024u, wanted, CORA_POOL_ALL);
}

/* conns */
#define t_conns_capacity 512u
struct t_conns_entry {
    uint64_t deadline;
    uint32_t f_source;
    uint32_t pool_0;
    uint32_t next_0;
    uint32_t life; /* odd: alive; changes when the entry is made or removed */
    uint16_t f_sport;
    uint16_t f_number;
    uint8_t timeout; /* class */
} __attribute__((aligned(32)));

struct t_conns_new {
    uint64_t hash; /* of the first key */
    uint64_t last;
    uint64_t wish_0;
    uint32_t f_source;
    uint16_t f_sport;
    uint16_t f_number;
    uint8_t timeout;
    uint8_t loaded; /* pool values are not to be taken */
};

struct t_conns_entry t_conns_entries[512];
uint32_t t_conns_heads_0[512]; /* fwd */
uint32_t t_conns_heads_1[1024]; /* rev */
uint32_t t_conns_free[512];
struct cora_slots t_conns_slots;
uint64_t t_conns_due;

static inline uint64_t t_conns_timeout(uint8_t number)
{
    (void)number;
    return 0xdf8475800ull;
}

/* conns.fwd */
static inline uint64_t t_conns_hash_0(uint32_t f_source, uint16_t f_sport)
{
    return cora_mix(cora_nh(0, (uint64_t)f_source | (uint64_t)f_sport << 32));
}

/* The entry that seems to have the key, CORA_NONE or CORA_STRAYED. */
static inline uint32_t t_conns_find_0(uint64_t hash, uint32_t f_source, uint16_t f_sport)
{
    uint32_t bucket = (uint32_t)(hash >> 55);
    uint32_t next = *(volatile uint32_t *)&t_conns_heads_0[bucket];
    CORA_LOOP
    for (int i = 0; i < CORA_CHAIN; i++) {
        uint32_t at = next - 1;
        if (at >= t_conns_capacity)
            break;
        struct t_conns_entry *e = &t_conns_entries[at];
        if (CORA_LIKELY(e->f_source == f_source && e->f_sport == f_sport && e->life & 1))
            return at;
        next = e->next_0;
    }
    if (CORA_UNLIKELY(next && next != CORA_LAST(bucket))) {
        return CORA_STRAYED;
    }
    return CORA_NONE;
}

/* Under the entry's lock: whether it has the key, and is not due. */
static inline bool t_conns_is_0(const struct t_conns_entry *e, uint64_t now, uint32_t f_source, uint16_t f_sport)
{
    return e->life & 1 && e->f_source == f_source && e->f_sport == f_sport && e->deadline >= now;
}

/* The entry with the key and its life, or NULL; a life of CORA_STRAYED: the look-up was led away. */
static inline struct t_conns_entry *t_conns_seek_0(uint64_t hash, uint32_t f_source, uint16_t f_sport, uint32_t *life)
{
    uint32_t bucket = (uint32_t)(hash >> 55);
    uint32_t next = *(volatile uint32_t *)&t_conns_heads_0[bucket];
    CORA_LOOP
    for (int i = 0; i < CORA_CHAIN; i++) {
        uint32_t at = next - 1;
        if (at >= t_conns_capacity)
            break;
        struct t_conns_entry *e = &t_conns_entries[at];
        CORA_KEEP(e);
        *life = cora_life(&e->life);
        if (CORA_LIKELY(*life & 1 && e->f_source == f_source && e->f_sport == f_sport))
            return e;
        next = e->next_0;
    }
    if (CORA_UNLIKELY(next && next != CORA_LAST(bucket))) {
        *life = CORA_STRAYED; return NULL;
    }
    *life = 0; return NULL;
}

/* conns.rev */
/* The place of a key that is a value of a pool; CORA_NEVER: it is none. */
static inline uint64_t t_conns_hash_1(uint16_t f_number)
{
    return (uint64_t)f_number - 1024u;
}

/* The entry that seems to have the key, CORA_NONE or CORA_STRAYED. */
static inline uint32_t t_conns_find_1(uint64_t hash, uint16_t f_number)
{
    if (hash < 1024) {
        uint32_t at = *(volatile uint32_t *)&t_conns_heads_1[hash] - 1;
        if (at < t_conns_capacity) {
            struct t_conns_entry *e = &t_conns_entries[at];
            if (CORA_LIKELY(e->f_number == f_number && e->life & 1))
                return at;
        }
    }
    return CORA_NONE;
}

/* Under the entry's lock: whether it has the key, and is not due. */
static inline bool t_conns_is_1(const struct t_conns_entry *e, uint64_t now, uint16_t f_number)
{
    return e->life & 1 && e->f_number == f_number && e->deadline >= now;
}

/* The entry with the key and its life, or NULL; a life of CORA_STRAYED: the look-up was led away. */
static inline struct t_conns_entry *t_conns_seek_1(uint64_t hash, uint16_t f_number, uint32_t *life)
{
    if (hash < 1024) {
        uint32_t at = *(volatile uint32_t *)&t_conns_heads_1[hash] - 1;
        if (at < t_conns_capacity) {
            struct t_conns_entry *e = &t_conns_entries[at];
            CORA_KEEP(e);
            *life = cora_life(&e->life);
            if (CORA_LIKELY(*life & 1 && e->f_number == f_number))
                return e;
        }
    }
    *life = 0; return NULL;
}

/* Takes a dead entry out of its chains; its links stay for those who are walking on them. */
static CORA_ALONE void t_conns_unlink(uint32_t at)
{
    struct cora_lock *lock = cora_table_lock(0);
    if (!lock || at >= t_conns_capacity)
        return;
    struct t_conns_entry *e = &t_conns_entries[at];
    uint32_t value_0 = e->pool_0;
    uint32_t bucket_0 = (uint32_t)(t_conns_hash_0(e->f_source, e->f_sport) >> 55);
    uint32_t bucket_1 = (uint32_t)t_conns_hash_1(e->f_number);
    bpf_spin_lock(&lock->lock);
    uint32_t *link_0 = &t_conns_heads_0[bucket_0];
    CORA_LOOP
    for (int i = 0; i < CORA_CHAIN; i++) {
        uint32_t next = *link_0 - 1;
        if (next == at) {
            *link_0 = e->next_0;
            break;
        }
        if (next >= t_conns_capacity)
            break;
        link_0 = &t_conns_entries[next].next_0;
    }
    if (bucket_1 < 1024 && t_conns_heads_1[bucket_1] == at + 1)
        t_conns_heads_1[bucket_1] = 0;
    uint32_t free = t_conns_slots.free_count;
    if (free < t_conns_capacity) {
        t_conns_free[free] = at;
        t_conns_slots.free_count = free + 1;
        t_conns_slots.count--;
    }
    bpf_spin_unlock(&lock->lock);
    t_numbers_give(value_0);
}

/* Removes an entry if it is due. */
static CORA_ALONE bool t_conns_kill(uint32_t at, uint64_t now)
{
    struct cora_lock *lock = cora_entry_lock(at);
    if (!lock || at >= t_conns_capacity)
        return false;
    struct t_conns_entry *e = &t_conns_entries[at];
    bpf_spin_lock(&lock->lock);
    bool dead = e->life & 1 && e->deadline < now;
    if (dead) {
        __sync_fetch_and_add(&e->life, 2);
        dead = cora_volatile(&e->deadline) < now;
    }
    if (dead)
        e->life++;
    bpf_spin_unlock(&lock->lock);
    if (dead)
        t_conns_unlink(at);
    return dead;
}

struct t_conns_walk {
    uint64_t now, due, removed;
};

static long t_conns_visit(uint32_t at, struct t_conns_walk *walk)
{
    if (at >= t_conns_capacity)
        return 1;
    const struct t_conns_entry *e = &t_conns_entries[at];
    if (!(e->life & 1))
        return 0;
    uint64_t deadline = e->deadline;
    if (deadline < walk->now && t_conns_kill(at, walk->now))
        walk->removed++;
    else if (deadline < walk->due)
        walk->due = deadline;
    return 0;
}

/* Removes entries that are due; returns how many. Costs nothing while none is. */
CORA_ALONE uint64_t t_conns_expire(uint64_t now)
{
    if (cora_volatile(&t_conns_due) >= now)
        return 0;
    struct t_conns_walk walk = {.now = now, .due = CORA_NEVER};
    *(volatile uint64_t *)&t_conns_due = CORA_NEVER;
    bpf_loop(t_conns_slots.top, t_conns_visit, &walk, 0);
    cora_due_sooner(&t_conns_due, walk.due);
    return walk.removed;
}

/* The new entry's number; CORA_TWICE: its primary key is there; else CORA_NONE, and nothing changed. */
CORA_ALONE uint32_t t_conns_insert(struct t_conns_new *n)
{
    struct cora_lock *lock = cora_table_lock(0);
    struct cora_counts *counts = cora_own_counts();
    uint32_t at = CORA_NONE;
    if (!n || !lock || !counts)
        return CORA_NONE;
    uint32_t other = t_conns_find_0(n->hash, n->f_source, n->f_sport);
    if (other < t_conns_capacity && !t_conns_kill(other, n->last))
        return CORA_TWICE;
    if (t_conns_slots.count == t_conns_capacity)
        return CORA_NONE;
    uint32_t taken_0 = CORA_NONE;
    const uint64_t position_0 = t_numbers_next;
    if (n->loaded) {
        taken_0 = (uint32_t)(cora_pool_clamp(n->f_number, 1024ull, 2047ull));
    } else {
        taken_0 = n->wish_0 == CORA_NEVER ? t_numbers_take() : t_numbers_take_near((uint32_t)n->wish_0);
        if (taken_0 == CORA_NONE)
            goto fail;
        n->f_number = (uint16_t)(1024u + taken_0);
    }
    uint64_t hash_0 = n->hash;
    uint64_t hash_1 = t_conns_hash_1(n->f_number);
    uint32_t other_1 = t_conns_find_1(hash_1, n->f_number);
    if (other_1 < t_conns_capacity && !t_conns_kill(other_1, n->last))
        goto fail;
    bool present = false, crowded = false, twice = false;
    uint32_t bucket_0 = (uint32_t)(hash_0 >> 55);
    uint32_t bucket_1 = (uint32_t)hash_1;
    bpf_spin_lock(&lock->lock);
    uint32_t next_0 = t_conns_heads_0[bucket_0];
    uint32_t length_0 = 0;
    CORA_LOOP
    for (; length_0 < CORA_CHAIN - 1; length_0++) {
        uint32_t number = next_0 - 1;
        if (number >= t_conns_capacity)
            break;
        const struct t_conns_entry *e = &t_conns_entries[number];
        if (e->f_source == n->f_source && e->f_sport == n->f_sport && e->life & 1)
            present = true;
        next_0 = e->next_0;
    }
    crowded |= length_0 == CORA_CHAIN - 1;
    twice = present;
    if (bucket_1 >= 1024) {
        present = true;
    } else if (t_conns_heads_1[bucket_1] - 1 < t_conns_capacity) {
        const struct t_conns_entry *e = &t_conns_entries[t_conns_heads_1[bucket_1] - 1];
        present |= e->f_number == n->f_number && e->life & 1;
    }
    uint32_t free = t_conns_slots.free_count - 1, top = t_conns_slots.top;
    if (!present && !crowded) {
        if (free < t_conns_capacity) {
            at = t_conns_free[free];
            t_conns_slots.free_count = free;
        } else if (top < t_conns_capacity) {
            at = top;
            t_conns_slots.top = top + 1;
        }
    }
    if (at < t_conns_capacity) {
        struct t_conns_entry *e = &t_conns_entries[at];
        t_conns_slots.count++;
        e->f_source = n->f_source;
        e->f_sport = n->f_sport;
        e->f_number = n->f_number;
        e->timeout = n->timeout;
        e->deadline = (n->last + t_conns_timeout(n->timeout));
        e->pool_0 = taken_0;
        uint32_t head_0 = t_conns_heads_0[bucket_0];
        e->next_0 = head_0 ? head_0 : CORA_LAST(bucket_0);
        __sync_fetch_and_add(&e->life, 1);
        t_conns_heads_0[bucket_0] = at + 1;
        if (bucket_1 < 1024) t_conns_heads_1[bucket_1] = at + 1;
    }
    bpf_spin_unlock(&lock->lock);
    if (crowded)
        counts->crowded++;
    if (twice)
        at = CORA_TWICE;
    if (at >= t_conns_capacity)
        goto fail;
    cora_due_sooner(&t_conns_due, (n->last + t_conns_timeout(n->timeout)));
    return at;
fail:
    if (taken_0 != CORA_NONE && !n->loaded)
        t_numbers_give(taken_0);
    *(volatile uint64_t *)&t_numbers_next = position_0;
    return at;
}

/* An entry as a row (17 bytes). */
static inline void t_conns_row(const struct t_conns_entry *e, uint8_t *out)
{
    uint64_t last = e->deadline - t_conns_timeout(0);
    __builtin_memcpy(out + 0, &last, 8);
    __builtin_memcpy(out + 8, &e->timeout, 1);
    __builtin_memcpy(out + 9, &e->f_source, 4);
    __builtin_memcpy(out + 13, &e->f_sport, 2);
    __builtin_memcpy(out + 15, &e->f_number, 2);
}

static inline void t_conns_read_row(struct t_conns_new *n, const uint8_t *row)
{
    __builtin_memcpy(&n->last, row + 0, 8);
    __builtin_memcpy(&n->timeout, row + 8, 1);
    __builtin_memcpy(&n->f_source, row + 9, 4);
    __builtin_memcpy(&n->f_sport, row + 13, 2);
    __builtin_memcpy(&n->f_number, row + 15, 2);
}

SEC("xdp")
int cora_xdp(struct xdp_md *ctx)
{
    CORA_VALUE uint16_t v_port = 0, v_type = 0, v_sport = 0, v_number = 0, v_number_2 = 0;
    CORA_VALUE uint8_t v_proto = 0;
    CORA_VALUE uint32_t v_src = 0;
    CORA_VALUE struct t_conns_entry *v_e = 0, *v_e_2 = 0;
    struct cora_packet packet = {0}, *p = &packet;
    struct cora_counts *counts = cora_own_counts();
    struct cora_lock *held = NULL;
    uint64_t hash = 0;
    (void)hash;
    bool again = false;
    uint64_t address_change = 0, upper_change = 0;
    uint32_t *watched = NULL, lived = 0;
    if (!counts)
        return XDP_ABORTED;
    if (!cora_arrive(ctx, p))
        return cora_fault(counts, CORA_FAULT_PORT);
    counts->arrived.packets++;
    counts->arrived.octets += p->wirelen;
    ; /* small.nf:2 */
    v_port = p->port;
    switch (v_port) {
    case 0u: goto b_from_a;
    default: goto b_from_b;
    }
b_from_a: ; /* small.nf:16 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_a_l2;
    case CORA_MALFORMED: goto b_drop_malformed;
    default: goto b_drop_unparsed;
    }
b_a_l2: ; /* small.nf:16 */
    v_type = p->eth_type;
    switch (v_type) {
    case 2048u: goto b_a_ipv4;
    default: goto b_on_a;
    }
b_a_ipv4: ; /* small.nf:16 */
    switch (cora_extract_ipv4(ctx, p, false, true)) {
    case CORA_OK: goto b_a_ipv4_ok;
    case CORA_MALFORMED: goto b_drop_malformed;
    case CORA_UNPARSED: goto b_drop_unparsed;
    default: goto b_drop_source_route;
    }
b_a_ipv4_ok: ; /* small.nf:16 */
    v_proto = cora_get8(p->l3_header + 9);
    switch (v_proto) {
    case 17u: goto b_a_udp;
    default: goto b_on_a;
    }
b_a_udp: ; /* small.nf:16 */
    switch (cora_extract_udp(p)) {
    case CORA_OK: goto b_on_a_ipv4_udp;
    case CORA_MALFORMED: goto b_drop_malformed;
    default: goto b_drop_unparsed;
    }
b_on_a_ipv4_udp: ; /* small.nf:16 */
    /* small.nf:17 */
    v_src = cora_get32(p->l3_header + 12);
    v_sport = cora_get16(p->l4_header);
    again_b_on_a_ipv4_udp:
    hash = t_conns_hash_0(v_src, v_sport);
    {
        uint32_t life = 0;
        struct t_conns_entry *e = t_conns_seek_0(hash, v_src, v_sport, &life);
        if (!e) {
            if (CORA_UNLIKELY(life == CORA_STRAYED))
                goto cora_raced;
            goto b_conns_miss;
        }
        if (CORA_UNLIKELY(cora_volatile(&e->deadline) < p->now))
            goto b_conns_miss;
        watched = &e->life;
        lived = life;
        v_e = e;
        goto b_conns_hit;
    }
b_conns_hit: ; /* small.nf:17 */
    /* small.nf:18 */
    if ((p->now + t_conns_timeout(0)) > v_e->deadline)
        __sync_lock_test_and_set(&v_e->deadline, (p->now + t_conns_timeout(0)));
    address_change = upper_change = 0;
    address_change += cora_store32(p->l3_header + 12, cora_config.c_ext);
    v_number = v_e->f_number;
    upper_change += cora_store16(p->l4_header, v_number);
    cora_stored_ipv4(p, address_change);
    cora_stored_both(p, address_change, upper_change, false);
    goto cora_out_1; /* forward b */
b_conns_miss: ; /* small.nf:17 */
    hash = t_conns_hash_0(v_src, v_sport);
    /* small.nf:20 */
    {
        struct t_conns_new n = {.last = p->now, .timeout = 0};
        n.hash = hash;
        n.f_source = v_src;
        n.f_sport = v_sport;
        n.wish_0 = CORA_NEVER;
        uint32_t at = t_conns_insert(&n);
        if (CORA_UNLIKELY(at == CORA_TWICE && !again)) {
            again = true;
            goto again_b_on_a_ipv4_udp;
        }
        if (at >= t_conns_capacity)
            goto b_conns_full;
        watched = &t_conns_entries[at].life;
        lived = cora_life(watched);
        v_e_2 = &t_conns_entries[at];
        goto b_conns_ok;
    }
b_conns_ok: ; /* small.nf:20 */
    /* small.nf:21 */
    counts->counters[0].packets++;
    counts->counters[0].octets += p->wirelen;
    address_change = upper_change = 0;
    address_change += cora_store32(p->l3_header + 12, cora_config.c_ext);
    v_number_2 = v_e_2->f_number;
    upper_change += cora_store16(p->l4_header, v_number_2);
    cora_stored_ipv4(p, address_change);
    cora_stored_both(p, address_change, upper_change, false);
    goto cora_out_1; /* forward b */
b_conns_full: ; /* small.nf:20 */
    /* small.nf:22 */
    CORA_DROPS(0); /* full */
b_drop_source_route: ; /* small.nf:16 */
    CORA_DROPS(1); /* source route */
b_on_a: ; /* small.nf:27 */
    CORA_DROPS(2); /* other */
b_from_b: ; /* small.nf:28 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_on_b;
    case CORA_MALFORMED: goto b_drop_malformed;
    default: goto b_drop_unparsed;
    }
b_on_b: ; /* small.nf:28 */
    CORA_DROPS(2); /* other */
b_drop_malformed: ; /* small.nf:16 */
    CORA_DROPS(3); /* malformed */
b_drop_unparsed: ; /* small.nf:16 */
    CORA_DROPS(4); /* unparsed */
cora_out_1:
    if (watched && CORA_UNLIKELY(cora_life(watched) != lived))
        goto cora_raced;
    if (held)
        bpf_spin_unlock(&held->lock);
    return cora_send(p, counts, 1);
cora_drops:
    if (watched && CORA_UNLIKELY(cora_life(watched) != lived))
        goto cora_raced;
    if (held)
        bpf_spin_unlock(&held->lock);
    return cora_drop(p, counts);
cora_raced:
    if (held)
        bpf_spin_unlock(&held->lock);
    return p->number ? cora_not_handed_on(counts, p, CORA_FAULT_RACED) :
                       cora_fault(counts, CORA_FAULT_RACED);
}

/* A message to this place; what it has to say to the owner is in the answer. */
SEC("syscall")
int cora_told(struct cora_kernel_call *call)
{
    struct cora_counts *counts = cora_own_counts();
    call->answered = 0;
    if (!counts)
        return 1;
    switch (call->message.lending) {
    default: break;
    }
    return 0;
}

/* Removes what is due. */
SEC("syscall")
int cora_sweep(struct cora_sweep_call *call)
{
    uint64_t now = call->now ? call->now : cora_clock();
    uint64_t removed = 0;
    (void)now;
    removed += t_conns_expire(now);
    call->removed = removed;
    return 0;
}

struct t_conns_dumping {
    struct cora_rows *rows;
    uint64_t now;
    uint32_t from, count, next;
};

static long t_conns_dump_one(uint32_t i, struct t_conns_dumping *walk)
{
    uint32_t at = walk->from + i, place = walk->count;
    if (at >= t_conns_capacity || at >= t_conns_slots.top)
        return 1;
    if (place >= CORA_ROWS_ROOM / 17u) {
        walk->next = at;
        return 1;
    }
    const struct t_conns_entry *e = &t_conns_entries[at];
    if (!(e->life & 1))
        return 0;
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    struct cora_lock *lock = cora_entry_lock(at);
    if (!rows || !lock)
        return 1;
    uint8_t *out = rows->bytes + place * 17u;
    bpf_spin_lock(&lock->lock);
    bool live = e->life & 1 && e->deadline >= walk->now;
    if (live)
        t_conns_row(e, out);
    bpf_spin_unlock(&lock->lock);
    walk->count += live;
    return 0;
}

static CORA_ALONE int t_conns_dump(struct cora_rows_call *call)
{
    struct t_conns_dumping walk = {.now = call->now ? call->now : cora_clock(), .from = call->from,
                                .next = CORA_ROWS_END};
    bpf_loop(t_conns_capacity, t_conns_dump_one, &walk, 0);
    call->count = walk.count;
    call->next = walk.next;
    return 0;
}

static long t_conns_load_one(uint32_t i, uint32_t *taken)
{
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    if (!rows || i >= CORA_ROWS_ROOM / 17u)
        return 1;
    struct t_conns_new n = {.loaded = 1};
    const uint8_t *row = rows->bytes + i * 17u;
    t_conns_read_row(&n, row);
    n.hash = t_conns_hash_0(n.f_source, n.f_sport);
    if (t_conns_insert(&n) >= t_conns_capacity)
        return 1;
    *taken = i + 1;
    return 0;
}

static CORA_ALONE int t_conns_load(struct cora_rows_call *call)
{
    uint32_t taken = 0;
    bpf_loop(call->count, t_conns_load_one, &taken, 0);
    call->next = taken;
    return 0;
}

static long t_numbers_dump_one(uint32_t i, void *unused)
{
    (void)unused;
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    if (!rows || i >= 16 || i + 1 >= CORA_ROWS_ROOM / 8)
        return 1;
    uint8_t *word = rows->bytes + 8 * (i + 1);
    cora_set64(word, t_numbers_used[i]);
    return 0;
}

static CORA_ALONE int t_numbers_dump(struct cora_rows_call *call)
{
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    if (!rows)
        return 1;
    cora_set64(rows->bytes, t_numbers_next);
    bpf_loop(16, t_numbers_dump_one, NULL, 0);
    call->count = 17;
    call->next = CORA_ROWS_END;
    return 0;
}

static long t_numbers_load_one(uint32_t i, void *unused)
{
    (void)unused;
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    if (!rows || i >= 16 || i + 1 >= CORA_ROWS_ROOM / 8)
        return 1;
    uint8_t *word = rows->bytes + 8 * (i + 1);
    t_numbers_used[i] = cora_raw64(word);
    return 0;
}

static CORA_ALONE int t_numbers_load(struct cora_rows_call *call)
{
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    call->next = 0;
    if (!rows || call->count != 17 || cora_raw64(rows->bytes) >= 1024)
        return 1;
    t_numbers_next = cora_raw64(rows->bytes);
    bpf_loop(16, t_numbers_load_one, NULL, 0);
    call->next = 17;
    return 0;
}

struct cora_counting {
    uint64_t packets, octets;
    uint32_t number;
};

static long cora_count_cpu(uint32_t cpu, struct cora_counting *sum)
{
    uint32_t zero = 0;
    struct cora_counts *counts = bpf_map_lookup_percpu_elem(&cora_counts, &zero, cpu);
    if (!counts)
        return 1;
    uint32_t number = sum->number;
    if (number >= CORA_COUNTERS)
        return 1;
    sum->packets += counts->counters[number].packets;
    sum->octets += counts->counters[number].octets;
    return 0;
}

static long cora_count_one(uint32_t i, uint32_t *base)
{
    uint32_t zero = 0;
    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);
    struct cora_counting sum = {.number = *base + i};
    if (!rows || i >= CORA_ROWS_ROOM / 16)
        return 1;
    bpf_loop(4096, cora_count_cpu, &sum, 0);
    cora_set64(rows->bytes + 16 * i, sum.packets);
    cora_set64(rows->bytes + 16 * i + 8, sum.octets);
    return 0;
}

static CORA_ALONE int cora_dump_counter(struct cora_rows_call *call, uint32_t base, uint32_t size)
{
    bpf_loop(size, cora_count_one, &base, 0);
    call->count = size;
    call->next = CORA_ROWS_END;
    return 0;
}

static inline void cora_nothing(struct cora_rows_call *call)
{
    call->count = 0;
    call->next = CORA_ROWS_END;
}

SEC("syscall")
int cora_dump(struct cora_rows_call *call)
{
    switch (call->state) {
    case 1: t_conns_dump(call); break;
    case 0: t_numbers_dump(call); break;
    case 2: cora_dump_counter(call, 0, 1); break;
    default: cora_nothing(call);
    }
    return 0;
}

SEC("syscall")
int cora_load(struct cora_rows_call *call)
{
    switch (call->state) {
    case 1: t_conns_load(call); break;
    case 0: t_numbers_load(call); break;
    default: call->next = 0;
    }
    return 0;
}
