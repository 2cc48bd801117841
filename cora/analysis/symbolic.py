"""What a program's values are in terms of the packet as it arrived, of entries and of constants.

`Expressions` interns expressions: equal ones are one object, so comparing is `is` and shared parts stay shared. Making
one simplifies it (constants, identities, choices with one outcome). `Evaluator` computes the expressions of a program's
values, either along one path or over all paths at once, where a value that differs between ways in is a `varies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cora.ir import nodes
from cora.ir.headers import QUOTED, field_of
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value, result_of
from cora.ir.passes import arithmetic
from cora.ir.types import BOOL, Bool, EntryRef, UInt, bits_of

# Leaves: `const` (number), `field` (header, field: as it arrived), `meta` (what), `entry` (reference, state, field),
# `unknown` (why). All others have operands: the operators of the IR, `select`, `cast`, `overlay` (a field over part of
# which something was stored), `varies` (one of them, by the way taken), `table` (state, field: what a read-only table
# gives for a key) and `hits` (state: whether it gives anything).
LEAVES = frozenset(("field", "meta", "entry", "unknown"))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Expr:
    """An expression; equal ones of one `Expressions` are one object.

    ``bits``: its width, 1 for truth values. ``leaves``: the distinct leaves below it (itself when it is one) other than
    constants.
    """

    op: str
    operands: tuple[Expr, ...]
    detail: tuple[str | int, ...]
    bits: int
    leaves: frozenset[Expr]

    def __repr__(self) -> str:
        return f"<{shown(self)}>"

    @property
    def constant(self) -> int | None:
        """Its number, when it is one."""
        return int(self.detail[0]) if self.op == "const" else None


# Ways in that a `varies` tells apart; more are one unknown value.
_MOST_WAYS = 8


class Expressions:
    """Makes expressions, each once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[Expr, ...], tuple[str | int, ...], int], Expr] = {}

    def _intern(self, op: str, operands: tuple[Expr, ...], detail: tuple[str | int, ...], bits: int) -> Expr:
        key = (op, operands, detail, bits)
        found = self._made.get(key)
        if found is None:
            found = Expr(op, operands, detail, bits, frozenset[Expr]().union(*(o.leaves for o in operands)))
            if op in LEAVES:
                object.__setattr__(found, "leaves", frozenset((found,)))
            self._made[key] = found
        return found

    def const(self, value: int, bits: int) -> Expr:
        return self._intern("const", (), (value,), bits)

    def leaf(self, op: str, detail: tuple[str | int, ...], bits: int) -> Expr:
        """A field as it arrived, a fact about the packet, a field of an entry, or something unknown."""
        return self._intern(op, (), detail, bits)

    def table(self, op: str, operands: Sequence[Expr], detail: tuple[str | int, ...], bits: int) -> Expr:
        """``table``: a value of what a read-only table gives for a key; ``hits``: whether it gives anything."""
        return self._intern(op, tuple(operands), detail, bits)

    def varies(self, ways: Iterable[Expr]) -> Expr:
        """One of several values, by the way a packet came."""
        found: dict[Expr, None] = {}
        for way in ways:
            found.update(dict.fromkeys(way.operands if way.op == "varies" else (way,)))
        if len(found) == 1:
            return next(iter(found))
        first = next(iter(found))
        if len(found) > _MOST_WAYS:
            leaves = [leaf for way in found for leaf in way.leaves]
            return self._intern("varies", tuple(dict.fromkeys((*leaves, self.leaf("unknown", ("ways",), 1)))), (),
                                first.bits)
        return self._intern("varies", tuple(found), (), first.bits)

    def overlay(self, operands: Sequence[Expr], bits: int) -> Expr:
        """A header field over part of which other values were stored."""
        return self._intern("overlay", tuple(operands), (), bits)

    def unary(self, op: str, operand: Expr) -> Expr:
        """``not`` or ``invert``, which agree on one bit."""
        ones = (1 << operand.bits) - 1
        if operand.constant is not None:
            return self.const(operand.constant ^ ones, operand.bits)
        if operand.op == "invert":
            return operand.operands[0]
        if operand.op in _OPPOSITE:
            return self._intern(_OPPOSITE[operand.op], operand.operands, (), 1)
        return self._intern("invert", (operand,), (), operand.bits)

    def binary(self, op: str, left: Expr, right: Expr, bits: int) -> Expr:
        """An operator of the IR on two values, wrapped to ``bits``."""
        a, b = left.constant, right.constant
        if a is not None and b is not None:
            return self.const(arithmetic.binary(op, a, b, UInt(bits)), bits)
        if a is not None and op in _COMMUTES:
            return self.binary(op, right, left, bits)
        if b is not None:
            return self._with_constant(op, left, b, bits)
        if left is right and op in ("and", "or", "min", "max"):
            return left
        if left is right and op in ("xor", "sub"):
            return self.const(0, bits)
        return self._intern(op, (left, right), (), bits)

    def _with_constant(self, op: str, left: Expr, number: int, bits: int) -> Expr:
        ones = (1 << bits) - 1
        if (op, number) in _KEEPS or (op == "and" and number == ones):
            return left
        if (op in ("and", "mul") and number == 0) or (op == "or" and number == ones):
            return self.const(number, bits)
        if op in ("and", "or") and left.op == op and left.operands[1].constant is not None:
            merged = arithmetic.binary(op, left.operands[1].constant, number, UInt(bits))
            return self._with_constant(op, left.operands[0], merged, bits)
        return self._intern(op, (left, self.const(number, bits)), (), bits)

    def compare(self, op: str, left: Expr, right: Expr) -> Expr:
        """A comparison; a constant stands on the right."""
        a, b = left.constant, right.constant
        if a is not None and b is not None:
            return self.const(arithmetic.compare(op, a, b), 1)
        if left is right:
            return self.const(int(op in ("eq", "le", "ge")), 1)
        if a is not None:
            return self.compare(_TURNED[op], right, left)
        if b is not None and left.bits == 1 and op in ("eq", "ne"):
            return left if (op == "eq") == bool(b) else self.unary("not", left)
        return self._intern(op, (left, right), (), 1)

    def select(self, condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
        if condition.constant is not None:
            return if_true if condition.constant else if_false
        if if_true is if_false:
            return if_true
        if if_true.bits == 1 and if_true.constant is not None and if_false.constant is not None:
            return condition if if_true.constant else self.unary("not", condition)
        return self._intern("select", (condition, if_true, if_false), (), if_true.bits)

    def cast(self, operand: Expr, bits: int, *, to_bool: bool = False) -> Expr:
        """Cut or extended with zeros; to a bool: whether it is not 0."""
        if to_bool:
            return self.compare("ne", operand, self.const(0, operand.bits))
        if operand.constant is not None:
            return self.const(operand.constant & ((1 << bits) - 1), bits)
        if operand.bits == bits:
            return operand
        return self._intern("cast", (operand,), (), bits)

    def rebuild(self, node: Expr, operands: tuple[Expr, ...]) -> Expr:
        """The same operator on other operands, simplified again."""
        if node.op in _COMPARISONS:
            return self.compare(node.op, *operands)
        if node.op == "invert":
            return self.unary("invert", *operands)
        if node.op == "select":
            return self.select(*operands)
        if node.op == "cast":
            return self.cast(operands[0], node.bits)
        if node.op == "varies":
            return self.varies(operands)
        if node.op in ("table", "hits", "overlay"):
            return self._intern(node.op, operands, node.detail, node.bits)
        return self.binary(node.op, operands[0], operands[1], node.bits)

    def substitute(self, expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
        """The expression with some parts replaced, simplified again."""
        done: dict[Expr, Expr] = dict(known)
        pending = [expr]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            missing = [o for o in node.operands if o not in done]
            if missing:
                pending += missing
                continue
            pending.pop()
            operands = tuple(done[o] for o in node.operands)
            done[node] = node if operands == node.operands else self.rebuild(node, operands)
        return done[expr]


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_COMPARISONS = frozenset(_OPPOSITE)
_COMMUTES = frozenset(("add", "mul", "and", "or", "xor", "min", "max"))
# (operator, right operand) that give the left operand.
_KEEPS = frozenset((("add", 0), ("sub", 0), ("or", 0), ("xor", 0), ("shl", 0), ("shr", 0), ("mul", 1), ("div", 1),
                    ("max", 0), ("mod", 0)))


def value_of(expr: Expr, leaf: Callable[[Expr], int]) -> int:
    """The number an expression has, ``leaf`` giving those of its leaves and of its `table` and `hits` parts.

    Raises:
        ValueError: a part has no definite value (`varies`, `overlay`).
    """
    done: dict[Expr, int] = {}
    pending = [expr]
    while pending:
        node = pending[-1]
        missing = [o for o in node.operands if o not in done] if node.op not in ("table", "hits") else []
        if node in done or missing:
            pending.pop() if node in done else pending.extend(missing)
            continue
        pending.pop()
        is_leaf = node.op in LEAVES or node.op in ("table", "hits")
        done[node] = leaf(node) if is_leaf else number_of(node, [done[o] for o in node.operands])
    return done[expr]


def number_of(node: Expr, operands: Sequence[int]) -> int:
    """The number an operator gives for those of its operands.

    Raises:
        ValueError: it has no definite value (`varies`, `overlay`).
    """
    if node.op == "const":
        return int(node.detail[0])
    if node.op in _COMPARISONS:
        return arithmetic.compare(node.op, *operands)
    if node.op == "invert":
        return operands[0] ^ ((1 << node.bits) - 1)
    if node.op == "select":
        return operands[1] if operands[0] else operands[2]
    if node.op == "cast":
        return operands[0] & ((1 << node.bits) - 1)
    if node.op in ("varies", "overlay"):
        raise ValueError(f"'{node.op}' has no definite value")
    return arithmetic.binary(node.op, operands[0], operands[1], UInt(node.bits))


# --- header fields ---

# Where headers start: two headers at one place overlap.
_BASES = {"eth": "eth", "vlan": "vlan", "arp": "l3", "ipv4": "l3", "ipv6": "l3", "tcp": "l4", "udp": "l4",
          "icmp": "l4", "icmp6": "l4", "l4": "l4"}
_PORTS = ("sport", "dport")


@dataclass(frozen=True, slots=True)
class Spot:
    """Bits of a packet: ``bits`` of them from bit ``first`` of where a header starts."""

    base: str
    first: int
    bits: int

    def overlaps(self, other: Spot) -> bool:
        return (self.base == other.base and self.first < other.first + other.bits
                and other.first < self.first + self.bits)


_spots: dict[tuple[str, str], Spot | None] = {}


def spot_of(header: str, name: str) -> Spot | None:
    """Where a field lies; None for one that parsing computes, which is never stored."""
    key = (header, name)
    if key not in _spots:
        found = field_of(header, name)
        plain = header.removeprefix(QUOTED)
        prefix = QUOTED if header.startswith(QUOTED) else ""
        _spots[key] = None if found is None or found.computed else Spot(prefix + _BASES[plain], found.bit, found.bits)
    return _spots[key]


def canonical(header: str, name: str) -> tuple[str, str]:
    """One name for a field that several headers have: the ports of TCP and UDP are those of `l4`."""
    plain = header.removeprefix(QUOTED)
    if plain in ("tcp", "udp") and name in _PORTS:
        return (QUOTED if header.startswith(QUOTED) else "") + "l4", name
    return header, name


def is_upper(header: str) -> bool:
    """Whether a header is one above IP of the packet itself, which later fragments do not have."""
    return _BASES.get(header) == "l4"


def nodes_in(expr: Expr) -> Iterator[Expr]:
    """An expression and all its parts, each once."""
    seen = {expr}
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        for operand in node.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)


# Longer expressions are told by what they are computed from.
_MOST_SHOWN = 25


def shown(expr: Expr) -> str:
    """An expression for people, near to how it is written in a program."""
    if sum(1 + len(n.operands) for n in nodes_in(expr)) > 2 * _MOST_SHOWN:
        return f"a value computed from {', '.join(sorted(_shown(leaf) for leaf in expr.leaves))}"
    return _shown(expr)


def _shown(expr: Expr) -> str:
    if expr.op == "const":
        return str(expr.constant)
    if expr.op == "field":
        return f"{expr.detail[0]}.{expr.detail[1]}"
    if expr.op == "meta":
        return _META[str(expr.detail[0])]
    if expr.op == "entry":
        return f"{expr.detail[1]}'s {expr.detail[2]}"
    if expr.op in ("unknown", "varies", "overlay"):
        return "a value that differs by the way taken" if expr.op == "varies" else "a value not known before"
    parts = [_shown(o) for o in expr.operands]
    if expr.op in ("table", "hits"):
        inside = f"{expr.detail[0]}[{', '.join(parts)}]"
        return f"{inside}.{expr.detail[1]}" if expr.op == "table" else f"whether {inside} hits"
    if expr.op in _SIGNS:
        return f"({parts[0]} {_SIGNS[expr.op]} {parts[1]})"
    if expr.op == "select":
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    return f"{_CALLS.get(expr.op, expr.op)}({', '.join(parts)})" if expr.op != "cast" else f"u{expr.bits}({parts[0]})"


_META = {"time": "now", "size": "size", "port": "arrival port"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<",
          "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CALLS = {"invert": "not"}


# --- evaluation ---


@dataclass(slots=True)
class Environment:
    """What was stored into headers so far, and which headers were found where.

    ``network`` and ``upper``: the headers extracted above Ethernet and above IP; ``confused``: two of a kind were, so
    that offsets moved and no field is certain. ``ports``: numbers of the arrival ports that get here.
    """

    ports: frozenset[int]
    stored: dict[Spot, Expr] = field(default_factory=dict)
    names: dict[Spot, tuple[str, str]] = field(default_factory=dict)
    network: str = ""
    upper: str = ""
    confused: bool = False

    def copy(self) -> Environment:
        return Environment(self.ports, dict(self.stored), dict(self.names), self.network, self.upper, self.confused)

    def extracted(self, header: str) -> None:
        """Note that a header was found."""
        if header in ("ipv4", "ipv6", "arp"):
            self.confused |= self.network not in ("", header)
            self.network = header
        elif is_upper(header):
            self.confused |= self.upper not in ("", header)
            self.upper = header


class Evaluator:
    """Gives every value of a program an expression, in the order it is asked to."""

    def __init__(self, program: Program, expressions: Expressions | None = None) -> None:
        self.program = program
        self.make = expressions or Expressions()
        self.values: dict[str, Expr] = {}
        # Per entry reference of a read-only table the key it was looked up with.
        self.rows: dict[str, tuple[str, tuple[Expr, ...]]] = {}
        self._configs = {c.name: c.value for c in program.configs}
        self._static = frozenset(s.name for s in program.states if isinstance(s, nodes.AclState | nodes.LpmState))

    def start(self) -> Environment:
        """Before the first block."""
        return Environment(frozenset(range(len(self.program.ports))))

    def run(self, instructions: Iterable[Instruction], env: Environment) -> None:
        """Evaluate instructions in order."""
        for node in instructions:
            if isinstance(node, nodes.Store):
                self.store(node, env)
                continue
            result = result_of(node)
            if result is not None:
                self.values[result.name] = self.value(node, result, env)

    def value(self, node: Instruction, result: Value, env: Environment) -> Expr:
        """The expression of what an instruction gives."""
        make, values = self.make, self.values
        match node:
            case nodes.Const():
                return make.const(node.value, bits_of(result.type))
            case nodes.LoadConfig():
                return make.const(self._configs[node.config], bits_of(result.type))
            case nodes.Load():
                return self.load(node.header, node.field, bits_of(result.type), env)
            case nodes.LoadEntry():
                return self.load_entry(node, bits_of(result.type))
            case nodes.Meta():
                return make.leaf("meta", (node.what,), bits_of(result.type))
            case nodes.Binary():
                return make.binary(node.op, values[node.left.name], values[node.right.name], bits_of(result.type))
            case nodes.Compare():
                return make.compare(node.op, values[node.left.name], values[node.right.name])
            case nodes.Unary():
                return make.unary(node.op, values[node.operand.name])
            case nodes.Cast():
                to_bool = result.type == BOOL and not isinstance(node.operand.type, Bool)
                return make.cast(values[node.operand.name], bits_of(result.type), to_bool=to_bool)
            case nodes.Select():
                return make.select(*(values[v.name] for v in (node.condition, node.if_true, node.if_false)))
            case _:
                raise AssertionError(f"{node.mnemonic} gives no value")

    def load(self, header: str, name: str, bits: int, env: Environment) -> Expr:
        """A header field as it is now."""
        if env.confused:
            return self.make.leaf("unknown", ("headers found twice",), bits)
        arrived = self.make.leaf("field", canonical(header, name), bits)
        spot = spot_of(header, name)
        if spot is None or not env.stored:
            return arrived
        if spot in env.stored:
            return env.stored[spot]
        # Every store may have changed checksums beside its own field.
        over = [e for s, e in env.stored.items() if s.overlaps(spot) or name == "checksum"]
        return self.make.overlay((arrived, *over), bits) if over else arrived

    def store(self, node: nodes.Store, env: Environment) -> None:
        """A header field gets a new value; what was stored over other parts of it stays as far as it does."""
        spot = spot_of(node.header, node.field)
        assert spot is not None, "computed fields are read-only"
        value = self.values[node.value.name]
        for other in [s for s in env.stored if s != spot and s.overlaps(spot)]:
            env.stored[other] = self.make.overlay((env.stored[other], value), other.bits)
        env.stored[spot] = value
        env.names[spot] = (node.header, node.field)

    def load_entry(self, node: nodes.LoadEntry, bits: int) -> Expr:
        assert isinstance(node.entry.type, EntryRef), "the verifier lets entry instructions take references only"
        state = node.entry.type.state
        row = self.rows.get(node.entry.name)
        if row is not None:
            return self.make.table("table", row[1], (state, node.field), bits)
        return self.make.leaf("entry", (node.entry.name, state, node.field), bits)

    def key_of(self, node: nodes.Lookup | nodes.Police) -> tuple[Expr, ...]:
        """The expressions of a key."""
        return tuple([self.values[v.name] for v in node.operands])

    def leave(self, terminator: Terminator, outcome: str, env: Environment) -> None:
        """Take an edge: what it says about headers, ports and entries."""
        if isinstance(terminator, nodes.Extract) and outcome == "ok":
            env.extracted(terminator.header)
        elif isinstance(terminator, nodes.Lookup) and terminator.state in self._static:
            self.rows[terminator.entry.name] = (terminator.state, self.key_of(terminator))
        elif isinstance(terminator, nodes.Switch):
            self._switch(terminator, outcome, env)
        elif isinstance(terminator, nodes.Branch):
            self._branch(terminator, outcome, env)

    def _switch(self, terminator: nodes.Switch, outcome: str, env: Environment) -> None:
        value = self.values.get(terminator.value.name)
        if value is None or value.op != "meta" or value.detail != ("port",):
            return
        cases = frozenset(number for number, _ in terminator.cases)
        env.ports = env.ports - cases if outcome == "default" else env.ports & {int(outcome)}

    def _branch(self, terminator: nodes.Branch, outcome: str, env: Environment) -> None:
        condition = self.values.get(terminator.condition.name)
        if condition is None or condition.op not in ("eq", "ne"):
            return
        value, number = condition.operands[0], condition.operands[1].constant
        if number is None or value.op != "meta" or value.detail != ("port",):
            return
        equal = (condition.op == "eq") == (outcome == "true")
        env.ports = env.ports & {number} if equal else env.ports - {number}

    def enter(self, block: Block, args: Sequence[Value]) -> None:
        """Set a block's parameters on one way in."""
        passed = [self.values.get(a.name) for a in args]
        self.values.update({p.name: v for p, v in zip(block.params, passed, strict=True) if v is not None})


@dataclass(slots=True)
class _Arrivals:
    """What comes into a block on its several edges."""

    environments: list[Environment] = field(default_factory=list)
    arguments: list[tuple[Value, ...]] = field(default_factory=list)


def over_all_paths(program: Program, visit: Callable[[Block, Environment, Evaluator], None]) -> Evaluator:
    """Evaluate a program over all its paths at once; ``visit`` sees every block before its terminator is left."""
    evaluator = Evaluator(program)
    arriving = {b.label: _Arrivals() for b in program.blocks}
    arriving[program.blocks[0].label].environments.append(evaluator.start())
    for block in program.blocks:
        here = arriving.pop(block.label)
        if not here.environments:
            continue
        env = _merge(here.environments, evaluator.make)
        for i, param in enumerate(block.params):
            ways = [evaluator.values[way[i].name] for way in here.arguments if way[i].name in evaluator.values]
            if ways:
                evaluator.values[param.name] = evaluator.make.varies(ways)
        evaluator.run(block.instructions, env)
        visit(block, env, evaluator)
        for outcome, target in nodes.successors(block.terminator):
            after = env.copy()
            evaluator.leave(block.terminator, outcome, after)
            arriving[target].environments.append(after)
            if isinstance(block.terminator, nodes.Jump):
                arriving[target].arguments.append(block.terminator.args)
    return evaluator


def _merge(ways: Sequence[Environment], make: Expressions) -> Environment:
    first, *others = ways
    if not others:
        return first.copy()
    merged = first.copy()
    for other in others:
        merged.ports |= other.ports
        merged.confused |= other.confused
        merged.network = _either(merged.network, other.network)
        merged.upper = _either(merged.upper, other.upper)
        merged.names.update(other.names)
    for spot, name in merged.names.items():
        arrived = make.leaf("field", canonical(*name), spot.bits)
        merged.stored[spot] = make.varies(way.stored.get(spot, arrived) for way in ways)
    return merged


def _either(one: str, other: str) -> str:
    """The header found on two ways; several when they differ, so that finding another one makes fields uncertain."""
    return one or other if not one or not other or one == other else "several"


def along(evaluator: Evaluator, blocks: Mapping[str, Block], labels: Sequence[str], outcomes: Sequence[str],
          visit: Callable[[int, Block, Environment], None]) -> None:
    """Evaluate one path; ``visit`` sees every block before it is left, with its position."""
    env = evaluator.start()
    for position, label in enumerate(labels):
        block = blocks[label]
        evaluator.run(block.instructions, env)
        visit(position, block, env)
        if position == len(outcomes):
            return
        evaluator.leave(block.terminator, outcomes[position], env)
        if isinstance(block.terminator, nodes.Jump):
            evaluator.enter(blocks[block.terminator.target], block.terminator.args)
