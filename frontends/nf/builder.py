"""Builds blocks: the current place in the graph, the variables' values there, and how ways fork and join."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cora.frontends.nf.types import Number, Scalar
from cora.ir import nodes
from cora.ir.cfg import headers_gained
from cora.ir.nodes import Block, Instruction, Terminator, Value
from cora.ir.span import Span
from cora.ir.types import Type


@dataclass
class Place:
    """An open block: what has been emitted, and what is known on every way here.

    Attributes:
        headers: headers that were extracted; variables: current value per mutable variable; dead: deleted entries.
    """

    label: str
    span: Span
    params: tuple[Value, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    headers: frozenset[str] = frozenset()
    variables: dict[int, Number] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


class Builder:
    """Emits instructions at ``here``; None when no way leads on."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.here: Place | None = None
        self._labels: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._drops: dict[str, str] = {}

    def label(self, hint: str) -> str:
        """A new block label made from a hint."""
        n = self._labels[hint] = self._labels.get(hint, 0) + 1
        return hint if n == 1 else f"{hint}_{n}"

    def value(self, type_: Type, hint: str = "") -> Value:
        """A new value; its name follows the hint."""
        hint = hint or "v"
        n = self._values[hint] = self._values.get(hint, 0) + 1
        return Value(hint if n == 1 and hint != "v" else f"{hint}.{n}", type_)

    def emit(self, instruction: Instruction) -> None:
        assert self.here is not None, "emitting where no way leads"
        self.here.instructions.append(instruction)

    def materialise(self, number: Number, span: Span) -> Value:
        """The IR value of a number; a constant becomes a `Const` here."""
        if number.value is not None:
            return number.value
        assert number.const is not None, "a number is a constant or a value"
        result = self.value(number.type.ir, "c")
        self.emit(nodes.Const(result, number.const, span))
        return result

    def finish(self, terminator: Terminator) -> Place:
        """Closes the current block and returns it as it was."""
        place = self.here
        assert place is not None, "finishing where no way leads"
        self.blocks[place.label] = Block(place.label, place.params, tuple(place.instructions), terminator, place.span)
        self.here = None
        return place

    def open(self, label: str, span: Span, before: Place, terminator: Terminator, outcome: str) -> None:
        """Continues in a new block that is entered from ``before`` by this outcome only."""
        headers = before.headers.union(headers_gained(terminator, outcome))
        self.here = Place(label, span, (), [], headers, dict(before.variables), before.dead)

    def drop(self, reason: str, span: Span) -> str:
        """The label of the block that drops for a reason of the language itself; one per reason."""
        if reason not in self._drops:
            label = self._drops[reason] = self.label("drop_" + "".join(c if c.isalnum() else "_" for c in reason))
            self.blocks[label] = Block(label, (), (), nodes.Drop(reason, span), span)
        return self._drops[reason]

    def join(self, places: Sequence[Place], span: Span, hint: str = "join") -> None:
        """Continues where several open blocks meet; variables that differ become parameters."""
        if not places:
            self.here = None
            return
        if len(places) == 1:
            self.here = places[0]
            return
        common = set.intersection(*(set(p.variables) for p in places))
        differing = sorted(v for v in common if len({p.variables[v] for p in places}) > 1)
        params = tuple(self.value(_ir(places[0].variables[v].type), hint) for v in differing)
        label = self.label(hint)
        merged = {v: places[0].variables[v] for v in common}
        for variable, param in zip(differing, params, strict=True):
            merged[variable] = Number(places[0].variables[variable].type, None, param)
        for place in places:
            self.here = place
            args = tuple(self.materialise(place.variables[v], span) for v in differing)
            self.finish(nodes.Jump(label, args, span))
        self.here = Place(label, span, params, [], frozenset.intersection(*(p.headers for p in places)), merged,
                          frozenset[str]().union(*(p.dead for p in places)))

    def ordered(self, entry: str) -> tuple[Block, ...]:
        """The blocks reachable from the entry, each before its successors, in the order the program reads."""
        order: list[str] = []
        done: set[str] = set()
        stack: list[tuple[str, list[str]]] = [(entry, self._targets(entry))]
        done.add(entry)
        while stack:
            label, rest = stack[-1]
            if not rest:
                order.append(label)
                stack.pop()
                continue
            target = rest.pop()
            if target not in done:
                done.add(target)
                stack.append((target, self._targets(target)))
        return tuple(self.blocks[label] for label in reversed(order))

    def _targets(self, label: str) -> list[str]:
        return [t for _, t in nodes.successors(self.blocks[label].terminator)]


def _ir(type_: Scalar) -> Type:
    return type_.ir


def with_variables(place: Place, variables: Iterable[int]) -> Place:
    """The place knowing only these variables (leaving a scope)."""
    keep = set(variables)
    return replace(place, variables={k: v for k, v in place.variables.items() if k in keep})
