"""Read-only tables of the kernel's half: ACLs as a list by priority, LPM tables as sorted ranges."""

from __future__ import annotations

from cora.emit import host_common as common
from cora.emit.dialect import Lines
from cora.emit.host_static import HostStatic, lpm_ranges
from cora.emit.names import comment, literal, mask_of, value_type
from cora.ir.nodes import AclState, LpmState
from cora.ir.types import bytes_of


class BpfStatic(HostStatic):
    """Everything generated for one ACL or LPM table. A reference is the entry's number in ``entries``."""

    # Whether a packet may look here while it holds a lock: the verifier follows the function from there, then.
    locked = False

    def structures(self) -> Lines:
        return []

    @property
    def room(self) -> int:
        """Elements of a values array: a power of two, so that any number masked is one of them."""
        return 1 << max(0, len(self.entries) - 1).bit_length()

    def functions(self) -> Lines:
        find = self._acl() if isinstance(self.state, AclState) else self._lpm(self.state)
        return [f"/* {comment(self.state.name)} */", *self._values(), "", *find, ""]

    def _values(self) -> Lines:
        out: Lines = []
        for i, field in enumerate(self.state.values):
            listed = ", ".join(literal(e.values[i], field.type) for e in self.entries) or "0"
            name = f"{self.table}_{self.value_names[field.name]}"
            out.append(f"static const volatile {value_type(field.type)} {name}[{self.room}] "
                       f"__attribute__((unused)) = {{{listed}}};")
        return out

    def value(self, field: str, reference: str) -> str:
        return f"{self.table}_{self.value_names[field]}[{reference} & {self.room - 1}u]"

    def _acl(self) -> Lines:
        # The verifier follows each rule's conditions, so all of them stand in a function that it looks at once.
        lines = super()._acl()
        names = [n for n, _ in self.keys]
        structure = [f"struct {self.table}_key {{", *common.struct_members(
            [(bytes_of(t), f"{value_type(t)} {n};") for n, t in self.keys]), "};", ""]
        first = next(i for i, line in enumerate(lines) if line == "{") + 1
        while first < len(lines) and lines[first].startswith("    (void)"):
            first += 1
        alone = "static CORA_ALONE" if self.locked else "CORA_ALONE"
        head = [f"{alone} uint32_t {self.table}_search(struct {self.table}_key *key)", "{",
                "    if (!key)", "        return CORA_NONE;",
                *(f"    {value_type(t)} {n} = key->{n};" for n, t in self.keys), *(f"    (void){n};" for n in names)]
        fill = ", ".join(f".{n} = {n}" for n in names)
        return [*structure, *head, *lines[first:], "",
                f"static inline uint32_t {self.table}_find({common.parameters(self.keys)})", "{",
                f"    struct {self.table}_key key = {{{fill}}};",
                f"    return {self.table}_search(&key);", "}"]

    def _lpm(self, state: LpmState) -> Lines:
        """Binary search over the ranges that the prefixes cut the key space into.

        The steps add what a comparison gives as a number instead of branching on it: the verifier would follow both
        ways of every branch, with the places they lead to.
        """
        cuts = lpm_ranges(state)
        key, type_ = self.keys[0]
        t, bits = self.table, (len(cuts) - 1).bit_length()
        room = 1 << bits
        last = literal(mask_of(type_), type_)
        starts = [*(literal(c.first, type_) for c in cuts), *[last] * (room - len(cuts))]
        numbers = ["CORA_NONE" if c.entry is None else str(c.entry) for c in cuts]
        numbers += [numbers[-1]] * (room - len(cuts))
        ctype = value_type(type_)
        steps = [line for half in (1 << b for b in reversed(range(bits))) for line in (
            f"    from += {half}u & -(uint32_t){t}_reaches({t}_starts[(from + {half}u) & {room - 1}u], {key});",)]
        return [
            f"static const volatile {ctype} {t}_starts[{room}] __attribute__((unused)) = {{{', '.join(starts)}}};",
            f"static const volatile uint32_t {t}_numbers[{room}] = {{{', '.join(numbers)}}};", "",
            f"static inline uint32_t {t}_reaches({ctype} start, {ctype} key)", "{",
            *self._reaches(bytes_of(type_)), "}", "",
            f"static inline uint32_t {t}_find({common.parameters(self.keys)})", "{",
            f"    (void){key};", "    uint32_t from = 0;", *steps,
            f"    return {t}_numbers[from & {room - 1}u];", "}",
        ]

    @staticmethod
    def _reaches(size: int) -> Lines:
        """1 where start <= key, without a branch."""
        if size <= 4:
            return ["    return 1 - (uint32_t)(((uint64_t)key - start) >> 63);"]
        borrow = "((~{a} & {b}) | ((~{a} | {b}) & ({a} - {b}))) >> 63"
        if size == 8:
            return [f"    uint64_t borrow = {borrow.format(a='key', b='start')};", "    return 1 - (uint32_t)borrow;"]
        return [
            "    uint64_t low = (uint64_t)key, from = (uint64_t)start;",
            "    uint64_t high = (uint64_t)(key >> 64), from_high = (uint64_t)(start >> 64);",
            f"    uint64_t less = {borrow.format(a='low', b='from')};",
            "    uint64_t rest = high - from_high;",
            f"    uint64_t borrow = {borrow.format(a='high', b='from_high')};",
            "    borrow |= less & ~((rest | -rest) >> 63);",
            "    return 1 - (uint32_t)borrow;",
        ]
