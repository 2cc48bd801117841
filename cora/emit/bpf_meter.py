"""Meters of the kernel's half: token buckets by key."""

from __future__ import annotations

from cora.emit import host_common as common
from cora.emit.bpf_table import BpfTable, Member
from cora.emit.dialect import Lines
from cora.emit.layout import FIRST_CREDIT, SECOND_CREDIT, Row, meter_row
from cora.emit.names import literal
from cora.ir.nodes import MeterState
from cora.ir.types import U64, Type

_ALGORITHMS = {"token_bucket": "CORA_TOKEN_BUCKET", "srtcm": "CORA_SRTCM", "trtcm": "CORA_TRTCM"}
CREDIT = 10**9
_CREDITS = {FIRST_CREDIT: "first", SECOND_CREDIT: "second"}


class BpfMeter(BpfTable):
    """Everything generated for one meter."""

    state: MeterState

    def keys(self) -> list[tuple[str, list[tuple[str, Type]]]]:
        return [("", self.all_fields())]

    def row(self) -> Row:
        return meter_row(self.state)

    def timeouts(self) -> list[int]:
        return [self.state.timeout]

    def own_members(self) -> list[tuple[int, str]]:
        return [(16, "struct cora_buckets buckets;")]

    def told_members(self) -> list[tuple[int, str]]:
        return [(16, "struct cora_buckets buckets;")]

    def copied_members(self) -> Lines:
        return ["e->buckets = n->buckets;"]

    def row_members(self) -> dict[str, Member]:
        out = super().row_members()
        return {**out, **{name: Member(f"buckets.{member}", 8) for name, member in _CREDITS.items()}}

    def member_out(self, name: str, offset: int, size: int) -> Lines:
        if name not in _CREDITS:
            return super().member_out(name, offset, size)
        # A row has 128 bits for credits; the upper half is zero.
        return [f"    __builtin_memcpy(out + {offset}, &e->buckets.{_CREDITS[name]}, 8);",
                f"    __builtin_memset(out + {offset + 8}, 0, 8);"]

    def member_in(self, name: str, offset: int, size: int) -> Lines:
        return super().member_in(name, offset, min(size, 8) if name in _CREDITS else size)

    def functions(self) -> Lines:
        return [*super().functions(), self._spec(), "", *self._charge(), "", *self._police(), ""]

    def _charge(self) -> Lines:
        t = self.table
        return [
            "/* Refills and charges an entry whose lock is held. */",
            f"static inline enum cora_colour {t}_charge(struct {t}_entry *e, uint64_t now, uint64_t size)", "{",
            "    if (now > e->last) {",
            f"        cora_refill({t}_spec, &e->buckets, now - e->last);",
            "        e->last = now;",
            f"        e->deadline = {self.deadline('now', '0')};",
            "    }",
            f"    return cora_charge({t}_spec, &e->buckets, size);", "}",
        ]

    def _spec(self) -> str:
        s = self.state
        first = s.burst * CREDIT
        second_rate, second_burst = {"trtcm": (s.peak_rate, s.peak_burst), "srtcm": (0, s.excess_burst)}.get(
            s.algorithm, (0, 0))
        second = second_burst * CREDIT
        fill = first + (second if s.algorithm == "srtcm" else 0)
        numbers = (s.rate, first, _quotient(fill, s.rate), second_rate, second, _quotient(second, second_rate))
        listed = ", ".join(literal(n, U64) for n in numbers)
        return f"#define {self.table}_spec ((struct cora_meter_spec){{{_ALGORITHMS[s.algorithm]}, {listed}}})"

    def _police(self) -> Lines:
        """The charge as one step: under the entry's lock, or in the insert."""
        t = self.table
        keys = ", ".join(n for n, _ in self.all_fields())
        return [
            "/* Charges a key without an entry: full buckets, if the packet fits them and the table has room. */",
            f"static inline enum cora_colour {t}_first(uint64_t hash, uint64_t now, "
            f"{common.parameters(self.all_fields())}, uint64_t size)", "{",
            f"    struct {t}_new n = {{.hash = hash, .last = now}};",
            *(f"    n.{name} = {name};" for name, _ in self.all_fields()),
            f"    n.buckets = (struct cora_buckets){{{t}_spec.top, {t}_spec.second_top}};",
            f"    enum cora_colour colour = cora_charge({t}_spec, &n.buckets, size);",
            "    if (colour == CORA_COLOUR_RED)", "        return colour;",
            f"    uint32_t at = {t}_insert(&n);",
            "    if (at == CORA_TWICE)", "        return CORA_COLOUR_STRAYED;",
            f"    return at >= {t}_capacity ? CORA_COLOUR_FULL : colour;", "}", "",
            "/* CORA_COLOUR_STRAYED: another CPU has made the entry meanwhile. */",
            f"static inline enum cora_colour {t}_try(uint64_t hash, uint64_t now, "
            f"{common.parameters(self.all_fields())}, uint64_t size)", "{",
            f"    uint32_t at = {t}_find_0(hash, {keys});",
            "    struct cora_lock *lock = cora_entry_lock(at);",
            f"    if (lock && at < {t}_capacity) {{",
            f"        struct {t}_entry *e = &{t}_entries[at];",
            "        bpf_spin_lock(&lock->lock);",
            f"        if (CORA_LIKELY({t}_is_0(e, now, {keys}))) {{",
            f"            enum cora_colour colour = {t}_charge(e, now, size);",
            "            bpf_spin_unlock(&lock->lock);",
            "            return colour;",
            "        }",
            "        bpf_spin_unlock(&lock->lock);",
            "    }",
            f"    return {t}_first(hash, now, {keys}, size);", "}", "",
            f"static inline enum cora_colour {t}_police(uint64_t hash, uint64_t now, "
            f"{common.parameters(self.all_fields())}, uint64_t size)", "{",
            "    enum cora_colour colour = CORA_COLOUR_STRAYED;",
            "    CORA_LOOP",
            "    for (int i = 0; i < 2 && colour == CORA_COLOUR_STRAYED; i++)",
            f"        colour = {t}_try(hash, now, {keys}, size);",
            "    return colour;", "}",
        ] if not self.is_lent else []


def _quotient(amount: int, rate: int) -> int:
    return -(-amount // rate) if rate else 0
