"""Random declarations: ports, configs, constants, structs, pools, tables, counters, policies."""

from __future__ import annotations

from cora.frontends.nf.types import (
    BOOLEAN,
    DURATION,
    IPV4,
    IPV6,
    MAC,
    LanguageType,
    Scalar,
    Struct,
    flatten_type,
    uint,
)
from cora.testing.choices import Choices
from cora.testing.expressions import WIDTHS, duration, literal
from cora.testing.values import V4, V6, value_of
from cora.testing.world import Pool, Table, World

PORT_NAMES = ("inside", "outside", "dmz", "guests")
FACES = ("wire", "host", "vf", "wire | host", "wire | host | vf")
TIMEOUTS = (10**9, 30 * 10**9, 10**9, 300 * 10**9, 10**6, 5 * 10**6, 1, (1 << 62) - 1)
CLASSES = ("opening", "established", "closing")
COUNTER_SIZES = (1, 2, 8, 100)
# A rate below which every packet is red, usual ones, and one that fills any bucket at once.
RATES = ("1000", "1000", "64", "1Mbps", "1", "10Gbps", "9_223_372_036")
BURSTS = ("1500B", "500", "100", "64kB", "1", "9_223_372_036")


class DeclarationWriter:
    """Writes declarations in an order in which each finds what it needs, and notes them in the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.choices: Choices = world.choices

    def everything(self) -> list[str]:
        """All declarations but policies, functions and handlers."""
        lines = [*self.ports(), "", *self.constants(), ""]
        for _ in range(self.choices.integer(0, 2)):
            lines += self.struct()
        for _ in range(self.choices.pick((0, 1, 1, 2))):
            lines += ["", *self.pool()]
        for _ in range(self.choices.pick((0, 1, 1, 2, 3))):
            lines += ["", *self.map()]
        for _ in range(self.choices.pick((0, 1, 1, 2))):
            lines += ["", *self.meter()]
        if self.choices.chance(50):
            lines += ["", *self.acl()]
        if self.choices.chance(50):
            lines += ["", *self.lpm()]
        return [*lines, "", *self.counters()]

    # Types.

    def scalar(self) -> Scalar:
        """A type for fields and keys; those that headers have come first."""
        common = (IPV4, uint(16), uint(8), uint(32), IPV6, MAC)
        if self.choices.chance(75):
            return self.choices.pick(common)
        return self.choices.pick((uint(self.choices.pick(WIDTHS)), BOOLEAN, DURATION, uint(64)))

    def any_type(self) -> LanguageType:
        if self.world.structs and self.choices.chance(35):
            return self.choices.pick(self.world.structs)
        return self.scalar()

    # Simple declarations.

    def ports(self) -> list[str]:
        self.world.ports = list(PORT_NAMES[:self.choices.pick((2, 2, 1, 3, 4))])
        return [f"port {name}: {self.choices.pick(FACES)};" for name in self.world.ports]

    def constants(self) -> list[str]:
        lines = []
        for i in range(self.choices.integer(0, 3)):
            type_, value = self.typed_value()
            self.world.configs.append((f"setting_{i}", type_, value))
            lines.append(f"config setting_{i}: {type_} = {literal(self.world, type_, value).text};")
        for i in range(self.choices.integer(0, 3)):
            type_, value = self.typed_value()
            if type_.number and type_ != DURATION and self.choices.chance(40):
                self.world.numbers.append((f"NUMBER_{i}", value))
                lines.append(f"const NUMBER_{i} = {literal(self.world, type_, value).text};")
            else:
                self.world.consts.append((f"LIMIT_{i}", type_, value))
                lines.append(f"const LIMIT_{i}: {type_} = {literal(self.world, type_, value).text};")
        return lines

    def typed_value(self) -> tuple[Scalar, int]:
        type_ = self.scalar()
        return type_, value_of(self.choices, type_)

    def struct(self) -> list[str]:
        name = ("Flow", "Endpoint")[len(self.world.structs)]
        # Structs that hold a pool's values are declared with the pool.
        fields = [(f"f{i}", self.any_type()) for i in range(self.choices.integer(1, 4))]
        self.world.structs.append(Struct(name, tuple(fields)))
        return [f"struct {name} {{ {', '.join(f'{n}: {t}' for n, t in fields)} }}"]

    def counters(self) -> list[str]:
        lines = []
        for i in range(self.choices.pick((1, 1, 2, 3, 0))):
            size = self.choices.pick(COUNTER_SIZES)
            self.world.counters.append((f"seen_{i}", size))
            lines.append(f"counter seen_{i}{f'[{size}]' if size > 1 or self.choices.chance(20) else ''};")
        return lines

    # Pools.

    def pool(self) -> list[str]:
        name = f"pool_{len(self.world.pools)}"
        preserve = self.choices.chance(50)
        if self.choices.chance(50):
            type_, low, high = self.range(16)
            self.world.pools.append(Pool(name, (("value", type_),)))
            kept = " preserve" if preserve else ""
            return [f"pool {name}: {type_} in {self.written(type_, low)} .. {self.written(type_, high)}{kept};"]
        names = [f"d{len(self.world.pools)}_{i}" for i in range(self.choices.integer(1, 3))]
        ranges = [self.range(5) for _ in names]
        dimensions = tuple((n, t) for n, (t, _, _) in zip(names, ranges, strict=True))
        self.world.pools.append(Pool(name, dimensions))
        holder = Struct(f"Held_{len(self.world.pools)}", dimensions)
        self.world.structs.append(holder)
        lines = [f"  {n}: {t} in {self.written(t, low)} .. {self.written(t, high)};"
                 for n, (t, low, high) in zip(names, ranges, strict=True)]
        return [f"pool {name} {{", *lines, *(["  preserve;"] if preserve else []),
                *(["  per_shard;"] if self.choices.chance(10) else []), "}",
                f"struct {holder.name} {{ {', '.join(f'{n}: {t}' for n, t in holder.fields)} }}"]

    def written(self, type_: Scalar, value: int) -> str:
        return literal(self.world, type_, value).text

    def range(self, most: int) -> tuple[Scalar, int, int]:
        """A type and a small range in it, for 16 bits around the border of the well-known ports."""
        type_ = self.choices.pick((uint(16), uint(16), IPV4, uint(32), self.scalar()))
        if type_.limit > 1 << 64 and not self.choices.chance(5):
            type_ = uint(64)
        known = {16: (1021, 1016, 1021, 5000, 0, 65535), 32: (V4[4], V4[4] - 1, 0)}
        starts = known.get(getattr(type_.ir, "bits", 0), (0, 1))
        low = min(self.choices.pick(starts) if type_ != IPV6 else V6[0], type_.limit - 1)
        return type_, low, min(low + self.choices.integer(0, most), type_.limit - 1)

    # Tables.

    def attributes(self, choices: tuple[str, ...]) -> list[str]:
        """Attributes that most tables have in common."""
        full = self.choices.pick(choices)
        lines = [f"  capacity {self.choices.pick((4, 16, 1, 2, 3, 64, 1000))};", f"  full {full};"]
        lines += ["  approx;"] if self.choices.chance(10) else ["  exact;"] if self.choices.chance(30) else []
        if self.choices.chance(40):
            lines.append(f"  order {self.choices.pick(('strict', 'weak'))};")
        return lines

    def timeout(self) -> tuple[tuple[str, ...], list[str]]:
        """Time-out classes and how they are written."""
        kind = self.choices.integer(0, 2)
        slack = " slack 1s" if self.choices.chance(30) else ""
        if kind == 0:
            return (), []
        if kind == 1:
            return ("idle",), [f"  timeout {duration(self.choices.pick(TIMEOUTS))}{slack};"]
        names = CLASSES[:self.choices.integer(1, 3)]
        shown = ", ".join(f"{n} {duration(self.choices.pick(TIMEOUTS))}" for n in names)
        return names, [f"  timeout {{ {shown} }}{slack}{';' if self.choices.chance(50) else ''}"]

    def map(self) -> list[str]:
        name = f"map_{len(self.world.tables)}"
        fields, pools = self.entry()
        pair = bool(pools) and self.choices.chance(70)
        pooled = [n for n, _, pool in fields if pool]
        plain = [n for n, _, pool in fields if not pool]
        # A primary key with a value from a pool in it can only be known once the pool was asked.
        candidates = plain + pooled if self.choices.chance(10) else plain
        keys = {"fwd" if pair else "": self.choices.sample(candidates, 1, 3)}
        if pair:
            keys["rev"] = self.choices.sample(pooled if self.choices.chance(80) else plain, 1, 2)
        elif self.choices.chance(15):
            keys = {"fwd": keys[""], "rev": self.choices.sample(plain, 1, 2)}
        shown = [f"  key {n} = {self.key_text(parts)};" if n else f"  key = {self.key_text(parts)};"
                 for n, parts in keys.items()]
        types = {n: t for n, t, _ in fields}
        flat = {n: tuple(p for part in parts for p in flatten_type(types[part], part)) for n, parts in keys.items()}
        classes, timeout = self.timeout()
        attributes = self.attributes(("reject", "pass", "evict_lru"))
        full = next(a.split()[1].rstrip(";") for a in attributes if "full" in a)
        self.world.tables.append(Table(name, "map", fields, flat, classes, full, "", pools))
        entry = ", ".join(f"{n}: {t}{f' = alloc {pool}' if pool else ''}" for n, t, pool in fields)
        return [f"{'pair ' if len(keys) == 2 else ''}map {name} {{", f"  entry {{ {entry} }}", *shown, *timeout,
                *attributes, "}"]

    def key_text(self, parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def entry(self) -> tuple[tuple[tuple[str, LanguageType, str], ...], tuple[Pool, ...]]:
        """Entry fields, some filled from pools, and those pools in order."""
        fields: list[tuple[str, LanguageType, str]] = []
        pools = []
        for i in range(self.choices.integer(1, 4)):
            fields.append((f"f{i}", self.any_type(), ""))
        for pool in self.world.pools:
            type_ = self.holder(pool)
            if type_ is not None and self.choices.chance(75):
                at = self.choices.integer(0, len(fields))
                fields.insert(at, (f"from_{pool.name}", type_, pool.name))
        for _, _, name in fields:
            pools += [p for p in self.world.pools if p.name == name]
        return tuple(fields), tuple(pools)

    def holder(self, pool: Pool) -> LanguageType | None:
        """A type whose scalars are the pool's dimensions."""
        wanted = [t for _, t in pool.dimensions]
        for struct in self.world.structs:
            if [t for _, t in flatten_type(struct, "")] == wanted:
                return struct
        return wanted[0] if len(wanted) == 1 else None

    def meter(self) -> list[str]:
        name = f"meter_{len(self.world.tables)}"
        fields = [(f"f{i}", self.any_type()) for i in range(self.choices.integer(1, 3))]
        algorithm = self.choices.pick(("token_bucket", "srtcm", "trtcm"))
        key = (f"{fields[0][0]}: {fields[0][1]}" if len(fields) == 1
               else f"({', '.join(f'{n}: {t}' for n, t in fields)})")
        lines = [f"  key {key};", f"  rate {self.choices.pick(RATES)};", f"  burst {self.choices.pick(BURSTS)};"]
        if algorithm == "srtcm":
            lines.append(f"  excess {self.choices.pick(BURSTS)};")
        elif algorithm == "trtcm":
            lines += [f"  peak {self.choices.pick(RATES)};", f"  peak_burst {self.choices.pick(BURSTS)};"]
        if self.choices.chance(40):
            lines.append(f"  timeout {duration(self.choices.pick(TIMEOUTS))};")
        lines += self.attributes(("reject", "pass", "evict_lru"))
        flat = tuple(pair for n, t in fields for pair in flatten_type(t, n))
        self.world.tables.append(Table(name, "meter", (), {"": flat}, (), "", algorithm))
        return [f"meter {name} {{", *lines, "}"]

    def values(self) -> list[tuple[str, Scalar]]:
        return [(f"v{i}", self.scalar()) for i in range(self.choices.pick((1, 1, 2, 0)))]

    def record(self, values: list[tuple[str, Scalar]]) -> str:
        shown = ", ".join(f"{n}: {self.written(t, value_of(self.choices, t))}" for n, t in values)
        return f"{{ {shown} }}" if shown else "{ }"

    def acl(self) -> list[str]:
        name = f"acl_{len(self.world.tables)}"
        key = [(f"f{i}", self.scalar(), self.choices.pick(("ternary", "range", "ternary", "range", "exact", "")))
               for i in range(self.choices.pick((1, 2, 1, 3, 4)))]
        values = self.values()
        prioritised = self.choices.chance(40)
        entries = []
        for i in range(self.choices.integer(0, 5)):
            patterns = ", ".join(self.pattern(t, kind) for _, t, kind in key)
            # One priority each: entries that overlap may not share one.
            priority = f" priority {(i * 7) % 11 + 1}" if prioritised else ""
            entries.append(f"    ({patterns}) -> {self.record(values)}{priority};")
        self.world.tables.append(Table(name, "acl", tuple((n, t, "") for n, t in values),
                                       {"": tuple((n, t) for n, t, _ in key)}))
        fields = ", ".join(f"{n}: {t}{' ' + kind if kind else ''}" for n, t, kind in key)
        return [f"acl {name} {{", f"  key ({fields});", f"  value {self.record_type(values)}", "  entries {", *entries,
                "  }", *(["  capacity 64;"] if self.choices.chance(50) else []), "}"]

    def record_type(self, values: list[tuple[str, Scalar]]) -> str:
        return f"{{ {', '.join(f'{n}: {t}' for n, t in values)} }}" if values else "{ }"

    def pattern(self, type_: Scalar, kind: str) -> str:
        """One field of an acl entry."""
        value = value_of(self.choices, type_)
        shape = self.choices.integer(0, 4)
        if kind in ("exact", "") or shape == 0:
            return self.written(type_, value)
        if shape <= 2:
            return "any"
        if type_ in (IPV4, IPV6) and self.choices.chance(50):
            return self.prefix(type_, value)
        other = value_of(self.choices, type_)
        if kind == "range":
            low, high = sorted((value, other))
            return f"{self.written(type_, low)} .. {self.written(type_, high)}"
        return f"{self.written(type_, value)} &&& {self.written(type_, other)}"

    def prefix(self, type_: Scalar, value: int, length: int | None = None) -> str:
        width = 32 if type_ == IPV4 else 128
        bits = self.choices.pick((width - 8, 8, width, 0, 1, width - 1, width // 2)) if length is None else length
        return f"{self.written(type_, value >> (width - bits) << (width - bits))}/{bits}"

    def lpm(self) -> list[str]:
        name = f"lpm_{len(self.world.tables)}"
        type_ = self.choices.pick((IPV4, IPV6))
        width = 32 if type_ == IPV4 else 128
        values = self.values()
        prefixes: dict[str, str] = {}
        for _ in range(self.choices.integer(0, 6)):
            if self.choices.chance(15):
                # A bare address is a prefix of full length.
                address = value_of(self.choices, type_)
                prefixes.setdefault(self.prefix(type_, address, width), self.written(type_, address))
            else:
                prefix = self.prefix(type_, value_of(self.choices, type_))
                prefixes.setdefault(prefix, prefix)
        entries = [f"    {written} -> {self.record(values)};" for written in prefixes.values()]
        self.world.tables.append(Table(name, "lpm", tuple((n, t, "") for n, t in values), {"": (("address", type_),)}))
        return [f"lpm {name} {{", f"  key address: {type_};", f"  value {self.record_type(values)}", "  entries {",
                *entries, "  }", *(["  capacity 64;"] if self.choices.chance(50) else []), "}"]

    # Policies.

    def policies(self, *, reads_l4: bool) -> list[str]:
        """What the program says about packets that need a rule; fragments need one where ports are read."""
        lines = []
        if reads_l4 or self.choices.chance(20):
            lines.append(self.fragments())
        if self.choices.chance(50):
            lines.append(f"unparsed {'pass' if len(self.world.ports) == 2 and self.choices.chance(50) else 'drop'};")
        if self.choices.chance(50):
            lines.append(f"verify {self.choices.pick(('ipv4.checksum', 'none'))};")
        if self.choices.chance(40):
            lines.append(f"source_routes {self.choices.pick(('drop', 'pass'))};")
        if self.choices.chance(30):
            lines.append(f"limit vlan_tags {self.choices.pick((1, 2, 3, 16))};")
        if self.choices.chance(30):
            lines.append(f"limit ipv6_headers {self.choices.pick((1, 2, 8, 16))};")
        return lines

    def fragments(self) -> str:
        kind = self.choices.pick(("track", "track", "drop", "ignore"))
        if kind != "track" or self.choices.chance(20):
            return f"fragments {kind};"
        words = [f"capacity {self.choices.pick((2, 1, 16, 4096))};",
                 f"timeout {duration(self.choices.pick((10**9, 1, 30 * 10**9)))};",
                 f"held {self.choices.pick((3, 1, 2, 16))};"]
        return f"fragments track {{ {' '.join(self.choices.sample(words, 1, 3))} }}"
