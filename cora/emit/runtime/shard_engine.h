/* What needs to see the engine of shard.h: the generated `struct cora_engine` has a `struct cora_shard shard`. */
#ifndef CORA_SHARD_ENGINE_H
#define CORA_SHARD_ENGINE_H

#include "shard.h"

/* Gives a new engine its number. */
CORA_COLD void cora_shard_begin(struct cora_engine *E)
{
    E->shard.number = cora_shards.made;
    cora_shards.engines[cora_shards.made++] = E;
}

/* The first engine makes a pool, the others share it. */
CORA_COLD bool cora_shard_shares(const struct cora_engine *E) { return E->shard.number != 0; }

/* An insert found no room. Entries at other cores may be due that those have not removed yet: waits until none is; true
 * when there were some, so that it is worth another try.
 *
 * A core is never behind `now` for long: it removes what is due before each packet and while it has none. Of two that
 * wait for each other in the middle of a packet, the one whose packet is the earlier goes on at once. A core that stands
 * still for a packet that runs alone would be waited for in vain: then nobody waits, and the refusal is counted. */
CORA_COLD bool cora_shard_settle(struct cora_engine *E, uint64_t now)
{
    bool waited = false;
    for (uint32_t i = 0; i < cora_shards.count && !E->shard.alone; i++) {
        const struct cora_engine *other = cora_shards.engines[i];
        while (other != E && __atomic_load_n(&other->core.next_due, __ATOMIC_ACQUIRE) < now) {
            if (__atomic_load_n(&cora_shards.halt, __ATOMIC_ACQUIRE)) {
                E->shard.early++;
                return waited;
            }
            waited = true;
            cora_relax();
        }
    }
    return waited;
}

#endif
