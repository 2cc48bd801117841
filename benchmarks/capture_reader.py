"""Measures the capture reader and the port maps, in packets per second on this machine's one core.

    python benchmarks/capture_reader.py [--packets 1000000] [--flows 1000,100000] [--runs 7]

The capture is in memory: 64-byte UDP frames, random flows, either direction. Each row is the median of the runs; the
rows of a run are interleaved so that a slow moment of the machine hits all of them. The ratio is to dpkt's reader,
which gives (time, bytes) per packet and is timed on the first tenth of the packets.
"""

from __future__ import annotations

import argparse
import io
import statistics
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dpkt
import numpy as np
from numpy.typing import NDArray

from cora.frontends.traffic.capture import Capture, TrafficSource
from cora.frontends.traffic.portmap import PortMap

FRAME = 64
HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
PORTS = ("inside", "outside")


def capture_bytes(packets: int, flows: int) -> bytes:
    """A pcap file of 64-byte UDP frames; flow f is client 10.x.x.x to one of seven servers."""
    rng = np.random.default_rng(1)
    records = np.zeros(packets, [("seconds", "<u4"), ("micros", "<u4"), ("caplen", "<u4"), ("origlen", "<u4"),
                                 ("frame", "u1", FRAME)])
    index = np.arange(packets)
    records["seconds"], records["micros"] = 1_700_000_000 + index // 1_000_000, index % 1_000_000
    records["caplen"] = records["origlen"] = FRAME
    flow, answer = rng.integers(0, flows, packets), rng.integers(0, 2, packets).astype(bool)[:, None]

    def octets(numbers: NDArray[Any], width: int) -> NDArray[Any]:
        return numbers.astype(f">u{width}").view("u1").reshape(packets, width)

    client, server = octets(0x0A000000 + flow, 4), octets(0xC6336400 + flow % 7, 4)
    client_port, server_port = octets(1024 + flow % 60_000, 2), octets(np.full(packets, 53), 2)
    frame = records["frame"]
    frame[:, 12], frame[:, 14], frame[:, 17], frame[:, 23] = 8, 0x45, FRAME - 14, 17
    frame[:, 26:30], frame[:, 30:34] = np.where(answer, server, client), np.where(answer, client, server)
    frame[:, 34:36] = np.where(answer, server_port, client_port)
    frame[:, 36:38] = np.where(answer, client_port, server_port)
    return HEADER + records.tobytes()


def read_source(source: TrafficSource) -> int:
    """One pass; the number of packets."""
    return sum(len(batch) for batch in source.batches())


def read_dpkt(data: bytes) -> int:
    """One pass of dpkt's reader over a tenth of the file."""
    whole = HEADER + data[len(HEADER):len(HEADER) + (len(data) - len(HEADER)) // (16 + FRAME) // 10 * (16 + FRAME)]
    return sum(1 for _ in dpkt.pcap.Reader(io.BytesIO(whole)))


def measure(cases: dict[str, Callable[[], int]], runs: int) -> dict[str, float]:
    """Median packets per second of each case, all cases once per run."""
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            start = time.perf_counter()
            count = case()
            rates[name].append(count / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in rates.items()}


def main() -> None:
    """Print one table per number of flows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--flows", default="1000,100000", help="comma-separated numbers of flows")
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    subnets = PortMap.parse(["inside=10.0.0.0/8,2001:db8::/32"], PORTS)
    initiator = PortMap.parse([], PORTS)
    for flows in map(int, args.flows.split(",")):
        data = capture_bytes(args.packets, flows)
        with Capture.from_bytes(data) as capture:
            by_subnet, by_initiator = subnets.assign(capture), initiator.assign(capture)
            rates = measure({
                "dpkt reader": partial(read_dpkt, data),
                "reader": partial(read_source, capture),
                "reader + subnet map": partial(read_source, by_subnet),
                "reader + initiator map": partial(read_source, by_initiator),
            }, args.runs)
        print(f"\nmeasured: {args.packets} packets of {FRAME} bytes, {flows} flows, median of {args.runs}")
        for name, rate in rates.items():
            print(f"  {name:24} {rate / 1e6:8.2f} Mpps {rate / rates['dpkt reader']:8.1f} x dpkt")


if __name__ == "__main__":
    main()
