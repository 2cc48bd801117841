"""Verification of programs that run on their own: what they did with some packets, against the unsplit program."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cora.build.backend import Executed, Executor, Needs
from cora.build.request import BuildRequest
from cora.engine.native import NativeEngine
from cora.engine.results import Event, Options, Output, RunSummary, StateDump, first_difference
from cora.engine.split import Statistics
from cora.runtime.verify import Compared, Difference, Run, Traffic, packets_in, shown, traffic_of

_ETHERNET, _VLAN = 14, (0x8100, 0x88A8)
_IPV4, _IPV6 = 0x0800, 0x86DD
_WITH_PORTS = (6, 17)


class ProgramRun(Run):
    """One verification of the programs of a plan, once on each traffic and seed."""

    def __init__(self, request: BuildRequest, executor: Executor, options: Options, seeds: range,
                 until: float) -> None:
        super().__init__(request.split, options, seeds, until, "sound")
        self.request, self.executor = request, executor

    def with_small_tables(self) -> None:
        """The programs are those of the plan."""

    def taken(self, traffic: Traffic) -> Traffic:
        """The traffic as the programs take it: cut frames filled up, other lengths left out, times moved."""
        needs = getattr(self.executor, "needs", Needs())
        traffic = self.filled(traffic) if needs.whole else traffic
        packets = list(packets_in(traffic))
        fit = [p for p in packets if needs.shortest <= len(p.frame) <= needs.longest]
        if len(fit) < len(packets):
            self.warnings.append(f"{traffic.name}: {len(packets) - len(fit):,} of {len(packets):,} packets are left "
                                 f"out: frames of {needs.shortest} to {needs.longest} bytes can be run here")
        later = max(0, needs.earliest_ns - min((p.time_ns for p in fit), default=0))
        if not later and len(fit) == len(packets):
            return traffic
        return traffic_of(traffic.name, [replace(p, time_ns=p.time_ns + later) for p in fit])

    def compare(self, traffic: Traffic) -> None:
        """All seeds on one traffic, unless something differed before or time is up."""
        if self.difference is not None or not traffic.packets:
            return
        started, total, runs = time.monotonic(), Statistics(), 0
        wanted = self._unsplit(traffic)
        self.digest.update(f"{traffic.name} {traffic.packets} {self.seeds} {wanted[1]}".encode())
        for seed in self.seeds:
            if time.monotonic() > self.until:
                self.stopped = True
                break
            found = self.executor(self.request, traffic.batches, self.options, seed)
            total, runs = total.plus(found.statistics), runs + 1
            self.difference = _difference(traffic.name, seed, found, wanted)
            if self.difference is not None:
                self._name_lines(traffic)
                break
        self.compared.append(Compared(traffic.name, traffic.packets, runs, total, time.monotonic() - started))

    def _unsplit(self, traffic: Traffic) -> tuple[Sequence[Event], RunSummary, StateDump]:
        with NativeEngine(self.split.program, self.options) as engine:
            return list(engine.run_events(traffic.batches)), engine.summary(), engine.state()

    def _name_lines(self, traffic: Traffic) -> None:
        found = self.difference
        if found is None or found.packet is None:
            return
        self.difference = Difference(found.source, found.seed, found.packet, found.what, found.split, found.unsplit,
                                     tuple(self.lines(traffic, found.packet)))


def _difference(source: str, seed: int, found: Executed,
                wanted: tuple[Sequence[Event], RunSummary, StateDump]) -> Difference | None:
    events, summary, state = wanted
    compare = _by_packet if found.attributed else _by_port
    unequal = compare(source, seed, found.events, events)
    if unequal is not None:
        return unequal
    if found.summary != summary:
        return Difference(source, seed, None, "totals", str(found.summary), str(summary))
    told = {name: dumped for name, dumped in state.items() if name not in found.uncompared}
    said = first_difference(found.state, told)
    return None if said is None else Difference(source, seed, None, "state (programs against unsplit)", said, "")


def _by_packet(source: str, seed: int, found: Iterable[Event], wanted: Iterable[Event]) -> Difference | None:
    left, right = _grouped(found), _grouped(wanted)
    for index in sorted(left.keys() | right.keys()):
        if left.get(index, []) != right.get(index, []):
            return Difference(source, seed, index, "what became of a packet", shown(left.get(index, [])),
                              shown(right.get(index, [])))
    return None


def _grouped(events: Iterable[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        found[event.index].append(event)
    return found


def _by_port(source: str, seed: int, found: Iterable[Event], wanted: Iterable[Event]) -> Difference | None:
    """What leaves each port: the same frames as often, and those of each flow in the same order."""
    left, right = _sent(found), _sent(wanted)
    for port in sorted(left.keys() | right.keys()):
        ours, theirs = left.get(port, []), right.get(port, [])
        if ours == theirs:
            continue
        more, less = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
        if more or less:
            return Difference(source, seed, None, f"what leaves port {port}", _some(more), _some(less))
        flow = next((f for f in _flows(theirs) if _flows(ours)[f] != _flows(theirs)[f]), None)
        if flow is not None:
            return Difference(source, seed, None, f"order within a flow that leaves port {port}",
                              " ".join(f.hex() for f in _flows(ours)[flow][:3]),
                              " ".join(f.hex() for f in _flows(theirs)[flow][:3]))
    return None


def _sent(events: Iterable[Event]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for event in events:
        if isinstance(event, Output):
            found[event.port].append(event.frame)
    return found


def _some(frames: Counter[bytes]) -> str:
    if not frames:
        return "nothing else"
    frame, count = next(iter(frames.items()))
    return f"{sum(frames.values())} frames of its own, such as {count} times {frame.hex()}"


def _flows(frames: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for frame in frames:
        found[flow_of(frame)].append(frame)
    return found


def flow_of(frame: bytes) -> bytes:
    """What frames of one flow have in common: addresses, protocol, ports; all frames without IP are one flow."""
    at, kind = _ETHERNET, int.from_bytes(frame[12:14], "big")
    while kind in _VLAN:
        kind, at = int.from_bytes(frame[at + 2:at + 4], "big"), at + 4
    if kind == _IPV4 and len(frame) >= at + 20:
        behind, fragment = at + (frame[at] & 15) * 4, int.from_bytes(frame[at + 6:at + 8], "big") & 0x1FFF
        protocol, addresses = frame[at + 9], frame[at + 12:at + 20]
        ports = frame[behind:behind + 4] if protocol in _WITH_PORTS and not fragment else b""
        return addresses + bytes([protocol]) + ports
    if kind == _IPV6 and len(frame) >= at + 40:
        protocol = frame[at + 6]
        ports = frame[at + 40:at + 44] if protocol in _WITH_PORTS else b""
        return frame[at + 8:at + 40] + bytes([protocol]) + ports
    return b""
