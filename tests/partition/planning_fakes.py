"""Small programs, profiles and targets whose best plan can be found by trying everything."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

from cora.analysis.accesses import AccessRates
from cora.analysis.profile import PathUse, Profile, StateUse
from cora.ir import nodes
from cora.ir.hashing import program_hash
from cora.ir.nodes import Block, Program, State, Value, successors
from cora.ir.span import Span
from cora.ir.text import parse_program, print_node
from cora.ir.types import BOOL, U32, EntryRef
from cora.ir.verify import verify
from cora.models.parameters import Model, Parameter
from cora.models.target import Demand, Place, Refusal, Resource, Target, Tier

SPAN = Span("case.nf", 1, 1, 1, 2)


def model_of(**values: float) -> Model:
    """A model of these values, each uncertain by 10 %."""
    rows = {"softmin_exponent": 8.0, **values}
    spread = {n: 0.0 if n == "softmin_exponent" else 0.1 for n in rows}
    return Model("fake", "1", {
        n: Parameter(n, v, "1", v * (1 - spread[n]), v * (1 + spread[n]), "assumed", "made up for tests")
        for n, v in rows.items()
    })


class FakeTarget(Target):
    """A chain of places: ``nic``, perhaps ``arm``, then ``host``. Costs are simple products of the model's figures."""

    name = "fake"
    chain: ClassVar[tuple[str, ...]] = ("nic", "host")
    tiers: ClassVar[Mapping[str, tuple[Tier, ...]]] = {
        "nic": (Tier("fast", 100), Tier("slow", 10_000)), "arm": (Tier("ram", 100_000),),
        "host": (Tier("dram", 10**9),),
    }
    code: ClassVar[Mapping[str, int | None]] = {"nic": 1000, "arm": None, "host": None}
    refused: ClassVar[frozenset[tuple[str, str]]] = frozenset()

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.places = tuple(Place(n, self.tiers[n], self.code[n], n) for n in self.chain)

    def _figure(self, name: str) -> float:
        return self.model[name]

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        found = [Resource("port", self._figure("port"), "packet", "nic")]
        for place in self.chain:
            found.append(Resource(f"{place}-cycles", self._figure(f"{place}_rate"), "cycle", place,
                                  scales=place == "host"))
        return (*found, Resource("engine", self._figure("engine"), "access", "nic"),
                Resource("link", self._figure("link"), "byte", "nic"))

    def per_packet(self, place: int) -> Demand:
        return {f"{self.chain[place]}-cycles": self._figure(f"{self.chain[place]}_base")}

    def wire(self, mean_frame: float) -> Demand:
        return {"port": 1.0}

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        if (block.label, self.chain[place]) in self.refused:
            return Refusal(block.label, self.chain[place], "this place cannot run it")
        return {f"{self.chain[place]}-cycles": self._figure("step") * (1 + len(block.instructions))}

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        if (f"{state.name}.{kind}", self.chain[place]) in self.refused:
            return Refusal(state.name, self.chain[place], f"no {kind} here")
        if self.chain[place] == "nic":
            return {"engine": self._figure(f"access_{tier}"), "nic-cycles": self._figure("step")}
        return {f"{self.chain[place]}-cycles": self._figure(f"access_{tier}")}

    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        if (state.name, self.chain[place]) in self.refused:
            return Refusal(state.name, self.chain[place], "it may not be here")
        return getattr(state, "capacity", getattr(state, "size", 1))

    def code_size(self, program: Program, block: Block, place: int) -> int:
        return 1 + len(block.instructions)

    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        if live_bytes > self._figure("carry"):
            return {"link": math.inf}
        far = self.chain[max(from_place, to_place)]
        return {"link": mean_frame + live_bytes, f"{far}-cycles": self._figure("cross")}

    def latency(self, place: int) -> float:
        return 100.0 * (place + 1)

    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        return 1000.0


FIGURES = {"port": 50e6, "nic_rate": 1e9, "arm_rate": 2e9, "host_rate": 3e9, "engine": 1e9, "link": 5e9,
           "nic_base": 20.0, "arm_base": 60.0, "host_base": 100.0, "step": 5.0, "cross": 30.0,
           "access_fast": 1.0, "access_slow": 8.0, "access_ram": 60.0, "access_dram": 80.0, "carry": 1e9}


def target_of(figures: Mapping[str, float] = FIGURES, **changes: object) -> FakeTarget:
    """A fake target; ``changes`` replace its class attributes (chain, tiers, code, refused)."""
    kind = type("FakeTarget", (FakeTarget,), changes)
    made: FakeTarget = kind(model_of(**{**FIGURES, **figures}))
    return made


def profile_of(program: Program, paths: Mapping[tuple[str, ...], int], frame: int = 100,
               states: Mapping[str, StateUse] | None = None) -> Profile:
    """A profile with packets per path, a path given by its block labels."""
    blocks = {b.label: b for b in program.blocks}
    uses = []
    for number, (labels, packets) in enumerate(paths.items()):
        outcomes = tuple(
            next(o for o, t in successors(blocks[a].terminator) if t == b)
            for a, b in pairwise(labels)
        )
        uses.append(PathUse(number, labels, outcomes, print_node(blocks[labels[-1]].terminator), packets,
                            packets * frame))
    total = sum(paths.values())
    return Profile(program.name, program_hash(program), {}, total, total * frame, 0, 10**9, ((frame, total),),
                   {program.ports[0].name: (total, total * frame)}, tuple(uses), states or {}, 10**8, ())


NAT_LIKE = """
program small file "case.nf" @1:1-30:2
port wire faces (wire) @2:1-2:10
map conns capacity 60 slack 0 full reject exact strict_order - @3:1-3:10
  field k : u32 @3:2-3:3
  field v : u16 @3:4-3:5
  key main (k) @3:6-3:7
  timeout idle 1000 @3:8-3:9
map peers capacity 60 slack 0 full reject exact strict_order - @4:1-4:10
  field k : u32 @4:2-4:3
  key main (k) @4:6-4:7
  timeout idle 1000 @4:8-4:9
counter hits size 4 @5:1-5:10
block entry () @10:1-10:2
  %size : u32 = meta size @10:3-10:4
  lookup conns "main" (%size) hit %e : ref<conns> known miss fresh @10:5-10:6
block known () @11:1-11:2
  touch %e "idle" @11:3-11:4
  %zero : u32 = const 0 @11:5-11:6
  count hits %zero - @11:7-11:8
  forward wire @11:9-11:10
block fresh () @12:1-12:2
  lookup peers "main" (%size) hit %p : ref<peers> allow miss deny @12:3-12:4
block allow () @13:1-13:2
  %v : u16 = const 7 @13:3-13:4
  insert conns (%size, %v) [] "idle" ok %n : ref<conns> done full deny @13:5-13:6
block done () @14:1-14:2
  forward wire @14:3-14:4
block deny () @15:1-15:2
  drop "denied" @15:3-15:4
"""


def nat_like() -> Program:
    """Two tables and a counter: known packets are counted, new ones checked in a second table and inserted."""
    return verify(parse_program(NAT_LIKE))


def nat_profile(program: Program, known: int = 90, fresh: int = 8, denied: int = 2) -> Profile:
    return profile_of(program, {
        ("entry", "known"): known, ("entry", "fresh", "allow", "done"): fresh, ("entry", "fresh", "deny"): denied,
    })


# Random cases.

def random_program(rng: random.Random) -> Program:
    """A well-formed program of up to eight blocks over up to three states."""
    maps = [_map(f"m{i}", rng.choice((20, 60, 90, 3000))) for i in range(rng.randint(1, 2))]
    # Half of the capacities ask for order.
    maps = [replace(m, strict_order=m.capacity in (20, 90)) for m in maps]
    counters = [nodes.CounterState("c0", rng.choice((4, 80)), SPAN)] if rng.random() < 0.5 else []
    count = rng.randint(3, 7)
    size = Value("size", U32)
    blocks: list[Block] = []
    for i in range(count):
        body: list[nodes.Instruction] = [nodes.Meta(size, "size", SPAN)] if i == 0 else []
        number = Value(f"n{i}", U32)
        body += [nodes.Const(number, i, SPAN)]
        if counters and rng.random() < 0.3:
            body.append(nodes.Count("c0", number, None, SPAN))
        for j in range(rng.randint(0, 3)):
            body.append(nodes.Binary(Value(f"t{i}_{j}", U32), "add", size, number, SPAN))
        later = [f"b{k}" for k in range(i + 1, count)]
        end = _terminator(rng, i, later, maps, size, body)
        blocks.append(Block(f"b{i}", (), tuple(body), end, SPAN))
    return verify(_reachable(Program("random", (nodes.Port("wire", ("wire",), SPAN),), (), (*maps, *counters),
                                     tuple(blocks), SPAN)))


def _map(name: str, capacity: int) -> nodes.MapState:
    return nodes.MapState(name, (nodes.FieldDecl("k", U32, SPAN),), (nodes.KeyDecl("main", ("k",), SPAN),), (),
                          capacity, (), 0, "reject", True, True, False, SPAN)


def _terminator(rng: random.Random, i: int, later: list[str], maps: list[nodes.MapState], size: Value,
                body: list[nodes.Instruction]) -> nodes.Terminator:
    if not later or (i > 1 and rng.random() < 0.2):
        return nodes.Forward("wire", SPAN) if rng.random() < 0.6 else nodes.Drop("no", SPAN)
    if len(later) == 1:
        return nodes.Jump(later[0], (), SPAN)
    if rng.random() < 0.6:
        # No other edge may enter the block where the entry is defined.
        state = rng.choice(maps)
        return nodes.Lookup(state.name, "main", (size,), Value(f"e{i}", EntryRef(state.name)), later[0],
                            rng.choice(later[1:]), SPAN)
    condition = Value(f"q{i}", BOOL)
    body.append(nodes.Compare(condition, "lt", size, size, SPAN))
    first, second = rng.sample(later, 2)
    return nodes.Branch(condition, first, second, SPAN)


def _reachable(program: Program) -> Program:
    """Without blocks nobody enters; an edge that would join another at a look-up's hit gets an end block of its own."""
    hits = {b.terminator.hit for b in program.blocks if isinstance(b.terminator, nodes.Lookup)}
    entered: Counter[str] = Counter()
    blocks: list[Block] = []
    ends: list[Block] = []
    for block in program.blocks:
        if blocks and not entered[block.label]:
            continue
        end = block.terminator
        for name in ("hit", "miss", "if_true", "if_false", "target"):
            label = getattr(end, name, None)
            if label is None:
                continue
            if label in hits and (name != "hit" or entered[label]):
                fresh = f"end{len(ends)}"
                ends.append(Block(fresh, (), (), nodes.Drop("no", SPAN), SPAN))
                changed: Any = {name: fresh}
                end = replace(end, **changed)
                label = fresh
            entered[label] += 1
        blocks.append(replace(block, terminator=end))
    return replace(program, blocks=(*blocks, *ends))


def random_profile(rng: random.Random, program: Program, packets: int = 200) -> Profile:
    """Random walks from the entry."""
    blocks = {b.label: b for b in program.blocks}
    leaning = {b.label: rng.choice((0.0, 0.1, 0.5, 0.9)) for b in program.blocks}
    taken: Counter[tuple[str, ...]] = Counter()
    for _ in range(packets):
        walk = [program.blocks[0].label]
        while edges := successors(blocks[walk[-1]].terminator):
            walk.append(edges[int(rng.random() < leaning[walk[-1]]) % len(edges)][1])
        taken[tuple(walk)] += 1
    return profile_of(program, dict(sorted(taken.items())), rng.choice((64, 300, 1500)))


def random_target(rng: random.Random, program: Program) -> FakeTarget:
    """Costs within a factor of four of the usual, two or three places, some things refused near the wire."""
    figures = {n: v * rng.choice((0.5, 1.0, 2.0)) for n, v in FIGURES.items() if n != "carry"}
    near = ("nic", "arm") if rng.random() < 0.5 else ("nic",)
    subjects = [*(s.name for s in program.states), *(b.label for b in program.blocks),
                *(f"{s.name}.lookup" for s in program.states)]
    refused = frozenset((s, p) for s in subjects for p in near if rng.random() < 0.08)
    code = {"nic": rng.choice((4, 10, 1000)), "arm": None, "host": None}
    figures["carry"] = rng.choice((0.0, 3.0, 1e9, 1e9))
    return target_of(figures, chain=(*near, "host"), refused=refused, code=code)
