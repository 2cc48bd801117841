"""Tables of split states: the directory at the owner, and the table of lent entries at the near place.

Both are the host dialect's own tables with a few additions (cora/emit/runtime/place_state.h): the owner takes a lent
entry back before a packet uses it, asks before it expires, and withdraws it before it is removed; the near place never
makes or removes entries by itself.
"""

from __future__ import annotations

from dataclasses import replace

from cora.emit import host_common as common
from cora.emit.host_common import Lines
from cora.emit.host_map import HostMap
from cora.emit.host_meter import HostMeter
from cora.emit.layout import map_row, meter_row
from cora.emit.names import Names, literal
from cora.ir.nodes import MapState, MeterState, PoolState
from cora.ir.types import U64


class OwnerMap(HostMap):
    """A split map at its owner; ``number``: of its lending."""

    def __init__(self, state: MapState, names: Names, pools: dict[str, PoolState], number: int, *,
                 checked: bool) -> None:
        super().__init__(state, names, pools, checked=checked)
        self.number = number

    def _before_removal(self) -> Lines:
        return _withdrawn(self.number)

    def _when_due(self) -> Lines:
        return _asked(self.number)

    def _last_use(self) -> Lines:
        # A packet may come here after a later one of another flow has refreshed the entry where it was lent.
        return ["    if (now > e->last)", "        e->last = now;"]

    def functions(self) -> Lines:
        return [*super().functions(), *_map_functions(self)]


class LentMap(HostMap):
    """A split map at the place its entries are lent to: a table of at most ``entries``, the one idle longest known."""

    def __init__(self, state: MapState, names: Names, number: int, entries: int) -> None:
        super().__init__(replace(state, allocs=(), full="evict_lru", capacity=entries), names, {}, checked=False)
        self.number = number

    @property
    def expires(self) -> bool:
        """Its owner removes entries."""
        return False

    def _after_touch(self) -> Lines:
        if len(self.classes) < 2:
            return []
        due = f"cora_add_capped(now, {self.table}_timeouts[timeout])"
        return [f"    if (CORA_UNLIKELY({due} < E->place.lent[{self.number}].entries[at].known))",
                f"        cora_lent_sooner(E, {self.number}, at, {due});"]

    def functions(self) -> Lines:
        return [*super().functions(), *_map_functions(self)]


class OwnerMeter(HostMeter):
    """A split meter at its owner."""

    told = "bool anchored, "

    def __init__(self, state: MeterState, names: Names, number: int) -> None:
        super().__init__(state, names)
        self.number = number

    def _before_removal(self) -> Lines:
        return _withdrawn(self.number)

    def _when_due(self) -> Lines:
        return _asked(self.number)

    def _when_found(self) -> Lines:
        return [f"    at = cora_owner_found(E, {self.number}, at, anchored);"]

    def _after_insert(self) -> Lines:
        return [f"    cora_owner_made(E, {self.number}, at);"]

    def functions(self) -> Lines:
        return [*super().functions(), *_meter_functions(self)]


class LentMeter(HostMeter):
    """A split meter at the place its entries are lent to."""

    told = "struct cora_packet *p, "

    def __init__(self, state: MeterState, names: Names, number: int, entries: int) -> None:
        super().__init__(replace(state, full="evict_lru", capacity=entries), names)
        self.number = number

    @property
    def expires(self) -> bool:
        """Its owner removes entries."""
        return False

    def _when_found(self) -> Lines:
        return [f"    at = cora_lent_found(E, p, {self.number}, at);"]

    def _not_found(self) -> str:
        # The owner charges it.
        return "CORA_COLOUR_FULL"

    def functions(self) -> Lines:
        return [*super().functions(), *_meter_functions(self)]


def _withdrawn(number: int) -> Lines:
    return [f"    if (CORA_UNLIKELY(E->place.owned[{number}].entries[at].state))",
            f"        cora_owner_withdraw(E, {number}, at);"]


def _asked(number: int) -> Lines:
    return [f"        if (E->place.owned[{number}].entries[at].state)",
            f"            cora_owner_ask(E, {number}, at, now);"]


def _map_functions(table: OwnerMap | LentMap) -> Lines:
    t, row = table.table, map_row(table.state)
    timeout = f"{t}_timeouts[e->timeout]" if table.classes else "CORA_NEVER"
    members = table._members()
    keys = {f for k in table.state.keys for f in k.fields}
    kept = type(row)(tuple(f for f in row.fields if f.name not in keys))
    names = [f"e->{n}" for n, _ in table.key_fields(table.state.keys[0])]
    find = f"{t}_find_0(E, {table._entry_hash(0)}{common.arguments(names)})"
    return _functions(table, timeout, common.copies_out(row, members), common.copies_in(kept, members),
                      common.copies_in(row, members), find, ageing=bool(table.classes))


def _meter_functions(table: OwnerMeter | LentMeter) -> Lines:
    t, row = table.table, meter_row(table.state)
    members = table._members()
    kept = type(row)(tuple(f for f in row.fields if f.name not in table.field_names))
    names = [f"e->{n}" for n in table.key_names]
    arguments = common.arguments(names)
    return _functions(table, literal(table.state.timeout, U64), common.copies_out(row, members),
                      common.copies_in(kept, members), common.copies_in(row, members),
                      f"{t}_find_0(E, {t}_hash_0(E{arguments}){arguments})", ageing=True)


def _functions(table: OwnerMap | LentMap | OwnerMeter | LentMeter, timeout: str, out: Lines, kept: Lines, all_: Lines,
               find: str, *, ageing: bool) -> Lines:
    """Rows of single entries: how they travel, and what their deadlines are."""
    t = table.table
    head = [f"    struct {t}_entry *e = &E->{t}.entries[at];"]
    const_head = [f"    const struct {t}_entry *e = &E->{t}.entries[at];"]
    lines = [
        f"CORA_COLD uint64_t {t}_deadline(const struct cora_engine *E, uint32_t at)", "{", *const_head,
        f"    return cora_add_capped(e->last, {timeout});", "}", "",
        f"CORA_COLD void {t}_row(const struct cora_engine *E, uint32_t at, uint8_t *out)", "{", *const_head,
        *(f"    {line}" for line in out), "}", "",
    ]
    if isinstance(table, OwnerMap | OwnerMeter):
        due = [f"    uint64_t deadline = {t}_deadline(E, at);", f"    cora_expiry_move(&E->{t}.expiry, at, deadline);",
               "    E->core.next_due = cora_min64(E->core.next_due, deadline);"] if ageing else []
        return [*lines, f"CORA_COLD void {t}_apply(struct cora_engine *E, uint32_t at, const uint8_t *row)", "{", *head,
                *(f"    {line}" for line in kept), *due, "}", "",
                "/* The entry with the key of a row, or CORA_NONE. */",
                f"CORA_COLD uint32_t {t}_at_row(const struct cora_engine *E, const uint8_t *row)", "{",
                f"    struct {t}_entry wanted = {{0}}, *e = &wanted;", *(f"    {line}" for line in all_),
                f"    return {find};", "}", ""]
    return [
        *lines,
        f"CORA_COLD void {t}_apply(struct cora_engine *E, uint32_t at, const uint8_t *row)", "{", *head,
        *(f"    {line}" for line in kept), f"    cora_recency_use(&E->{t}.recency, at);", "}", "",
        "/* The new entry's number, or CORA_NONE where its key is there already. */",
        f"CORA_COLD uint32_t {t}_install(struct cora_engine *E, const uint8_t *row)", "{",
        f"    struct {t}_entry wanted = {{0}}, *e = &wanted;",
        *(f"    {line}" for line in all_),
        f"    if (!{t}_load(E, row))", "        return CORA_NONE;",
        f"    return {find};", "}", "",
    ]
