"""Speed of the native engine on the NAT: million packets per second by number of flows, one core, packets in memory.

    .venv/bin/python benchmarks/native_engine.py [--packets N] [--rounds 7]

All figures are measured here. In every round the engine and a hand-written NAT (below: one open-addressing table, one
packet at a time, no expiry, no options, no fragments) process the same 64-byte packets, one after the other; printed
are medians and the ratio. The interpreter processes the first packets once.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cora.emit.cbuild import build_shared, load_shared
from cora.engine.native import NativeEngine
from cora.engine.reference import Reference
from cora.frontends import nf
from cora.frontends.traffic.capture import RECORD

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "nat.nf"
FRAME = 64
FLOWS = (1_000, 100_000, 1_000_000)
INTERPRETED = 2_000

# Room for a million mappings: 20 external addresses with 64,512 ports each.
OVERRIDES = {"ext_last": "203.0.113.20", "capacity": "1200000"}

BASELINE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
struct record {
    uint64_t time, data;
    uint32_t caplen, wirelen, orig;
    uint16_t port, type, flags, iface;
    uint32_t zero;
};
struct entry { uint32_t src, dst; uint16_t sp, dp; uint8_t proto, used; uint16_t xp; uint32_t xa; uint64_t last; };
static struct entry *table;
static uint64_t mask;
static uint32_t made;
void start(uint64_t slots) { free(table); table = calloc(slots, sizeof *table); mask = slots - 1; made = 0; }
static uint32_t hash(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint64_t h = (a ^ (uint64_t)b << 32) * 0x9e3779b97f4a7c15u;
    h ^= (c ^ (uint64_t)d << 32) * 0xc2b2ae3d27d4eb4fu;
    return (uint32_t)((h ^ h >> 29) * 0x9e3779b97f4a7c15u >> 32);
}
static uint16_t fold(uint32_t s) { s = (s & 0xffff) + (s >> 16); return (uint16_t)((s & 0xffff) + (s >> 16)); }
static void fix(uint8_t *at, uint32_t change)
{
    uint16_t old; memcpy(&old, at, 2);
    old = (uint16_t)~fold((uint16_t)~old + change);
    memcpy(at, &old, 2);
}
static uint32_t put(uint8_t *at, const void *value, int size)
{
    uint32_t change = 0;
    for (int i = 0; i < size; i += 2) {
        uint16_t a, b; memcpy(&a, at + i, 2); memcpy(&b, (const uint8_t *)value + i, 2);
        change += (uint16_t)~a + b; memcpy(at + i, &b, 2);
    }
    return change;
}
uint64_t run(const struct record *r, uint64_t n)
{
    static uint8_t frame[2048];
    uint64_t sent = 0;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(frame, (const void *)(uintptr_t)r[i].data, r[i].caplen);
        uint8_t *ip = frame + 14, *l4 = ip + 20;
        if (r[i].caplen < 42 || frame[12] != 8 || frame[13] || ip[0] != 0x45 || (ip[9] != 17 && ip[9] != 6))
            continue;
        uint32_t src, dst, ports, sum = 0;
        for (int k = 0; k < 20; k += 2) { uint16_t w; memcpy(&w, ip + k, 2); sum += w; }
        if (fold(sum) != 0xffff)
            continue;
        memcpy(&src, ip + 12, 4); memcpy(&dst, ip + 16, 4); memcpy(&ports, l4, 4);
        uint16_t sp = (uint16_t)ports, dp = (uint16_t)(ports >> 16);
        uint64_t at = hash(src, dst, ports, ip[9]) & mask;
        struct entry *e;
        while ((e = &table[at])->used &&
               !(e->src == src && e->dst == dst && e->sp == sp && e->dp == dp && e->proto == ip[9]))
            at = (at + 1) & mask;
        if (!e->used) {
            uint16_t xp = (uint16_t)(1024 + made % 64512);
            xp = (uint16_t)(xp >> 8 | xp << 8);
            *e = (struct entry){src, dst, sp, dp, ip[9], 1, xp, 203 | 113 << 16 | 1u << 24, 0};
            made++;
        }
        e->last = r[i].time;
        uint32_t change = put(ip + 12, &e->xa, 4);
        fix(ip + 10, change);
        uint8_t *check = l4 + (ip[9] == 6 ? 16 : 6);
        change += put(l4, &e->xp, 2);
        if (ip[9] == 6 || check[0] || check[1])
            fix(check, change);
        ip[8]--; fix(ip + 10, 1);
        sent += frame[26];
    }
    return sent;
}
"""


def checksum(words: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Internet checksums of rows of 16-bit words."""
    total = words.sum(axis=1)
    for _ in range(3):
        total = (total & 0xFFFF) + (total >> 16)
    out: NDArray[np.uint16] = (~total & 0xFFFF).astype(np.uint16)
    return out


def packets(flow: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.void]]:
    """64-byte UDP frames from inside, one for each flow number, and their records (1 us apart)."""
    count = len(flow)
    frames = np.zeros((count, FRAME), np.uint8)
    frames[:, 0:6], frames[:, 6:12], frames[:, 12:14] = (2, 0, 0, 0, 0, 2), (2, 0, 0, 0, 0, 1), (8, 0)
    frames[:, 14:24] = (0x45, 0, 0, FRAME - 14, 0, 1, 0, 0, 64, 17)
    host = 0x0A000000 + flow // 16 + 2
    for i in range(4):
        frames[:, 26 + i] = host >> 8 * (3 - i) & 0xFF
    frames[:, 30:34] = (198, 51, 100, 7)
    port = 1024 + (flow * 7919) % 60000
    frames[:, 34], frames[:, 35], frames[:, 37] = port >> 8, port & 0xFF, 53
    frames[:, 39] = FRAME - 34
    frames[:, 40:42] = 0x12, 0x34
    words = np.ascontiguousarray(frames[:, 14:34]).view(">u2").astype(np.uint64)
    sums = checksum(words)
    frames[:, 24], frames[:, 25] = sums >> 8, sums & 0xFF
    records = np.zeros(count, RECORD)
    records["time_ns"] = 10**18 + np.arange(count, dtype=np.uint64) * 1000
    records["data"] = frames.ctypes.data + np.arange(count, dtype=np.uint64) * FRAME
    for name in ("caplen", "wirelen", "origlen"):
        records[name] = FRAME
    return frames, records


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call, on this thread's CPU clock (the machine may be shared)."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def measure(flows: int, count: int, rounds: int) -> None:
    """Prints one line for a number of flows."""
    random = np.random.default_rng(1)
    program = nf.load(EXAMPLE, OVERRIDES)
    first = packets(random.permutation(flows))
    frames, records = packets(random.integers(0, flows, count))
    baseline = load_shared(build_shared("nat_baseline", {"baseline.c": BASELINE}, ["-O3", "-march=native"]))
    baseline.start(ctypes.c_uint64(1 << max(12, (2 * flows - 1).bit_length())))
    run = baseline.run
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_uint64], ctypes.c_uint64
    with NativeEngine(program) as engine:
        engine.run([first[1]])
        run(first[1].ctypes.data, flows)
        own, plain = [], []
        for _ in range(rounds):
            own.append(timed(lambda: engine.run([records])))
            plain.append(timed(lambda: run(records.ctypes.data, count)))
        sent = engine.summary().forwarded["outside"][0]
        assert sent == flows + rounds * count, f"{sent} packets were forwarded"
    interpreter = Reference(program)
    some = [bytes(frames[i]) for i in range(min(count, INTERPRETED))]
    slow = timed(lambda: [interpreter.process(0, 10**18 + i, f) for i, f in enumerate(some)]) / len(some)
    fast, base = statistics.median(own) / count, statistics.median(plain) / count
    print(f"{flows:>9,} flows: native {1e-6 / fast:6.2f} Mpps ({fast * 1e9:5.1f} ns)   "
          f"hand-written {1e-6 / base:6.2f} Mpps   ratio {base / fast:4.2f}   "
          f"interpreter {1e-6 / slow:.4f} Mpps   ratio {slow / fast:,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--flows", type=int, action="append")
    arguments = parser.parse_args()
    for flows in arguments.flows or FLOWS:
        measure(flows, arguments.packets, arguments.rounds)


if __name__ == "__main__":
    main()
