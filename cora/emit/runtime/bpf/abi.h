/* What the kernel's half of a split program and its user half share: layouts, and the names of maps and programs.
 *
 * Both halves include the generated `kernel_interface.h` before this header; it defines CORA_PORTS, CORA_REASONS,
 * CORA_LENDINGS, CORA_COUNTERS, CORA_ROW_LIMIT, CORA_PUNT_FIXED, CORA_PUNT_LIMIT and CORA_PUNT_META.
 * A packet that is handed on has CORA_PUNT_META bytes of metadata: struct cora_punt_head, then its values.
 *
 * Maps (libbpf finds them by these names):
 *   .data.shared     one `struct cora_shared`, mmapable
 *   .data.config     one `struct cora_kernel_config` (kernel_interface.h), mmapable: the configuration
 *                    values
 *   cora_counts      one `struct cora_counts` for each CPU
 *   cora_devices     DEVMAP: by port number, the interface that packets leave by
 *   cora_xsks        XSKMAP: by port * shared.queues + receive queue, the socket of the user half
 *   cora_rows        one `struct cora_rows`, mmapable: rows that cora_dump and cora_load hand over
 *   .bss             the tables, pools and large counters (cora_dump reads them, whatever their layout)
 *
 * Programs:
 *   cora_xdp         SEC("xdp"), the same on every port's interface
 *   cora_told        SEC("syscall"), context `struct cora_kernel_call`: a message to this place; what it says to the
 *                    owner, if anything, is in `answer` when the run returns
 *   cora_sweep       SEC("syscall"), context `struct cora_sweep_call`: removes what is due; to be run at least every
 *                    half of the shortest slack (CORA_SWEEP_EVERY in kernel_interface.h, nanoseconds)
 *   cora_dump        SEC("syscall"), context `struct cora_rows_call`: writes rows of a state (cora/emit/layout.py) from
 *                    entry `from` on; for a counter rows of two 64-bit sums, for a pool its dump in 64-bit words
 *   cora_load        SEC("syscall"), context `struct cora_rows_call`: makes entries of `count` rows
 * A syscall program is run with its context as ctx_in alone: the kernel writes the results back there. One thread at a
 * time runs cora_told, cora_dump and cora_load.
 *
 * The user half, in order: opens and loads the object; fills shared.seed with random numbers, shared.ifindex,
 * shared.queues, cora_devices and cora_xsks; attaches cora_xdp; before it detaches or ends, it sets shared.attached to 0.
 */
#ifndef CORA_BPF_ABI_H
#define CORA_BPF_ABI_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

#define CORA_QUEUES 256   /* receive queues of all ports together */
#define CORA_NOTICES 4096 /* a power of two */
#define CORA_SEEDS 64     /* even numbers of words of a key use the first ones */

/* Which packets are through, without a lock on the way of a packet. Every packet handed on is counted in punted[q] by
 * the kernel and in done[q] by the user half, each queue a FIFO. Time is cut into rounds: `open` is the number of the round
 * that packets are handed on in now. When a round is closed, punted[] is copied to closing[]; it is through when every
 * done[q] has come that far. All rounds up to `through` are. A lent entry remembers the round in which a packet that must
 * not be overtaken was last handed on (and, to be quicker, its queue and number there). */
struct cora_rounds {
    uint64_t open, through;
    uint32_t busy; /* one CPU at a time closes rounds */
    uint32_t unused;
    uint64_t closing[CORA_QUEUES];
};

/* What the near place tells the owner of its own accord: CORA_ITEM_ACTIVE or CORA_ITEM_SOONER. The user half reads all
 * notices that are ready before it serves a packet: a notice is ready before any packet behind it is handed on. */
struct cora_notice {
    uint64_t ready; /* the notice's number and 1; written last */
    uint32_t kind, lending, slot, unused;
    uint64_t serial, deadline;
};

struct cora_shared {
    /* Written by the user half before packets come; read for every packet. */
    uint64_t virtual_now; /* nanoseconds; 0 without test_run: the kernel's clock (CLOCK_MONOTONIC) */
    uint32_t test_run;    /* 1: packets come from BPF_PROG_TEST_RUN: `verdict` tells what becomes of them, nothing is sent */
    uint32_t test_port;   /* with test_run: number of the arrival port */
    uint32_t queues;      /* receive queues of each port */
    uint32_t attached;    /* 1: the user half serves cora_xsks; else packets for it are dropped and counted */
    uint32_t ifindex[CORA_PORTS + 1]; /* of each port's interface */
    uint64_t seed[CORA_SEEDS] __attribute__((aligned(64)));

    /* Written by the kernel. */
    uint32_t verdict __attribute__((aligned(64))); /* test_run: what became of the packet, CORA_VERDICT_* */
    uint64_t guard[CORA_LENDINGS + 1]; /* use no entry of the lending before this round is through */
    uint64_t punted[CORA_QUEUES] __attribute__((aligned(64)));
    uint64_t lost[CORA_QUEUES]; /* counted in punted[], but the kernel could not hand them to a socket */
    struct cora_rounds rounds __attribute__((aligned(64)));
    uint64_t notice_head __attribute__((aligned(64))); /* notices written */
    struct cora_notice notices[CORA_NOTICES]; /* number n stands at n % CORA_NOTICES */

    /* Written by the user half. done[q]: packets of queue q that are through: what they changed is changed, and the
     * packet they became has left or is dropped. Packets that never reached the socket (lost[q], and rx_dropped,
     * rx_ring_full of XDP_STATISTICS) count too, but only once all that stood in the ring when they were read are
     * through: read these numbers first, then the ring's producer index, serve up to it, then add them. */
    uint64_t done[CORA_QUEUES] __attribute__((aligned(64)));
    uint64_t notice_tail __attribute__((aligned(64))); /* notices read */
};

/* shared.verdict: a port number, CORA_VERDICT_DROP with a reason number, or one of the others. */
#define CORA_VERDICT_DROP 0x8000
#define CORA_VERDICT_PUNT 0x10000 /* the frame has its header and values before it as metadata */
#define CORA_VERDICT_FAULT 0x20000 /* with a number of enum cora_kernel_fault */

/* Packets that ended in the kernel for no reason of the program. */
enum cora_kernel_fault {
    CORA_FAULT_PORT,     /* arrived on an interface that is no port's */
    CORA_FAULT_DEVICE,   /* the port to leave by has no interface */
    CORA_FAULT_USER,     /* to be handed on, but there is no user half, or no socket for the queue */
    CORA_FAULT_META,     /* the driver has no room for the punt header before the frame */
    CORA_FAULT_RACED,    /* a table changed on another CPU in the middle of a look-up, again and again */
    CORA_KERNEL_FAULTS
};

struct cora_kernel_total {
    uint64_t packets, octets;
};

/* Of one CPU; the sum over all counts. */
struct cora_counts {
    struct cora_kernel_total arrived;
    struct cora_kernel_total forwarded[CORA_PORTS + 1];
    uint64_t dropped[CORA_REASONS + 1];
    uint64_t faults[CORA_KERNEL_FAULTS];
    uint64_t notices_lost;                 /* the user half did not read them in time */
    uint64_t crowded;                      /* inserts that failed because a chain of a hash index was too long */
    uint64_t statistics[CORA_STATISTICS];  /* the near place's; CORA_PEAK by the CPU that installed last */
    struct cora_kernel_total counters[CORA_COUNTERS + 1]; /* of the program; cora_dump gives their sums */
};

struct cora_kernel_call {
    uint32_t answered; /* 1: `answer` is a message to the owner */
    uint32_t unused;
    struct cora_message message;
    struct cora_message answer;
};

struct cora_sweep_call {
    uint64_t now;      /* nanoseconds; 0: the clock that packets are stamped with */
    uint64_t removed;  /* result: entries removed */
};

#define CORA_ROWS_ROOM 65536

struct cora_rows {
    uint8_t bytes[CORA_ROWS_ROOM];
};

struct cora_rows_call {
    uint64_t now;         /* cora_dump: entries that are due at this time are left out; 0: as for packets */
    uint32_t state, from; /* number of the state in the part; first entry to be looked at */
    uint32_t count;       /* rows in cora_rows: result of cora_dump, argument of cora_load */
    uint32_t next;        /* cora_dump: where to go on, CORA_ROWS_END at the end; cora_load: first row not taken, or count */
};

#define CORA_ROWS_END UINT32_MAX

#endif
