"""Synthetic traffic: a specification of a few values, and the capture it stands for, the same bytes on every machine.

**Model.** ``flows`` slots are always occupied, slot i with popularity (i+1)^-zipf. Every packet belongs to the flow in
a slot drawn by popularity. ``churn`` flows per second end and are replaced in their slot, so the capture holds exactly
``flows + new_flows`` different flows, each with its own client address and port. All flows start on the inside.

- A TCP flow begins with SYN, SYN+ACK, ACK and, when replaced, ends with FIN, FIN+ACK, ACK; sequence and acknowledgement
  numbers are right throughout. Every flow has at least these packets, whatever its popularity. With ``replies`` 0 only
  the inside's half is seen (SYN, ACK, data, FIN, ACK).
- ``replies`` is the share of data packets that come from the outside, after the flow's first packet.
- ``udp`` is the share of flows (not of packets) that are UDP.
- A size is a frame from its Ethernet header to its last payload byte, as captures store it: without preamble and FCS.
  A bit rate counts these bytes. TCP control packets carry no payload; they are padded to the smallest size of the mix,
  but not beyond 64 bytes.
- Packets are evenly spaced: packet n starts at ``start`` + floor(n / rate), or floor(bits before it / rate), in ns.
- Inside frames come from 02:00:00:00:00:01 and outside frames from 02:00:00:00:00:02, which are also the two ends of
  the recorded link. A payload of 8 bytes or more starts with the packet's index in the capture, big-endian.

**Specification files** end in ``.traffic.json``: an object with ``"format": "cora-traffic"``, ``"version": 1`` and any
of the keys of `FIELDS` with the values the command line takes; missing keys have the defaults shown there.
"""

from __future__ import annotations

import atexit
import difflib
import gzip
import hashlib
import ipaddress
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, TypeVar

from cora.errors import CoraError, Diagnostic, Kind, fail
from cora.units import Rate, parse_amount, parse_count, parse_rate, parse_share

_T = TypeVar("_T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SUFFIX = ".traffic.json"
FORMAT = "cora-traffic"
VERSION = 1
# Raised whenever the same specification gives other bytes, so that cached results are not mistaken for each other.
GENERATOR = 1

MIN_FRAME = 60
MAX_FRAME = 9216
# Header bytes of a frame: Ethernet 14, IPv4 20 or IPv6 40, TCP 20 or UDP 8.
TCP_HEADERS = {4: 54, 6: 74}
UDP_HEADERS = {4: 42, 6: 62}
# "Simple IMIX": the common 7:4:1 mix. The smallest IPv6 frame is what a TCP header needs.
IMIX = {4: ((64, 7), (576, 4), (1500, 1)), 6: ((74, 7), (576, 4), (1500, 1))}
CLIENT_PORTS = range(1024, 65536)
MAX_HOSTS = 65536
# The generator keeps about 100 bytes a flow.
MAX_FLOWS = 10**7
MAX_PACKETS = 10**11
MAX_ZIPF = 4
# Frames per block: bounds memory, and is part of what fixes the bytes.
BLOCK = 1 << 16

FIELDS: Mapping[str, tuple[str, str]] = {
    "packets": ("10000", "packets in the capture: 10000, 1M"),
    "flows": ("1000", "flows alive at any time: 1000, 100k"),
    "size": ("imix", "frame bytes without FCS: 64, imix, or sizes with weights as 64:7,576:4,1500:1"),
    "zipf": ("1.0", "skew of flow popularity: 0 is uniform"),
    "churn": ("0", "flows per second that end and are replaced"),
    "rate": ("1Mpps", "packets or bits per second: 10Mpps, 40Gbps"),
    "udp": ("0.2", "share of flows that are UDP: 0.2, 20%"),
    "replies": ("0.5", "share of data packets that come from outside"),
    "seed": ("1", "chooses another capture of the same kind"),
    "family": ("4", "IP version: 4 or 6"),
    "inside": ("", "network of the clients (10.0.0.0/16, or 2001:db8:1::/64 for IPv6)"),
    "outside": ("", "network of the servers (198.18.0.0/15, or 2001:db8:2::/64 for IPv6)"),
    "start": ("1700000000", "time of the first packet, seconds since 1970"),
}
DEFAULT_NETWORKS = {
    4: ("10.0.0.0/16", "198.18.0.0/15"),
    6: ("2001:db8:1::/64", "2001:db8:2::/64"),
}
DEFAULT_INSIDE, DEFAULT_OUTSIDE = (ipaddress.ip_network(text) for text in DEFAULT_NETWORKS[4])
DEFAULT_RATE = Rate(10**6, "pps")


@dataclass(frozen=True)
class TrafficSpec:
    """What the traffic is like; see the module text for the meaning. A value out of range raises E205."""

    packets: int = 10_000
    flows: int = 1000
    sizes: tuple[tuple[int, int], ...] = IMIX[4]
    zipf: Fraction = Fraction(1)
    churn: Fraction = Fraction(0)
    rate: Rate = DEFAULT_RATE
    udp: Fraction = Fraction(1, 5)
    replies: Fraction = Fraction(1, 2)
    seed: int = 1
    family: Literal[4, 6] = 4
    inside: Network = DEFAULT_INSIDE
    outside: Network = DEFAULT_OUTSIDE
    start_ns: int = 1_700_000_000 * 10**9

    def __post_init__(self) -> None:
        """Refuse values that cannot be generated, all of them in one error."""
        problems = [*_range_problems(self), *_size_problems(self), *_network_problems(self)]
        # The last check divides by what the others vouch for.
        problems = problems or _fit_problems(self)
        if problems:
            raise CoraError(problems)

    @classmethod
    def parse(cls, values: Mapping[str, object], *, source: str | None = None) -> TrafficSpec:
        """Build from texts or numbers keyed as `FIELDS`; a key that is missing or None takes its default.

        Errors name ``source: key``, or the flag ``--key`` when there is no source; all are reported at once.
        """
        parser = _Parser(values)
        try:
            spec = parser.spec()
            problems = parser.problems
        except CoraError as error:
            # With fallbacks among the fields, what the whole lacks would mislead.
            problems = parser.problems or list(error.diagnostics)
        if problems:
            raise CoraError(replace(d, where=f"{source}: {d.where}" if source else f"--{d.where}") for d in problems)
        return spec

    @property
    def new_flows(self) -> int:
        """Flows that begin by replacing another: churn times the capture's expected duration, rounded down."""
        if self.rate.unit == "pps":
            return int(self.churn * self.packets / self.rate.amount)
        # Bits B = a + b * new_flows, because control packets are small; the duration is B / rate.
        weights = sum(weight for _, weight in self.sizes)
        data = Fraction(sum(size * weight for size, weight in self.sizes), weights) * 8
        saved = (data - self.control_size * 8) * (1 - self.udp)
        most = data * self.packets - saved * self.flows * self.opening
        return int(self.churn * most / (self.rate.amount + self.churn * saved * (self.opening + self.closing)))

    @property
    def opening(self) -> int:
        """Packets each flow is sure to have: the handshake's, where there can be one."""
        if self.udp == 1:
            return 1
        return 3 if self.replies else 2

    @property
    def closing(self) -> int:
        """Packets that end a replaced flow."""
        return 0 if self.udp == 1 else self.opening

    @property
    def needed(self) -> int:
        """The packets that must exist for every flow to begin and end, with a little room in every block."""
        sure = self.flows * self.opening + self.new_flows * (self.opening + self.closing)
        return sure + (32 * self.blocks if self.blocks > 1 else 0)

    @property
    def blocks(self) -> int:
        """How many blocks the capture is generated in."""
        return -(-self.packets // BLOCK)

    @property
    def control_size(self) -> int:
        """Frame bytes of a TCP packet without payload."""
        return max(TCP_HEADERS[self.family], min(64, min(size for size, _ in self.sizes)))

    def to_json(self) -> dict[str, str | int]:
        """The specification file's content: every key, in the exact form `parse` reads back."""
        return {
            "format": FORMAT, "version": VERSION, "packets": self.packets, "flows": self.flows,
            "size": ",".join(f"{size}:{weight}" for size, weight in self.sizes), "zipf": _decimal(self.zipf),
            "churn": _decimal(self.churn), "rate": str(self.rate), "udp": _decimal(self.udp),
            "replies": _decimal(self.replies), "seed": self.seed, "family": self.family, "inside": str(self.inside),
            "outside": str(self.outside), "start": _decimal(Fraction(self.start_ns, 10**9)),
        }

    def digest(self) -> str:
        """A SHA-256 that is equal exactly when the generated bytes are."""
        text = json.dumps({"generator": GENERATOR, **self.to_json()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _decimal(value: Fraction) -> str:
    digits = f"{value.numerator * 10**9 // value.denominator:010d}"
    return f"{digits[:-9]}.{digits[-9:]}".rstrip("0").rstrip(".")


def _problem(field: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(Kind.TRAFFIC_SPEC, message, where=field, hint=hint)


def _range_problems(spec: TrafficSpec) -> list[Diagnostic]:
    checks = (
        ("packets", spec.packets, 1, MAX_PACKETS), ("flows", spec.flows, 1, MAX_FLOWS),
        ("zipf", spec.zipf, 0, MAX_ZIPF),
        ("churn", spec.churn, 0, 10**12), ("udp", spec.udp, 0, 1), ("replies", spec.replies, 0, 1),
        ("seed", spec.seed, 0, 2**64 - 1), ("start", spec.start_ns // 10**9, 0, 2**32 - 1),
        ("rate", spec.rate.amount, 1, 10**14),
    )
    problems = [
        _problem(field, f"{field} is out of range", f"choose a value from {low} to {high}")
        for field, value, low, high in checks if not low <= value <= high
    ]
    if spec.family not in (4, 6):
        problems.append(_problem("family", f"there is no IP version {spec.family}", "choose 4 or 6"))
    exact = (("zipf", spec.zipf), ("churn", spec.churn), ("udp", spec.udp), ("replies", spec.replies))
    return problems + [
        _problem(field, f"{field} has more than nine decimals", "leave out some decimals")
        for field, value in exact if 10**9 % value.denominator
    ]


def _size_problems(spec: TrafficSpec) -> list[Diagnostic]:
    headers = TCP_HEADERS if spec.udp < 1 else UDP_HEADERS
    least = max(MIN_FRAME, headers.get(spec.family, MIN_FRAME))
    protocol = f"{'TCP' if spec.udp < 1 else 'UDP'} over IPv{spec.family}"
    problems = [
        _problem("size", f"a frame of {size} bytes is not possible for {protocol}",
                 f"choose sizes from {least} to {MAX_FRAME} bytes")
        for size, _ in spec.sizes if not least <= size <= MAX_FRAME
    ]
    if not spec.sizes:
        problems.append(_problem("size", "there is no size", "give at least one, such as 64"))
    if any(not 1 <= weight <= 10**6 for _, weight in spec.sizes):
        problems.append(_problem("size", "a weight is out of range", "choose weights from 1 to 1000000"))
    if len({size for size, _ in spec.sizes}) < len(spec.sizes):
        problems.append(_problem("size", "a size is given twice", "add up the weights of equal sizes"))
    if len(spec.sizes) > 64:
        problems.append(_problem("size", f"there are {len(spec.sizes)} sizes", "give 64 sizes or less"))
    return problems


def _network_problems(spec: TrafficSpec) -> list[Diagnostic]:
    problems = [
        _problem(field, f"{network} is not an IPv{spec.family} network",
                 f"give an IPv{spec.family} network or change family")
        for field, network in (("inside", spec.inside), ("outside", spec.outside)) if network.version != spec.family
    ]
    inside, outside = (
        (int(network.network_address), int(network.broadcast_address)) for network in (spec.inside, spec.outside))
    if not problems and inside[0] <= outside[1] and outside[0] <= inside[1]:
        problems.append(_problem("outside", f"{spec.outside} overlaps the inside network {spec.inside}",
                                 "choose two separate networks"))
    return problems


def hosts(network: Network) -> tuple[int, int]:
    """The first host address used in a network, as a number, and how many consecutive ones are used."""
    first, count = int(network.network_address), network.num_addresses
    if count > 2:
        first, count = first + 1, count - 2
    return first, min(count, MAX_HOSTS)


def _fit_problems(spec: TrafficSpec) -> list[Diagnostic]:
    problems = []
    total = spec.flows + spec.new_flows
    room = hosts(spec.inside)[1] * len(CLIENT_PORTS)
    if total > room:
        problems.append(_problem("inside", f"{spec.inside} has room for {room} flows, not for {total}",
                                 "choose a larger inside network, fewer flows or less churn"))
    if spec.needed > spec.packets:
        problems.append(_problem(
            "packets", f"{spec.packets} packets are too few for {spec.flows} flows and {spec.new_flows} new ones, "
            f"which need {spec.needed} to begin and end", "raise packets, or lower flows or churn"))
    least = max(size for size, _ in spec.sizes) * 8 if spec.rate.unit == "bps" else 1
    if spec.start_ns + spec.packets * least * 10**9 // spec.rate.amount >= 2**32 * 10**9:
        problems.append(_problem("rate", "the capture would end after the year 2106, which its time stamps cannot hold",
                                 "raise the rate, lower packets or choose an earlier start"))
    return problems


class _Parser:
    """Turns texts and JSON values into the fields of a specification, collecting every problem."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = {key: value for key, value in values.items() if value is not None}
        self.problems: list[Diagnostic] = [self._unknown(key) for key in values if key not in FIELDS]

    @staticmethod
    def _unknown(key: str) -> Diagnostic:
        close = difflib.get_close_matches(key, FIELDS, n=1)
        return _problem(key, f"there is no traffic property '{key}'",
                        f"did you mean '{close[0]}'?" if close else f"the properties are {', '.join(FIELDS)}")

    def text(self, key: str) -> str:
        """The value as text; a float from JSON is written out as the user wrote it."""
        value = self.values.get(key, FIELDS[key][0])
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise fail(Kind.TRAFFIC_SPEC, f"{key} is neither text nor a number", where=key, hint=FIELDS[key][1])
        return str(value).strip()

    def field(self, key: str, convert: Callable[[str], _T], fallback: _T) -> _T:
        """Convert one field; a failure is kept and the fallback lets the others be converted."""
        try:
            return convert(self.text(key))
        except CoraError as error:
            self.problems += error.diagnostics
            return fallback

    def spec(self) -> TrafficSpec:
        """Everything converted; raises what `TrafficSpec` itself refuses."""
        base = TrafficSpec()
        family = self.field("family", _family, base.family)
        networks = DEFAULT_NETWORKS[family]
        kind = Kind.TRAFFIC_SPEC
        return TrafficSpec(
            packets=self.field("packets", lambda t: parse_count(t, where="packets", kind=kind), base.packets),
            flows=self.field("flows", lambda t: parse_count(t, where="flows", kind=kind), 1),
            sizes=self.field("size", lambda t: _sizes(t, family), IMIX[family]),
            zipf=self.field("zipf", lambda t: parse_amount(t, where="zipf", kind=kind), base.zipf),
            churn=self.field("churn", lambda t: parse_amount(t, where="churn", kind=kind), base.churn),
            rate=self.field("rate", lambda t: parse_rate(t, where="rate", kind=kind), base.rate),
            udp=self.field("udp", lambda t: parse_share(t, where="udp", kind=kind), base.udp),
            replies=self.field("replies", lambda t: parse_share(t, where="replies", kind=kind), base.replies),
            seed=self.field("seed", _seed, base.seed),
            family=family,
            inside=self.field("inside", lambda t: _network(t or networks[0], "inside"),
                              _network(networks[0], "inside")),
            outside=self.field("outside", lambda t: _network(t or networks[1], "outside"),
                               _network(networks[1], "outside")),
            start_ns=self.field("start", _start, base.start_ns),
        )


def _family(text: str) -> Literal[4, 6]:
    if text in ("4", "6"):
        return 4 if text == "4" else 6
    raise fail(Kind.TRAFFIC_SPEC, f"there is no IP version '{text}'", where="family", hint="choose 4 or 6")


def _seed(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    raise fail(Kind.TRAFFIC_SPEC, f"the seed '{text[:40]}' is not a whole number", where="seed",
               hint=f"choose a number from 0 to {2**64 - 1}")


def _start(text: str) -> int:
    seconds = parse_amount(text, where="start", kind=Kind.TRAFFIC_SPEC)
    if 10**9 % seconds.denominator:
        raise fail(Kind.TRAFFIC_SPEC, f"the start '{text}' is finer than a nanosecond", where="start",
                   hint="give at most nine decimals")
    return int(seconds * 10**9)


def _network(text: str, field: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise fail(Kind.TRAFFIC_SPEC, f"'{text[:60]}' is not a network: {error}", where=field,
                   hint="write networks like 10.0.0.0/16 or 2001:db8:1::/64") from None


def _sizes(text: str, family: Literal[4, 6]) -> tuple[tuple[int, int], ...]:
    if text.lower() == "imix":
        return IMIX[family]
    sizes = []
    for part in text.split(","):
        size, colon, weight = part.strip().partition(":")
        if not _short_number(size) or (colon and not _short_number(weight)):
            raise fail(Kind.TRAFFIC_SPEC, f"'{part[:40]}' is not a frame size", where="size",
                       hint="write 64, imix, or sizes with weights such as 64:7,576:4,1500:1")
        sizes.append((int(size), int(weight) if colon else 1))
    return tuple(sizes)


def _short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def is_spec_file(path: Path) -> bool:
    """Whether a file's name says that it is a specification to be used where a capture is expected."""
    return path.name.endswith(SUFFIX)


def load(path: Path) -> TrafficSpec:
    """Read a specification file. Raises E201 when it cannot be read and E205 for what is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise fail(Kind.FILE_UNREADABLE, f"cannot read the file: {reason}", where=str(path)) from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise fail(Kind.TRAFFIC_SPEC, f"not JSON: {error.msg}",
                   where=f"{path}:{error.lineno}:{error.colno}") from None
    except (RecursionError, ValueError):
        raise fail(Kind.TRAFFIC_SPEC, "not JSON that can be read: nested too deep or a number too long",
                   where=str(path)) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise fail(Kind.TRAFFIC_SPEC, "not a traffic specification", where=str(path),
                   hint=f'the file is an object with "format": "{FORMAT}" and "version": {VERSION}')
    if document.get("version") != VERSION:
        raise fail(Kind.TRAFFIC_SPEC, "the specification has a version this program does not know",
                   where=f"{path}: version", hint=f'write "version": {VERSION}')
    values = {key: value for key, value in document.items() if key not in ("format", "version")}
    return TrafficSpec.parse(values, source=str(path))


def save(spec: TrafficSpec, path: Path) -> None:
    """Write a specification file, whole or not at all. Raises E702."""
    _atomically(path, lambda out: out.write((json.dumps(spec.to_json(), indent=2) + "\n").encode()))


def generate(spec: TrafficSpec) -> Iterator[bytes]:
    """The capture as chunks: a little-endian nanosecond pcap of Ethernet frames. Memory grows with flows only."""
    from cora.frontends.traffic.synthetic_blocks import chunks  # numpy is not needed to read a specification

    return chunks(spec)


def write(spec: TrafficSpec, path: Path, progress: Callable[[int], None] | None = None) -> None:
    """Write the capture, whole or not at all; a name that ends in .gz is compressed. Raises E702.

    ``progress`` is called after every chunk with the chunk's share of the capture in packets.
    """
    _atomically(path, lambda out: _fill(spec, path, out, progress))


def _fill(spec: TrafficSpec, path: Path, out: IO[bytes], progress: Callable[[int], None] | None) -> None:
    sink = gzip.GzipFile("", "wb", 6, out, mtime=0) if path.suffix == ".gz" else out
    for index, chunk in enumerate(generate(spec)):
        sink.write(chunk)
        if progress and index:
            progress(spec.packets * index // spec.blocks - spec.packets * (index - 1) // spec.blocks)
    if sink is not out:
        sink.close()


def _atomically(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as out:
            fill(out)
        unfinished.replace(path)
    except OSError as error:
        raise fail(Kind.CANNOT_WRITE, f"cannot write the file: {error.strerror or error}", where=str(path),
                   hint="choose a folder that exists, can be written and has room") from None
    finally:
        _discard(unfinished)


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def materialise(path: Path) -> Path:
    """The capture of a specification file, in a temporary folder that is removed when the program ends.

    The same specification is generated once per run of the program, whatever the file is called.
    """
    spec = load(path)
    capture = _temporary_folder() / f"{spec.digest()}.pcap"
    if not capture.exists():
        write(spec, capture)
    return capture


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cora-traffic-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
