/* The world of a place whose only neighbour is the kernel half (split.h). A message to the kernel is a call of its program
 * `cora_told`, and the answer is there when the call returns: nothing is ever waited for. */
#ifndef CORA_XDP_WORLD_H
#define CORA_XDP_WORLD_H

#include "kernel.h"

_Thread_local jmp_buf *cora_split_rescue;

/* Offers of a lending that are not made after one that was refused. */
#define CORA_SPARED 16

struct cora_offers {
    uint64_t gap; /* mean pause of the flow that was refused last */
    uint32_t spare;
};

struct cora_world {
    struct cora_kernel *kernel;
    struct cora_engine *engine;
    uint64_t statistics[CORA_STATISTICS], serial;
    struct cora_offers offers[CORA_LENDINGS + 1];
};

uint64_t *cora_world_statistics(struct cora_world *w) { return w->statistics; }
uint64_t cora_world_serial(struct cora_world *w) { return ++w->serial; }

/* Where the kernel's table is full of flows that are used more, every packet of the others would make an offer, and an
 * offer is a system call. After a refusal the next ones are refused here, but for flows twice as fast. */
static bool cora_world_spares(struct cora_world *w, const struct cora_message *message)
{
    struct cora_offers *o = &w->offers[message->lending];
    if (message->kind != CORA_LEND || !o->spare || message->gap < o->gap / 2)
        return false;
    o->spare--;
    w->statistics[CORA_REFUSED]++;
    return true;
}

void cora_world_up(struct cora_world *w, uint32_t from, const struct cora_message *message)
{
    (void)from;
    struct cora_message answer = *message;
    if (cora_world_spares(w, message)) {
        answer.kind = CORA_REFUSAL;
        answer.active = false;
        cora_owner_told(w->engine, &answer);
        return;
    }
    if (!cora_kernel_tell(w->kernel, message, &answer))
        return;
    cora_owner_told(w->engine, &answer);
    if (answer.kind == CORA_REFUSAL)
        w->offers[message->lending] = (struct cora_offers){message->gap, CORA_SPARED};
}

/* The kernel answers at once, so only a kernel half that does not answer at all gets here. */
void cora_world_wait(struct cora_world *w, uint32_t place)
{
    (void)place;
    cora_kernel_silent(w->kernel);
}

/* What user space is through with is published when its packets have been sent (user.h). */
void cora_world_through(struct cora_world *w, uint64_t index) { (void)w, (void)index; }

/* No tracker waits in the kernel, and no place is behind this one. */
void cora_world_ended(struct cora_world *w, uint64_t index, uint16_t verdict) { (void)w, (void)index, (void)verdict; }
void cora_world_left(struct cora_world *w, uint64_t flow, uint64_t index) { (void)w, (void)flow, (void)index; }
void cora_world_down(struct cora_world *w, uint32_t from, const struct cora_message *message)
{
    (void)w, (void)from, (void)message;
}
void cora_world_push(struct cora_world *w, uint32_t place, struct cora_item *item)
{
    (void)place;
    w->statistics[CORA_STRAY]++;
    free(item);
}
uint64_t cora_world_harm(const struct cora_world *w, uint32_t place, uint32_t entry)
{
    (void)w, (void)place, (void)entry;
    return 0;
}

#endif
