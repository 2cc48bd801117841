"""Plans the examples on every card in every form and verifies each plan; a long run, not a test.

    python benchmarks/verify_plans.py [--packets 80k] [--seeds 2] [--only firewall,bluefield2,cores=1]

Each example is taken as it is and with ``order weak``; the traffic is synthetic. A plan must verify equal. What the
planner refuses is counted with its message, and so is what `cora verify` refuses, which makes the exit code 1 as a
difference does: a plan that cannot be run cannot be checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cora
from cora.errors import CoraError
from cora.ir.nodes import Program
from cora.models import registry

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FORMS: dict[str, dict[str, Any]] = {
    "cores=1": {"cores": 1},
    "cores=4": {"cores": 4},
    "rate=5Mpps": {"rate": "5Mpps"},
    "rate=25Mpps": {"rate": "25Mpps"},
    "rate=40Mpps": {"rate": "40Mpps"},
    "memory=64KB": {"cores": 2, "max_nic_memory": "64KB"},
    "pin=host": {"cores": 4, "pin": "host"},
    "pin=near": {"cores": 4, "pin": "near"},
    # The state that packets use first is at the host, all others as near as they can be: packets may come back.
    "pin=crossed": {"cores": 4, "pin": "crossed"},
}


@dataclass(frozen=True)
class Case:
    """A program with its traffic, a card, and the form of the request."""

    name: str
    program: Program
    profile: Any
    capture: Path
    side: str
    nic: str
    form: str

    def __str__(self) -> str:
        return f"{self.name} {self.nic} {self.form}"


def programs(folder: Path) -> Iterator[tuple[str, Path]]:
    """The examples, and those with strict order also with weak order."""
    for name in ("firewall", "firewall.ref", "nat", "nat.ref", "policer", "policer.ref"):
        path = EXAMPLES / f"{name}.nf"
        yield name, path
        text = path.read_text(encoding="utf-8")
        if "order strict" in text:
            weak = folder / f"{name}.weak.nf"
            weak.write_text(text.replace("order strict", "order weak"), encoding="utf-8")
            yield f"{name}.weak", weak


def cases(folder: Path, capture: Path) -> Iterator[Case]:
    """All of them."""
    for name, path in programs(folder):
        program = cora.load(path)
        side = program.ports[0].name
        profile = cora.profile(program, capture, captured_at=side)
        for nic in registry.names():
            for form in FORMS:
                yield Case(name, program, profile, capture, side, nic, form)


def request(case: Case) -> dict[str, Any]:
    """The planner's arguments, with the states of its pins."""
    arguments = dict(FORMS[case.form])
    where = arguments.get("pin")
    if where is not None:
        arguments["pin"] = pins(case, where)
    return arguments


def pins(case: Case, where: str) -> list[str]:
    """The state that most packets use, at the host or nearest to the wire; or the first one at the host and that one
    before it.
    """
    places = cora.plan(case.program, case.profile, case.nic, cores=4).places
    used = {name: sum(h + m for h, m in s.lookups.values()) for name, s in case.profile.states.items()}
    most = max(used, key=lambda name: used[name])
    if where != "crossed":
        return [f"{most}={places[-1] if where == 'host' else places[0]}"]
    names = {s.name for s in case.program.states}
    uses = (getattr(b.terminator, "state", "") for b in case.program.blocks)
    first = next(name for name in uses if name in names)
    behind = [f"{most}={places[-2]}"] if most != first and len(places) > 1 else []
    return [f"{first}={places[-1]}", *behind]


def outcome(case: Case, seeds: int) -> tuple[str, str]:
    """What became of it: equal, DIFFERENT, not planned, NOT RUN; and why, or what was lent."""
    try:
        arguments = request(case)
        plan = cora.plan(case.program, case.profile, case.nic, **arguments)
    except CoraError as error:
        return "not planned", str(error).splitlines()[0]
    try:
        found = cora.verify(plan, case.program, [case.capture], captured_at=case.side, seeds=seeds, packets=5000)
    except CoraError as error:
        return "NOT RUN", str(error).splitlines()[0]
    back = "comes back, " if any(b.leg for b in plan.blocks) else ""
    lent = back + ", ".join(f"{s.name} lent to {s.lent.place} ({s.lent.mode})" for s in plan.states
                            if s.lent is not None)
    if found.difference is None:
        return "equal", lent
    where = found.difference
    return "DIFFERENT", f"{where.what} ({where.source}, packet {where.packet}, schedule {where.seed}) {lent}"


def main() -> None:
    """Run all cases; the exit code is 1 when one differed or could not be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", default="80k")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="words of which all must stand in a case's line")
    arguments = parser.parse_args()
    words = {w for w in arguments.only.split(",") if w}
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        capture = folder / "traffic.pcap"
        cora.traffic({"packets": arguments.packets, "flows": "20000", "zipf": "1.1", "churn": "2000",
                      "rate": "10Mpps"}, capture)
        for case in cases(folder, capture):
            if not words <= set(str(case).split()):
                continue
            started = time.monotonic()
            found, why = outcome(case, arguments.seeds)
            tally[found] += 1
            print(f"{found:12} {time.monotonic() - started:5.1f} s  {case}  {why}", flush=True)
    print(", ".join(f"{count} {found}" for found, count in sorted(tally.items())))
    sys.exit(1 if tally["DIFFERENT"] or tally["NOT RUN"] else 0)


if __name__ == "__main__":
    main()
