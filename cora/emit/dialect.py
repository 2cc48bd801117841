"""What a target's C must say where programs are not plain C: how values travel and how tables are accessed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cora.emit.headers import extract_call, load_expression, store_statements
from cora.emit.names import Names, literal, value_type
from cora.ir.nodes import (
    Const,
    Count,
    Delete,
    Drop,
    Extract,
    Forward,
    Hold,
    Insert,
    Load,
    LoadConfig,
    LoadEntry,
    Lookup,
    Meta,
    Police,
    Program,
    Punt,
    Reject,
    Store,
    StoreEntry,
    Touch,
    TrackFragment,
    Value,
)
from cora.ir.types import EntryRef, Type

Lines = list[str]


class Dialect(ABC):
    """Statements for the nodes that touch state, the clock, or the packet's fate.

    Operand texts come from `use`. Methods give whole statements; ``goto`` maps an outcome to the statement that follows
    its edge.
    """

    def __init__(self, program: Program) -> None:
        """Names are fixed here, so that every function about a program spells them alike."""
        self.program = program
        self.names = Names(program)
        self.constants = {i.result: i.value for b in program.blocks for i in b.instructions if isinstance(i, Const)}
        self.configs = {i.result: i.config for b in program.blocks for i in b.instructions if isinstance(i, LoadConfig)}

    def use(self, value: Value) -> str:
        """The C text that reads a value: a constant and a configuration value need no variable."""
        if value in self.constants:
            return literal(self.constants[value], value.type)
        if value in self.configs:
            return self.config(self.configs[value])
        return self.names.value(value)

    def load_header(self, node: Load) -> str:
        """An expression for a header field."""
        return load_expression(node)

    def store_header(self, node: Store) -> Lines:
        """Writes a header field and keeps checksums right."""
        return store_statements(node, self.use(node.value))

    def extract(self, node: Extract) -> str:
        """The call that extracts a header and gives a cora_outcome."""
        return extract_call(node.header, node.limit, verify=node.verify, source_route=node.source_route)

    def known(self, value: Value) -> int | None:
        """The value, where it is a constant."""
        return self.constants.get(value)

    def type_of(self, type_: Type) -> str:
        return self.reference_type(type_.state) if isinstance(type_, EntryRef) else value_type(type_)

    @abstractmethod
    def reference_type(self, state: str) -> str:
        """The C type of an entry reference."""

    @abstractmethod
    def config(self, name: str) -> str:
        """An expression for a configuration value."""

    @abstractmethod
    def meta(self, node: Meta) -> str:
        """An expression for the packet's time, size or port."""

    @abstractmethod
    def load_entry(self, node: LoadEntry) -> str:
        """An expression for a field of an entry."""

    @abstractmethod
    def store_entry(self, node: StoreEntry) -> Lines:
        """Writes a field of an entry."""

    @abstractmethod
    def touch(self, node: Touch) -> Lines:
        """Refreshes an entry."""

    @abstractmethod
    def delete(self, node: Delete) -> Lines:
        """Removes an entry."""

    @abstractmethod
    def count(self, node: Count) -> Lines:
        """Adds to a counter."""

    @abstractmethod
    def access_hash(self, node: Lookup | Insert | Police) -> str | None:
        """An expression for the hash of the key a node looks for, or None when it needs none."""

    @abstractmethod
    def lookup(self, node: Lookup, goto: dict[str, str]) -> Lines:
        """Looks a key up; its hash is in ``hash``."""

    @abstractmethod
    def insert(self, node: Insert, goto: dict[str, str]) -> Lines:
        """Makes an entry; the primary key's hash is in ``hash``."""

    @abstractmethod
    def police(self, node: Police, goto: dict[str, str]) -> Lines:
        """Charges a bucket; the key's hash is in ``hash``."""

    @abstractmethod
    def track(self, node: TrackFragment, goto: dict[str, str]) -> Lines:
        """Tracks a fragment."""

    @abstractmethod
    def leave(self, node: Forward | Drop | Reject | Hold) -> Lines:
        """Ends the packet's way."""

    def punt(self, node: Punt) -> Lines:
        """Hands the packet to a later place; only dialects of split programs can."""
        raise TypeError(f"this dialect hands no packets to {node.place}")
