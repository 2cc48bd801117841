/* Timed kernels of packet work, made of the same headers as generated programs. Each function repeats one operation and
 * returns nanoseconds per operation; chains go through registers that the compiler cannot see through, so nothing is
 * left out or moved. */
#include "base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core.h"
#include "table.h"
#include "checksum.h"

#define OPAQUE(x) __asm__ volatile("" : "+r"(x))
#define OPAQUE4(a, b, c, d) __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d))

/* Time of this thread on a processor: what other programs take from it is not counted. */
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TIMED(n, ...) \
    double start_ = now_ns(); \
    for (uint64_t i = 0; i < (n); i++) { \
        __VA_ARGS__; \
    } \
    return (now_ns() - start_) / (double)(n)

/* Eight dependent rotations are eight cycles: nanoseconds of a cycle. (Additions of constants are merged before they run
 * on some processors.) */
double cora_measure_cycle(uint64_t n)
{
    uint64_t x = 0x9e3779b97f4a7c15;
    double start = now_ns();
    for (uint64_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            x = x << 7 | x >> 57;
            OPAQUE(x);
        }
    return (now_ns() - start) / (double)n;
}

/* Four independent chains: what an instruction takes among others. */
double cora_measure_word(uint64_t n)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 0x9e3779b97f4a7c15;
    OPAQUE(e);
    double start = now_ns();
    for (uint64_t i = 0; i < n; i += 8) {
        a += e, b ^= e, c += e, d ^= e;
        OPAQUE4(a, b, c, d);
        a ^= e, b += e, c ^= e, d += e;
        OPAQUE4(a, b, c, d);
    }
    return (now_ns() - start) / (double)n;
}

/* The loop itself: compare and taken branch. */
double cora_measure_branch(uint64_t n)
{
    uint64_t x = 0;
    TIMED(n, OPAQUE(x));
}

double cora_measure_multiply(uint64_t n)
{
    uint64_t x = 3;
    TIMED(n, x *= 0x9e3779b97f4a7c15; OPAQUE(x));
}

double cora_measure_divide(uint64_t n)
{
    uint64_t x = 1;
    TIMED(n, uint64_t d = 7; OPAQUE(d); x = (UINT64_MAX - x) / d; OPAQUE(x));
}

static uint8_t frame[2048] __attribute__((aligned(64)));

double cora_measure_field_read(uint64_t n)
{
    uint64_t sum = 0;
    TIMED(n, const uint8_t *p = frame + 26; OPAQUE(p); sum += cora_get32(p); OPAQUE(sum));
}

double cora_measure_field_write(uint64_t n)
{
    TIMED(n, uint8_t *p = frame + 26; OPAQUE(p); cora_put32(p, (uint32_t)i); __asm__ volatile("" ::: "memory"));
}

/* A rewritten address in the IPv4 header's checksum. */
double cora_measure_checksum(uint64_t n)
{
    TIMED(n, uint64_t change = cora_store16(frame + 26, (uint16_t)i); OPAQUE(change); cora_fix(frame + 24, change);
          __asm__ volatile("" ::: "memory"));
}

double cora_measure_sum_word(uint64_t n)
{
    uint64_t sum = 0;
    double start = now_ns();
    for (uint64_t i = 0; i < n; i += 750) {
        const uint8_t *p = frame;
        OPAQUE(p);
        sum += cora_sum(p, 1500, sum & 0xff);
        OPAQUE(sum);
    }
    return (now_ns() - start) / (double)n;
}

/* Copy of a 1500-byte frame: nanoseconds per frame. */
double cora_measure_copy(uint64_t n)
{
    static uint8_t to[2048];
    TIMED(n, uint8_t *p = to; OPAQUE(p); memcpy(p, frame, 1500); __asm__ volatile("" ::: "memory"));
}

static const uint64_t seed[8] = {0x8f3c9a5d1b7e2461, 0x2d6b8e4f90a1c375, 0x71e5d3b9486fa02c, 0xc40f7a1683de592b,
                                 0x5a92ce7304b81fd6, 0xe6174d8b3fa5092c, 0x19b4f0a67c8d23e5, 0xb3720e95d164fc8a};

static uint64_t hash_of(uint64_t a, uint64_t b) { return cora_mix(seed, cora_nh(seed, 0, a, b)); }

double cora_measure_hash(uint64_t n)
{
    uint64_t x = 1;
    TIMED(n, x = hash_of(x, i); OPAQUE(x));
}

/* --- tables: an index and entries of one cache line, as a flow with its counters has --- */

struct entry {
    uint64_t key[2], last, packets, octets, unused[3];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct entry) == 64, "an entry is one cache line");

struct table {
    struct cora_index index;
    struct cora_slots slots;
    struct entry *entries;
    uint64_t capacity, flows;
};

static uint64_t key_of(uint64_t flow) { return flow * 0x9e3779b97f4a7c15 + 1; }

static uint32_t find(const struct table *t, uint64_t a, uint64_t b)
{
    struct cora_probe probe = cora_index_probe(&t->index, hash_of(a, b));
    uint32_t e;
    while ((e = cora_index_next(&t->index, &probe)) != CORA_NONE)
        if (t->entries[e].key[0] == a && t->entries[e].key[1] == b)
            return e;
    return CORA_NONE;
}

static void insert(struct table *t, uint64_t a, uint64_t b)
{
    uint32_t at = cora_slots_take(&t->slots);
    t->entries[at] = (struct entry){.key = {a, b}};
    cora_index_add(&t->index, hash_of(a, b), at);
}

void cora_measure_close(struct table *t)
{
    cora_index_close(&t->index);
    cora_slots_close(&t->slots);
    cora_release(t->entries, t->capacity, sizeof *t->entries);
    free(t);
}

/* A table of so many flows, with room for as many again; NULL when there is no memory. */
struct table *cora_measure_open(uint64_t flows)
{
    jmp_buf rescue;
    struct table *volatile t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    cora_rescue = &rescue;
    if (setjmp(rescue)) {
        cora_rescue = NULL;
        free(t);
        return NULL;
    }
    uint64_t buckets = 8;
    while (buckets * 5 < 2 * flows)
        buckets *= 2;
    t->flows = flows;
    t->capacity = 2 * flows;
    cora_index_init(&t->index, buckets);
    cora_slots_init(&t->slots, (uint32_t)t->capacity);
    t->entries = cora_zeroed(t->capacity, sizeof *t->entries);
    for (uint64_t f = 0; f < flows; f++)
        insert(t, key_of(f), f);
    /* The first touch of a page is not part of any operation. */
    memset(t->entries + flows, 0, flows * sizeof *t->entries);
    cora_rescue = NULL;
    return t;
}

static uint64_t step(uint64_t x) /* xorshift64* */
{
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return x;
}

/* The next flow depends on the entry found: one look-up after the other, as packets with other work between them. */
double cora_measure_lookup(struct table *t, uint64_t n)
{
    uint64_t x = 88172645463325252u;
    TIMED(n, x = step(x); uint64_t f = x % t->flows; uint32_t e = find(t, key_of(f), f); x += t->entries[e].octets;
          OPAQUE(x));
}

/* What drawing the flow takes, to be subtracted. */
double cora_measure_draw(struct table *t, uint64_t n)
{
    uint64_t x = 88172645463325252u, sum = 0;
    TIMED(n, x = step(x); uint64_t f = x % t->flows; sum = key_of(f) ^ sum; OPAQUE(sum); OPAQUE(x));
}

/* A look-up and a change of the entry found. */
double cora_measure_record(struct table *t, uint64_t n)
{
    uint64_t x = 88172645463325252u;
    TIMED(n, x = step(x); uint64_t f = x % t->flows; uint32_t e = find(t, key_of(f), f); t->entries[e].packets++;
          x += t->entries[e].octets; OPAQUE(x));
}

/* A look-up, a change of the entry found, and of one line more of another array as large. */
double cora_measure_further(struct table *t, uint64_t n)
{
    struct entry *more = t->entries + t->flows;
    uint64_t x = 88172645463325252u;
    TIMED(n, x = step(x); uint64_t f = x % t->flows; uint32_t e = find(t, key_of(f), f); t->entries[e].packets++;
          uint64_t at = key_of(x + t->entries[e].octets) % t->flows; more[at].packets++;
          x += t->entries[e].octets + more[at].octets; OPAQUE(x));
}

/* Looks up and inserts so many new flows (at most as many as the table has), then looks up and removes them: both times,
 * in ns per flow. */
void cora_measure_changes(struct table *t, uint64_t n, double *inserted, double *deleted)
{
    double start = now_ns();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t f = t->flows + i;
        if (find(t, key_of(f), f) == CORA_NONE)
            insert(t, key_of(f), f);
    }
    *inserted = (now_ns() - start) / (double)n;
    start = now_ns();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t f = t->flows + i;
        uint32_t e = find(t, key_of(f), f);
        cora_index_remove(&t->index, hash_of(key_of(f), f), e);
        cora_slots_give(&t->slots, e);
    }
    *deleted = (now_ns() - start) / (double)n;
}

/* --- a line that one or two threads write --- */

#define LINES 64

struct writer {
    struct entry *lines;
    bool locked;
    uint64_t n;
    atomic_int *ready;
    int threads;
    double ns;
};

static void *write_lines(void *argument)
{
    struct writer *w = argument;
    atomic_fetch_add(w->ready, 1);
    while (atomic_load(w->ready) < w->threads) {
    }
    double start = now_ns();
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < w->n; i++) {
        x = step(x);
        struct entry *e = &w->lines[x % LINES];
        while (w->locked && __atomic_exchange_n(&e->unused[0], 1, __ATOMIC_ACQUIRE)) {
        }
        e->packets++, e->last = i;
        if (w->locked)
            __atomic_store_n(&e->unused[0], 0, __ATOMIC_RELEASE);
        __asm__ volatile("" ::: "memory");
    }
    w->ns = (now_ns() - start) / (double)w->n;
    return NULL;
}

/* Nanoseconds of a write by one of two threads: under a lock to lines of both, or each to its own; negative when there is
 * no second thread. */
double cora_measure_shared(uint64_t n, int shared)
{
    static struct entry lines[2][LINES];
    atomic_int ready = 0;
    struct writer w[2] = {{lines[0], shared, n, &ready, 2, 0}, {lines[!shared], shared, n, &ready, 2, 0}};
    pthread_t other;
    if (pthread_create(&other, NULL, write_lines, &w[1]))
        return -1;
    write_lines(&w[0]);
    pthread_join(other, NULL);
    return (w[0].ns + w[1].ns) / 2;
}
