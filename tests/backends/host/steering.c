/* Compares the steering hash of shard.h with DPDK's own Toeplitz hash, and takes and gives values of a shared pool from
 * several threads. */
#define CORA_SHARDS
#define CORA_STATES 1
#define CORA_PORTS 1
#define CORA_REASONS 1

#include <pthread.h>
#include <rte_byteorder.h>
#include <rte_thash.h>

#include "shard.h"

static uint64_t next_number(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static int steering(void)
{
    uint8_t key[40];
    uint64_t state = 88172645463325252;
    for (int i = 0; i < 40; i++)
        key[i] = (uint8_t)(i % 2 ? CORA_STEER_KEY & 255 : CORA_STEER_KEY >> 8);
    cora_steer_open(7);
    for (int i = 0; i < 100000; i++) {
        uint64_t a = next_number(&state), b = next_number(&state);
        uint32_t source = (uint32_t)a, destination = (uint32_t)(a >> 32);
        uint16_t sport = (uint16_t)b, dport = (uint16_t)(b >> 16);
        /* Words of the input in host order, as rte_softrss takes them. */
        uint32_t tuple[3] = {source, destination, (uint32_t)sport << 16 | dport};
        uint32_t wanted = rte_softrss(tuple, 3, key) % CORA_STEER_SLOTS % 7;
        uint16_t folded = cora_fold16(source) ^ cora_fold16(sport) ^ cora_fold16(destination) ^ cora_fold16(dport);
        if (cora_steer(folded) != wanted)
            return 1;
        if (cora_fold16_wide((cora_u128)a << 64 | b) != (cora_fold16(a) ^ cora_fold16(b)))
            return 2;
    }
    return 0;
}

#define VALUES 200
#define THREADS 4
#define MINE (VALUES / THREADS)

static struct cora_pool pool;
static uint32_t holders[VALUES];

/* Never holds more than its part of the values, so that there is always one for it: a take that fails is a fault. */
static void *churn(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15;
    uint32_t mine[MINE], count = 0;
    for (int i = 0; i < 300000; i++) {
        uint64_t n = next_number(&state);
        if (count == MINE || (count && n & 1)) {
            uint32_t at = (uint32_t)(n >> 8) % count, value = mine[at];
            mine[at] = mine[--count];
            if (__atomic_exchange_n(&holders[value], 0, __ATOMIC_RELAXED) != 1)
                return "a value was given to two";
            cora_pool_give(&pool, value);
            continue;
        }
        uint32_t value = n & 2 ? cora_pool_take(&pool) : cora_pool_take_near(&pool, (n >> 8) % VALUES, n & 4);
        if (value == CORA_NONE)
            return "a free value was not found";
        if (value >= VALUES || __atomic_exchange_n(&holders[value], 1, __ATOMIC_RELAXED) != 0)
            return "a value was given to two";
        mine[count++] = value;
    }
    for (uint32_t i = 0; i < count; i++) {
        holders[mine[i]] = 0;
        cora_pool_give(&pool, mine[i]);
    }
    return NULL;
}

static int sharing(void)
{
    pthread_t threads[THREADS];
    cora_pool_init(&pool, VALUES, VALUES, 1000);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) {
        void *said;
        pthread_join(threads[i], &said);
        if (said) {
            fprintf(stderr, "%s\n", (const char *)said);
            return 3;
        }
    }
    if (cora_pool_count(&pool) != 0)
        return 4;
    for (uint32_t i = 0; i < VALUES; i++)
        if (cora_pool_take(&pool) == CORA_NONE)
            return 5;
    return cora_pool_take(&pool) == CORA_NONE ? 0 : 6;
}

int main(void)
{
    int failed = steering();
    return failed ? failed : sharing();
}
