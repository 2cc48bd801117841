"""Small programs whose entries can be lent, traffic with admission points, and a target that lends."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from planning_fakes import FIGURES, FakeTarget, model_of, profile_of

from cora.analysis.accesses import AccessRates
from cora.analysis.paths import enumerate_paths
from cora.analysis.profile import Admission, AdmissionPoint, Budget, Profile
from cora.analysis.sharding import Alignment, align
from cora.frontends.nf import loads
from cora.ir.nodes import Block, Program, State
from cora.ir.passes.pipeline import STANDARD, run_pipeline
from cora.models.target import Demand, Lending, Refusal

Mode = Literal["resume", "restart"]

# A hit is refreshed and counted; one with the last hop left is deleted, which is its owner's business; a miss inserts.
TRACKED = """nf tracked {
  port left: wire;
  port right: wire;
  map conns { entry { a: ipv4, n: u32 } key = a; timeout 60s slack 5s; capacity 60; order weak; }
  counter hits;
  fragments drop;
  on left(p: eth/ipv4) {
    lookup conns[p.ip.src] {
      hit e {
        if p.ip.ttl == 1 { delete e; drop "over"; }
        touch e;
        count hits;
        forward right;
      }
      miss { insert conns { a: p.ip.src, n: 0 } { ok e { forward right; } full { drop "full"; } } }
    }
  }
  on right(p: eth/ipv4) {
    lookup conns[p.ip.dst] { hit e { count hits; forward left; } miss { drop "unknown"; } }
  }
}
"""


def tracked(order: str = "weak") -> Program:
    return run_pipeline(loads(TRACKED.replace("order weak", f"order {order}"), "tracked.nf"), STANDARD)


class LendingTarget(FakeTarget):
    """A fake target that lends to its first place, by code or by rules of decided flows."""

    mode: ClassVar[Mode] = "resume"

    def lends(self, program: Program, states: Sequence[State], near: int, owner: int) -> Lending | Refusal:
        if near != 0:
            return super().lends(program, states, near, owner)
        return Lending(self.mode)

    def lent_holds(self, program: Program, state: State, place: int, tier: str, entries: int) -> int | Refusal:
        if place != 0 or tier != self.tiers[self.chain[0]][0].name:
            return super().lent_holds(program, state, place, tier, entries)
        return 2 * entries

    def install(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
                entries: int) -> Demand | Refusal:
        return {"host-cycles": self._figure("install"), "link": 100.0 + entries}

    def recall(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
               entries: int) -> Demand | Refusal:
        return {"host-cycles": self._figure("recall")}

    def rule(self, program: Program, template: object, place: int, rules: int) -> Demand | Refusal:
        return {"engine": self._figure("rule") + rules / 1000}

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        if self.mode == "restart" and place == 0:
            return Refusal(block.label, self.chain[0], "it runs no code")
        return super().block(program, block, place)

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        found = super().access(program, state, kind, place, tier, use)
        if isinstance(found, Refusal) or use.hottest <= 0:
            return found
        # A little that depends on how the table is used, so that lent tables are told from the others.
        return {**found, "engine": found.get("engine", 0.0) + use.hottest + use.entries / 1000}


def lending_target(mode: Mode = "resume", figures: Mapping[str, float] | None = None, **changes: object
                   ) -> LendingTarget:
    kind = type("LendingTarget", (LendingTarget,), {"mode": mode, **changes})
    values = {**FIGURES, "install": 2000.0, "recall": 500.0, "rule": 3.0, **(figures or {})}
    made: LendingTarget = kind(model_of(**values))
    return made


def traffic(program: Program, rng: random.Random, points: Sequence[tuple[int, int, float, float]],
            mode: Mode = "resume", component: str = "conns") -> Profile:
    """Random packets on the paths that touch the component; the others are never taken.

    ``points``: (capacity, threshold, share of aligned packets lent, installs).
    """
    touching = [p for p in enumerate_paths(program) if align(program, component, p.blocks, p.outcomes) != Alignment(
        None, None, "")]
    paths = {p.blocks: rng.choice((1, 5, 40, 400)) for p in touching}
    profile = profile_of(program, paths, rng.choice((64, 300, 1500)))
    found = []
    for capacity, threshold, share, installs in points:
        lent = []
        for path in profile.paths:
            aligned = align(program, component, path.blocks, path.outcomes).aligned
            if aligned and int(path.packets * share):
                lent.append((path.id, int(path.packets * share)))
        made = round(installs * profile.packets)
        found.append(AdmissionPoint({component: Budget(capacity, threshold)}, tuple(lent), made, made // 2, made // 4,
                                    min(capacity, made), made / 2, made, ()))
    return replace(profile, admission=(Admission(mode, tuple(found)),))
