"""Random well-typed NF programs: source text that loads, for differential tests of engines and backends.

Every construct of the language can come up. A program from here always loads; one that does not is a defect of the
front end or of this generator, and both must be fixed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cora.frontends import nf
from cora.ir.headers import ALSO_PROVIDES, QUOTED
from cora.ir.nodes import Program
from cora.testing.choices import Choices, DrawnChoices, RandomChoices, hypothesis_strategies
from cora.testing.declarations import DeclarationWriter
from cora.testing.statements import StatementWriter, indented
from cora.testing.world import World

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_L3 = ("", "/arp", "/ipv4", "/ipv6", "/(ipv4|ipv6)", "/(arp|ipv4)")
_L4 = ("/ipv4/tcp", "/ipv4/udp", "/ipv4/icmp", "/ipv4/(tcp|udp)", "/ipv4/(udp|icmp)", "/ipv6/tcp", "/ipv6/udp",
       "/ipv6/icmp6", "/ipv6/(tcp|udp)", "/(ipv4|ipv6)/(tcp|udp)", "/(ipv4/tcp|ipv6/udp)", "/(ipv4/icmp|ipv6/icmp6)")
_QUOTED = tuple(f"/ipv{v}/{icmp}/quoted/ipv{v}{tail}" for v, icmp in (("4", "icmp"), ("6", "icmp6"))
                for tail in ("", "/tcp", "/udp", f"/{icmp}", "/(tcp|udp)"))
PATTERNS = tuple(f"eth{vlan}{tail}" for tails in (_L3, _L4, _QUOTED) for vlan in ("", "/vlan") for tail in tails)


@dataclass(frozen=True)
class Generated:
    """A program as text and as IR."""

    text: str
    program: Program

    def __repr__(self) -> str:
        return self.text


def paths_of(pattern: str) -> list[tuple[str, ...]]:
    """The header paths of a pattern, alternatives multiplied out."""
    found: list[tuple[str, ...]] = [()]
    for step in re.findall(r"\([^)]*\)|[^/()]+", pattern):
        tails = [tuple(t.split("/")) for t in step.strip("()").split("|")]
        found = [before + tail for before in found for tail in tails]
    return found


def headers_of(pattern: str) -> frozenset[str]:
    """The headers that are present in every packet a handler with this pattern gets."""
    return frozenset.intersection(*(_headers_on(path) for path in paths_of(pattern)))


def _headers_on(path: tuple[str, ...]) -> frozenset[str]:
    quoted = path.index("quoted") if "quoted" in path else len(path)
    names = [*path[:quoted], *(QUOTED + step for step in path[quoted + 1:])]
    return frozenset(h for name in names for h in (name, *ALSO_PROVIDES.get(name, ())))


def write_program(choices: Choices) -> str:
    """The text of a random program."""
    world = World(choices, packet=choices.pick(("p", "p", "pkt")))
    declare = DeclarationWriter(world)
    body = declare.everything()
    world.budget = choices.pick((40, 15, 100, 160))
    handlers = _plan_handlers(world)
    policies = declare.policies(reads_l4=any(len(path) > 2 + ("vlan" in path) for _, pattern in handlers
                                             for path in paths_of(pattern)))
    write = StatementWriter(world)
    functions: list[str] = []
    for i in range(choices.integer(0, 3)):
        headers = headers_of(choices.pick([pattern for _, pattern in handlers]))
        functions += ["", *write.function(f"step_{i}", headers if choices.chance(80) else frozenset())]
    code: list[str] = []
    for ports, pattern in handlers:
        code += ["", *write.handler(ports, pattern, headers_of(pattern))]
    parts = [*code, *functions] if choices.chance(20) else [*functions, *code]
    return "\n".join(["nf generated {", *_tidy(indented([*body, "", *policies, *parts])), "}", ""])


def _tidy(lines: list[str]) -> list[str]:
    """Without trailing blanks and repeated empty lines."""
    found: list[str] = []
    for line in (raw.rstrip() for raw in lines):
        if line or (found and found[-1]):
            found.append(line)
    while found and not found[-1]:
        found.pop()
    return found


def _plan_handlers(world: World) -> list[tuple[list[str], str]]:
    """Ports and pattern of every handler; no two take the same path on a port."""
    choices = world.choices
    taken: set[tuple[str, tuple[str, ...]]] = set()
    found: list[tuple[list[str], str]] = []

    def take(ports: list[str], pattern: str) -> None:
        paths = paths_of(pattern)
        free = [p for p in ports if not any((p, path) in taken for path in paths)]
        if free:
            taken.update((p, path) for p in free for path in paths)
            found.append((free, pattern))

    for _ in range(choices.integer(1, 5)):
        take(choices.sample(world.ports, 1, 2), choices.pick(PATTERNS))
    if choices.chance(80):
        take(list(world.ports), "eth")
    return found


def generate(seed: int) -> Generated:
    """The program of a seed, the same on every machine.

    Raises:
        CoraError: it does not load, which is a defect.
    """
    text = write_program(RandomChoices(seed))
    return Generated(text, nf.loads(text, f"<program {seed}>"))


def nf_texts() -> SearchStrategy[str]:
    """A hypothesis strategy for program texts.

    Raises:
        CoraError: `Kind.MISSING_LIBRARY` when hypothesis is not installed.
    """
    strategies = hypothesis_strategies()
    found: SearchStrategy[str] = strategies.composite(lambda draw: write_program(DrawnChoices(draw)))()
    return found


def nf_programs() -> SearchStrategy[Generated]:
    """A hypothesis strategy for loaded programs. A program that does not load fails the test that draws it.

    Raises:
        CoraError: `Kind.MISSING_LIBRARY` when hypothesis is not installed.
    """
    return nf_texts().map(lambda text: Generated(text, nf.loads(text)))
