/* Packets and their times from a file, and what became of them into another one: how the same program is held against
 * other executions, at the time stamps of a capture.
 *
 * Input:  u32 options, then packets (main_packet.h).
 * Output: sections of u64 size and content: the summary, the events of every worker, every state's dump, and the counts
 *         of the workers. All in native order. Times are those of the packets; nothing expires between two of them. */
#ifndef CORA_DPDK_RECORDS_H
#define CORA_DPDK_RECORDS_H

#include "../main_packet.h"
#include "totals.h"

static struct {
    FILE *in, *out;
    uint64_t index;
    bool lockstep;
} cora_by_records;

static void cora_records_open(const struct cora_options *o)
{
    uint32_t options;
    cora_by_records.in = fopen(o->records, "rb");
    cora_by_records.out = cora_by_records.in ? fopen(o->output, "wb") : NULL;
    if (!cora_by_records.out)
        cora_fail("%s cannot be opened: %s", cora_by_records.in ? o->output : o->records, strerror(errno));
    if (fread(&options, sizeof options, 1, cora_by_records.in) != 1)
        cora_fail("%s is no file of records", o->records);
    cora_by_records.lockstep = o->lockstep;
    cora_host.by_records = true;
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        cora_host.worker[i].engine->core.options = options;
        cora_host.worker[i].engine->core.output_mode = CORA_OUTPUT_EVENTS;
    }
}

/* The next packet of the file in an mbuf; false: there is none. */
static bool cora_records_next(struct cora_worker *w, uint32_t i)
{
    struct cora_record *record = &w->records[i];
    if (!cora_main_packet(cora_by_records.in, record))
        return false;
    struct rte_mbuf *m = rte_pktmbuf_alloc(cora_host.pool);
    if (!m)
        cora_fail("there is no packet buffer left: more --buffers");
    if (record->ethertype || record->caplen > cora_host.frame_room)
        cora_fail("packet %llu does not fit a buffer: larger --frame-bytes",
                  (unsigned long long)cora_by_records.index + i);
    memcpy(rte_pktmbuf_append(m, (uint16_t)record->caplen), (const void *)(uintptr_t)record->data, record->caplen);
    free((void *)(uintptr_t)record->data);
    if (record->time_ns < cora_host.virtual_now)
        record->time_ns = cora_host.virtual_now;
    __atomic_store_n(&cora_host.virtual_now, record->time_ns, __ATOMIC_RELEASE);
    w->mbufs[i] = m;
    return true;
}

/* Before a packet of a program with pools begins: no entry at any core is due that still has its value, so the values
 * that are given do not depend on when each core looks at the clock. */
static void cora_records_settle(struct cora_worker *w)
{
    for (uint32_t i = 0; i < cora_host.workers; i++)
        while (__atomic_load_n(&cora_host.worker[i].engine->core.next_due, __ATOMIC_ACQUIRE) < cora_host.virtual_now)
            cora_worker_serve(w);
}

/* The next packets of the file; returns how many. */
static uint32_t cora_records_receive(struct cora_worker *w)
{
    uint32_t n = 0, most = cora_by_records.lockstep ? 1 : CORA_BURST;
    while (n < most && cora_records_next(w, n))
        n++;
    if (cora_by_records.lockstep && CORA_POOLS)
        cora_records_settle(w);
    cora_worker_run(w, n, cora_by_records.index);
    cora_by_records.index += n;
    w->counts.received += n;
    while (cora_by_records.lockstep && __atomic_load_n(&cora_host.in_flight, __ATOMIC_ACQUIRE))
        cora_worker_serve(w);
    return n;
}

static void cora_records_report(void)
{
    FILE *out = cora_by_records.out;
    uint64_t summary[CORA_SUMMARY];
    size_t size;
    /* Cores without a packet have not looked at the clock since. */
    for (uint32_t i = 0; i < cora_host.workers; i++)
        cora_worker_expire(cora_host.worker[i].engine, cora_host.virtual_now);
    cora_host_summary(summary);
    cora_main_section(out, summary, sizeof summary);
    for (uint32_t i = 0; i < cora_host.workers; i++) {
        const uint8_t *events = cora_output(cora_host.worker[i].engine, &size);
        cora_main_section(out, events, size);
    }
    const uint32_t states = CORA_STATES;
    for (uint32_t i = 0; i < states; i++) {
        uint8_t *rows = cora_host_dump(i, &size);
        if (!rows)
            cora_fail("there is no memory for a dump");
        cora_main_section(out, rows, size);
        free(rows);
    }
    for (uint32_t i = 0; i < cora_host.workers; i++)
        cora_main_section(out, &cora_host.worker[i].counts, sizeof cora_host.worker[i].counts);
    if (fclose(out) != 0)
        cora_fail("the output cannot be written: %s", strerror(errno));
}

#endif
