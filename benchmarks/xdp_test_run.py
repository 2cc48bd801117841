"""The emitted kernel half against careful hand-written XDP programs: nanoseconds for a packet, and instructions.

    sudo .venv/bin/python benchmarks/xdp_test_run.py [--rounds 15] [--repeat 20000]

All figures are measured here, by the kernel's own test run (BPF_PROG_TEST_RUN with a repeat count: the program alone,
no driver), on the way a packet of a known flow takes through firewall.ref.nf and nat.ref.nf, whole in the kernel. The
hand-written programs are in benchmarks/xdp_baseline/: the same checks, the same counts, hash maps of the kernel for
tables. In every round both run, in turn the one or the other first; printed are medians, the median of the rounds'
ratios, and its quartiles. The NAT's flow is one whose translation is itself, because a repeated packet is the one that
the run before left.

Instructions: all of the program's (every path, what it calls included), counted by objdump in the JIT's machine code,
and in BPF after the verifier's changes. They are no measure of the work for a packet: the emitted program contains the
tables' inserts, removals and pools, which the hand-written one finds in the kernel's hash map and in its helpers.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cora.backends.xdp.kernel_build import compile_kernel, system_headers
from cora.backends.xdp.trials import whole
from cora.compile import compile_file
from cora.emit.cbuild import build_bpf, build_shared, load_shared

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path(__file__).resolve().parent / "xdp_baseline"
LOOPBACK = 1  # where test runs come from
NOWHERE = 0xFFFFFFFF
REDIRECT = 4
CODE_ROOM = 1 << 18
INSIDE, OUTSIDE = 0, 1
IN4, EXT4, OUT4 = bytes([10, 0, 0, 2]), bytes([203, 0, 113, 1]), bytes([198, 51, 100, 2])


@dataclass(frozen=True)
class Case:
    """A packet of a known flow: ``opens`` makes the flow, arriving inside; ``frame`` is measured at ``port``."""

    name: str
    opens: bytes
    frame: bytes
    port: int


def udp(source: bytes, destination: bytes, sport: int, dport: int) -> bytes:
    """A 64-byte UDP frame with right checksums."""
    body = bytes(64 - 14 - 28)
    head = struct.pack(">HHHH", sport, dport, 8 + len(body), 0)
    pseudo = source + destination + struct.pack(">BBH", 0, 17, 8 + len(body))
    sum_ = checksum(pseudo + head + body) or 0xFFFF
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(body), 1, 0, 64, 17, 0, source, destination)
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return bytes(12) + b"\x08\x00" + ip + head[:6] + struct.pack(">H", sum_) + body


def tcp(source: bytes, destination: bytes, sport: int, dport: int) -> bytes:
    """A 64-byte TCP frame with right checksums."""
    body = bytes(64 - 14 - 40)
    head = struct.pack(">HHIIBBHHH", sport, dport, 1, 1, 0x50, 0x10, 512, 0, 0)
    pseudo = source + destination + struct.pack(">BBH", 0, 6, len(head) + len(body))
    head = head[:16] + struct.pack(">H", checksum(pseudo + head + body)) + head[18:]
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(body), 1, 0, 64, 6, 0, source, destination)
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return bytes(12) + b"\x08\x00" + ip + head + body


def checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


# The first port a NAT gives is 1024: a flow from its own external address and that port is translated to itself.
CASES = {
    "firewall": (Case("inside, UDP", udp(IN4, OUT4, 5000, 53), udp(IN4, OUT4, 5000, 53), INSIDE),
                 Case("outside, TCP", tcp(IN4, OUT4, 5000, 80), tcp(OUT4, IN4, 80, 5000), OUTSIDE)),
    "nat": (Case("inside, TCP", tcp(EXT4, OUT4, 1024, 80), tcp(EXT4, OUT4, 1024, 80), INSIDE),
            Case("outside, UDP", udp(EXT4, OUT4, 1024, 53), udp(OUT4, EXT4, 53, 1024), OUTSIDE)),
}


class Loaded:
    """A loaded program. ``ports``: the memory where the interfaces of the ports stand, and their place in it."""

    def __init__(self, runner: Any, path: Path, name: str, ports: tuple[str, int], devices: str) -> None:
        self.runner = runner
        self.object = runner.runner_open(str(path).encode())
        if not self.object:
            sys.exit(f"{path} cannot be loaded: run as root, on a kernel with BPF")
        self.program = runner.runner_program(self.object, name.encode())
        self.interfaces = (ctypes.c_uint32 * 2).from_address(
            runner.runner_memory(self.object, ports[0].encode()) + ports[1])
        for port in (INSIDE, OUTSIDE):
            runner.runner_set(self.object, devices.encode(), port, LOOPBACK)

    def arrive(self, port: int) -> None:
        """From now on packets arrive at a port."""
        self.interfaces[port] = LOOPBACK
        self.interfaces[1 - port] = NOWHERE

    def once(self, frame: bytes) -> tuple[int, bytes]:
        """The action, and what became of the frame."""
        out = ctypes.create_string_buffer(len(frame))
        return self.runner.runner_once(self.program, frame, len(frame), out), out.raw

    def nanoseconds(self, frame: bytes, repeat: int) -> int:
        action = ctypes.c_uint32()
        found = int(self.runner.runner_run(self.program, frame, len(frame), repeat, ctypes.byref(action)))
        assert action.value == REDIRECT, f"the packet was not sent on: action {action.value}"
        return found

    def sizes(self) -> tuple[int, int, int]:
        """BPF instructions, machine instructions, bytes of machine code."""
        xlated, bytes_ = ctypes.c_uint32(), ctypes.c_uint32()
        code = ctypes.create_string_buffer(CODE_ROOM)
        failed = self.runner.runner_size(self.program, ctypes.byref(xlated), ctypes.byref(bytes_), code, CODE_ROOM)
        assert failed == 0
        return xlated.value, machine_instructions(code.raw[:bytes_.value]), bytes_.value


def machine_instructions(code: bytes) -> int:
    """Instructions in machine code of this machine, as objdump counts them; 0 without objdump."""
    if not shutil.which("objdump"):
        return 0
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        shown = subprocess.run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", file.name], capture_output=True,
                               text=True, check=True).stdout
    return sum(line.count("\t") >= 2 for line in shown.splitlines())


def runner_library() -> Any:
    """The C functions around libbpf."""
    library = load_shared(build_shared("xdp-runner", {"runner.c": (BASELINE / "runner.c").read_text()},
                                       ("-O1", "-lbpf")))
    library.runner_open.restype = library.runner_memory.restype = ctypes.c_void_p
    library.runner_open.argtypes = [ctypes.c_char_p]
    for name in ("runner_memory", "runner_program", "runner_set"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_char_p,
                                           *([ctypes.c_uint32] * 2 if name == "runner_set" else [])]
    return library


def pair(runner: Any, name: str) -> tuple[Loaded, Loaded]:
    """The emitted program and the hand-written one."""
    emitted = compile_kernel(whole(compile_file(ROOT / "examples" / f"{name}.ref.nf", {})))
    sources = {f.name: f.read_text() for f in BASELINE.glob("*.h")} | {
        f"{name}.bpf.c": (BASELINE / f"{name}.bpf.c").read_text()}
    by_hand = build_bpf(f"{name}-by-hand", sources, ("-O2", "-g", "-mcpu=v3", "-Wall"), include_dirs=system_headers())
    # struct cora_shared of abi.h: virtual_now, test_run, test_port, queues, attached, then the interfaces.
    return (Loaded(runner, emitted, "cora_xdp", (".data.shared", 24), "cora_devices"),
            Loaded(runner, by_hand, name, (".data.ports", 0), "devices"))


def measure(programs: Sequence[Loaded], case: Case, rounds: int, repeat: int) -> list[list[int]]:
    """Nanoseconds by program and round; both must do the same to the packet."""
    for program in programs:
        program.arrive(INSIDE)
        assert program.once(case.opens)[0] == REDIRECT
        program.arrive(case.port)
    first, second = (p.once(case.frame) for p in programs)
    assert first == second and first[1] == case.frame
    found: list[list[int]] = [[], []]
    for number in range(rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            found[which].append(programs[which].nanoseconds(case.frame, repeat))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=20_000)
    arguments = parser.parse_args()
    runner = runner_library()
    print(f"{'program':<10} {'packet':<14} {'emitted':>8} {'by hand':>8} {'ratio':>7}   quartiles")
    sizes: list[str] = []
    for name, cases in CASES.items():
        for case in cases:
            programs = pair(runner, name)
            emitted, by_hand = measure(programs, case, arguments.rounds, arguments.repeat)
            ratios = [a / b for a, b in zip(emitted, by_hand, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{name:<10} {case.name:<14} {statistics.median(emitted):>5.0f} ns "
                  f"{statistics.median(by_hand):>5.0f} ns {middle:>7.2f}   {low:.2f} to {high:.2f}")
        for what, program in zip(("emitted", "by hand"), programs, strict=True):
            bpf, machine, length = program.sizes()
            sizes.append(f"{name:<10} {what:<8} {bpf:>6,} BPF instructions {machine:>6,} of the machine "
                         f"{length:>7,} bytes")
    print("\n".join(sizes))


if __name__ == "__main__":
    main()
