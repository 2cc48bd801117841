"""Verification: a plan's parts against the unsplit program, on captures, on every path, and under adversarial timing.

Everything is compared packet by packet: what leaves, where, byte for byte, and what is dropped why; then totals and the
merged state. Native split against native unsplit is fast; the reference interpreter checks the unsplit engine on the
packets that cover the paths. docs/splitting.md says why the results must be equal.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cora.emit.part import emit_split
from cora.engine.native import NativeEngine, Records
from cora.engine.results import Dropped, Event, Options, Output, RunSummary, StateDump, first_difference
from cora.engine.split import PROMPT, SplitEngine, StandStill, Statistics
from cora.errors import Kind, fail
from cora.ir.nodes import MapState, MeterState, Program
from cora.ir.parts import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cora.testing.coverage import Coverage
    from cora.testing.frames import Packet

DEFAULT_SEEDS = 4
DEFAULT_PACKETS = 20_000
DEFAULT_TIME = 120.0
# Packets of one search for outcomes, of which there are several: it runs the interpreter, which is slow.
_COVERING = 3000
# A reference run up to the packet that differs, to name its source lines, takes about this many packets a second.
_TRACED = 50_000


@dataclass(frozen=True)
class Difference:
    """The first thing in which a split run was not the unsplit program, under schedule ``seed`` (-1: the prompt one).

    ``packet``: its number in the traffic, None where it is about totals, state or order. ``lines``: where the unsplit
    program's way of that packet ended, as far as it is known.
    """

    source: str
    seed: int
    packet: int | None
    what: str
    split: str
    unsplit: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compared:
    """Traffic that was compared: its packets, under how many seeds, what happened between the places in all runs.

    ``prompt``: what happened under one more schedule, in which no packet comes while another one or a message is on its
    way, as the admission simulation of a profile has it; None where nothing is lent or time was up.
    ``gaps``: what happened in as many runs, ``gap_seeds``, in which rules were installed in gaps and served packets at
    once; of them the packets overtaken count. None where rules wait, or there are none.
    """

    source: str
    packets: int
    seeds: int
    statistics: Statistics
    seconds: float
    prompt: Statistics | None = None
    gaps: Statistics | None = None
    gap_seeds: int = 0


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        compared: per traffic in order; difference: the first one, None when all was equal.
        uncovered: outcomes ``block: outcome`` of the program that the covering packets do not take, with their lines;
        all of them where the captures differed, since no such packets are looked for then.
        ruled_out: those that no packet takes with these config values and table entries, and why.
        coverage: share of all others that they take. digest: of the parts and the traffic.
        stopped: the time limit came before everything was compared.
        made: of ``compared`` so many, the last ones, are of packets made here and not of captures.
        on: what ran: ``split``, the parts in one process, or the name of another execution (docs/build.md).
    """

    compared: tuple[Compared, ...]
    difference: Difference | None
    uncovered: tuple[str, ...]
    coverage: float
    digest: str
    stopped: bool
    warnings: tuple[str, ...] = ()
    made: int = 0
    on: str = "split"
    ruled_out: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.difference is None

    @property
    def packets(self) -> int:
        return sum(c.packets * c.seeds for c in self.compared)

    @property
    def gaps(self) -> tuple[int, int] | None:
        """Packets overtaken within their flow where rules are installed in gaps, of how many; None: rules wait."""
        runs = [c for c in self.compared if c.gaps is not None]
        if not runs:
            return None
        return sum(c.gaps.overtaken for c in runs if c.gaps), sum(c.packets * c.gap_seeds for c in runs)

    @property
    def statistics(self) -> Statistics:
        """Over all runs."""
        total = Statistics()
        for item in self.compared:
            total = total.plus(item.statistics)
        return total


@dataclass
class Traffic:
    """Packets to compare on. The records point into memory that ``keep`` holds."""

    name: str
    batches: list[Records]
    keep: list[object] = field(default_factory=list)

    @property
    def packets(self) -> int:
        return sum(len(b) for b in self.batches)


@dataclass(frozen=True)
class _Unsplit:
    digests: NDArray[np.uint64]
    summary: RunSummary
    state: StateDump


def verify(split: Split, traffic: Sequence[Traffic], *, seeds: int = DEFAULT_SEEDS, packets: int = DEFAULT_PACKETS,
           time_limit: float = DEFAULT_TIME, options: Options | None = None, fault: str = "sound", seed: int = 0,
           warnings: Sequence[str] = (), progress: Callable[[str], None] | None = None) -> Verification:
    """Compare a split program with the unsplit one.

    Args:
        traffic: compared first; then packets that cover the program's outcomes, then ``packets`` of random traffic.
        seeds: of the scheduler, for each traffic; ``seed``: the first of them, and of the random traffic.
        time_limit: seconds, after which no further run is begun.
        fault: one of `cora.engine.split.FAULTS`, for tests of the verification itself.
        progress: told what is compared next.

    Raises:
        CoraError: the program or its parts cannot be compiled.
    """
    run = Run(split, options or Options(), range(seed, seed + seeds), time.monotonic() + time_limit, fault)
    return run.all(traffic, packets=packets, seed=seed, warnings=warnings, progress=progress)


class Run:
    """One verification: the seeds and time it has, what runs the places, and what was compared so far.

    Packets that the engine does not take are left out, and that is said.
    """

    def __init__(self, split: Split, options: Options, seeds: range, until: float, fault: str,
                 engine: type[SplitEngine] = SplitEngine) -> None:
        self.split, self.options, self.seeds, self.until, self.fault = split, options, seeds, until, fault
        self.engine = engine
        self.compared: list[Compared] = []
        self.difference: Difference | None = None
        self.stopped = False
        self.digest = hashlib.sha256()
        # Where no state asks for order, packets overtaken within their flow are told but no difference.
        self.strict = any(s.strict_order for s in split.program.states if isinstance(s, MapState | MeterState))
        # Packets whose frames random traffic comes back to.
        self.known: list[Packet] = []
        # What has to be said about the comparison.
        self.warnings: list[str] = []

    def all(self, traffic: Sequence[Traffic], *, packets: int, seed: int, on: str = "split",
            warnings: Sequence[str] = (), progress: Callable[[str], None] | None = None) -> Verification:
        """Compare on this traffic, on packets that cover the program, and on random traffic; ``on`` names what runs."""
        tell = progress or (lambda _: None)
        for item in traffic:
            tell(item.name)
            self.compare(self.taken(item))
        tell("packets that cover the program")
        coverage = self.cover(seed)
        tell("random traffic")
        self.compare(self.taken(random_traffic(self.split.program, seed, packets, self.known)))
        self.digest.update("\n".join(text for _, text in sorted(emit_split(self.split).items())).encode(
            "utf-8", "surrogateescape"))
        made = len(self.compared) - min(len(self.compared), len(traffic))
        return Verification(tuple(self.compared), self.difference, _uncovered(self.split.program, coverage),
                            coverage.fraction, self.digest.hexdigest(), self.stopped, (*warnings, *self.warnings), made,
                            on, _ruled_out(self.split.program))

    def cover(self, seed: int) -> Coverage:
        """Compare on packets that take as many outcomes as several searches find; what those take that were run."""
        from cora.testing.coverage import Coverage, coverage_of, covering_rounds, edges_of

        small = self.with_small_tables()
        # Once something differed nothing more is compared.
        budget = _COVERING if self.difference is None else 0
        found = covering_rounds(self.split.program, seed, budget, self.options, small=small is not None)
        coverage = Coverage(edges_of(self.split.program))
        for number, item in enumerate(found, 1):
            run = small if item.small and small is not None else self
            made = traffic_of(f"packets that cover the program ({number}{', with small tables' if item.small else ''})",
                              item.packets)
            run.believe(item.packets)
            kept = run.taken(made)
            coverage.taken |= item.taken if kept is made else coverage_of(
                run.split.program, list(packets_in(kept)), self.options).taken
            run.compare(kept)
            self.difference, self.stopped = run.difference, run.stopped
            self.known += item.packets
        return coverage

    def with_small_tables(self) -> Run | None:
        """The same verification of the split program with tables that are soon full: what it compares is added here.
        None where only the program as it is can be run.
        """
        found = Run(small_split(self.split), self.options, self.seeds, self.until, self.fault, self.engine)
        found.compared, found.digest, found.warnings = self.compared, self.digest, self.warnings
        found.difference, found.stopped = self.difference, self.stopped
        return found

    def believe(self, packets: Sequence[Packet]) -> None:
        """Check the unsplit engine on packets against the reference.

        Raises:
            CoraError: `Kind.ENGINE_LIMIT`: it is another program there.
        """
        from cora.testing.compare import difference, run_native, run_reference

        program = self.split.program
        unequal = difference(run_reference(program, packets, self.options), run_native(program, packets, self.options))
        if unequal is not None:
            raise fail(Kind.ENGINE_LIMIT, f"the native engine is not the reference: {unequal}", span=program.span,
                       hint="a fault of the native engine: report it with the program")

    def taken(self, traffic: Traffic) -> Traffic:
        """The traffic as the engine takes it: cut frames filled up where they have to be whole, others left out."""
        traffic = self.filled(traffic) if self.engine.WHOLE else traffic
        masks = [self.engine.takes(b) for b in traffic.batches]
        left = sum(int(len(m) - m.sum()) for m in masks)
        if not left:
            return traffic
        self.warnings.append(f"{traffic.name}: {left:,} of {traffic.packets:,} packets are left out: "
                             f"{self.engine.TAKEN} can be run here")
        return replace(traffic, batches=[b[m] for b, m in zip(traffic.batches, masks, strict=True)])

    def filled(self, traffic: Traffic) -> Traffic:
        """The traffic with zeros in place of what was cut away from its frames."""
        packets = list(packets_in(traffic))
        cut = sum(len(p.frame) < p.wirelen for p in packets)
        if not cut:
            return traffic
        self.warnings.append(f"{traffic.name}: {cut:,} of {traffic.packets:,} frames were cut when they were captured: "
                             "zeros stand for what is missing")
        return traffic_of(traffic.name, [replace(p, frame=p.frame.ljust(p.wirelen, b"\0")) for p in packets])

    def compare(self, traffic: Traffic) -> None:
        """All seeds on one traffic, unless something differed before or time is up."""
        if self.difference is not None or not traffic.packets:
            return
        started, total, runs = time.monotonic(), Statistics(), 0
        unsplit = self.unsplit(traffic)
        self.digest.update(f"{traffic.name} {traffic.packets} {self.seeds}".encode())
        self.digest.update(unsplit.digests.tobytes())
        prompt = None
        if self.split.lendings and time.monotonic() <= self.until:
            prompt, self.difference = self.once(traffic, PROMPT, unsplit)
        for seed in self.seeds if self.difference is None else ():
            if time.monotonic() > self.until:
                self.stopped = True
                break
            found, self.difference = self.once(traffic, seed, unsplit)
            total, runs = total.plus(found), runs + 1
            if self.difference is not None:
                break
        gaps, gap_runs = self.in_gaps(traffic)
        self.compared.append(Compared(traffic.name, traffic.packets, runs, total, time.monotonic() - started,
                                      prompt, gaps, gap_runs))

    def in_gaps(self, traffic: Traffic) -> tuple[Statistics | None, int]:
        """Where the near place cannot wait for packets on their way: each run against the unsplit program on the
        packets in the order in which the run committed them. Order within a flow is then counted, not asked for.
        """
        total, runs = Statistics(), 0
        for seed in self.seeds if self.split.in_gaps and self.difference is None else ():
            if time.monotonic() > self.until:
                self.stopped = True
                break
            found, self.difference = self.once_in_gaps(traffic, seed)
            total, runs = total.plus(found), runs + 1
            if self.difference is not None:
                break
        return (total, runs) if runs else (None, 0)

    def once_in_gaps(self, traffic: Traffic, seed: int) -> tuple[Statistics, Difference | None]:
        """One such run; its state and packets have to be those of one order of the packets."""
        source = f"{traffic.name}, rules in gaps"
        with SplitEngine(self.split, self.options, chance=seed, fault=self.fault, gaps=True) as engine:
            try:
                engine.run(traffic.batches)
                engine.finish()
            except StandStill:
                return engine.statistics(), Difference(source, seed, None, "progress",
                                                       "the places wait for each other", "goes on")
            found, commits = engine.statistics(), engine.commits()
            order = commits[:, 0].astype(np.intp)
            if not np.array_equal(np.sort(order), np.arange(traffic.packets)):
                return found, Difference(source, seed, None, "packets that were committed", f"{len(order)}",
                                         f"{traffic.packets}, each once")
            unsplit = self.unsplit(Traffic(traffic.name, [_committed(traffic, order, commits[:, 1])]))
            digests = np.zeros(traffic.packets, np.uint64)
            digests[order] = _padded(unsplit.digests, traffic.packets)
            packet = _first_unequal(engine.digests(), digests)
            if packet is not None:
                return found, Difference(source, seed, packet, "what became of a packet",
                                         "another outcome",
                                         "as if packets came in the order in which they were committed")
            replayed = replace(unsplit, digests=digests, state=_renumbered(unsplit.state, order))
            return found, self.totals(replace(traffic, name=source), seed, engine, replayed, ordered=False)

    def unsplit(self, traffic: Traffic) -> _Unsplit:
        with NativeEngine(self.split.program, self.options) as engine:
            digests = engine.run_digests(traffic.batches)
            return _Unsplit(digests, engine.summary(), engine.state())

    def once(self, traffic: Traffic, seed: int, unsplit: _Unsplit) -> tuple[Statistics, Difference | None]:
        with self.engine(self.split, self.options, chance=seed, fault=self.fault) as engine:
            try:
                engine.run(traffic.batches)
                engine.finish()
            except StandStill:
                return engine.statistics(), Difference(traffic.name, seed, None, "progress",
                                                       "the places wait for each other", "goes on")
            statistics = engine.statistics()
            packet = _first_unequal(engine.digests(), unsplit.digests)
            if packet is not None:
                return statistics, self.explain(traffic, seed, packet)
            return statistics, self.totals(traffic, seed, engine, unsplit)

    def totals(self, traffic: Traffic, seed: int, engine: SplitEngine, unsplit: _Unsplit, *,
               ordered: bool = True) -> Difference | None:
        """What is left to compare once all packets were equal."""
        if engine.summary() != unsplit.summary:
            return Difference(traffic.name, seed, None, "totals", str(engine.summary()), str(unsplit.summary))
        state = first_difference(engine.state(), unsplit.state)
        if state is not None:
            return Difference(traffic.name, seed, None, "state (split against unsplit)", state, "")
        found = engine.statistics()
        if found.overtaken and self.strict and ordered:
            return Difference(traffic.name, seed, engine.overtaken(), "order within a flow",
                              f"{found.overtaken} packets left after later ones of their flow", "in order of arrival")
        if found.left or found.stray:
            return Difference(traffic.name, seed, None, "lent entries",
                              f"{found.left} outlived their owner's entry, {found.stray} messages fitted nothing",
                              "none")
        return None

    def explain(self, traffic: Traffic, seed: int, packet: int) -> Difference:
        """Run both again and say what became of the packet."""
        with NativeEngine(self.split.program, self.options) as plain:
            wanted = [e for e in plain.run_events(traffic.batches) if e.index == packet]
        with self.engine(self.split, self.options, chance=seed, fault=self.fault) as engine:
            events: list[Event] = []
            with suppress(StandStill):
                events += [e for e in engine.run_events(traffic.batches) if e.index == packet]
                events += [e for e in engine.finish("events") if e.index == packet]
        return Difference(traffic.name, seed, packet, "what became of a packet", shown(events), shown(wanted),
                          tuple(self.lines(traffic, packet)))

    def lines(self, traffic: Traffic, packet: int) -> Iterator[str]:
        """The source lines of the state accesses on the packet's way, and of its end."""
        from cora.engine.reference import Reference, TraceStep
        from cora.ir.nodes import Terminator, successors
        from cora.ir.text import print_node

        if packet > _TRACED:
            return
        engine = Reference(self.split.program, self.options)
        for number, item in enumerate(packets_in(traffic)):
            trace: list[TraceStep] | None = [] if number == packet else None
            engine.process(item.port, item.time_ns, item.frame, item.wirelen, trace)
            if trace is None:
                continue
            for step in trace:
                ends = isinstance(step.node, Terminator) and not successors(step.node)
                if ends or (step.outcome and getattr(step.node, "state", None)):
                    yield f"{step.node.span}: {print_node(step.node)}{f' ({step.outcome})' if step.outcome else ''}"
            return


def _committed(traffic: Traffic, order: NDArray[np.intp], times: NDArray[np.uint64]) -> Records:
    """The packets in another order, each with another time stamp (ns)."""
    from cora.frontends.traffic.capture import RECORD

    records = np.concatenate([np.frombuffer(b.tobytes(), RECORD) for b in traffic.batches])[order]
    records["time_ns"] = times
    return np.ascontiguousarray(records)


def _renumbered(state: StateDump, order: NDArray[np.intp]) -> StateDump:
    """State with the numbers of fragments that are held as they were before the packets came in another order."""
    found: dict[str, Any] = {}
    for name, facts in state.items():
        found[name] = facts
        if "datagrams" in facts:
            datagrams: Any = facts["datagrams"]
            found[name] = {**facts, "datagrams": [{**d, "held": [int(order[n]) for n in d["held"]]} for d in datagrams]}
    return found


def _padded(digests: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    return np.concatenate([digests, np.zeros(count - len(digests), np.uint64)])


def _first_unequal(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> int | None:
    size = max(len(left), len(right))
    padded = [np.concatenate([a, np.zeros(size - len(a), np.uint64)]) for a in (left, right)]
    unequal = padded[0] != padded[1]
    return int(unequal.argmax()) if unequal.any() else None


def shown(events: Sequence[Event]) -> str:
    """What became of a packet, in words."""
    return ", then ".join(_one(e) for e in events) or "nothing"


def _one(event: Event) -> str:
    if isinstance(event, Output):
        return f"{'an ICMP error' if event.is_error else 'sent'} out of port {event.port}: {event.frame.hex()}"
    return f'dropped: "{event.reason}"' if isinstance(event, Dropped) else "held"


# Traffic.


def packets_in(traffic: Traffic) -> Iterator[Packet]:
    """The packets of a traffic one by one."""
    from cora.frontends.traffic.capture import packets_of
    from cora.testing.frames import Packet

    for packet in packets_of(iter(traffic.batches)):
        yield Packet(packet.port, packet.time_ns, packet.frame, packet.wirelen)


def traffic_of(name: str, packets: Sequence[Packet]) -> Traffic:
    """Packets as records in memory of their own."""
    from cora.frontends.traffic.capture import RECORD
    from cora.testing.compare import batch_of

    if not packets:
        return Traffic(name, [])
    records, store = batch_of(packets)
    return Traffic(name, [np.frombuffer(records.tobytes(), RECORD)], [store])


def captured(program: Program, path: str | os.PathLike[str], stack: ExitStack, *, port_map: Sequence[str] = (),
             captured_at: str | None = None, options: Options | None = None) -> tuple[Traffic, list[str]]:
    """A capture's packets, with their ports; those of a capture taken on one side as the program gets them.

    The capture stays open as long as the stack. Raises CoraError for everything wrong with it.
    """
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.capture import RECORD
    from cora.frontends.traffic.portmap import PortMap
    from cora.runtime.viewpoint import nothing_arrives, port_number

    side = port_number(program, captured_at)
    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    source = mapping.assign(stack.enter_context(open_traffic(path)))
    batches = [np.array(b, copy=True) for b in source.batches()]
    if not sum(len(b) for b in batches):
        raise nothing_arrives(str(path), source)
    name = Path(path).name
    if side is None:
        return Traffic(name, batches), list(source.warnings)
    with NativeEngine(program, options or Options(), captured_at=side) as engine:
        engine.keep_arrivals()
        engine.run(batches)
        records, data = engine.arrivals()
    return Traffic(name, [np.frombuffer(records.tobytes(), RECORD)], [data]), list(source.warnings)


def _uncovered(program: Program, coverage: Coverage) -> tuple[str, ...]:
    """The outcomes that were not taken, with what is known about them."""
    blocks = {b.label: b for b in program.blocks}
    reached = {label for label, _ in coverage.taken}
    return tuple(
        f"{blocks[label].terminator.span}: {label} never ends in {outcome}: "
        + ("no packet was found that does" if label in reached else "no packet was found that gets there")
        for label, outcome in coverage.missed)


def _ruled_out(program: Program) -> tuple[str, ...]:
    from cora.testing.ruled_out import ruled_out

    blocks = {b.label: b for b in program.blocks}
    return tuple(f"{blocks[label].terminator.span}: {label} cannot end in {outcome}: {why}"
                 for (label, outcome), why in ruled_out(program).items())


def small_split(split: Split) -> Split:
    """The split program with tables that are full after few entries, at all places alike."""
    from cora.testing.coverage import SMALL, small_tables

    parts = tuple(replace(p, program=small_tables(p.program)) for p in split.parts)
    lendings = tuple(replace(item, entries=min(item.entries, SMALL // 2)) for item in split.lendings)
    return Split(small_tables(split.program), parts, lendings)


def random_traffic(program: Program, seed: int, count: int, known: Sequence[Packet]) -> Traffic:
    """``count`` packets: frames of ``known`` and of a random sequence, in bursts of few flows, with pauses around every
    time-out, so that entries are lent, used, refreshed, and die while packets are on their way.
    """
    from cora.testing.choices import RandomChoices
    from cora.testing.packets import write_packets

    choices = RandomChoices(seed + 1)
    pool = [*known, *write_packets(program, choices, min(300, count))]
    pauses = sorted({0, 1, 1000, 1_000_000, *_time_outs(program)})
    out: list[Packet] = []
    now = max((p.time_ns for p in pool), default=0) + 1
    while pool and len(out) < count:
        few = [choices.pick(pool) for _ in range(choices.integer(1, 6))]
        for _ in range(choices.integer(1, 60)):
            now += choices.pick((0, 0, 0, 1, 1000)) if not choices.chance(2) else choices.pick(pauses)
            packet = choices.pick(few)
            out.append(type(packet)(packet.port, now, packet.frame, packet.wirelen))
    return traffic_of("random traffic", out[:count])


def _time_outs(program: Program) -> Iterator[int]:
    for state in program.states:
        spans = [t.nanoseconds for t in state.timeouts] if isinstance(state, MapState) else (
            [state.timeout] if isinstance(state, MeterState) else [])
        for span in spans:
            yield from (span - 1, span, span + 1, span // 2)
