"""The policer against `nf-behaviour` section 5 (rfc reading); the oracle of rates is arithmetic with fractions."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from example_kit import (
    AS_CAPTURED,
    ENGINES,
    IP,
    SECOND,
    TCP,
    UDP,
    Box,
    IPOption_LSRR,
    IPOption_NOP,
    IPv6,
    Packet,
    Raw,
    arp,
    capture,
    cut,
    echo,
    icmp_error,
    raw,
    reasons,
    tcp,
    udp,
    wire,
)

from cora.engine.results import Options
from cora.errors import CoraError

S, A, B = "198.51.100.7", "10.0.0.5", "10.0.0.6"
S6, A6, B6 = "2001:db8:ff::7", "2001:db8::5", "2001:db8::6"
OVER, FULL = "over the rate", "policer table full"

Start = Callable[..., Box]
families = pytest.mark.parametrize(("src", "dst", "other"), [(S, A, B), (S6, A6, B6)], ids=["ipv4", "ipv6"])


@pytest.fixture(params=ENGINES)
def policer(request: pytest.FixtureRequest) -> Start:
    def start(options: Options = AS_CAPTURED, **config: int) -> Box:
        return Box(request.param, "policer.nf", {name: str(value) for name, value in config.items()}, options)

    return start


@lru_cache
def sized(size: int, dst: str = A, src: str = S) -> bytes:
    """A UDP frame of ``size`` octets."""
    head = 42 if ":" not in dst else 62
    frame = wire(udp(src, 1, dst, 2, bytes(size - head)))
    assert len(frame) == size
    return frame


def ok(box: Box, frame: bytes, at: int | None = None) -> None:
    assert box.send("wan", frame, at).out("lan") == frame


def red(box: Box, frame: bytes, at: int | None = None) -> None:
    assert box.send("wan", frame, at).reason() == OVER


# --- the bucket ---


@families
def test_first_packet_of_exactly_the_burst_passes_one_octet_more_never(
        policer: Start, src: str, dst: str, other: str) -> None:
    box = policer(rate=1000, burst=1000)
    red(box, sized(1001, dst, src))
    assert box.entries("limits4") == box.entries("limits6") == []
    ok(box, sized(1000, dst, src))
    red(box, sized(1001, dst, src), 100 * SECOND)


@families
def test_known_address_passes_when_tokens_equal_the_size(policer: Start, src: str, dst: str, other: str) -> None:
    """RFC 2697 and 2698: not strict."""
    box = policer(rate=1000, burst=1000)
    ok(box, sized(600, dst, src), 0)
    red(box, sized(401, dst, src), 0)
    # The refused frame cost nothing.
    ok(box, sized(400, dst, src), 0)
    red(box, sized(64, dst, src), 0)


def test_refill_is_exact_to_the_nanosecond(policer: Start) -> None:
    for late, passed in ((0, True), (-1, False)):
        box = policer(rate=1000, burst=1000)
        ok(box, sized(1000), 0)
        # 64 octets take 64 ms.
        assert bool(box.send("wan", sized(64), 64_000_000 + late).sent()) is passed


def test_bucket_never_holds_more_than_the_burst(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    ok(box, sized(500), 0)
    ok(box, sized(1000), 999 * SECOND // 1000)
    red(box, sized(64))


def test_idle_for_the_whole_limit_is_a_full_bucket_either_way(policer: Start) -> None:
    for late in (-1, 0, 1):
        box = policer(rate=1000, burst=1000)
        ok(box, sized(1000), 0)
        result = box.send("wan", sized(1000), SECOND + late)
        assert bool(result.sent()) is (late >= 0)


def test_remainder_is_carried_over_packets_closer_than_an_octet(policer: Start) -> None:
    """64 octets/s, a try every millisecond: each earns 0.064 octets, which a floor per packet would throw away."""
    box = policer(rate=64, burst=64)
    ok(box, sized(64), 0)
    for ms in range(1, 1000):
        red(box, sized(64), ms * 1_000_000)
    ok(box, sized(64), SECOND)


def test_addresses_have_buckets_of_their_own_whatever_the_source(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    ok(box, sized(1000, A), 0)
    ok(box, sized(1000, B), 0)
    red(box, sized(64, A, "198.51.100.9"), 0)
    ok(box, sized(1000, A6, S6), 0)
    assert len(box.entries("limits4")) == 2
    assert len(box.entries("limits6")) == 1


def test_time_going_back_earns_nothing_and_costs_nothing(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    ok(box, sized(1000), 100 * SECOND)
    red(box, sized(64), 10 * SECOND)
    red(box, sized(64), 100 * SECOND)
    ok(box, sized(64), 100 * SECOND + 64_000_000)


# --- size of a frame ---


@pytest.mark.parametrize("frame", [
    wire(udp(S, 1, A, 2, bytes(58)), (7, 8)), wire(udp(S, 1, A, 2, bytes(6)), padding=60),
    wire(tcp(S, 1, A, 2, data=bytes(54))), wire(echo(S, 1, A, bytes(66))),
    wire(IP(src=S, dst=A, proto=50) / Raw(bytes(74)))], ids=["two tags", "padding", "tcp", "icmp", "esp"])
def test_a_frame_counts_whole(policer: Start, frame: bytes) -> None:
    """Tags and padding included, any protocol: 108 octets each."""
    assert len(frame) == 108
    box = policer(rate=1000, burst=1000)
    ok(box, frame, 0)
    ok(box, sized(1000 - 108), 0)
    red(box, sized(64), 0)
    box = policer(rate=1000, burst=1000)
    ok(box, frame, 0)
    red(box, sized(1000 - 107), 0)


def test_truncated_capture_counts_the_original_length(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    frame = sized(900)
    assert box.send("wan", frame[:60], 0, 900).out("lan") == frame[:60]
    red(box, sized(101), 0)
    ok(box, sized(100), 0)
    assert box.counter("conforming") == (2, 1000)
    assert box.counter("exceeding") == (1, 101)


# --- table ---


@families
def test_table_full_drops_new_addresses(policer: Start, src: str, dst: str, other: str) -> None:
    box = policer(rate=1000, burst=1000, capacity=1)
    ok(box, sized(500, dst, src), 0)
    assert box.send("wan", sized(100, other, src), 0).reason() == FULL
    ok(box, sized(500, dst, src), 0)


def test_idle_limit_is_the_time_a_bucket_needs_to_fill(policer: Start) -> None:
    """B/R = 2 s: at exactly 2 s the entry is there, one nanosecond later it has made room."""
    for late, there in ((0, True), (1, False)):
        box = policer(rate=1000, burst=2000, capacity=1)
        ok(box, sized(64), 0)
        result = box.send("wan", sized(64, B), 2 * SECOND + late)
        assert (result.drops() == [(1, FULL)]) is there
        assert len(box.entries("limits4")) == 1


def test_refused_packets_keep_an_entry_alive(policer: Start) -> None:
    """``last`` moves whether or not the packet passes."""
    box = policer(rate=1000, burst=1000, capacity=1)
    ok(box, sized(1000), 0)
    red(box, sized(1000), SECOND // 2)
    assert box.send("wan", sized(64, B), 3 * SECOND // 2).reason() == FULL
    ok(box, sized(64, B), 3 * SECOND // 2 + 1)


# --- what passes, what does not ---


@pytest.mark.parametrize("frame", [
    arp(), wire(bytes(60), kind=0x88CC), wire(udp(A, 1, S, 2)), wire(udp(A6, 1, S6, 2)), wire(udp(A, 1, S, 2))[:20],
    wire(IP(raw(udp(A, 1, S, 2))[:20]), padding=3), wire(udp(A, 1, S, 2), (1, 2)), sized(9000, S, A)],
    ids=["arp", "lldp", "ipv4", "ipv6", "cut", "short", "tagged", "jumbo"])
def test_lan_to_wan_is_forwarded_without_accounting(policer: Start, frame: bytes) -> None:
    box = policer(rate=1000, burst=1000)
    for _ in range(20):
        assert box.send("lan", frame).out("wan") == frame
    assert box.entries("limits4") == box.entries("limits6") == []


@pytest.mark.parametrize("frame", [arp(), wire(bytes(60), kind=0x88CC), wire(bytes(60), kind=0x8847)])
def test_non_ip_from_the_wan_is_dropped(policer: Start, frame: bytes) -> None:
    assert policer().send("wan", frame).reason() == "not IP"


@pytest.mark.parametrize("packet", [
    udp(S, 1, A, 2, ttl=1), udp(S, 1, A, 2, zero=True), udp(S, 1, A, 2, options=[IPOption_NOP()] * 4),
    icmp_error(S, A, udp(A, 1, S, 2)), cut(udp(S, 1, A, 2, bytes(100)), 48)[1], tcp(S, 1, A, 2, "R"),
    IP(src=S, dst=A) / TCP(dataofs=3), IP(src=S, dst=A) / UDP(len=3), IPv6(src=S6, dst=A6, nh=59),
], ids=["ttl 1", "no checksum", "options", "icmp error", "fragment", "mid-flow", "bad tcp", "bad udp", "no next"])
def test_only_the_address_matters(policer: Start, packet: Packet) -> None:
    ok(policer(), wire(packet))


def changed_ip(**fields: Any) -> bytes:
    packet = IP(raw(udp(S, 1, A, 2, bytes(40))))
    del packet.chksum
    for name, value in fields.items():
        setattr(packet, name, value)
    return wire(packet)


@pytest.mark.parametrize("frame", [
    changed_ip(version=6), changed_ip(ihl=4), changed_ip(ihl=15, len=50), changed_ip(len=69), changed_ip()[:33],
    wire(raw(IPv6(src=S6, dst=A6, plen=9) / Raw(bytes(8))), kind=0x86DD), bytes(13)])
def test_malformed_is_dropped_and_never_charged(policer: Start, frame: bytes) -> None:
    box = policer()
    assert box.send("wan", frame).reason() == "malformed"
    assert box.entries("limits4") == box.entries("limits6") == []


def test_bad_ip_checksum_is_dropped_and_never_charged(policer: Start) -> None:
    data = bytearray(sized(100))
    data[24] ^= 1
    box = policer()
    assert box.send("wan", bytes(data)).reason() == "bad IPv4 checksum"
    assert box.entries("limits4") == []
    ok(policer(Options(ignore_checksums=True)), bytes(data))


def test_source_route_is_dropped(policer: Start) -> None:
    frame = wire(udp(S, 1, A, 2, options=[IPOption_LSRR(routers=[S])]))
    assert policer().send("wan", frame).reason() == "source route"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_B09_vlan_depth(policer: Start, count: int) -> None:
    frame = wire(udp(S, 1, A, 2), range(1, count + 1))
    box = policer()
    if count <= 2:
        ok(box, frame)
    else:
        assert box.send("wan", frame).reason() == "unparsed"
        assert box.entries("limits4") == []


def test_P3_address_not_captured_is_unparsed(policer: Start) -> None:
    assert policer().send("wan", sized(100)[:33], wirelen=100).reason() == "unparsed"


def test_B14_jumbo_frame_larger_than_the_burst_never_passes(policer: Start) -> None:
    box = policer(rate=1_000_000, burst=4000)
    for second in range(5):
        red(box, sized(9000), second * SECOND)
    ok(box, sized(4000), 5 * SECOND)


# --- arithmetic ---


def test_largest_burst_does_not_overflow(policer: Start) -> None:
    """10^9 times the burst nearly fills 63 bits, and years of silence come on top."""
    box = policer(rate=9_200_000_000, burst=9_200_000_000)
    ok(box, sized(9000), 0)
    ok(box, sized(9000), 1)
    ok(box, sized(9000), 180_000_000)
    ok(box, sized(9000), 10**9 * SECOND)
    ok(box, sized(9000), 9 * 10**9 * SECOND)


@pytest.mark.parametrize("config", [{"burst": 18_000_000_000}, {"burst": 0}, {"rate": 0}])
def test_impossible_configuration_is_refused(policer: Start, config: dict[str, int]) -> None:
    with pytest.raises(CoraError):
        policer(**config)


class Bucket:
    """A token bucket in exact fractions."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.tokens: dict[bytes, tuple[Fraction, int]] = {}

    def passes(self, key: bytes, size: int, now: int) -> bool:
        tokens, last = self.tokens.get(key, (Fraction(self.burst), now))
        tokens = min(Fraction(self.burst), tokens + Fraction(self.rate * (now - last), SECOND))
        passed = tokens >= size
        if passed or key in self.tokens:
            self.tokens[key] = (tokens - size if passed else tokens, now)
        return passed


@pytest.mark.parametrize(("rate", "burst"), [(999_983, 3001), (1_250_000, 9000), (125_000_000, 100_000), (7, 1500)])
def test_random_arrivals_follow_exact_fractions(policer: Start, rate: int, burst: int) -> None:
    """Offered about twice the rate at random moments."""
    draw = random.Random(rate)
    box, model = policer(rate=rate, burst=burst), Bucket(rate, burst)
    frames = {size: sized(size) for size in (64, 65, 300, 777, 1500)}
    now = 1_700_000_000 * SECOND
    for _ in range(3000):
        size = draw.choice(list(frames))
        now += draw.randrange(1, size * SECOND // rate)
        assert bool(box.send("wan", frames[size], now).sent()) is model.passes(b"", size, now)


@pytest.mark.parametrize("rate", [999_983, 1_250_000, 125_000_000, 7])
def test_long_run_rate_is_within_a_thousandth(policer: Start, rate: int) -> None:
    """Frames of 64 octets, eight for every one the rate allows, each gap with a fraction of an octet."""
    box, frame = policer(rate=rate, burst=640), sized(64)
    gap = 64 * SECOND // rate // 8 + 1
    passed = sum(bool(box.send("wan", frame, i * gap).sent()) for i in range(16_000))
    allowed = Fraction(rate * 15_999 * gap, SECOND)
    assert passed * 64 <= 640 + allowed
    assert passed * 64 >= 640 + allowed * Fraction(999, 1000) - 64


@pytest.mark.needs("traces")
@pytest.mark.parametrize("name", ["ndpi_webex_jumbo.pcap", "snort_100conn.pcap", "ndpi_reddit_v6.pcap"])
def test_trace_every_verdict_is_that_of_exact_fractions(policer: Start, traces: Path, name: str) -> None:
    box, model = policer(rate=5000, burst=6000), Bucket(5000, 6000)
    results, wanted, now = [], 0, 0
    for time, data, length in capture(traces / name):
        kind = data[12:14]
        now = max(now, time)
        result = box.send("wan", data, time, length)
        if kind not in (b"\x08\x00", b"\x86\xdd"):
            assert result.reason() == "not IP"
            continue
        key = data[30:34] if kind == b"\x08\x00" else data[38:54]
        passed = model.passes(key, length, now)
        wanted += passed
        results.append(result)
        assert bool(result.sent()) is passed
    assert 0 < wanted < len(results)
    assert reasons(results) == {OVER: len(results) - wanted}
    assert box.counter("conforming")[0] == wanted
