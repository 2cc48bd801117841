"""Host programs against hand-written DPDK functions on the same software devices; and one core against two.

    python benchmarks/host_dpdk.py [--runs 7] [--packets 10000000] [--peer DIR] [--scaling]

Each function receives 60-byte frames of many flows from a pcap device that repeats them (``infinite_rx``) and sends to
a null device, on one core. The programs take turns (A, B, A, B ...); told are medians of packets per CPU-second of the
polling thread, nanoseconds of CPU per packet, and the same less what the nop of the same kind costs: receiving and
sending are most of it. ``hand`` is benchmarks/dpdk_baseline, ``peer`` a checkout of public functions (its folder
``dpdk-nfs``), built as it says with bursts of 32; nothing of it is copied. All figures are measured in this run.

``--scaling``: one core and two, once with a capture for each receive queue that holds the flows of its core (as a card
with receive-side scaling would lead them) and once with one queue, where software leads them. Told are packets per
CPU-second, summed over cores that work by themselves; where one hands packets to the other, all packets by the CPU time
of the busier one. Cores that wait for each other need processors of their own: on a busy machine that figure is low.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cora
from cora.backends.host.execute import compiled, environment_options
from cora.frontends.traffic.writer import PcapWriter
from cora.testing.frames import internet_checksum

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
BASELINE = HERE / "dpdk_baseline"
# The symmetric steering key and the slots of cora/emit/runtime/shard.h.
KEY, SLOTS = 0x6D5A, 128


@dataclass(frozen=True)
class Function:
    """One function as a program of ours, as hand-written C, and in the public collection.

    ``ports``: the one that packets come from, and the other. ``peer``: its folder, C files and arguments there.
    """

    name: str
    program: Path
    settings: Mapping[str, str]
    ports: tuple[str, str]
    hand: str
    peer: str
    peer_files: str
    peer_arguments: str


_FLOWS = "--expire 60000000 --max-flows 65536 --eth-dest 0,01:23:45:67:89:00 --eth-dest 1,01:23:45:67:89:01"
FUNCTIONS = (
    Function("nop", BASELINE / "nop.nf", {}, ("lan", "wan"), "nop", "nop",
             "nop_main.c nop_config.c loop.c state.c", "--lan 0 --wan 1"),
    Function("firewall", EXAMPLES / "firewall.ref.nf", {}, ("inside", "outside"), "firewall", "fw",
             "fw_main.c fw_config.c fw_flowmanager.c flow.h.gen.c loop.c state.c", f"--wan 1 {_FLOWS}"),
    Function("nat", EXAMPLES / "nat.ref.nf", {}, ("inside", "outside"), "nat", "nat",
             "nat_main.c nat_config.c nat_flowmanager.c flow.h.gen.c loop.c state.c",
             f"--wan 1 {_FLOWS} --starting-port 0 --extip 203.0.113.1"),
    Function("policer", EXAMPLES / "policer.ref.nf", {"rate": "1000000000", "burst": "10000000000"}, ("wan", "lan"),
             "policer", "pol", "policer_main.c policer_config.c dynamic_value.h.gen.c ip_addr.h.gen.c state.c",
             "--wan 0 --lan 1 --rate 1000000000 --burst 10000000000 --capacity 65536"),
)


def frames_of(flows: int) -> list[bytes]:
    """One 60-byte UDP frame a flow."""
    numbers, out = random.Random(1), []
    for _ in range(flows):
        source, destination = 0x0A000000 + numbers.randrange(1 << 16), 0xC6336400 + numbers.randrange(256)
        body = struct.pack(">HHHH", numbers.randrange(1024, 65536), numbers.choice((53, 80, 443)), 26, 0) + bytes(18)
        head = struct.pack(">BBHHHBBHII", 0x45, 0, 46, 0, 0, 64, 17, 0, source, destination)
        head = head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]
        out.append(b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + head + body)
    return out


def core_of(frame: bytes, cores: int) -> int:
    """Where a card with the steering key leads a frame: the Toeplitz hash, bit by bit (RSS, Microsoft, 2005)."""
    key = int.from_bytes(KEY.to_bytes(2, "big") * 10, "big")
    data = frame[26:38]
    found = 0
    for bit in range(8 * len(data)):
        if data[bit // 8] >> (7 - bit % 8) & 1:
            found ^= key >> (160 - 32 - bit) & 0xFFFFFFFF
    return found % SLOTS % cores


def write(path: Path, frames: Sequence[bytes]) -> Path:
    """A capture of the frames."""
    with PcapWriter(path) as writer:
        for i, frame in enumerate(frames):
            writer.write(i * 1000, frame)
    return path


def devices(captures: Sequence[Path]) -> list[str]:
    """The device that repeats the captures, one receive queue each, and the one that takes everything."""
    queues = ",".join(f"rx_pcap={path}" for path in captures)
    return [f"--vdev=net_pcap0,{queues},infinite_rx=1", "--vdev=net_null0,no-rx=1"]


# Nanoseconds of CPU a packet, by running a program once.

def ours(binary: Path, function: Function, captures: Sequence[Path], packets: int, cores: int = 1) -> dict[str, Any]:
    """The totals that a host program prints."""
    source, other = function.ports
    command = [str(binary), *environment_options(cores, binary.name), *devices(captures), "--", "--port",
               f"{source}=net_pcap0", "--port", f"{other}=net_null0", "--packets", str(packets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    totals: dict[str, Any] = json.loads(done.stdout)
    return totals


def our_cost(binary: Path, function: Function, capture: Path, packets: int) -> float:
    worker = ours(binary, function, [capture], packets)["workers"]["core 0"]
    return float(worker["cpu_ns"]) / float(worker["received"])


def hand_cost(binary: Path, capture: Path, packets: int) -> float:
    command = [str(binary), *environment_options(1, binary.name), *devices([capture]), "--", str(packets)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(told["cpu_ns"]) / float(told["packets"])


def peer_cost(binary: Path, function: Function, capture: Path, seconds: float) -> float:
    """The public functions never end: two reports (peer_report.c) some time apart."""
    command = [str(binary), *environment_options(1, binary.name), *devices([capture]), "--",
               *shlex.split(function.peer_arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for pause in (1.2, seconds, 0.2):
        time.sleep(pause)
        process.send_signal(signal.SIGUSR1 if pause != 0.2 else signal.SIGTERM)
    said = process.communicate(timeout=20)[1]
    first, last = (json.loads(line) for line in said.splitlines() if line.startswith('{"packets"'))
    return float(last["cpu_ns"] - first["cpu_ns"]) / float(last["packets"] - first["packets"])


# Building.

def _dpdk(what: str) -> list[str]:
    return subprocess.run(["pkg-config", what, "libdpdk"], capture_output=True, text=True, check=True).stdout.split()


def build_hand(name: str, folder: Path) -> Path:
    """The hand-written function, compiled for this very processor."""
    out = folder / f"hand-{name}"
    subprocess.run(["gcc", "-std=gnu11", "-O3", "-march=native", "-Wall", "-Wextra", "-Wno-address-of-packed-member",
                    *_dpdk("--cflags"), str(BASELINE / f"{name}.c"), "-o", str(out), *_dpdk("--libs")], check=True)
    return out


def build_peer(function: Function, peer: Path, folder: Path) -> Path:
    """The public function with its own flags. DPDK has renamed two members since it was written."""
    out, common = folder / f"peer-{function.peer}", peer / "dpdk-nfs"
    shared = [*common.glob("nf*.c"), *(common / "lib" / "verified").glob("*.c"),
              *(common / "lib" / "unverified").glob("*.c")]
    own = [common / function.peer / name for name in function.peer_files.split()]
    subprocess.run(["gcc", "-std=gnu11", "-O3", "-w", "-DCAPACITY_POW2", "-DVIGOR_BATCH_SIZE=32", "-Ds_addr=src_addr",
                    "-Dd_addr=dst_addr", "-fno-if-conversion", "-fno-if-conversion2", f"-I{common}",
                    f"-I{common / function.peer}", *_dpdk("--cflags"), *map(str, (*shared, *own)),
                    str(BASELINE / "peer_report.c"), "-o", str(out), *_dpdk("--libs"), "-lm"], check=True)
    return out


def measured(runs: int, programs: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Costs of each program, taking turns."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(runs):
        for name, run in programs.items():
            found[name].append(run())
    return found


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """The table of all functions."""
    capture = write(folder / "flows.pcap", frames_of(arguments.flows))
    nops: dict[str, float] = {}
    print(f"{arguments.flows} flows, 60-byte frames, one core, {arguments.runs} runs each in turn (measured)")
    print(f"{'':10} {'':5} {'Mpps per CPU-second':>28} {'ns':>7} {'ns less nop':>12}   ours against it, less nop")
    for function in FUNCTIONS:
        programs = _programs(function, arguments, capture, folder)
        costs = measured(arguments.runs, programs)
        medians = {name: statistics.median(values) for name, values in costs.items()}
        if function.name == "nop":
            nops = medians
        for name, values in costs.items():
            print(_line(function.name, name, values, medians, nops), flush=True)


def _programs(function: Function, arguments: argparse.Namespace, capture: Path,
              folder: Path) -> dict[str, Callable[[], float]]:
    program = cora.load(function.program, dict(function.settings))
    binary, hand = compiled(program, {}), build_hand(function.hand, folder)
    out: dict[str, Callable[[], float]] = {
        "cora": partial(our_cost, binary, function, capture, arguments.packets),
        "hand": partial(hand_cost, hand, capture, arguments.packets)}
    if arguments.peer is not None:
        peer = build_peer(function, arguments.peer, folder)
        out["peer"] = partial(peer_cost, peer, function, capture, arguments.packets * 1.2e-7)
    return out


def _line(function: str, name: str, values: Sequence[float], medians: Mapping[str, float],
          nops: Mapping[str, float]) -> str:
    rates = [1e3 / v for v in (max(values), statistics.median(values), min(values))]
    net, our_net = medians[name] - nops[name], medians["cora"] - nops["cora"]
    ratio = "" if name == "cora" else f"{medians[name] / medians['cora']:17.2f}"
    if ratio and function != "nop":
        ratio += f"{net / our_net:10.2f}"
    return (f"{function:10} {name:5} {rates[0]:8.1f} /{rates[1]:8.1f} /{rates[2]:8.1f} {medians[name]:7.1f} "
            f"{net:12.1f} {ratio}")


def scaling(arguments: argparse.Namespace, folder: Path) -> None:
    """One core against two."""
    frames = frames_of(arguments.flows)
    whole = write(folder / "all.pcap", frames)
    halves = [write(folder / f"core{i}.pcap", [f for f in frames if core_of(f, 2) == i]) for i in range(2)]
    print(f"\none core against two, Mpps per CPU-second of all cores, {arguments.runs} runs each in turn (measured)")
    for function in FUNCTIONS[:3]:
        binary = compiled(cora.load(function.program, dict(function.settings)), {})
        rates = measured(arguments.runs, {
            "one": partial(_rate, binary, function, [whole], arguments.packets, 1),
            "two": partial(_rate, binary, function, halves, arguments.packets, 2),
            "software": partial(_rate, binary, function, [whole], arguments.packets, 2)})
        one, two, software = (statistics.median(rates[n]) for n in ("one", "two", "software"))
        print(f"{function.name:10} one {one:6.1f}   two queues {two:6.1f} ({two / one:.2f} times)   "
              f"one queue, software leads {software:6.1f} ({software / one:.2f} times)", flush=True)


def _rate(binary: Path, function: Function, captures: Sequence[Path], packets: int, cores: int) -> float:
    workers = ours(binary, function, captures, packets * cores, cores)["workers"].values()
    if len(captures) == cores:
        return sum(float(w["received"]) / float(w["cpu_ns"]) for w in workers) * 1e3
    return sum(float(w["received"]) for w in workers) / max(float(w["cpu_ns"]) for w in workers) * 1e3


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--packets", type=int, default=10_000_000)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--peer", type=Path, help="a checkout with the folder dpdk-nfs of public functions")
    parser.add_argument("--scaling", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        compare(arguments, Path(name))
        if arguments.scaling:
            scaling(arguments, Path(name))


if __name__ == "__main__":
    main()
