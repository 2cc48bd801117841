"""The host dialect's read-only tables: ACLs as a list by priority, LPM tables as sorted ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.emit import host_common as common
from cora.emit.host_common import Lines
from cora.emit.names import Names, comment, literal, mask_of, value_type
from cora.ir.nodes import AclEntry, AclState, LpmEntry, LpmState
from cora.ir.types import Type, bits_of


class HostStatic:
    """Everything generated for one ACL or LPM table. A reference is the entry's number in ``entries``."""

    def __init__(self, state: AclState | LpmState, names: Names) -> None:
        self.state, self.table = state, names.state(state.name)
        self.value_names = {f.name: names.field(f.name) for f in state.values}
        keys = state.keys if isinstance(state, AclState) else (state.key,)
        self.keys: list[tuple[str, Type]] = [(names.field(f.name), f.type) for f in keys]
        self.entries: Sequence[AclEntry] | Sequence[LpmEntry] = (
            sorted(state.entries, key=_priority_down) if isinstance(state, AclState) else state.entries)

    def structures(self) -> Lines:
        return [f"struct {self.table} {{", "    CORA_IF_PROFILE(struct cora_table_profile profile;)",
                "    uint8_t unused;", "};"]

    def functions(self) -> Lines:
        t = self.table
        find = self._acl() if isinstance(self.state, AclState) else self._lpm(self.state)
        arguments = common.arguments([n for n, _ in self.keys])
        return [
            f"/* {comment(self.state.name)} */", *self._values(), "", *find, "",
            f"static inline uint32_t {t}_lookup(struct cora_engine *E, {common.parameters(self.keys)})", "{",
            "    (void)E;",
            f"    uint32_t at = {t}_find({arguments[2:]});",
            f"    CORA_IF_PROFILE(E->{t}.profile.events[at == CORA_NONE ? CORA_MISS_FIRST : CORA_HIT_FIRST]++;)",
            f"    CORA_IF_PROFILE(if (at != CORA_NONE) cora_profile_read(&E->{t}.profile, &E->core, at);)",
            "    return at;", "}", "",
        ]

    def _values(self) -> Lines:
        """The values of the entries, one array a field: fields nobody reads cost nothing."""
        out: Lines = []
        for i, field in enumerate(self.state.values):
            listed = ", ".join(literal(e.values[i], field.type) for e in self.entries) or "0"
            name = f"{self.table}_{self.value_names[field.name]}"
            out.append(f"static const {value_type(field.type)} {name}[] __attribute__((unused)) = {{{listed}}};")
        return out

    def value(self, field: str, reference: str) -> str:
        """A field of an entry."""
        return f"{self.table}_{self.value_names[field]}[{reference}]"

    def _acl(self) -> Lines:
        """First match in order of priority; one condition a rule."""
        assert isinstance(self.state, AclState)
        out = [f"CORA_COLD uint32_t {self.table}_find({common.parameters(self.keys)})", "{",
               *(f"    (void){n};" for n, _ in self.keys)]
        for number, entry in enumerate(self.entries):
            assert isinstance(entry, AclEntry)
            tests = [test for (n, t), kind, match in zip(self.keys, self.state.kinds, entry.match, strict=True)
                     for test in _acl_tests(n, t, kind, match)]
            if None in tests:
                continue
            condition = " && ".join(str(t) for t in tests) or "true"
            out += [f"    if ({condition})", f"        return {number};"]
            if condition == "true":
                return [*out[:-2], f"    return {number};", "}"]
        return [*out, "    return CORA_NONE;", "}"]

    def _lpm(self, state: LpmState) -> Lines:
        """Binary search over the ranges that the prefixes cut the key space into."""
        cuts = lpm_ranges(state)
        key, type_ = self.keys[0]
        starts = ", ".join(literal(c.first, type_) for c in cuts)
        numbers = ", ".join("CORA_NONE" if c.entry is None else str(c.entry) for c in cuts)
        t = self.table
        return [
            f"static const {value_type(type_)} {t}_starts[] = {{{starts}}};",
            f"static const uint32_t {t}_numbers[] = {{{numbers}}};", "",
            f"CORA_COLD uint32_t {t}_find({common.parameters(self.keys)})", "{",
            "    uint32_t from = 0, count = sizeof " + f"{t}_starts / sizeof *{t}_starts;",
            "    while (count > 1) {",
            "        uint32_t half = count / 2;",
            f"        if ({t}_starts[from + half] <= {key})",
            "            from += half;",
            "        count -= half;", "    }",
            f"    return {t}_numbers[from];", "}",
        ]


def _priority_down(entry: AclEntry) -> int:
    return -entry.priority


def _acl_tests(name: str, type_: Type, kind: str, match: tuple[int, int]) -> list[str | None]:
    """Conditions for one key field; nothing when it always matches, None when it never does."""
    first, second = match
    top = mask_of(type_)
    if kind == "range":
        if first > second:
            return [None]
        if first == second:
            return [f"{name} == {literal(first, type_)}"]
        return [*([f"{name} >= {literal(first, type_)}"] if first else []),
                *([f"{name} <= {literal(second, type_)}"] if second < top else [])]
    if first & ~second:
        return [None]
    if second == 0:
        return []
    if second == top:
        return [f"{name} == {literal(first, type_)}"]
    return [f"({name} & {literal(second, type_)}) == {literal(first, type_)}"]


@dataclass(frozen=True)
class LpmRange:
    """Keys from ``first`` up to the next range match ``entry`` (None: no entry)."""

    first: int
    entry: int | None


def lpm_ranges(state: LpmState) -> list[LpmRange]:
    """The key space cut at every prefix's ends; the first range starts at 0."""
    bits = bits_of(state.key.type)
    ordered = sorted(range(len(state.entries)), key=lambda i: (state.entries[i].value, state.entries[i].length, -i))
    out = [LpmRange(0, None)]
    open_: list[tuple[int, int]] = []  # (past the last key, entry), innermost last
    for number in ordered:
        entry = state.entries[number]
        _close_until(entry.value, open_, out)
        _cut(out, entry.value, number)
        open_.append((entry.value + (1 << bits - entry.length), number))
    _close_until(1 << bits, open_, out)
    return [r for r in out if r.first < 1 << bits]


def _close_until(first: int, open_: list[tuple[int, int]], out: list[LpmRange]) -> None:
    while open_ and open_[-1][0] <= first:
        past, _ = open_.pop()
        _cut(out, past, open_[-1][1] if open_ else None)


def _cut(out: list[LpmRange], first: int, entry: int | None) -> None:
    """Starts a range, in place of one that starts at the same key."""
    if out[-1].first == first:
        out.pop()
    out.append(LpmRange(first, entry))

