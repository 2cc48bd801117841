"""Programs for the tests of how state is split: the shipped ones and small texts, after the standard passes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from cora.engine.reference import Reference
from cora.engine.results import Options
from cora.frontends.nf import load, loads
from cora.frontends.traffic.capture import Capture
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import STANDARD, run_pipeline
from cora.runtime.returns import Returns
from cora.testing import Packet, generate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHIPPED = ("nat", "nat.ref", "firewall", "firewall.ref", "policer", "policer.ref")


@lru_cache(maxsize=16)
def shipped(name: str) -> Program:
    """An example program as planners see it."""
    return run_pipeline(load(EXAMPLES / f"{name}.nf"), STANDARD)


@lru_cache(maxsize=64)
def written(text: str) -> Program:
    """A program from its text."""
    return run_pipeline(loads(text, "test.nf"), STANDARD)


def approximate(name: str) -> Program:
    """A shipped program whose maps and meters may be approximate and have slack, so that more of it can be rules."""
    text = (EXAMPLES / f"{name}.nf").read_text()
    return written(text.replace("exact;", "approx;").replace("timeout 60s;", "timeout 60s slack 2s;"))


@lru_cache(maxsize=64)
def random_program(seed: int) -> Program:
    return run_pipeline(generate(seed).program, STANDARD)


def both_sides(path: Path) -> list[Packet]:
    """The packets of a capture; of two stations, the one that was heard first is on port 0."""
    first: dict[frozenset[bytes], bytes] = {}
    found: list[Packet] = []
    with Capture.open(path) as capture:
        for packet in capture.packets():
            source = packet.frame[6:12]
            side = first.setdefault(frozenset((source, packet.frame[:6])), source)
            found.append(Packet(int(source != side), packet.time_ns, packet.frame, packet.wirelen))
    return found


GATEWAY = bytes.fromhex("020000000101")


@lru_cache(maxsize=4)
def office(name: str, count: int) -> tuple[Packet, ...]:
    """The first packets of the shipped capture, taken at port `inside`: what comes back is translated for the program.
    """
    engine, returns = Reference(shipped(name)), Returns(0, Options())
    found: list[Packet] = []
    with Capture.open(EXAMPLES / "captures" / "office.pcap") as capture:
        for packet in islice(capture.packets(), count):
            assigned = replace(packet, port=int(packet.frame[6:12] != GATEWAY))
            frame = returns.before(assigned)
            found.append(Packet(assigned.port, packet.time_ns, frame, packet.wirelen))
            returns.after(assigned, engine.process(assigned.port, packet.time_ns, frame, packet.wirelen))
    return tuple(found)
