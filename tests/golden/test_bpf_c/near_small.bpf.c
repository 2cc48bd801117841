/* small, from small.nf: what runs at place0 */
#include "kernel_interface.h"

#define CORA_TABLES 1
#define CORA_HEADER_LIMIT 0

#include "bpf/core.h"
#include "bpf/meter.h"
#include "bpf/pool.h"
#include "bpf/table.h"
#include "bpf/punt.h"
#include "bpf/lent.h"

char _license[] SEC("license") = "GPL";

/* conns */
#define t_conns_capacity 100u
struct t_conns_entry {
    struct cora_lent_entry lent;
    uint64_t last; /* ns */
    uint64_t deadline;
    uint32_t f_source;
    uint32_t next_0;
    uint32_t life; /* odd: alive; changes when the entry is made or removed */
    uint16_t f_sport;
    uint16_t f_number;
    uint8_t timeout; /* class */
} __attribute__((aligned(64)));

struct t_conns_new {
    struct cora_lent_entry lent;
    uint64_t hash; /* of the first key */
    uint64_t last;
    uint32_t f_source;
    uint16_t f_sport;
    uint16_t f_number;
    uint8_t timeout;
    uint8_t loaded; /* pool values are not to be taken */
};

struct t_conns_entry t_conns_entries[100];
uint32_t t_conns_heads_0[128]; /* fwd */
uint32_t t_conns_heads_1[1024]; /* rev */
uint32_t t_conns_free[100];
struct cora_slots t_conns_slots;
uint64_t t_conns_due;
uint32_t t_conns_by_slot[512]; /* entry and 1, by its owner's number */

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
    uint32_t bucket = (uint32_t)(hash >> 57);
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

/* Takes a dead entry out of its chains; its links stay for those who are walking on them. */
static CORA_ALONE void t_conns_unlink(uint32_t at)
{
    struct cora_lock *lock = cora_table_lock(0);
    if (!lock || at >= t_conns_capacity)
        return;
    struct t_conns_entry *e = &t_conns_entries[at];
    uint32_t bucket_0 = (uint32_t)(t_conns_hash_0(e->f_source, e->f_sport) >> 57);
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
    if (other < t_conns_capacity)
        return CORA_TWICE;
    if (t_conns_slots.count == t_conns_capacity)
        return CORA_NONE;
    uint64_t hash_0 = n->hash;
    uint64_t hash_1 = t_conns_hash_1(n->f_number);
    uint32_t other_1 = t_conns_find_1(hash_1, n->f_number);
    if (other_1 < t_conns_capacity)
        return CORA_NONE;
    bool present = false, crowded = false, twice = false;
    uint32_t bucket_0 = (uint32_t)(hash_0 >> 57);
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
        e->last = n->last;
        e->timeout = n->timeout;
        e->deadline = (n->last + t_conns_timeout(n->timeout));
        e->lent = n->lent;
        e->lent.known = e->deadline;
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
        return at;
    return at;
}

/* An entry as a row (17 bytes). */
static inline void t_conns_row(const struct t_conns_entry *e, uint8_t *out)
{
    __builtin_memcpy(out + 0, &e->last, 8);
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
    CORA_VALUE uint16_t v_port = 0, v_type = 0, v_sport = 0;
    CORA_VALUE uint8_t v_proto = 0;
    CORA_VALUE uint32_t v_src = 0;
    CORA_VALUE struct t_conns_entry *v_e = 0;
    struct cora_packet packet = {0}, *p = &packet;
    struct cora_counts *counts = cora_own_counts();
    struct cora_lock *held = NULL;
    uint64_t hash = 0;
    (void)hash;
    if (!counts)
        return XDP_ABORTED;
    if (!cora_arrive(ctx, p))
        return cora_fault(counts, CORA_FAULT_PORT);
    counts->arrived.packets++;
    counts->arrived.octets += p->wirelen;
    ; /* small.nf:2 */
    v_port = p->port;
    switch (v_port) {
    case 0u: goto b_from_a_1;
    default: goto b_from_b_15;
    }
b_from_a_1: ; /* small.nf:16 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_a_l2_2;
    case CORA_MALFORMED: goto b_drop_malformed_17;
    default: goto b_drop_unparsed_18;
    }
b_a_l2_2: ; /* small.nf:16 */
    v_type = p->eth_type;
    switch (v_type) {
    case 2048u: goto b_a_ipv4_3;
    default: goto b_on_a_14;
    }
b_a_ipv4_3: ; /* small.nf:16 */
    switch (cora_extract_ipv4(ctx, p, false, true)) {
    case CORA_OK: goto b_a_ipv4_ok_4;
    case CORA_MALFORMED: goto b_drop_malformed_17;
    case CORA_UNPARSED: goto b_drop_unparsed_18;
    default: goto b_drop_source_route_13;
    }
b_a_ipv4_ok_4: ; /* small.nf:16 */
    v_proto = cora_get8(p->l3_header + 9);
    switch (v_proto) {
    case 17u: goto b_a_udp_5;
    default: goto b_on_a_14;
    }
b_a_udp_5: ; /* small.nf:16 */
    switch (cora_extract_udp(p)) {
    case CORA_OK: goto b_on_a_ipv4_udp_6;
    case CORA_MALFORMED: goto b_drop_malformed_17;
    default: goto b_drop_unparsed_18;
    }
b_on_a_ipv4_udp_6: ; /* small.nf:16 */
    /* small.nf:17 */
    v_src = cora_get32(p->l3_header + 12);
    v_sport = cora_get16(p->l4_header);
    hash = t_conns_hash_0(v_src, v_sport);
    {
        uint32_t at = t_conns_find_0(hash, v_src, v_sport);
        if (CORA_UNLIKELY(at == CORA_STRAYED))
            goto cora_raced;
        struct t_conns_entry *e = NULL;
        if (at < t_conns_capacity) {
            e = &t_conns_entries[at];
            cora_lent_look(&e->lent, 0);
            held = cora_entry_lock(at);
            if (!held)
                goto cora_raced;
            bpf_spin_lock(&held->lock);
            if (CORA_LIKELY(t_conns_is_0(e, p->now, v_src, v_sport) && cora_lent_use(counts, &e->lent, 0, p->now))) {
                p->met = &e->lent;
            } else {
                cora_hand_on(ctx, counts, p);
                cora_follow(p, &e->lent);
                bpf_spin_unlock(&held->lock);
                held = NULL;
                e = NULL;
            }
        } else {
            /* An entry that is lent just now may not know of this packet, which was not counted yet. */
            cora_hand_on(ctx, counts, p);
            at = t_conns_find_0(hash, v_src, v_sport);
            if (CORA_UNLIKELY(at < t_conns_capacity)) {
                held = cora_entry_lock(at);
                if (!held)
                    goto cora_raced;
                bpf_spin_lock(&held->lock);
                cora_follow(p, &t_conns_entries[at].lent);
                bpf_spin_unlock(&held->lock);
                held = NULL;
            }
        }
        if (!e)
            goto b_to1_1;
        v_e = e;
        goto b_to1_2;
    }
b_drop_source_route_13: ; /* small.nf:16 */
    CORA_DROPS(1); /* source route */
b_on_a_14: ; /* small.nf:27 */
    CORA_DROPS(2); /* other */
b_from_b_15: ; /* small.nf:28 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_on_b_16;
    case CORA_MALFORMED: goto b_drop_malformed_17;
    default: goto b_drop_unparsed_18;
    }
b_on_b_16: ; /* small.nf:28 */
    CORA_DROPS(2); /* other */
b_drop_malformed_17: ; /* small.nf:16 */
    CORA_DROPS(3); /* malformed */
b_drop_unparsed_18: ; /* small.nf:16 */
    CORA_DROPS(4); /* unparsed */
b_to1_1: ; /* small.nf:17 */
    {
        cora_hand_on(ctx, counts, p);
        if (p->met)
            cora_follow(p, p->met);
        if (held)
            bpf_spin_unlock(&held->lock);
        held = NULL;
        uint8_t *meta = cora_punt_head(ctx, p, 1, 6);
        if (!meta)
            return cora_not_handed_on(counts, p, CORA_FAULT_META);
        cora_set16(meta + 96, v_sport);
        cora_set32(meta + 98, v_src);
        return cora_punt(counts, p);
    } /* to place1 */
b_to1_2: ; /* small.nf:17 */
    {
        uint32_t travels_0 = v_e->lent.slot;
        cora_hand_on(ctx, counts, p);
        if (p->met)
            cora_follow(p, p->met);
        if (held)
            bpf_spin_unlock(&held->lock);
        held = NULL;
        uint8_t *meta = cora_punt_head(ctx, p, 2, 4);
        if (!meta)
            return cora_not_handed_on(counts, p, CORA_FAULT_META);
        cora_set32(meta + 96, travels_0);
        return cora_punt(counts, p);
    } /* to place1 */
cora_drops:
    if (held)
        bpf_spin_unlock(&held->lock);
    return cora_drop(p, counts);
cora_raced:
    if (held)
        bpf_spin_unlock(&held->lock);
    return p->number ? cora_not_handed_on(counts, p, CORA_FAULT_RACED) :
                       cora_fault(counts, CORA_FAULT_RACED);
}

/* The entry as it is now, to its owner. */
static inline void t_conns_say(const struct t_conns_entry *e, struct cora_kernel_call *call,
                               enum cora_message_kind kind)
{
    struct cora_message *m = &call->answer;
    m->kind = kind;
    m->to = call->message.to;
    m->lending = call->message.lending;
    m->slot = e->lent.slot;
    m->serial = e->lent.serial;
    m->used = e->lent.used;
    m->gap = e->lent.gap;
    m->active = e->lent.active;
    t_conns_row(e, m->row);
    call->answered = 1;
}

/* Gives an entry back: from here on no packet finds it, and its last values are in the answer. */
static CORA_ALONE int t_conns_return(uint32_t at, struct cora_kernel_call *call)
{
    struct cora_lock *lock = cora_entry_lock(at);
    if (!lock || at >= t_conns_capacity)
        return 0;
    struct t_conns_entry *e = &t_conns_entries[at];
    bpf_spin_lock(&lock->lock);
    e->life++;
    t_conns_say(e, call, CORA_RETURNED);
    bpf_spin_unlock(&lock->lock);
    uint32_t slot = e->lent.slot;
    if (slot < 512u)
        t_conns_by_slot[slot] = 0;
    t_conns_unlink(at);
    return 0;
}

uint32_t t_conns_hand;

static long t_conns_look_idle(uint32_t i, struct cora_idle *search)
{
    uint32_t at = t_conns_hand + i;
    if (at >= t_conns_capacity)
        at -= t_conns_capacity;
    if (at >= t_conns_capacity)
        return 0;
    const struct t_conns_entry *e = &t_conns_entries[at];
    if (e->life & 1 && e->lent.used < search->used) {
        search->used = e->lent.used;
        search->found = at;
    }
    return 0;
}

/* Of the next entries in turn, the one that is idle longest. */
static CORA_ALONE uint32_t t_conns_idle(void)
{
    struct cora_idle search = {.used = CORA_NEVER, .found = CORA_NONE};
    bpf_loop(CORA_SAMPLE, t_conns_look_idle, &search, 0);
    t_conns_hand = (t_conns_hand + CORA_SAMPLE) % t_conns_capacity;
    return search.found;
}

static CORA_ALONE int t_conns_refuse(struct cora_kernel_call *call, struct cora_counts *counts)
{
    struct cora_message *m = &call->answer;
    m->kind = CORA_REFUSAL;
    m->to = call->message.to;
    m->lending = call->message.lending;
    m->slot = call->message.slot;
    m->serial = call->message.serial;
    m->active = false;
    call->answered = 1;
    counts->statistics[CORA_REFUSED]++;
    return 0;
}

static CORA_ALONE int t_conns_lend(struct cora_kernel_call *call, struct cora_counts *counts)
{
    struct cora_message *m = &call->message;
    if (t_conns_slots.count == t_conns_capacity) {
        uint32_t idle = t_conns_idle();
        if (idle >= t_conns_capacity || !cora_lent_replaces(m, t_conns_entries[idle].lent.used,
                                                        t_conns_entries[idle].lent.gap))
            return t_conns_refuse(call, counts);
        counts->statistics[CORA_EVICTED]++;
        t_conns_return(idle, call);
    }
    struct t_conns_new n = {.loaded = 1};
    t_conns_read_row(&n, m->row);
    n.hash = t_conns_hash_0(n.f_source, n.f_sport);
    n.lent.slot = m->slot;
    n.lent.serial = m->serial;
    n.lent.used = m->used;
    n.lent.gap = m->gap;
    n.lent.pending = true;
    n.lent.round = cora_volatile(&cora_shared.rounds.open);
    uint32_t at = t_conns_insert(&n);
    uint32_t slot = m->slot;
    if (at >= t_conns_capacity || slot >= 512u) {
        counts->statistics[CORA_STRAY]++;
        return t_conns_refuse(call, counts);
    }
    t_conns_by_slot[slot] = at + 1;
    counts->statistics[CORA_PEAK] = t_conns_slots.top;
    return 0;
}

static long t_conns_look_live(uint32_t i, struct cora_idle *search)
{
    uint32_t at = (uint32_t)search->used + i;
    if (at >= t_conns_capacity)
        return 1;
    if (!(t_conns_entries[at].life & 1))
        return 0;
    search->found = at;
    return 1;
}

/* Gives back any entry, from number `number` on: to an owner that knows of none, its process being new. */
static CORA_ALONE int t_conns_return_any(struct cora_kernel_call *call)
{
    struct cora_idle search = {.used = call->message.number, .found = CORA_NONE};
    bpf_loop(t_conns_capacity, t_conns_look_live, &search, 0);
    if (search.found >= t_conns_capacity)
        return 0;
    t_conns_return(search.found, call);
    call->answer.number = search.found + (uint64_t)1;
    return 0;
}

static CORA_ALONE int t_conns_told(struct cora_kernel_call *call, struct cora_counts *counts)
{
    struct cora_message *m = &call->message;
    if (m->kind == CORA_LEND)
        return t_conns_lend(call, counts);
    uint32_t slot = m->slot;
    if (m->kind == CORA_RECALL && slot == CORA_NONE)
        return t_conns_return_any(call);
    if (slot >= 512u)
        return 0;
    uint32_t at = t_conns_by_slot[slot] - 1;
    struct cora_lock *lock = cora_entry_lock(at);
    /* It went back by itself in the meantime, and its owner has been told. */
    if (!lock || at >= t_conns_capacity || t_conns_entries[at].lent.serial != m->serial)
        return 0;
    if (m->kind == CORA_RECALL)
        return t_conns_return(at, call);
    struct t_conns_entry *e = &t_conns_entries[at];
    if (m->kind == CORA_ASK) {
        bpf_spin_lock(&lock->lock);
        e->lent.known = e->deadline;
        t_conns_say(e, call, CORA_ANSWER);
        bpf_spin_unlock(&lock->lock);
        return 0;
    }
    if (m->kind != CORA_UPDATE)
        return 0;
    const uint8_t *row = m->row;
    bpf_spin_lock(&lock->lock);
    bool active = e->lent.active;
    __builtin_memcpy(&e->last, row + 0, 8);
    __builtin_memcpy(&e->timeout, row + 8, 1);
    e->deadline = (e->last + t_conns_timeout(e->timeout));
    e->lent.known = e->deadline;
    e->lent.used = m->used;
    e->lent.gap = m->gap;
    bpf_spin_unlock(&lock->lock);
    if (active)
        counts->statistics[CORA_STRAY]++;
    return 0;
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
    case 0: t_conns_told(call, counts); break;
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
    case 0: t_conns_dump(call); break;
    case 1: cora_dump_counter(call, 0, 1); break;
    default: cora_nothing(call);
    }
    return 0;
}

SEC("syscall")
int cora_load(struct cora_rows_call *call)
{
    switch (call->state) {
    default: call->next = 0;
    }
    return 0;
}
