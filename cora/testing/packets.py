"""Random traffic for a program: packets that reach its branches, in sequences that fill and age its tables.

Values come from the program itself (constants it compares with, entries of its read-only tables, time-outs) and from
small pools of addresses, ports and identifiers, so that later packets meet the entries that earlier ones made.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cora.engine.reference import Reference
from cora.engine.results import Event, Options, Output
from cora.ir import nodes
from cora.ir.headers import HEADERS, QUOTED, field_of
from cora.ir.nodes import Instruction, Program, Value, result_of
from cora.ir.types import bits_of
from cora.testing.choices import Choices, DrawnChoices, RandomChoices, hypothesis_strategies
from cora.testing.frames import (
    AH,
    ARP,
    DESTINATION,
    ERROR_TYPES,
    HOP,
    IPV4,
    IPV6,
    NAMES,
    NUMBERS,
    ROUTING,
    Packet,
    Spec,
    build,
    retarget,
    upper_bytes,
)
from cora.testing.values import field_value

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Real time stamps, small ones, and one that makes products overflow in careless arithmetic.
STARTS = (1_700_000_000_000_000_000, 0, 1, 1 << 61)
_KEYS = {"ipv4": ("src", "dst"), "ipv6": ("src", "dst"), "tcp": ("sport", "dport", "flags"), "udp": ("sport", "dport"),
         "icmp": ("type", "code", "id"), "icmp6": ("type", "code", "id"), "arp": ("op", "spa", "tpa"), "eth": ("dst",)}


class Harvest:
    """What a program looks at: values worth sending, headers it reads, time-outs.

    Attributes:
        values: (header, field) -> constants that it meets; by_width: all constants by their bits.
        headers: those it extracts. timeouts: nanoseconds after which something expires.
        definitions: value name -> the instruction that defines it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.by_width: dict[int, list[int]] = defaultdict(list)
        self.headers: set[str] = set()
        self.timeouts: list[int] = []
        self.definitions: dict[str, Instruction] = {}
        for block in program.blocks:
            for instruction in block.instructions:
                result = result_of(instruction)
                if result is not None:
                    self.definitions[result.name] = instruction
        for config in program.configs:
            self.by_width[bits_of(config.type)].append(config.value)
        for block in program.blocks:
            for instruction in block.instructions:
                self._instruction(instruction)
            self._terminator(block.terminator)
        for state in program.states:
            self._state(state)

    def _instruction(self, node: Instruction) -> None:
        if isinstance(node, nodes.Const):
            self.by_width[bits_of(node.result.type)].append(node.value)
        elif isinstance(node, nodes.Compare | nodes.Binary):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                known = self.constant(other)
                if known is not None:
                    self.note(one, (known, known + 1, max(0, known - 1)))

    def _terminator(self, node: nodes.Terminator) -> None:
        if isinstance(node, nodes.Extract):
            self.headers.add(node.header)
        elif isinstance(node, nodes.Switch):
            self.note(node.value, [v for v, _ in node.cases])
        elif isinstance(node, nodes.Lookup):
            state = self.program.state(node.state)
            if isinstance(state, nodes.AclState):
                for i, operand in enumerate(node.operands):
                    for entry in state.entries:
                        self.note(operand, _around(state.kinds[i], entry.match[i], bits_of(operand.type)))
            elif isinstance(state, nodes.LpmState):
                width = bits_of(node.operands[0].type)
                for prefix in state.entries:
                    last = prefix.value | ((1 << (width - prefix.length)) - 1)
                    self.note(node.operands[0], (prefix.value, last, last + 1, prefix.value ^ 1))

    def _state(self, state: nodes.State) -> None:
        if isinstance(state, nodes.MapState):
            self.timeouts += [t.nanoseconds for t in state.timeouts]
        elif isinstance(state, nodes.MeterState | nodes.FragmentState):
            self.timeouts.append(state.timeout)
        elif isinstance(state, nodes.PoolState):
            for r in state.ranges:
                self.by_width[bits_of(r.type)] += [r.low, r.high]

    def constant(self, value: Value) -> int | None:
        """What a value always is, when a constant or config defines it."""
        found = self.definitions.get(value.name)
        if isinstance(found, nodes.Const):
            return found.value
        if isinstance(found, nodes.LoadConfig):
            return next(c.value for c in self.program.configs if c.name == found.config)
        return None

    def note(self, value: Value, values: Iterable[int]) -> None:
        """Values worth sending in the header field that a value is made from."""
        found = self.definitions.get(value.name)
        while isinstance(found, nodes.Cast | nodes.Unary):
            found = self.definitions.get(found.operand.name)
        if isinstance(found, nodes.Binary):
            self.note(found.left, values)
            return
        if isinstance(found, nodes.Load):
            declared = field_of(found.header, found.field)
            assert declared is not None, "verified programs load fields that exist"
            limit = 1 << declared.bits
            self.values[found.header, found.field] += [v % limit for v in values]


def _around(kind: nodes.MatchKind, match: tuple[int, int], width: int) -> tuple[int, ...]:
    first, second = match
    if kind == "range":
        return first, second, second + 1, max(0, first - 1)
    return first, first | (~second & ((1 << width) - 1)), first ^ second


class Traffic:
    """An endless sequence of packets for a program. Tell it what happened with `observe`, and it answers outputs."""

    def __init__(self, program: Program, choices: Choices) -> None:
        self.choices = choices
        self.harvest = Harvest(program)
        self.ports = len(program.ports)
        self.now = choices.pick(STARTS)
        self.recent: deque[Spec] = deque(maxlen=24)
        self.outputs: deque[tuple[int, bytes]] = deque(maxlen=24)
        self.pending: list[Spec] = []
        # Packets worth sending again, kept for good.
        self.corpus: list[Spec] = []
        self.tracks = any(isinstance(s, nodes.FragmentState) for s in program.states)

    # The next packet.

    def next(self) -> Packet:
        """One more packet."""
        return self.send(self.spec())

    def send(self, spec: Spec, *, soon: bool = False) -> Packet:
        """A described packet at the next time, or (``soon``) shortly after the one before."""
        if spec.raw is None:
            self.recent.append(spec)
        frame, wirelen = build(spec)
        if soon:
            self.now += self.choices.pick((0, 1000))
        return Packet(spec.port, self.now if soon else self.time(), frame, wirelen)

    def observe(self, packet: Packet, events: Sequence[Event]) -> None:
        """Remember what left, and what came in, to answer and quote it."""
        for event in events:
            if isinstance(event, Output):
                self.outputs.append((event.port, event.frame))
        if self.choices.chance(20):
            self.outputs.append((packet.port, packet.frame))

    def outlive(self) -> None:
        """Let so much time pass that nothing is left in any table, where the clock allows it."""
        step = max(self.harvest.timeouts, default=0) + 1
        if self.now + step < 1 << 62:
            self.now += step

    def time(self) -> int:
        """The next time stamp: mostly close, sometimes just at a time-out, sometimes back."""
        kind = self.choices.integer(0, 39)
        if kind < 35:
            self.now += self.choices.pick((0, 1, 1000, 10**6))
        elif kind < 38 and self.harvest.timeouts:
            step = self.choices.pick(self.harvest.timeouts) + self.choices.pick((-1, 0, 1))
            # The clock must not run away: a time-out of many years is only jumped over from small times.
            if self.now + step < 1 << 63:
                self.now += step
        elif kind == 38:
            return max(0, self.now - self.choices.pick((1, 10**6, 10**10)))
        elif kind == 39 and self.now + 10**9 < 1 << 63:
            self.now += 10**9
        return self.now

    def spec(self) -> Spec:
        """The description of the next packet."""
        if self.pending and self.choices.chance(70):
            return self.pending.pop(0)
        makers: list[tuple[int, Callable[[], Spec | None]]] = [
            (30, self.fresh), (28, self.again), (14, self.answer), (8, self.quote),
            (4 if self.tracks else 1, self.fragmented),
            (6, self.damaged), (1, self.noise)]
        return self.choices.weighted(makers)() or self.fresh()

    def fresh(self) -> Spec:
        """A packet of its own."""
        spec = Spec(port=self.choices.integer(0, self.ports - 1), ethertype=self.ethertype())
        if self.choices.chance(30):
            kinds = (0x8100, 0x88A8, 0x9100)
            spec.tags = tuple((self.choices.pick(kinds), self.choices.pick((1, 0x0064, 0xFFFF, 0)))
                              for _ in range(self.choices.pick((1, 2, 3, 4))))
        spec.payload = self.choices.octets(self.choices.pick((0, 1, 8, 20, 26, 100, 1400)))
        if spec.ethertype in (IPV4, IPV6):
            self.fill_ip(spec)
        for name in ("eth", "vlan", "arp"):
            self.fill(spec, name, spec)
        return spec

    def ethertype(self) -> int:
        wanted = [(n, h) for n, h in ((IPV4, "ipv4"), (IPV6, "ipv6"), (ARP, "arp")) if h in self.harvest.headers]
        if wanted and not self.choices.chance(15):
            return self.choices.weighted([(1 if h == "arp" else 4, n) for n, h in wanted])
        return self.choices.pick((IPV4, IPV6, ARP, 0x88CC, 0, self.field("eth", "type") & 0xFFFF))

    def fill_ip(self, spec: Spec, *, quoted: bool = False) -> None:
        """Everything above Ethernet."""
        version = spec.ip
        prefix = QUOTED if quoted else ""
        spec.upper = self.protocol(version, prefix)
        if version == "ipv4" and self.choices.chance(12):
            spec.options = self.choices.pick((b"\1\1\1\0", b"\x83\x07\x04\x0a\0\0\1\0", b"\x89\x03\x04\0",
                                              b"\x94\4\0\0", b"\x44\1\0\0", b"\x07\xff\4\0", b"\0\x83\3\0",
                                              b"\1" * 37 + b"\x83\2\0"))
        if version == "ipv6" and self.choices.chance(25):
            kinds = (HOP, DESTINATION, ROUTING, AH, 135, 139, 140)
            spec.extensions = tuple((self.choices.pick(kinds), bytes(self.choices.pick((6, 14, 2, 10))))
                                    for _ in range(self.choices.pick((1, 2, 3, 9))))
        name = NAMES.get(spec.upper)
        self.fill(spec, version, spec, prefix)
        if name is None:
            return
        self.fill(spec, name, spec, prefix)
        if name in ("tcp", "udp"):
            self.fill(spec, "l4", spec, prefix)
        if name == "tcp" and self.choices.chance(15):
            spec.tcp_options = bytes(self.choices.pick((4, 8, 40)))
        if name == "udp" and self.choices.chance(12):
            spec.flaws["udp_zero"] = 1
        if self.choices.chance(6):
            spec.flaws["l4_sum"] = self.choices.pick((1, 0xFFFF))
        if name in ERROR_TYPES and not quoted and self.choices.chance(60):
            self.make_error(spec, name)

    def make_error(self, spec: Spec, name: str) -> None:
        """Quote a packet that may well have been sent."""
        if spec.fields.get((name, "type")) not in ERROR_TYPES[name] and self.choices.chance(80):
            spec.fields[name, "type"] = self.choices.pick(ERROR_TYPES[name])
        inner = Spec(ethertype=spec.ethertype, payload=bytes(8))
        self.fill_ip(inner, quoted=True)
        spec.quoted, spec.payload = inner, b""

    def protocol(self, version: str, prefix: str) -> int:
        wanted = [n for name, n in NUMBERS.items() if prefix + name in self.harvest.headers
                  and (name != "icmp" or version == "ipv4") and (name != "icmp6" or version == "ipv6")]
        if wanted and not self.choices.chance(12):
            return self.choices.pick(wanted)
        return self.choices.pick((17, 6, 58 if version == "ipv6" else 1, 47, 33, 136, 59, 1, 58))

    def field(self, header: str, name: str) -> int:
        """A value for a field: one the program knows, or a usual one."""
        known = self.harvest.values.get((header, name))
        if known and self.choices.chance(45):
            return self.choices.pick(known)
        declared = field_of(header, name)
        assert declared is not None, "only fields that exist are filled"
        loose = self.harvest.by_width.get(declared.bits)
        if loose and self.choices.chance(15):
            return self.choices.pick(loose)
        return field_value(self.choices, header, name)

    def fill(self, spec: Spec, header: str, into: Spec, prefix: str = "") -> None:
        """Values for those fields of a header that matter, and sometimes for others."""
        if header == "vlan" and not spec.tags:
            return
        known = {f for h, f in self.harvest.values if h == prefix + header}
        usual = set(_KEYS.get(header, ()))
        for place in HEADERS[header].fields:
            if place.computed or not place.writable or field_of(prefix + header, place.name) is None:
                continue
            if place.name in usual or (place.name in known and self.choices.chance(60)) or self.choices.chance(4):
                into.fields[header, place.name] = self.field(prefix + header, place.name)

    def again(self) -> Spec | None:
        """An earlier packet once more, perhaps from another port or with one value changed."""
        known = self.corpus if self.corpus and self.choices.chance(60) else list(self.recent)
        if not known:
            return None
        spec = self.choices.pick(known).copy()
        if self.choices.chance(25):
            spec.port = self.choices.integer(0, self.ports - 1)
        if self.choices.chance(35) and spec.fields:
            header, name = self.choices.pick(list(spec.fields))
            if field_of(header, name) is not None:
                spec.fields[header, name] = self.field(header, name)
        if self.choices.chance(15):
            spec.flaws.clear()
        if self.choices.chance(10):
            spec.tags = ()
        return spec

    # Packets about other packets.

    def answer(self) -> Spec | None:
        """What left or came, back where it went: addresses and ports exchanged, which keeps all checksums right."""
        if not self.outputs:
            return None
        port, frame = self.choices.pick(list(self.outputs))
        if len(frame) < 14:
            return None
        return Spec(port=port, ethertype=int.from_bytes(frame[12:14], "big"), raw_above=_exchanged(frame[14:]),
                    fields={("eth", "dst"): int.from_bytes(frame[6:12], "big"),
                            ("eth", "src"): int.from_bytes(frame[:6], "big")})

    def quote(self) -> Spec | None:
        """An ICMP error about a packet that left or came."""
        if not self.outputs:
            return None
        port, frame = self.choices.pick(list(self.outputs))
        ethertype = int.from_bytes(frame[12:14], "big") if len(frame) >= 14 else 0
        if ethertype not in (IPV4, IPV6):
            return None
        spec = Spec(port=port, ethertype=ethertype, upper=1 if ethertype == IPV4 else 58)
        name = NAMES[spec.upper]
        self.fill(spec, spec.ip, spec)
        self.fill(spec, name, spec)
        spec.fields[name, "type"] = self.choices.pick(ERROR_TYPES[name])
        spec.quoted_raw = frame[14:][:self.choices.pick((28, 48, 56, 600, 27, 20, 40))]
        return spec

    def fragmented(self) -> Spec | None:
        """The first of a datagram's fragments; the others follow, in some order, not always all or only once."""
        whole = Spec(port=self.choices.integer(0, self.ports - 1), ethertype=self.choices.pick((IPV4, IPV6)))
        if whole.ip not in self.harvest.headers:
            whole.ethertype = IPV4 if whole.ethertype == IPV6 else IPV6
        whole.payload = self.choices.octets(self.choices.pick((40, 24, 64, 140)))
        self.fill_ip(whole)
        self.pending += self.pieces(whole)
        return self.pending.pop(0) if self.pending else None

    def pieces(self, whole: Spec) -> list[Spec]:
        """Fragments of a datagram as descriptions."""
        octets = upper_bytes(whole)
        ident = self.choices.pick((1, 2, 0xFFFF, 0x10002))
        step = self.choices.pick((24, 40, 16, 64, 13, 8))
        most = 19
        if self.choices.chance(10):
            # Every other piece of many: more separate ranges than a tracker keeps.
            octets, step, most = octets + bytes(320), 8, 45
        found: list[Spec] = []
        at = 0
        while at < len(octets) and len(found) < most:
            size = step if at else max(step, self.choices.pick((24, 8, 16, 20)))
            past = min(len(octets), at + size - (size % 8 if self.choices.chance(90) else 0) or at + 8)
            found.append(self.piece(whole, octets, at, past, ident))
            at = past
        order = self.choices.integer(0, 5)
        if order == 1:
            found.reverse()
        elif order == 2:
            found = [*found[1:], found[0]]
        elif most > 19:
            found = [found[0], *found[2::2], *found[1::2]]
        elif order >= 3:
            found = self.choices.sample(found, max(1, len(found) - 1), len(found))
        if self.choices.chance(30):
            found.insert(self.choices.integer(0, len(found)), self.choices.pick(found).copy())
        if self.choices.chance(20):
            start = 8 * self.choices.integer(0, len(octets) // 8)
            odd = self.piece(whole, octets, start, min(len(octets), start + 16), ident)
            if self.choices.chance(50):
                odd.fragment = (start, start + 16 >= len(octets), ident)
            found.insert(self.choices.integer(0, len(found)), odd)
        return found

    def piece(self, whole: Spec, octets: bytes, at: int, past: int, ident: int) -> Spec:
        spec = whole.copy()
        spec.raw = octets[at:past]
        spec.fragment = (at, past < len(octets), ident)
        if self.choices.chance(3):
            spec.flaws["pad"] = 6
        return spec

    # Damage.

    def damaged(self) -> Spec:
        """A packet with something wrong."""
        spec = self.again() or self.fresh()
        size = len(build(spec)[0])
        kind = self.choices.integer(0, 9)
        if kind < 3:
            spec.flaws["cut"] = self.choices.integer(0, size)
        elif kind == 3:
            spec.flaws["ip_sum"] = self.choices.pick((1, 0xFFFF, 0x0100))
        elif kind == 4:
            spec.flaws["length"] = self.choices.pick((1, -1, 8, -8, -20, 1000))
        elif kind == 5:
            spec.flaws["udp_length"] = self.choices.pick((1, -1, -8, 100))
        elif kind == 6:
            spec.flaws["pad"] = self.choices.pick((1, 18, 46))
        elif kind == 7:
            spec.flaws["wirelen"] = self.choices.pick((size, 14, 33, 34, 60, 1514, 9000, size + 1, 0))
        elif kind == 8 and spec.ethertype in (IPV4, IPV6) and spec.raw_above is None and self.choices.chance(50):
            # An upper layer that ends early, with the IP header agreeing.
            spec.raw = upper_bytes(spec)[:self.choices.integer(0, 19)]
            spec.flaws["pad"] = self.choices.pick((0, 20))
        elif kind == 8:
            self.retarget_any(spec)
        else:
            spec.flaws["flip"] = self.choices.integer(0, 8 * min(size, 80))
        return spec

    def retarget_any(self, spec: Spec) -> None:
        """A structural field with a value that may not fit the rest."""
        version = spec.ip
        header, name = self.choices.pick(((version, "version"), ("ipv4", "ihl"), ("tcp", "data_offset"),
                                          (version, "length"), ("udp", "length"), (version, "proto")))
        declared = field_of(header, name)
        assert declared is not None
        value = self.choices.integer(0, (1 << declared.bits) - 1)
        if self.choices.chance(50):
            spec.fields[header, name] = value
        else:
            retarget(spec, header, name, value % 2000)

    def noise(self) -> Spec:
        """Bytes without a meaning."""
        return Spec(port=self.choices.integer(0, self.ports - 1), ethertype=self.choices.pick((IPV4, IPV6, 0)),
                    upper=253, raw=self.choices.octets(self.choices.integer(0, 80)))


def _exchanged(above: bytes) -> bytes:
    """An IP datagram with its addresses, and its ports where they stand behind a plain header, exchanged."""
    if len(above) >= 20 and above[0] >> 4 == 4:
        ports = 4 * (above[0] & 15)
        swapped = above[:12] + above[16:20] + above[12:16] + above[20:]
        carries = above[9] in (6, 17)
    elif len(above) >= 40 and above[0] >> 4 == 6:
        ports = 40
        swapped = above[:8] + above[24:40] + above[8:24] + above[40:]
        carries = above[6] in (6, 17)
    else:
        return above
    if not carries or len(swapped) < ports + 4:
        return swapped
    return swapped[:ports] + swapped[ports + 2:ports + 4] + swapped[ports:ports + 2] + swapped[ports + 4:]


def random_packets(program: Program, seed: int, count: int, options: Options = Options()) -> list[Packet]:  # noqa: B008
    """A sequence of packets for a program, the same for a seed on every machine."""
    return write_packets(program, RandomChoices(seed), count, options)


def write_packets(program: Program, choices: Choices, count: int, options: Options = Options()) -> list[Packet]:  # noqa: B008
    """``count`` packets; the reference runs beside, so that they can answer what leaves."""
    traffic = Traffic(program, choices)
    engine = Reference(program, options)
    found = []
    for _ in range(count):
        packet = traffic.next()
        traffic.observe(packet, engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen))
        found.append(packet)
    return found


def packet_sequences(program: Program, max_size: int = 40) -> SearchStrategy[list[Packet]]:
    """A hypothesis strategy for sequences of 1 to ``max_size`` packets.

    Raises:
        CoraError: `Kind.MISSING_LIBRARY` when hypothesis is not installed.
    """
    strategies = hypothesis_strategies()

    def drawn(draw: Callable[[SearchStrategy[int]], int]) -> list[Packet]:
        return write_packets(program, DrawnChoices(draw), draw(strategies.integers(1, max_size)))

    found: SearchStrategy[list[Packet]] = strategies.composite(drawn)()
    return found
