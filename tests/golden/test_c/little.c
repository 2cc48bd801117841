/* little, from little.nf */
#define CORA_TRACKERS 0
#define CORA_PORTS 2
#define CORA_REASONS 7
#define CORA_STATES 1
#define CORA_PATHS UINT64_C(14)
#define CORA_CONFIG_SIZE 2

#include "base.h"

struct cora_live {
    uint32_t v_src;
};
#define CORA_LIVE_VALUES

#include "core.h"
#include "fragment.h"
#include "meter.h"
#include "pool.h"
#include "table.h"

struct cora_config {
    uint16_t c_limit;
};

struct t_hosts_entry {
    uint64_t last; /* ns */
    uint32_t f_src;
    uint16_t f_packets;
    uint8_t timeout; /* class */
    uint8_t live;
} __attribute__((aligned(16)));

struct t_hosts {
    struct t_hosts_entry *entries;
    struct cora_slots slots;
    struct cora_index index_0; /* k */
    struct cora_expiry expiry;
    CORA_IF_PROFILE(struct cora_table_profile profile;)
};

struct cora_engine {
    struct cora_core core;
    struct cora_batch batch;
    struct cora_config config;
    struct t_hosts t_hosts;
};

/* idle */
static const uint64_t t_hosts_timeouts[] = {0x12a05f200ull};

/* hosts.k */
static inline uint64_t t_hosts_hash_0(const struct cora_engine *E, uint32_t f_src)
{
    const uint64_t *seed = E->core.seed;
    return cora_mix(seed, cora_nh(seed, 0, (uint64_t)f_src, 0));
}

static inline uint32_t t_hosts_find_0(const struct cora_engine *E, uint64_t hash, uint32_t f_src)
{
    struct cora_probe probe = cora_index_probe(&E->t_hosts.index_0, hash);
    uint32_t at;
    while ((at = cora_index_next(&E->t_hosts.index_0, &probe)) != CORA_NONE) {
        const struct t_hosts_entry *e = &E->t_hosts.entries[at];
        if (CORA_LIKELY(e->f_src == f_src))
            break;
    }
    return at;
}

static inline uint32_t t_hosts_lookup_0(struct cora_engine *E, uint64_t hash, uint32_t f_src)
{
    uint32_t at = t_hosts_find_0(E, hash, f_src);
    CORA_IF_PROFILE(E->t_hosts.profile.events[at == CORA_NONE ? CORA_MISS_FIRST : CORA_HIT_FIRST]++;)
    CORA_IF_PROFILE(if (at != CORA_NONE) cora_profile_use(&E->t_hosts.profile, &E->core, at);)
    return at;
}

CORA_COLD void t_hosts_grow_0(struct cora_engine *E)
{
    struct cora_index old = E->t_hosts.index_0;
    cora_index_init(&E->t_hosts.index_0, 2 * (old.mask + 1));
    for (uint32_t at = 0; at < E->t_hosts.slots.top; at++) {
        const struct t_hosts_entry *e = &E->t_hosts.entries[at];
        if (e->live)
            cora_index_add(&E->t_hosts.index_0, t_hosts_hash_0(E, e->f_src), at);
    }
    cora_index_close(&old);
}

CORA_COLD void t_hosts_remove(struct cora_engine *E, uint32_t at)
{
    struct t_hosts_entry *e = &E->t_hosts.entries[at];
    cora_index_remove(&E->t_hosts.index_0, t_hosts_hash_0(E, e->f_src), at);
    cora_expiry_remove(&E->t_hosts.expiry, at);
    e->live = 0;
    CORA_IF_PROFILE(cora_profile_end(&E->t_hosts.profile, &E->core, at);)
    cora_slots_give(&E->t_hosts.slots, at);
}

CORA_COLD void t_hosts_expire(struct cora_engine *E, uint64_t now)
{
    uint32_t at;
    while ((at = cora_expiry_pop(&E->t_hosts.expiry, now)) != CORA_NONE) {
        const struct t_hosts_entry *e = &E->t_hosts.entries[at];
        uint64_t deadline = cora_add_capped(e->last, t_hosts_timeouts[e->timeout]);
        if (deadline >= now) {
            cora_expiry_push(&E->t_hosts.expiry, at, deadline);
            continue;
        }
        CORA_IF_PROFILE(cora_profile_expiry(&E->t_hosts.profile, &E->core, CORA_EXPIRED);)
        t_hosts_remove(E, at);
    }
}

static inline void t_hosts_touch(struct cora_engine *E, uint32_t at, uint64_t now, uint8_t timeout)
{
    struct t_hosts_entry *e = &E->t_hosts.entries[at];
    e->last = now;
    (void)timeout;
    CORA_IF_PROFILE(E->t_hosts.profile.events[CORA_TOUCHED]++;)
}

/* The new entry's number, or CORA_NONE; nothing has changed then. `hash` is the primary key's. */
CORA_SHARED uint32_t t_hosts_insert(struct cora_engine *E, uint64_t hash, uint64_t now, uint8_t timeout, uint32_t f_src, uint16_t f_packets)
{
    if (t_hosts_find_0(E, hash, f_src) != CORA_NONE)
        { CORA_IF_PROFILE(E->t_hosts.profile.events[CORA_FULL]++;) return CORA_NONE; }
    if (E->t_hosts.slots.count == E->t_hosts.slots.capacity)
        { CORA_IF_PROFILE(E->t_hosts.profile.events[CORA_FULL]++;) return CORA_NONE; }
    if (CORA_UNLIKELY(E->t_hosts.index_0.count >= E->t_hosts.index_0.limit))
        t_hosts_grow_0(E);
    uint32_t at = cora_slots_take(&E->t_hosts.slots);
    struct t_hosts_entry *e = &E->t_hosts.entries[at];
    e->f_src = f_src;
    e->f_packets = f_packets;
    e->last = now;
    e->timeout = timeout;
    e->live = 1;
    cora_index_add(&E->t_hosts.index_0, hash, at);
    uint64_t deadline = cora_add_capped(now, t_hosts_timeouts[timeout]);
    cora_expiry_add(&E->t_hosts.expiry, at, deadline);
    E->core.next_due = cora_min64(E->core.next_due, deadline);
    CORA_IF_PROFILE(cora_profile_insert(&E->t_hosts.profile, &E->core, at);)
    return at;
}

CORA_COLD void t_hosts_open(struct cora_engine *E)
{
    E->t_hosts.entries = cora_zeroed(10u, sizeof *E->t_hosts.entries);
    cora_slots_init(&E->t_hosts.slots, 10u);
    cora_index_init(&E->t_hosts.index_0, 16);
    cora_expiry_init(&E->t_hosts.expiry, 10u);
    CORA_IF_PROFILE(cora_profile_init(&E->t_hosts.profile, 10u);)
}

CORA_COLD void t_hosts_close(struct cora_engine *E)
{
    cora_release(E->t_hosts.entries, 10u, sizeof *E->t_hosts.entries);
    cora_slots_close(&E->t_hosts.slots);
    cora_index_close(&E->t_hosts.index_0);
    cora_expiry_close(&E->t_hosts.expiry);
    CORA_IF_PROFILE(cora_profile_close(&E->t_hosts.profile);)
}

CORA_COLD void t_hosts_dump(const struct cora_engine *E, uint8_t *out)
{
    for (uint32_t at = 0; at < E->t_hosts.slots.top; at++) {
        const struct t_hosts_entry *e = &E->t_hosts.entries[at];
        if (!e->live)
            continue;
        memcpy(out + 0, &e->last, 8);
        memcpy(out + 8, &e->timeout, 1);
        memcpy(out + 9, &e->f_src, 4);
        memcpy(out + 13, &e->f_packets, 2);
        out += 15;
    }
}

CORA_COLD bool t_hosts_load(struct cora_engine *E, const uint8_t *row)
{
    if (E->t_hosts.slots.count == E->t_hosts.slots.capacity)
        return false;
    struct t_hosts_entry loaded = {0}, *e = &loaded;
    memcpy(&e->last, row + 0, 8);
    memcpy(&e->timeout, row + 8, 1);
    memcpy(&e->f_src, row + 9, 4);
    memcpy(&e->f_packets, row + 13, 2);
    if (t_hosts_find_0(E, t_hosts_hash_0(E, e->f_src), e->f_src) != CORA_NONE)
        return false;
    if (E->t_hosts.index_0.count >= E->t_hosts.index_0.limit)
        t_hosts_grow_0(E);
    uint32_t at = cora_slots_take(&E->t_hosts.slots);
    E->t_hosts.entries[at] = loaded;
    e = &E->t_hosts.entries[at];
    e->live = 1;
    cora_index_add(&E->t_hosts.index_0, t_hosts_hash_0(E, e->f_src), at);
    uint64_t deadline = cora_add_capped(e->last, t_hosts_timeouts[e->timeout]);
    cora_expiry_add(&E->t_hosts.expiry, at, deadline);
    E->core.next_due = cora_min64(E->core.next_due, deadline);
    CORA_IF_PROFILE(cora_profile_insert(&E->t_hosts.profile, &E->core, at);)
    return true;
}

CORA_COLD void cora_program_open(struct cora_engine *E, const uint8_t *config)
{
    (void)E, (void)config;
    memcpy(&E->config.c_limit, config + 0, 2);
    t_hosts_open(E);
}

CORA_COLD void cora_program_close(struct cora_engine *E)
{
    (void)E;
    t_hosts_close(E);
}

/* Removes what is due: table entries first, then held fragments. */
CORA_COLD void cora_program_expire(struct cora_engine *E)
{
    t_hosts_expire(E, E->core.now);
}

CORA_COLD uint64_t cora_program_due(const struct cora_engine *E)
{
    uint64_t due = CORA_NEVER;
    (void)E;
    due = cora_min64(due, cora_expiry_due(&E->t_hosts.expiry));
    return due;
}

CORA_COLD size_t cora_program_size(const struct cora_engine *E, uint32_t state)
{
    (void)E;
    switch (state) {
    case 0: return (size_t)E->t_hosts.slots.count * 15;
    default: return 0;
    }
}

CORA_COLD void cora_program_dump(const struct cora_engine *E, uint32_t state, uint8_t *out)
{
    (void)E;
    (void)out;
    switch (state) {
    case 0: t_hosts_dump(E, out); break;
    default: break;
    }
}

CORA_COLD bool cora_program_load(struct cora_engine *E, uint32_t state, const uint8_t *rows, size_t size)
{
    (void)E;
    (void)rows;
    switch (state) {
    case 0:
        for (size_t at = 0; at + 15 <= size; at += 15)
            if (!t_hosts_load(E, rows + at))
                return false;
        return true;
    default: return size == 0;
    }
}

#ifdef CORA_PROFILE
CORA_COLD struct cora_table_profile *cora_program_profile(struct cora_engine *E, uint32_t state)
{
    (void)E;
    switch (state) {
    case 0: return &E->t_hosts.profile;
    default: return NULL;
    }
}
#endif

static void cora_program_prefix(struct cora_engine *E, struct cora_packet *p)
{
    CORA_VALUE uint16_t v_port, v_type;
    CORA_VALUE uint32_t v_src;
    CORA_IF_PROFILE(uint64_t path = 0;)
    (void)E;
    /* little.nf:1 */
    v_port = p->port;
    switch (v_port) {
    case 0u: goto b_from_a;
    default: { CORA_STEP(11); goto b_from_b; }
    }
b_from_a: /* little.nf:17 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_a_l2;
    case CORA_MALFORMED: { CORA_STEP(9); goto b_drop_malformed; }
    default: { CORA_STEP(10); goto b_drop_unparsed; }
    }
b_a_l2: /* little.nf:17 */
    v_type = p->eth_type;
    switch (v_type) {
    case 2048u: goto b_a_ipv4;
    default: { CORA_STEP(8); goto b_on_a; }
    }
b_a_ipv4: /* little.nf:17 */
    switch (cora_extract_ipv4(p, true, true)) {
    case CORA_OK: goto b_a_ipv4_ok;
    case CORA_MALFORMED: { CORA_STEP(4); goto b_drop_malformed; }
    case CORA_UNPARSED: { CORA_STEP(5); goto b_drop_unparsed; }
    case CORA_BAD_CHECKSUM: { CORA_STEP(6); goto b_drop_bad_IPv4_checksum; }
    default: { CORA_STEP(7); goto b_drop_source_route; }
    }
b_a_ipv4_ok: /* little.nf:17 */
    goto b_on_a_ipv4;
b_on_a_ipv4: /* little.nf:17 */
    /* little.nf:18 */
    v_src = cora_get32(p->data + p->l3 + 12);
    cora_prefetch_key(p, &E->t_hosts.index_0, t_hosts_hash_0(E, v_src), E->t_hosts.entries, sizeof *E->t_hosts.entries);
    p->live.v_src = v_src;
    CORA_STOP(1);
b_drop_bad_IPv4_checksum: /* little.nf:17 */
    CORA_END(CORA_DROP | 2); /* bad IPv4 checksum */
b_drop_source_route: /* little.nf:17 */
    CORA_END(CORA_DROP | 3); /* source route */
b_on_a: /* little.nf:29 */
    CORA_END(CORA_DROP | 4); /* not IPv4 */
b_from_b: /* little.nf:30 */
    switch (cora_extract_eth(p, 2)) {
    case CORA_OK: goto b_b_l2;
    case CORA_MALFORMED: { CORA_STEP(1); goto b_drop_malformed; }
    default: { CORA_STEP(2); goto b_drop_unparsed; }
    }
b_b_l2: /* little.nf:30 */
    goto b_on_b;
b_on_b: /* little.nf:30 */
    CORA_END(0); /* forward a */
b_drop_malformed: /* little.nf:17 */
    CORA_END(CORA_DROP | 5); /* malformed */
b_drop_unparsed: /* little.nf:17 */
    CORA_END(CORA_DROP | 6); /* unparsed */
}

static void cora_program_finish(struct cora_engine *E, struct cora_packet *p)
{
    CORA_VALUE uint32_t v_src, v_src_2, v_e;
    CORA_VALUE uint16_t v_packets, v_packets_2, v_v_2;
    CORA_VALUE bool v_v_1;
    CORA_VALUE uint8_t v_ttl, v_v_3;
    uint64_t hash = p->hash;
    CORA_IF_PROFILE(uint64_t path = p->path;)
    (void)E, (void)hash;
    switch (p->resume) {
    case 1:
        v_src = p->live.v_src;
        goto resume_1;
    default:
        return;
    }
resume_1: /* little.nf:17 */
    /* little.nf:18 */
    v_e = t_hosts_lookup_0(E, hash, v_src);
    if (v_e != CORA_NONE)
        goto b_hosts_hit;
    { CORA_STEP(2); goto b_hosts_miss; }
b_hosts_hit: /* little.nf:18 */
    /* little.nf:20 */
    v_packets = E->t_hosts.entries[v_e].f_packets;
    v_v_1 = v_packets >= E->config.c_limit;
    if (v_v_1)
        goto b_then;
    { CORA_STEP(1); goto b_else; }
b_then: /* little.nf:20 */
    CORA_END(CORA_DROP | 0); /* enough */
b_else: /* little.nf:20 */
    /* little.nf:21 */
    v_packets_2 = E->t_hosts.entries[v_e].f_packets;
    v_v_2 = (uint16_t)(v_packets_2 + 1u);
    CORA_IF_PROFILE(if (E->t_hosts.entries[v_e].f_packets != v_v_2) cora_profile_change(&E->t_hosts.profile, &E->core, v_e);)
    E->t_hosts.entries[v_e].f_packets = v_v_2;
    CORA_IF_PROFILE(E->t_hosts.profile.events[CORA_STORED]++;)
    /* little.nf:22 */
    t_hosts_touch(E, v_e, p->now, 0);
    /* little.nf:23 */
    v_ttl = cora_get8(p->data + p->l3 + 8);
    v_v_3 = (uint8_t)(v_ttl - 1u);
    {
        uint64_t change = cora_store_bits16(p->data + p->l3 + 8, v_v_3, 8, 0xff);
        cora_stored_ipv4(p, change);
    }
    /* little.nf:24 */
    CORA_END(1); /* forward b */
b_hosts_miss: /* little.nf:18 */
    /* little.nf:26 */
    v_src_2 = cora_get32(p->data + p->l3 + 12);
    hash = t_hosts_hash_0(E, v_src_2);
    if (t_hosts_insert(E, hash, p->now, 0, v_src_2, 1u) != CORA_NONE)
        goto b_hosts_ok;
    { CORA_STEP(1); goto b_hosts_full; }
b_hosts_ok: /* little.nf:26 */
    CORA_END(1); /* forward b */
b_hosts_full: /* little.nf:26 */
    CORA_END(CORA_DROP | 1); /* full */
}

#include "driver.h"
