"""What a random program has declared, and what is known at a place in its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from cora.frontends.nf.types import LanguageType, Scalar, Struct, flatten_type
from cora.testing.choices import Choices

FORWARD, DROP = "forward", "drop"


@dataclass(frozen=True)
class Pool:
    """A pool: its dimensions as (name, type)."""

    name: str
    dimensions: tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Table:
    """A map, meter, acl or lpm table.

    Attributes:
        fields: (name, type, pool or empty) of map entries; (name, type, empty) of the values of an acl or lpm entry.
        keys: key name -> flattened (path, type); the name is empty for a key that is not named.
        classes: time-out class names of a map; full: what a map promises; algorithm: of a meter.
    """

    name: str
    kind: Literal["map", "meter", "acl", "lpm"]
    fields: tuple[tuple[str, LanguageType, str], ...]
    keys: dict[str, tuple[tuple[str, Scalar], ...]]
    classes: tuple[str, ...] = ()
    full: str = "reject"
    algorithm: str = ""
    pools: tuple[Pool, ...] = ()

    def scalars(self) -> list[tuple[str, Scalar]]:
        """Every scalar in an entry, by dotted path."""
        return [pair for name, type_, _ in self.fields for pair in flatten_type(type_, name)]

    def writable(self) -> list[tuple[str, Scalar]]:
        """The scalars that may be stored to: part of no key, from no pool."""
        fixed = {path for key in self.keys.values() for path, _ in key}
        pooled = {name for name, _, pool in self.fields if pool}
        return [(p, t) for p, t in self.scalars() if p not in fixed and p.split(".")[0] not in pooled]


@dataclass(frozen=True)
class Param:
    """A function's parameter; ``kind`` packet, entry (of ``table``) or value (of ``type``)."""

    name: str
    kind: Literal["packet", "entry", "value"]
    type: LanguageType | None = None
    table: Table | None = None


@dataclass
class Function:
    """A function and what a call of it needs and does.

    Attributes:
        headers: must be present where it is called; verdicts: which of forward and drop it may end with.
        forbids: verdicts its caller may not take after it; deletes: parameters whose entries may be gone after it.
        cost: branches it adds at every call.
    """

    name: str
    params: tuple[Param, ...]
    result: Scalar | None
    headers: frozenset[str]
    verdicts: set[str] = field(default_factory=set)
    forbids: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    cost: int = 0


@dataclass
class World:
    """The declarations of a program."""

    choices: Choices
    packet: str = "p"
    ports: list[str] = field(default_factory=list)
    configs: list[tuple[str, Scalar, int]] = field(default_factory=list)
    consts: list[tuple[str, Scalar, int]] = field(default_factory=list)
    numbers: list[tuple[str, int]] = field(default_factory=list)  # constants without a type
    structs: list[Struct] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    counters: list[tuple[str, int]] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    # (table, key) -> (headers it needs, component texts): keys that several statements share, so that look-ups hit.
    recipes: dict[tuple[str, str], list[tuple[frozenset[str], tuple[str, ...]]]] = field(default_factory=dict)
    budget: int = 0

    def of_kind(self, *kinds: str) -> list[Table]:
        return [t for t in self.tables if t.kind in kinds]


@dataclass(frozen=True)
class Local:
    """A name in scope.

    ``dynamic``: known not to be a constant. ``value`` is set for untyped constants, which fit any number type that
    holds them.
    """

    kind: Literal["value", "var", "record", "entry", "literal"]
    type: LanguageType | None = None
    table: Table | None = None
    dynamic: bool = False
    value: int = 0


@dataclass
class Scope:
    """What is known at a place: names, headers, deleted entries, verdicts that are ruled out.

    Attributes:
        headers: present on every way here; possible: those that the front end may know to be present, which are more
        where it drops an arm of a constant condition; base: those present from the start of the handler or function.
        dead: entries that may be deleted; gone: those of them that the front end knows as deleted even where it drops
        the arm of a constant condition; protected: entries that must stay (a loop's body runs several times).
        forbid: verdicts that a full table's promise rules out; ruled: those that may come to be ruled out on the way
        on, so that one is left wherever ways join; fixed: no more may be ruled out from here.
        function: the function being written; factor: how often this code is repeated by loops.
    """

    headers: frozenset[str]
    base: frozenset[str]
    possible: frozenset[str] = frozenset()
    locals: dict[str, Local] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    forbid: frozenset[str] = frozenset()
    ruled: frozenset[str] = frozenset()
    fixed: bool = False
    function: Function | None = None
    factor: int = 1
    depth: int = 0

    def child(self, gained: tuple[str, ...] = ()) -> Scope:
        """The same place one block deeper."""
        return replace(self, locals=dict(self.locals), headers=self.headers.union(gained),
                       possible=self.possible.union(gained), depth=self.depth + 1)

    def join(self, open_scopes: list[Scope], *, certain: bool = True) -> None:
        """Go on here after blocks that may reach their end; not ``certain`` when some may not be looked at at all."""
        if not open_scopes:
            return
        self.headers = frozenset.intersection(*(s.headers for s in open_scopes))
        self.possible = self.possible.union(*(s.possible for s in open_scopes))
        self.dead = self.dead.union(*(s.dead for s in open_scopes)) & frozenset(self.locals)
        gone = [s.gone for s in open_scopes]
        self.gone = (frozenset[str]().union(*gone) if certain else frozenset.intersection(*gone)) & self.dead
        self.forbid = self.forbid.union(*(s.forbid for s in open_scopes))
        for name, local in self.locals.items():
            if local.kind == "var" and not all(s.locals[name].dynamic for s in open_scopes):
                self.locals[name] = replace(local, dynamic=False)

    @property
    def has_packet(self) -> bool:
        """Whether the packet has a name here; a function may do without it."""
        return self.function is None or any(p.kind == "packet" for p in self.function.params)

    def fresh(self, prefix: str) -> str:
        """A name that is not taken here."""
        n = 1
        while f"{prefix}{n}" in self.locals:
            n += 1
        return f"{prefix}{n}"

    def entries(self, table: Table | None = None) -> Iterator[tuple[str, Table]]:
        """Entries in scope that are alive for sure, of one table or of all."""
        for name, local in self.locals.items():
            if local.kind == "entry" and name not in self.dead and local.table is not None and (
                    table is None or local.table is table):
                yield name, local.table

    def may_lose(self, table: Table) -> bool:
        """Whether an eviction from a table might take an entry in scope that the front end does not know as deleted."""
        return any(v.kind == "entry" and v.table is table and n not in self.gone for n, v in self.locals.items())

    def verdicts(self, forbid: frozenset[str] | None = None) -> list[str]:
        """Verdicts a packet may get here (with other rules than this place's, when given)."""
        ruled_out = self.forbid if forbid is None else forbid
        found = [v for v in (FORWARD, DROP) if v not in ruled_out]
        return [*found, *(["reject"] if self.base & {"ipv4", "ipv6"} else [])]
