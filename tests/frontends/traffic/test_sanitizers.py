"""The reader and the port map under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from capture_files import enhanced, interface, obsolete, pcap, section, simple
from test_portmap import random_frame

from cora.emit.cbuild import build_program
from cora.frontends.traffic.native import sources

pytestmark = pytest.mark.needs("sanitizers")

HARNESS = Path(__file__).parent / "fuzz_capture.c"
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def fuzz(seed: int, copies: int, files: list[Path]) -> tuple[int, int]:
    """Packets read from the files as they are, and from their changed copies."""
    program = build_program("fuzz-capture", {**sources(), HARNESS.name: HARNESS.read_text()}, FLAGS)
    run = subprocess.run([program, str(seed), str(copies), *files], capture_output=True, text=True, check=False,
                         env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})
    assert run.returncode == 0, run.stderr[-4000:]
    plain, changed = map(int, run.stdout.split())
    return plain, changed


@pytest.mark.needs("traces")
def test_public_captures(traces: Path) -> None:
    files = [path for path in sorted(traces.glob("*.pcap*")) if path.suffix != ".gz"]
    plain, _ = fuzz(1, 0, files)
    assert plain > 60_000


def test_changed_small_captures(tmp_path: Path) -> None:
    rng = random.Random(3)
    frames = [random_frame(rng, 3) for _ in range(40)]
    cooked = [bytes([0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0]) + frame[14:] for frame in frames]
    files = {
        "a": pcap(frames), "b": pcap(frames, order=">", magic=0xA1B23C4D), "sll": pcap(cooked, link=113),
        "raw": pcap([frame[14:] for frame in frames], link=101),
        "null": pcap([b"\2\0\0\0" + frame[14:] for frame in frames], link=0),
        "sll2": pcap([bytes(20) + f for f in frames], link=276),
        "ng": section() + interface(options=[(2, b"eth0"), (9, b"\x89"), (14, bytes(8))]) + interface(113, snaplen=64)
              + b"".join(map(enhanced, frames[:10])) + b"".join(enhanced(f, iface=1) for f in cooked[:5])
              + section(order=">") + interface(order=">") + b"".join(simple(f, order=">") for f in frames[:5])
              + b"".join(obsolete(f, order=">") for f in frames[:5]),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    plain, changed = fuzz(2, 400, [tmp_path / name for name in files])
    assert plain == 6 * 40 + 25
    # Many changed files must still give packets, or nothing beyond the header would have been tried.
    assert changed > 20_000
