"""Memory of `cora replay` on a capture of many gigabytes, beside a small one: it must not grow with the file.

The large capture is one block of synthetic packets repeated, in a temporary folder (--folder: on a disk with room).

    python benchmarks/large_capture.py [--gigabytes 10] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cora.frontends.traffic.synthetic import TrafficSpec, write

ROOT = Path(__file__).resolve().parent.parent
HEADER = 24


def run(trace: Path) -> tuple[float, int]:
    """Wall seconds and largest resident memory in KiB of one replay of the NAT."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "cora", "replay", str(ROOT / "examples" / "nat.nf"), str(trace), "--port-map",
         "inside=10.0.0.0/16", "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit("the replay failed")
    return time.perf_counter() - start, usage.ru_maxrss


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        small, large = Path(folder, "small.pcap"), Path(folder, "large.pcap")
        write(TrafficSpec.parse({"packets": "1M", "flows": "1000", "size": "64"}), small)
        block = small.read_bytes()
        run(small)  # compiles
        with large.open("wb") as file:
            file.write(block)
            while file.tell() < args.gigabytes * 1e9:
                file.write(block[HEADER:])
        print("measured here: `cora replay examples/nat.nf`, 64-byte packets, whole process")
        print(f"{'capture':>12} {'packets':>14} {'seconds':>9} {'Mpps':>7} {'peak memory':>12}")
        for trace in (small, large):
            size = trace.stat().st_size
            packets = (size - HEADER) // 80
            seconds, memory = run(trace)
            print(f"{size / 1e9:9.2f} GB {packets:14,} {seconds:9.2f} {packets / seconds / 1e6:7.2f} "
                  f"{memory / 1024:8.0f} MiB")


if __name__ == "__main__":
    main()
