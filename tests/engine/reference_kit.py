"""Short ways to write the small programs and packets that the tests of the reference interpreter use."""

from __future__ import annotations

from cora.engine.reference import Reference, TraceStep
from cora.engine.results import Dropped, Event, Held, Options, Output
from cora.ir.nodes import FRAGMENT_OUTCOMES, Load, Program, extract_outcomes
from cora.ir.text import parse_program
from cora.ir.verify import verify

PORTS = "port in faces (wire)\nport out faces (wire)\n"


def program(text: str) -> Program:
    """A verified program from IR text without its first line and without spans."""
    lines = ['program test file "test.nf"', *(line for line in (PORTS + text).splitlines() if line.strip())]
    return verify(parse_program("\n".join(f"{line} @{i}:1-{i}:2" for i, line in enumerate(lines, 1))))


def chain(*steps: str, body: str = "forward out", states: str = "") -> Program:
    """A program of extractions in a row, every outcome but the good one a drop named ``<step> <outcome>``.

    A step is ``eth 2`` (header, limit, flags) or ``track STATE HEADER``, whose ``hold`` holds. ``body`` is the text of
    the last block and of blocks after it.
    """
    blocks, leaves = [], []
    for i, step in enumerate(steps):
        words = step.split()
        name = words[0]
        if name == "track":
            outcomes: tuple[str, ...] = FRAGMENT_OUTCOMES
            head = f"track_fragment {words[1]} {words[2]}"
        else:
            flags = {f: f in words for f in ("verify", "source_route")}
            outcomes = extract_outcomes(name, **flags)
            limit = next((w for w in words if w.isdigit()), "0")
            head = f"extract {name} limit {limit} " + " ".join(f if on else "-" for f, on in flags.items())
        edges = [f"ok -> b{i + 1}"]
        for outcome in outcomes[1:]:
            label = f"leaf{i}_{outcome}"
            edges.append(f"{outcome} -> {label}")
            leaves.append(f"block {label} ()\n " + ("hold" if outcome == "hold" else f'drop "{name} {outcome}"'))
        blocks.append(f"block b{i} ()\n {head} {{{', '.join(edges)}}}")
    blocks.append(f"block b{len(steps)} ()\n{body}")
    return program("\n".join([states, *blocks, *leaves]))


def run(prog: Program, frame: bytes, wirelen: int | None = None, **options: bool) -> list[Event]:
    """The events of one packet on port 0 at time 0, in a fresh instance."""
    return Reference(prog, Options(**options)).process(0, 0, frame, wirelen)


def verdict(events: list[Event]) -> str:
    """``forward``, ``held``, or the drop reason of a single-event list."""
    (event,) = events
    if isinstance(event, Dropped):
        return event.reason
    return "held" if isinstance(event, Held) else "forward"


def outputs(events: list[Event]) -> list[Output]:
    """The events, all of which must be packets sent."""
    assert all(isinstance(e, Output) for e in events), events
    return [e for e in events if isinstance(e, Output)]


def forwarded(events: list[Event]) -> bytes:
    """The bytes of the only event, which must be a forwarded packet."""
    (event,) = outputs(events)
    return event.frame


def fields(prog: Program, frame: bytes, wirelen: int | None = None) -> dict[str, object]:
    """Every header field the program loaded while it processed a packet, by ``header.field``."""
    steps: list[TraceStep] = []
    Reference(prog).process(0, 0, frame, wirelen, steps)
    return {f"{s.node.header}.{s.node.field}": s.detail["result"] for s in steps if isinstance(s.node, Load)}


def loads(*names: str) -> str:
    """Body lines that load header fields given as ``header.field:type``, then forward."""
    lines = []
    for i, item in enumerate(names):
        name, type_ = item.split(":")
        header, field = name.rsplit(".", 1)
        lines.append(f" %v{i} : {type_} = load {header} {field}")
    return "\n".join([*lines, " forward out"])


def stores(*items: str) -> str:
    """Body lines that store constants given as ``header.field:type=value``, then forward."""
    lines = []
    for i, item in enumerate(items):
        name, rest = item.split(":")
        type_, value = rest.split("=")
        header, field = name.rsplit(".", 1)
        lines += [f" %c{i} : {type_} = const {int(value, 0)}", f" store {header} {field} %c{i}"]
    return "\n".join([*lines, " forward out"])
