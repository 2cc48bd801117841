"""The traffic that would hurt a plan most: found by trying packets, checked by profiling, and written as a capture."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File

import numpy as np

from cora.analysis.demand import rates_of
from cora.analysis.paths import Path, enumerate_paths, number_paths
from cora.analysis.profile import Profile
from cora.engine.results import Options
from cora.frontends.traffic.writer import PcapWriter
from cora.ir.nodes import Drop, Forward, Insert, Lookup, Police, Program, Reject
from cora.models.parameters import samples
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.partition.problem import Vector
from cora.partition.uncertainty import band
from cora.partition.walks import Steps
from cora.partition.ways import Traffic, port_of
from cora.partition.worst import Costs, all_entries, mixed, ranked
from cora.testing.floods import FRAGMENT, Field, Flood, Floods, PathKey, Witnesses, mac_of
from cora.testing.frames import NAMES, Spec, build

SEED = 1
# Packets of a flood once it lasts.
BODY = 20_000
# Paths for which floods are tried, and floods that are run natively.
_TRIED = 40
_RUN = 6
# A flood of a path is worse than another when it leaves less than this share of what that leaves.
_BETTER = 0.98
# Paths of a program that are ranked all; beyond, only those that packets were found for.
_MOST_PATHS = 20_000
# Shares of all packets that the flood makes up, and parts of a packet's cost that are told.
SHARES = (0.01, 0.1, 0.5, 1.0)
_PARTS = 4
_SAMPLES = 50


@dataclass(frozen=True)
class Cost:
    """A part of what one packet uses of the resource that binds; ``line`` of the program's source, 0 for none."""

    what: str
    line: int
    amount: float


@dataclass(frozen=True)
class Worst:
    """The traffic, and what a plan carries of it with its cores (packets/s).

    ``packets``: what they are; ``path``: what the program does with them, ``id`` its number. ``throughput_pps``: when
    all traffic is like this, with P10 and P90. ``shares``: (share of all packets, what is carried in all). ``binding``:
    the resource, with what one packet uses of it. ``measured_share``: of the flood's packets in a native run those that
    took the path. ``bound_pps``: no path of the program, with packets or not, leaves less; None where it has too many.
    """

    packets: str
    frame: int
    port: str
    id: int
    path: str
    throughput_pps: float
    low_pps: float
    high_pps: float
    shares: tuple[tuple[float, float], ...]
    binding: str
    unit: str
    per_packet: float
    costs: tuple[Cost, ...]
    measured_share: float
    opening: int
    filling: int
    bound_pps: float | None
    paths_with_packets: int
    paths: int


@dataclass(frozen=True)
class Found:
    """The report with the flood itself, and the flags that assign its packets to ports."""

    report: Worst
    flood: Flood
    port_map: tuple[str, ...]


def worst_traffic(instance: Instance, placement: Placement, cores: int, *, seed: int = SEED,
                  options: Options | None = None) -> Found | None:
    """Search it; None when no packet that was tried can be sent again and again."""
    return _Search(instance, placement, cores, seed, options or Options()).found()


def write_flood(flood: Flood, path: File | str, body: int = BODY) -> int:
    """Write a flood as a capture: what opens it, then ``body`` packets. Returns the number of packets.

    Raises:
        CoraError: `Kind.CANNOT_WRITE`.
    """
    count = len(flood.opening) + flood.fills + body
    with PcapWriter(path) as writer:
        for packet in itertools.islice(flood.packets(), count):
            writer.write(packet.time_ns, packet.frame, packet.wirelen)
    return count


@dataclass(frozen=True)
class _Run:
    """A flood as it ran natively: the profile, and shares of paths once it lasted."""

    flood: Flood
    profile: Profile
    mix: Mapping[int, float]
    rate: float
    demand: Vector
    traffic: Traffic


class _Search:
    def __init__(self, instance: Instance, placement: Placement, cores: int, seed: int, options: Options) -> None:
        self.instance, self.placement, self.cores, self.options = instance, placement, cores, options
        self.program: Program = instance.program
        self.witnesses = Witnesses(self.program, seed, options)
        self.numbering = number_paths(self.program)
        self.worst: _Run | None = None

    def found(self) -> Found | None:
        keys = list(self.witnesses.run())
        port_map = tuple(f"{p.name}=mac:{mac_of(i)}" for i, p in enumerate(self.program.ports))
        for flood in itertools.islice(self.floods([Path(0, *key) for key in keys], keys), _RUN):
            run = self.run(flood, port_map)
            self.worst = run if self.worst is None or run.rate < self.worst.rate else self.worst
        if self.worst is None:
            return None
        return Found(self.report(self.worst, len(keys)), self.worst.flood, port_map)

    @property
    def least(self) -> float:
        """Packets a second that the worst flood so far leaves."""
        return math.inf if self.worst is None else self.worst.rate

    def costs(self, paths: Sequence[Steps], lent: float | None) -> Costs:
        return Costs(self.instance, self.placement, paths, self.cores, lent)

    def costs_of(self, flood: Flood, paths: Sequence[Steps]) -> Costs:
        """Packets of ever new flows find no entry lent; a flow that goes on is lent soon."""
        return self.costs(paths, 0.0 if flood.varied else 1.0)

    def floods(self, paths: Sequence[Path], keys: Sequence[PathKey]) -> Iterator[Flood]:
        """Floods that may leave less than the worst so far, the worst paths first.

        Of the floods of one path only those that are worse than the ones before, and that take least to begin.
        """
        maker = Floods(self.program, self.witnesses, self.options)
        number = {key: i for i, key in enumerate(keys)}
        costs, again = self.costs(paths, 0.0), self.costs(paths, 1.0)
        new, same = costs.of_new_flows(), again.of_one_packet()
        for bound, i in ranked(costs, again)[:_TRIED]:
            if bound >= self.least:
                return
            least = math.inf
            for flood in maker.of(keys[i]):
                rows = new if flood.varied else same
                shares = {number[k]: share for k, share in flood.mix.items() if k in number}
                demand = sum((share * rows[k] for k, share in shares.items()), np.zeros(rows.shape[1]))
                if not shares or not np.isfinite(demand).all():
                    continue
                rate = costs.reach(demand / sum(shares.values()))
                if rate < min(least * _BETTER, self.least):
                    least = rate
                    yield flood

    def run(self, flood: Flood, port_map: Sequence[str]) -> _Run:
        """Run a flood natively and price what it does once it lasts."""
        from cora.runtime.profiling import make_profile

        before = len(flood.opening) + flood.fills
        with tempfile.TemporaryDirectory() as folder:
            capture = File(folder, "flood.pcap")
            write_flood(flood, capture)
            profile = make_profile(self.program, capture, port_map=port_map, options=self.options)
        mix = _lasting(profile, before)
        rates = rates_of(self.program, profile)
        if flood.varied:
            # The run is short: a flood that lasts comes to use all entries that there can be.
            whole = all_entries(self.instance)
            rates = {name: replace(r, entries=whole[name].entries, working_set=whole[name].working_set)
                     for name, r in rates.items()}
        traffic = Traffic(_frame(flood.body), rates)
        costs = self.costs_of(flood, profile.paths)
        demand = np.array([mix.get(p.id, 0.0) for p in profile.paths]) @ costs.demands(traffic)
        return _Run(flood, profile, mix, costs.reach(demand, traffic.frame), demand, traffic)

    # The report.

    def report(self, run: _Run, witnessed: int) -> Worst:
        main = max(run.mix, key=lambda number: run.mix[number])
        path = next(p for p in run.profile.paths if p.id == main)
        steps = Path(path.id, path.blocks, path.outcomes)
        costs = self.costs_of(run.flood, [steps])
        loads = costs.loads(run.demand, run.traffic.frame)
        column = int(loads.argmax())
        resource = self.instance.resources[column]
        parts = costs.parts(0, resource.name, run.traffic)
        low, high = self.band(run)
        return Worst(
            packets=describe(run.flood, self.program), frame=round(run.traffic.frame),
            port=port_of(self.program, path) or "", id=main, path=story(self.program, steps),
            throughput_pps=_rounded(run.rate), low_pps=_rounded(low), high_pps=_rounded(high),
            shares=tuple((s, _rounded(self.shared(run, s))) for s in SHARES),
            binding=resource.name, unit=resource.unit, per_packet=_rounded(float(run.demand[column])),
            costs=tuple(Cost(p.what, p.line, _rounded(p.amount)) for p in parts[:_PARTS]),
            measured_share=run.mix[main], opening=len(run.flood.opening), filling=run.flood.fills,
            bound_pps=self.bound(), paths_with_packets=witnessed, paths=self.numbering.count,
        )

    def band(self, run: _Run) -> tuple[float, float]:
        """P10 and P90 over the model's parameter box."""
        costs = self.costs_of(run.flood, run.profile.paths)
        weights = np.array([run.mix.get(p.id, 0.0) for p in run.profile.paths])
        kind = type(self.instance.target)
        rates = []
        for model in samples(self.instance.target.model, _SAMPLES, SEED):
            target = kind(model)
            rates.append(costs.reach(weights @ costs.demands(run.traffic, None, target), run.traffic.frame, target))
        return band(rates)

    def shared(self, run: _Run, share: float) -> float:
        """What is carried in all when a share of the packets is the flood's and the rest as in the plan's profile."""
        profile = self.instance.profile
        usual, flood = self.costs(profile.paths, None), self.costs_of(run.flood, run.profile.paths)
        ours = np.array([p.packets / profile.packets for p in profile.paths])
        theirs = np.array([run.mix.get(p.id, 0.0) for p in run.profile.paths])
        before, other = usual.accesses([ours]), flood.accesses([theirs])
        accesses = {name: (*before[name], *other[name]) for name in before}
        rates = mixed(self.instance.rates, run.traffic.rates, share, accesses, self.instance)
        frame = (1 - share) * profile.mean_frame + share * run.traffic.frame
        traffic = Traffic(frame, rates)
        demand = (1 - share) * ours @ usual.demands(traffic) + share * theirs @ flood.demands(traffic)
        return usual.reach(demand, frame)

    def bound(self) -> float | None:
        if self.numbering.count > _MOST_PATHS:
            return None
        paths = list(enumerate_paths(self.program, _MOST_PATHS))
        return _rounded(ranked(self.costs(paths, 0.0), self.costs(paths, 1.0))[0][0])


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _frame(spec: Spec) -> float:
    return float(max(60, len(build(spec)[0])))


def _lasting(profile: Profile, before: int) -> dict[int, float]:
    """Shares of paths in the windows after the first half of what follows ``before`` packets."""
    skipped = before + (profile.packets - before) // 2
    seen, counts = 0, dict.fromkeys((p.id for p in profile.paths), 0)
    for window in profile.windows:
        if seen >= skipped:
            for number, packets in window.paths:
                counts[number] += packets
        seen += window.packets
    total = sum(counts.values())
    if not total:
        counts, total = {p.id: p.packets for p in profile.paths}, sum(p.packets for p in profile.paths)
    return {number: n / total for number, n in counts.items() if n}


def describe(flood: Flood, program: Program) -> str:
    """The packets of a flood in words: ``60-byte TCP SYN on inside, each with another ipv4.src and l4.sport``."""
    spec = flood.body
    words = [f"{_frame(spec):.0f}-byte {_protocol(spec)} on {program.ports[spec.port].name}"]
    if flood.varied:
        words.append("each with another " + " and ".join(_field(f) for f in flood.varied))
    else:
        words.append("all the same")
    if flood.fills:
        words.append(f"after {flood.fills:,} of them have filled the table")
    elif flood.opening:
        words.append("after another packet that prepares for them" if len(flood.opening) == 1 else
                     f"after {len(flood.opening)} others that prepare for them")
    return ", ".join(words)


def _field(field: Field) -> str:
    return "fragment number" if field == FRAGMENT else ".".join(field)


def _protocol(spec: Spec) -> str:
    if spec.ethertype not in (0x0800, 0x86DD):
        return f"frames of EtherType 0x{spec.ethertype:04x}"
    family = "IPv4" if spec.ethertype == 0x0800 else "IPv6"
    name = NAMES.get(spec.upper, "")
    flags = spec.fields.get(("tcp", "flags"), 0x10)
    bits = "+".join(name.upper() for bit, name in ((2, "syn"), (16, "ack"), (1, "fin"), (4, "rst"))
                    if spec.fields.get(("tcp", name), flags & bit))
    shown = f"{name.upper() or f'protocol {spec.upper}'} packets"
    if name == "tcp":
        shown = f"TCP {bits or 'without flags'} packets"
    elif spec.quoted is not None or spec.quoted_raw is not None:
        shown = f"{name.upper()} errors"
    return f"{family} {'fragments of ' if spec.fragment is not None else ''}{shown}"


def story(program: Program, path: Path) -> str:
    """What happens to a packet of a path: what tables answer, then the verdict."""
    told = []
    for label, outcome in zip(path.blocks, path.outcomes, strict=False):
        end = program.block(label).terminator
        if isinstance(end, Lookup):
            told.append(f"{end.state}{'.' + end.key if end.key else ''} {outcome}")
        elif isinstance(end, Insert | Police):
            told.append(f"{end.state} {'insert ' if isinstance(end, Insert) else ''}{outcome}")
    end = program.block(path.blocks[-1]).terminator
    match end:
        case Forward(port=port):
            told.append(f"forward {port}")
        case Drop(reason=reason):
            told.append(f'drop "{reason}"')
        case Reject(reason=reason):
            told.append(f'reject "{reason}"')
        case _:
            told.append("held")
    return ", ".join(told)
