"""The native capture reader against files built by hand, an independent reader, dpkt, scapy and the public captures."""

from __future__ import annotations

import csv
import ctypes
import gzip
import os
import random
import struct
import subprocess
import sys
import threading
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import dpkt
import numpy as np
import pytest
from capture_files import (
    MICRO,
    MODIFIED,
    NANO,
    block,
    enhanced,
    frame,
    interface,
    obsolete,
    option,
    pcap,
    pcap_header,
    pcap_record,
    section,
    simple,
)
from slow_reader import Raw, read, read_file

import cora.frontends.traffic.capture as capture_module
from cora.emit.cbuild import build_program
from cora.errors import CoraError, Kind
from cora.frontends.traffic.capture import RECORD, Capture, Packet
from cora.frontends.traffic.messages import NOTE_TEXTS
from cora.frontends.traffic.native import sources

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT.parent / "shared" / "traces" / "MANIFEST.tsv"
FIXED = bytes.fromhex("020000000002020000000001")

pytestmark = pytest.mark.needs("gcc")


def manifest() -> list[dict[str, str]]:
    if not MANIFEST.is_file():
        return [{"file": "none"}]
    with MANIFEST.open() as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def packets(data: bytes) -> list[Packet]:
    with Capture.from_bytes(data) as capture:
        return list(capture.packets())


def frames(data: bytes) -> list[bytes]:
    return [packet.frame for packet in packets(data)]


def read_all(data: bytes) -> tuple[int, Capture]:
    """Number of packets that batches give, and the closed capture with its counts."""
    with Capture.from_bytes(data) as capture:
        return sum(len(batch) for batch in capture.batches()), capture


def refused(data: bytes) -> tuple[Kind, str]:
    with pytest.raises(CoraError) as caught:
        Capture.from_bytes(data)
    return caught.value.diagnostics[0].kind, caught.value.render()


# ---- public captures ----


@pytest.mark.needs("traces")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_public_capture(row: dict[str, str], traces: Path) -> None:
    path = traces / row["file"]
    with Capture.open(path) as capture:
        got = list(capture.packets())
    stats = capture.stats
    assert (len(got), stats.packets) == (int(row["packets"]), int(row["packets"]))
    assert stats.bytes == int(row["bytes"])
    assert stats.captured == int(row["captured_bytes"])
    assert bool(stats.errors) == ("[reader stops" in row["notes"])
    assert stats.skipped == 0
    expected = read_file(path)
    assert [packet.time_ns for packet in got] == [raw.time_ns for raw in expected]
    assert stats.truncated == sum(len(raw.data) < raw.origlen for raw in expected)
    assert stats.backward == sum(b.time_ns < a.time_ns for a, b in pairwise(expected))
    for packet, raw in zip(got, expected, strict=True):
        if raw.link == 1:
            assert (packet.frame, packet.wirelen) == (raw.data, raw.origlen)


@pytest.mark.needs("traces")
def test_public_captures_against_dpkt(traces: Path) -> None:
    """dpkt reads classic pcap frames correctly (its times are floats, so they are not compared)."""
    for name in ("gopacket_cip.pcap", "ndpi_fuzz_be.pcap", "wireshark_dhcp_ns.pcap"):
        with (traces / name).open("rb") as file, Capture.open(traces / name) as capture:
            assert [packet.frame for packet in capture.packets()] == [data for _, data in dpkt.pcap.Reader(file)]


@pytest.mark.needs("traces")
def test_public_captures_against_scapy(traces: Path) -> None:
    from scapy.utils import RawPcapReader  # takes most of a second to import

    for name in ("zeek_snaplen68.pcap", "zeek_http_ns.pcap", "ndpi_webex_jumbo.pcap"):
        with RawPcapReader(str(traces / name)) as reader:
            unit = 1 if reader.nano else 1000
            expected = [(data, meta.sec * 10**9 + meta.usec * unit, meta.wirelen) for data, meta in reader]
        with Capture.open(traces / name) as capture:
            assert [(p.frame, p.time_ns, p.wirelen) for p in capture.packets()] == expected


@pytest.mark.needs("traces")
def test_linux_cooked_public_capture_has_senders_and_types(traces: Path) -> None:
    path = traces / "ndpi_kakao_sll.pcap"
    with Capture.open(path) as capture:
        got = list(capture.packets())
    for packet, raw in zip(got, read_file(path), strict=True):
        length, address, protocol = struct.unpack(">4xH8s2s", raw.data[:16])
        source = address[:6] if length == 6 else FIXED[6:]
        assert packet.frame == FIXED[:6] + source + protocol + raw.data[16:]
        assert packet.wirelen == raw.origlen - 2


# ---- containers ----


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(MICRO, 1000), (NANO, 1)])
def test_pcap_byte_orders_and_units(order: str, magic: int, unit: int) -> None:
    data = pcap_header(order=order, magic=magic) + b"".join(
        pcap_record(frame(i), order=order, time=(1_700_000_000, 100 * i), origlen=1500 + i) for i in range(3))
    got = packets(data)
    assert [p.time_ns for p in got] == [1_700_000_000 * 10**9 + 100 * i * unit for i in range(3)]
    assert [p.frame for p in got] == [frame(i) for i in range(3)]
    assert [p.wirelen for p in got] == [1500, 1501, 1502]


def test_pcap_seconds_beyond_2038() -> None:
    assert packets(pcap_header() + pcap_record(frame(0), time=(0xFFFFFFFF, 999_999)))[0].time_ns == 4294967295999999000


@pytest.mark.parametrize("version", [(2, 0), (2, 2), (2, 3)])
def test_old_pcap_versions_give_the_original_length_first(version: tuple[int, int]) -> None:
    data = pcap_header(version=version) + pcap_record(frame(1), caplen=1500, origlen=60)
    assert [(p.frame, p.wirelen) for p in packets(data)] == [(frame(1), 1500)]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("code", [0, 3, 6, 9, 10, 12, 30, 0x80 | 0, 0x80 | 9, 0x80 | 10, 0x80 | 20, 0x80 | 63,
                                  0x80 | 70, 22, 127])
@pytest.mark.parametrize("offset", [None, 1_600_000_000, -3])
def test_pcapng_resolutions_and_offsets(order: str, code: int, offset: int | None) -> None:
    options = [(9, bytes([code]))] + ([] if offset is None else [(14, struct.pack(order + "q", offset))])
    unit = Fraction(1, (2 if code & 0x80 else 10) ** (code & 0x7F))
    # Ticks for a time of about 12 seconds, as exactly as 64 bits allow.
    ticks = min(int(Fraction(12_345_678_901, 10**9) / unit), 2**64 - 1)
    data = section(order=order) + interface(order=order, options=options) + enhanced(frame(0), order=order, ticks=ticks)
    expected = int(ticks * unit * 10**9) + (offset or 0) * 10**9
    with Capture.from_bytes(data) as capture:
        (packet,) = capture.packets()
        assert packet.time_ns == max(expected, 0)
        assert any("finer than 1 ns" in text for text in capture.warnings) == (code & 0x7F > 9)
        assert capture.stats.errors == (expected < 0)


def test_pcapng_time_beyond_the_record_is_clamped_and_told() -> None:
    data = section() + interface(options=[(9, b"\0")]) + enhanced(frame(0), ticks=2**64 - 1)
    with Capture.from_bytes(data) as capture:
        assert [p.time_ns for p in capture.packets()] == [2**64 - 1]
        assert capture.stats.errors == 1
        assert "clamped" in capture.warnings[0]


def test_pcapng_sections_interfaces_and_other_blocks() -> None:
    custom = block(0x0BAD, struct.pack("<I", 32473) + b"anything")
    data = b"".join([
        section(), custom, interface(options=[(2, b"eth0")]), interface(101, options=[(2, b"tun0"), (9, b"\x09")]),
        enhanced(frame(0)), enhanced(b"\x45" + bytes(30), iface=1, ticks=5), block(5, bytes(12)), obsolete(frame(1)),
        section(order=">"), interface(113, order=">"), interface(order=">", options=[(2, b"eth\xff9")]),
        enhanced(frame(2, 61), order=">", iface=1, options=option(1, b"a comment", order=">")),
        block(4, b"", order=">"),
        section(), interface(), simple(frame(3)),
    ])
    with Capture.from_bytes(data) as capture:
        batch = next(capture.batches())
        assert batch["iface"].tolist() == [0, 1, 0, 3, 4]
        assert batch["time_ns"].tolist() == [10**9, 5, 10**9, 10**9, 10**9]
        assert batch["ethertype"].tolist() == [0, 0x800, 0, 0, 0]
        assert batch["flags"].tolist() == [0, 0, 0, 0, 8]
        links = capture.links
    assert [(k.section, k.local, k.type, k.name, k.resolution, k.packets) for k in links] == [
        (0, 0, 1, "eth0", "10^-6 s", 2), (0, 1, 101, "tun0", "10^-9 s", 1), (1, 0, 113, None, "10^-6 s", 0),
        (1, 1, 1, "eth\ufffd9", "10^-6 s", 1), (2, 0, 1, None, "10^-6 s", 1),
    ]
    assert [raw.data for raw in read(data)][:1] == [frame(0)]
    assert capture.stats.errors == 0
    assert ["carry no time" in text for text in capture.warnings] == [True]


def test_options_after_the_end_of_options_do_not_count() -> None:
    body = struct.pack("<HHI", 1, 0, 0) + option(9, b"\x09") + option(0, b"") + option(9, b"\x03")
    assert packets(section() + block(1, body) + enhanced(frame(0), ticks=5))[0].time_ns == 5


def test_simple_packets_are_cut_by_the_snap_length() -> None:
    data = section() + interface(snaplen=40) + simple(frame(1)[:40], origlen=1500) + simple(frame(2)[:20], origlen=20)
    assert [(p.frame, p.wirelen) for p in packets(data)] == [(frame(1)[:40], 1500), (frame(2)[:20], 20)]


def test_batches_of_any_size_give_the_same_records() -> None:
    data = pcap([frame(i) for i in range(10)])
    with Capture.from_bytes(data) as capture:
        whole = next(capture.batches()).copy()
        for size in (1, 3, 10, 11):
            parts = [batch.copy() for batch in capture.batches(size)]
            assert all(part.size <= size for part in parts)
            assert np.array_equal(np.concatenate(parts), whole)
        assert capture.stats.packets == 10


def test_two_passes_at_once_do_not_disturb_each_other() -> None:
    data = pcap([frame(i) for i in range(4)])
    with Capture.from_bytes(data) as capture:
        pairs = list(zip(capture.packets(), capture.packets(), strict=True))
    assert all(one == other for one, other in pairs)
    assert len(pairs) == 4


# ---- link types ----

# Every packet of these cases was this much longer on the wire than it is stored.
CUT = 1000
IPV4, IPV6, OTHER = b"\x45" + bytes(39), b"\x60" + bytes(49), b"\x00" + bytes(20)


def sll(protocol: int, address: bytes = b"\x02\x11\x22\x33\x44\x55", length: int | None = None) -> bytes:
    length = len(address) if length is None else length
    return struct.pack(">HHH8sH", 0, 1, length, address.ljust(8, b"\0"), protocol)


def sll2(protocol: int, address: bytes = b"\x02\x11\x22\x33\x44\x55") -> bytes:
    return struct.pack(">HHIHBB8s", protocol, 0, 3, 1, 0, len(address), address.ljust(8, b"\0"))


SENDER = FIXED[:6] + b"\x02\x11\x22\x33\x44\x55"
LINK_CASES = [
    ("raw 12 IPv4", 12, IPV4, FIXED + b"\x08\x00" + IPV4),
    ("raw 14 IPv4", 14, IPV4, FIXED + b"\x08\x00" + IPV4),
    ("raw 101 IPv6", 101, IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("raw 101 neither", 101, OTHER, FIXED + b"\x88\xb5" + OTHER),
    ("raw 101 empty", 101, b"", FIXED + b"\x88\xb5"),
    ("228 IPv4", 228, IPV4, FIXED + b"\x08\x00" + IPV4),
    ("229 IPv6", 229, IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("null little IPv4", 0, b"\x02\0\0\0" + IPV4, FIXED + b"\x08\x00" + IPV4),
    ("null big IPv4", 0, b"\0\0\0\x02" + IPV4, FIXED + b"\x08\x00" + IPV4),
    ("null FreeBSD IPv6", 0, b"\x1c\0\0\0" + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("null macOS IPv6", 0, b"\x1e\0\0\0" + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("null OpenBSD IPv6", 0, b"\0\0\0\x18" + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("null Linux IPv6", 0, b"\x0a\0\0\0" + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("null OSI", 0, b"\x07\0\0\0" + OTHER, FIXED + b"\x88\xb5" + OTHER),
    ("null cut", 0, b"\x02\0", FIXED + b"\x88\xb5"),
    ("loop IPv4", 108, b"\0\0\0\x02" + IPV4, FIXED + b"\x08\x00" + IPV4),
    ("loop IPv6", 108, b"\0\0\0\x18" + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("sll IPv4", 113, sll(0x0800) + IPV4, SENDER + b"\x08\x00" + IPV4),
    ("sll VLAN", 113, sll(0x8100) + b"\0\x2a\x08\0" + IPV4, SENDER + b"\x81\x00\0\x2a\x08\0" + IPV4),
    ("sll no address", 113, sll(0x86DD, b"") + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("sll 8-byte address", 113, sll(0x0800, bytes(8)) + IPV4, FIXED + b"\x08\x00" + IPV4),
    ("sll LLC", 113, sll(4) + b"\x42\x42\x03rest", SENDER + (7 + CUT).to_bytes(2, "big") + b"\x42\x42\x03rest"),
    ("sll other", 113, sll(0x000C) + OTHER, SENDER + b"\x88\xb5" + OTHER),
    ("sll cut", 113, sll(0x0800)[:15], FIXED + b"\x88\xb5"),
    ("sll2 IPv4", 276, sll2(0x0800) + IPV4, SENDER + b"\x08\x00" + IPV4),
    ("sll2 no address", 276, sll2(0x86DD, b"") + IPV6, FIXED + b"\x86\xdd" + IPV6),
    ("sll2 cut", 276, sll2(0x0800)[:19], FIXED + b"\x88\xb5"),
]


@pytest.mark.parametrize(("link", "stored", "expected"), [case[1:] for case in LINK_CASES],
                         ids=[case[0] for case in LINK_CASES])
def test_link_header_becomes_ethernet(link: int, stored: bytes, expected: bytes) -> None:
    data = pcap_header(link=link) + pcap_record(stored, origlen=len(stored) + CUT)
    with Capture.from_bytes(data) as capture:
        batch = next(capture.batches()).copy()
        (packet,) = capture.packets()
    assert packet.frame == expected
    assert packet.wirelen == len(expected) + CUT
    assert (batch["caplen"][0], batch["wirelen"][0], batch["origlen"][0]) == (
        len(expected), len(expected) + CUT, len(stored) + CUT)
    assert (capture.stats.bytes, capture.stats.captured) == (len(stored) + CUT, len(stored))
    assert bool(batch["flags"][0] & 4) == (expected[12:14] == b"\x88\xb5")


def test_unsupported_link_type_of_pcap_is_refused_with_its_number() -> None:
    kind, text = refused(pcap([b"x" * 40], link=105))
    assert kind is Kind.LINK_TYPE
    assert "105 (IEEE802_11)" in text


def test_unsupported_interfaces_of_pcapng_are_skipped_and_counted() -> None:
    data = section() + interface(127) + interface() + b"".join(
        enhanced(frame(i), iface=i % 2) for i in range(6))
    with Capture.from_bytes(data) as capture:
        assert [p.frame for p in capture.packets()] == [frame(1), frame(3), frame(5)]
    assert (capture.stats.packets, capture.stats.skipped, capture.stats.errors) == (3, 3, 0)
    assert capture.warnings == [
        f"byte {28 + 20 + 20}: packets of interface 0 are skipped: link type 127 (IEEE802_11_RADIOTAP) is not supported"
    ]
    assert [link.skipped for link in capture.links] == [3, 0]


def test_pcapng_with_only_unsupported_interfaces_is_an_error() -> None:
    with Capture.from_bytes(section() + interface(127) + enhanced(frame(0))) as capture, pytest.raises(
            CoraError) as caught:
        list(capture.batches())
    assert caught.value.diagnostics[0].kind is Kind.LINK_TYPE
    assert "127" in caught.value.render()


# ---- damage ----

SMALL_PCAP = pcap([frame(i, 20 + i) for i in range(5)])
SMALL_PCAPNG = b"".join([
    section(), interface(options=[(2, b"eth0"), (9, b"\x09")]), enhanced(frame(0, 21)), obsolete(frame(1, 22)),
    section(order=">"), interface(order=">"), simple(frame(2, 23), order=">"), enhanced(frame(3, 24), order=">"),
])


@pytest.mark.parametrize("data", [SMALL_PCAP, SMALL_PCAPNG], ids=["pcap", "pcapng"])
def test_cut_at_every_byte_gives_what_is_whole(data: bytes) -> None:
    header = 24 if data is SMALL_PCAP else 28
    whole = frames(data)
    seen = 0
    for length in range(len(data)):
        if length < header:
            assert refused(data[:length])[0] is Kind.NOT_A_CAPTURE
            continue
        with Capture.from_bytes(data[:length]) as capture:
            got = [packet.frame for packet in capture.packets()]
        assert got == whole[:len(got)]
        assert len(got) in (seen, seen + 1)
        seen = len(got)
        assert len(got) < len(whole)
        # Either the cut is at the end of a record or block, or it is told with the place where that one starts.
        assert capture.stats.errors == len(capture.warnings) <= 1 or "carry no time" in capture.warnings[0]
        if capture.stats.errors:
            assert "the file ends inside" in capture.warnings[-1]
            assert int(capture.warnings[-1].split()[1].rstrip(":")) < length
    assert seen == len(whole) - 1


@pytest.mark.parametrize("data", [SMALL_PCAP, SMALL_PCAPNG], ids=["pcap", "pcapng"])
def test_every_single_changed_byte_is_survived(data: bytes) -> None:
    for position in range(len(data)):
        for value in (0, 0x7F, 0xFF, data[position] ^ 1):
            changed = data[:position] + bytes([value]) + data[position + 1:]
            try:
                with Capture.from_bytes(changed) as capture:
                    got = list(capture.packets())
            except CoraError as error:
                assert error.diagnostics[0].kind in (Kind.NOT_A_CAPTURE, Kind.LINK_TYPE)
                continue
            assert capture.stats.packets == len(got) <= 5


GOOD = pcap_record(frame(7))
DAMAGE = [
    ("huge captured length", pcap_header() + GOOD + pcap_record(frame(1), caplen=0x7FFFFFFF) + GOOD, 1, 0,
     "byte 100: captured length 2147483647 is impossible, the remaining 152 bytes are not readable"),
    ("record past the end", pcap_header() + GOOD + pcap_record(frame(1), caplen=100), 1, 0,
     "byte 100: the file ends inside a record: 116 bytes needed, 76 left"),
    ("huge original length", pcap_header() + pcap_record(frame(1), origlen=0xFFFFFFF0) + GOOD, 1, 1,
     "byte 24: original length 4294967280 is impossible, record skipped"),
    ("original below captured", pcap_header() + pcap_record(frame(1), origlen=10), 1, 0,
     "byte 24: original length 10 is below the captured length 60, which is used instead"),
    ("sub-second over a second", pcap_header() + pcap_record(frame(1), time=(5, 3_000_000)), 1, 0,
     "byte 24: sub-second field 3000000 is a second or more, added as it is"),
    ("block length odd", section() + interface() + enhanced(frame(1)) + struct.pack("<III", 6, 33, 0), 1, 0,
     "byte 140: block length 33 is impossible, reading stops"),
    ("block length small", section() + interface() + enhanced(frame(1)) + struct.pack("<III", 6, 8, 0), 1, 0,
     "byte 140: block length 8 is impossible, reading stops"),
    ("block past the end", section() + interface() + struct.pack("<III", 6, 0xFFFFFFFC, 0), 0, 0,
     "byte 48: the file ends inside a block: 4294967292 bytes needed, 12 left"),
    ("trailer differs", section() + interface() + enhanced(frame(1))[:-4] + struct.pack("<I", 96), 0, 0,
     "byte 48: block lengths at start (92) and end (96) differ, reading stops"),
    ("packet longer than block", section() + interface() + enhanced(frame(1), caplen=64) + enhanced(frame(2)), 1, 1,
     "byte 48: captured length 64 does not fit the 60 bytes of its block, packet skipped"),
    ("packet block too short", section() + interface() + block(6, bytes(16)) + enhanced(frame(2)), 1, 1,
     "byte 48: block of type 6 has only 16 bytes inside, too few, skipped"),
    ("obsolete block too short", section() + interface() + block(2, bytes(16)) + enhanced(frame(2)), 1, 1,
     "byte 48: block of type 2 has only 16 bytes inside, too few, skipped"),
    ("simple block too short", section() + interface() + block(3, b"") + enhanced(frame(2)), 1, 1,
     "byte 48: block of type 3 has only 0 bytes inside, too few, skipped"),
    ("interface block too short", section() + block(1, bytes(4)) + interface() + enhanced(frame(2)), 1, 0,
     "byte 28: block of type 1 has only 4 bytes inside, too few, skipped"),
    ("unknown interface", section() + interface() + enhanced(frame(1), iface=1) + enhanced(frame(2)), 1, 1,
     "byte 48: packet of interface 1, which its section has not described, skipped"),
    ("interface of the section before", section() + interface() + section() + enhanced(frame(1)), 0, 1,
     "byte 76: packet of interface 0, which its section has not described, skipped"),
    ("simple packet without interface", section() + simple(frame(1)), 0, 1,
     "byte 28: packet of interface 0, which its section has not described, skipped"),
    ("simple packet longer than block", section() + interface() + simple(frame(1), origlen=99), 0, 1,
     "byte 48: captured length 99 does not fit the 60 bytes of its block, packet skipped"),
    ("second section of another version", section() + interface() + enhanced(frame(1)) + section(version=(2, 0)), 1, 0,
     "byte 140: section of unsupported version 2.0, reading stops"),
    ("second section without magic", section() + block(0x0A0D0D0A, bytes(16)), 0, 0,
     "byte 28: section with an unknown byte-order magic 0x00000000, reading stops"),
    ("option past its block", section() + block(1, struct.pack("<HHIHH", 1, 0, 0, 2, 99)) + enhanced(frame(1)), 1, 0,
     "byte 28: interface option 2 has an impossible length of 99 bytes, ignored"),
    ("resolution of two bytes", section() + interface(options=[(9, b"\x09\x09")]) + enhanced(frame(1)), 1, 0,
     "byte 28: interface option 9 has an impossible length of 2 bytes, ignored"),
]


@pytest.mark.parametrize(("data", "count", "skipped", "warning"), [case[1:] for case in DAMAGE],
                         ids=[case[0] for case in DAMAGE])
def test_damage_is_told_with_its_place_and_counted(data: bytes, count: int, skipped: int, warning: str) -> None:
    got, capture = read_all(data)
    assert [text for text in capture.warnings if "carry no time" not in text] == [warning]
    assert (got, capture.stats.skipped, capture.stats.errors) == (count, skipped, 1)


def test_lengths_raised_to_the_captured_length() -> None:
    with Capture.from_bytes(pcap_header() + pcap_record(frame(1), origlen=10)) as capture:
        batch = next(capture.batches())
        assert (batch["origlen"][0], batch["wirelen"][0], batch["flags"][0]) == (60, 60, 16)
    assert (capture.stats.bytes, capture.stats.truncated) == (60, 0)


def test_many_faults_of_a_kind_are_counted_but_not_listed() -> None:
    _, capture = read_all(pcap_header() + pcap_record(frame(1), time=(1, 10**6)) * 100)
    assert capture.stats.errors == 100
    assert len(capture.warnings) == 9
    assert capture.warnings[-1] == "byte 556 and later: 92 more of the same kind as the last"


def test_frame_check_sequence_is_mentioned() -> None:
    assert "check sequence of 4 octets" in read_all(pcap_header(link=0x24000001) + GOOD)[1].warnings[0]
    with_option = section() + interface(options=[(13, b"\x04")]) + enhanced(frame(1))
    assert "check sequence of 4 octets" in read_all(with_option)[1].warnings[0]


# ---- what is no capture ----


@pytest.mark.parametrize(("data", "words"), [
    (b"", "the file is empty"),
    (b"\xd4", "is not a capture"),
    (b"hello, this is text", "is not a capture (it starts with 68 65 6c 6c)"),
    (pcap([frame(0)], magic=MODIFIED), "modified pcap"),
    (pcap([frame(0)], magic=MODIFIED, order=">"), "modified pcap"),
    (pcap_header(version=(1, 4)), "version 1.4"),
    (pcap_header(version=(2, 5)), "version 2.5"),
    (pcap_header()[:23], "ends inside the capture's file header"),
    (section()[:27], "ends inside the capture's file header"),
    (section(version=(3, 0)), "version 3.0"),
    (block(0x0A0D0D0A, bytes(16)), "is not a capture"),
    (section()[:-4] + bytes(4), "section header block of this pcapng file is corrupt"),
    (b"\xfd7zXZ\0\0\0", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd\0", "compressed with zstd"),
    (b"BZh91AY", "compressed with bzip2"),
    (b"PK\x03\x04\0", "zip archive"),
    (b"snoop\0\0\0\0", "snoop"),
    (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
])
def test_other_files_are_refused(data: bytes, words: str) -> None:
    kind, text = refused(data)
    assert kind is Kind.NOT_A_CAPTURE
    assert words in text


def unreadable(path: Path | str) -> str:
    with pytest.raises(CoraError) as caught:
        Capture.open(path)
    assert caught.value.diagnostics[0].kind is Kind.FILE_UNREADABLE
    assert str(path).split("\0")[0] in caught.value.render()
    return caught.value.render()


def test_missing_directory_device_and_strange_names(tmp_path: Path) -> None:
    assert "No such file" in unreadable(tmp_path / "missing.pcap")
    assert "directory" in unreadable(tmp_path).lower()
    assert "device" in unreadable("/dev/zero")
    assert "null character" in unreadable("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.pcap"
    path.write_bytes(SMALL_PCAP)
    path.chmod(0)
    assert "Permission denied" in unreadable(path)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.touch()
    with pytest.raises(CoraError) as caught:
        Capture.open(path)
    assert caught.value.diagnostics[0].kind is Kind.NOT_A_CAPTURE
    assert str(path) in caught.value.render()


def test_capture_without_packets_is_no_error() -> None:
    count, capture = read_all(pcap_header())
    assert (count, capture.stats.packets, capture.stats.first_ns, capture.stats.errors) == (0, 0, None, 0)


# ---- gzip and pipes ----


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def opened(path: Path) -> tuple[list[bytes], Capture]:
    with Capture.open(path) as capture:
        return [packet.frame for packet in capture.packets()], capture


def test_gzip_members_and_padding(tmp_path: Path) -> None:
    whole = frames(SMALL_PCAP)
    for data in (gzip.compress(SMALL_PCAP), gzip.compress(SMALL_PCAP[:50]) + gzip.compress(SMALL_PCAP[50:]),
                 gzip.compress(SMALL_PCAP) + bytes(512), b"".join(gzip.compress(bytes([b])) for b in SMALL_PCAP)):
        got, capture = opened(write(tmp_path / "a.gz", data))
        assert got == whole
        assert (capture.warnings, capture.stats.errors) == ([], 0)


def test_gzip_followed_by_something_else(tmp_path: Path) -> None:
    packed = gzip.compress(SMALL_PCAP)
    got, capture = opened(write(tmp_path / "a.gz", packed + b"\0\0garbage\0\0"))
    assert got == frames(SMALL_PCAP)
    assert capture.warnings == [f"compressed byte {len(packed) + 2}: what follows is not gzip data, ignored"]
    assert capture.stats.errors == 1


def test_gzip_cut_at_every_byte(tmp_path: Path) -> None:
    data = pcap([random.Random(i).randbytes(40) for i in range(8)])
    packed, whole, seen = gzip.compress(data), frames(data), 0
    for length in range(2, len(packed)):
        try:
            got, capture = opened(write(tmp_path / "a.gz", packed[:length]))
        except CoraError as error:
            assert error.diagnostics[0].kind is Kind.NOT_A_CAPTURE
            assert not seen
            continue
        assert got == whole[:len(got)]
        assert len(got) >= seen
        seen = len(got)
        assert capture.stats.errors >= 1
        assert f"compressed byte {length}: the gzip member that starts at byte 0 is cut off" in capture.warnings
    assert seen == len(whole)


def test_gzip_with_corrupt_data_gives_what_comes_before(tmp_path: Path) -> None:
    data = pcap([random.Random(i).randbytes(200) * 2 for i in range(400)])
    packed = bytearray(gzip.compress(data, 9))
    whole = frames(data)
    # The fault is in the second half of what is read at once.
    packed[50_000:50_016] = b"\xff" * 16
    got, capture = opened(write(tmp_path / "a.gz", bytes(packed)))
    assert len(got) > 180
    assert got[:180] == whole[:180]
    assert any("corrupt gzip data" in text for text in capture.warnings)
    assert capture.stats.errors >= 1


def test_gzip_with_a_wrong_check_sum_gives_everything(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(SMALL_PCAP))
    packed[-8] ^= 1
    got, capture = opened(write(tmp_path / "a.gz", bytes(packed)))
    assert got == frames(SMALL_PCAP)
    assert len(capture.warnings) == capture.stats.errors == 1
    assert "incorrect data check" in capture.warnings[0]


def test_gzip_that_unpacks_to_a_thousand_times_its_size(tmp_path: Path) -> None:
    data = pcap([bytes(1500)] * 4000)
    packed = gzip.compress(data)
    assert len(packed) < 1 << 16 < 4 << 20 < len(data)
    got, capture = opened(write(tmp_path / "a.gz", packed))
    assert (len(got), capture.warnings) == (4000, [])


def test_gzip_inside_gzip_is_told(tmp_path: Path) -> None:
    with pytest.raises(CoraError, match="compressed twice"):
        Capture.open(write(tmp_path / "a.gz", gzip.compress(gzip.compress(SMALL_PCAP))))


def test_gzip_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.gz", gzip.compress(SMALL_PCAP))
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setenv("TMPDIR", str(spool))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Capture.open(path) as capture:
        assert not list(spool.iterdir())
        assert sum(1 for _ in capture.packets()) == 5


@pytest.mark.parametrize("packed", [False, True])
def test_pipe(tmp_path: Path, packed: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = gzip.compress(SMALL_PCAP) if packed else SMALL_PCAP
    feeder = threading.Thread(target=pipe.write_bytes, args=(data,))
    feeder.start()
    got, _ = opened(pipe)
    feeder.join()
    assert got == frames(SMALL_PCAP)


# ---- life time, layout, memory ----


def test_counts_stay_after_close_and_reading_does_not() -> None:
    with Capture.from_bytes(SMALL_PCAP) as capture:
        assert sum(len(batch) for batch in capture.batches()) == 5
    assert (capture.stats.packets, len(capture.links), capture.warnings) == (5, 1, [])
    with pytest.raises(ValueError, match="closed"):
        capture.batches()


def test_layout_is_the_one_of_c() -> None:
    """Sizes and offsets as the compiler sees them, against the numpy and ctypes declarations."""
    text = "#include <stdio.h>\n#include \"capture.h\"\nint main(void) {\n"
    for name in RECORD.names or ():
        size = f"sizeof ((struct cora_record *)0)->{name}"
        text += f'printf("%zu %zu\\n", offsetof(struct cora_record, {name}), {size});\n'
    structures = (("cora_capture_stats", capture_module._Stats), ("cora_link", capture_module._Link),
                  ("cora_note", capture_module._Note))
    for c_name, _ in structures:
        text += f'printf("%zu\\n", sizeof(struct {c_name}));\n'
    text += 'printf("%d %d\\n", CORA_NOTE_KINDS, CORA_NOTES_KEPT);\nreturn 0; }\n'
    headers = {name: body for name, body in sources().items() if name.endswith(".h")}
    program = build_program("layout", {"layout.c": text, **headers}, ("-std=gnu11",))
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = [RECORD.fields[name] for name in RECORD.names or ()] if RECORD.fields else []
    assert said[:len(fields)] == [f"{offset} {dtype.itemsize}" for dtype, offset, *_ in fields]
    assert said[len(fields):-1] == [str(ctypes.sizeof(structure)) for _, structure in structures]
    assert said[-1] == f"{len(NOTE_TEXTS)} {capture_module._NOTES_KEPT}"
    assert RECORD.itemsize == 40


def test_memory_stays_flat_on_a_large_file(tmp_path: Path) -> None:
    """A sparse file of zeros after the header is a capture of empty packets, 33 million in half a gigabyte."""
    path = tmp_path / "large.pcap"
    path.write_bytes(pcap_header())
    os.truncate(path, 24 + (512 << 20))
    code = (
        "import resource, sys\n"
        "from cora.frontends.traffic.capture import Capture\n"
        "with Capture.open(sys.argv[1]) as capture:\n"
        "    next(capture.batches())\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    count = sum(len(batch) for batch in capture.batches())\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    count, grown_kib = map(int, run.stdout.split())
    assert count == 32 << 20
    assert grown_kib < 160 << 10


def test_raw_reader_agrees_with_the_builder() -> None:
    """The oracle itself, on a file whose content is known."""
    assert list(read(pcap([frame(3)]))) == [Raw(1000 * 10**9, frame(3), 60, 1, 0)]
