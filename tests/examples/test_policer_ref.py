"""The comparison policer (ref reading of `nf-behaviour` section 5): whole tokens, fractions lost, strict comparison."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from example_kit import ENGINES, SECOND, Box, arp, capture, udp, wire

S, A, B = "198.51.100.7", "10.0.0.5", "10.0.0.6"
OVER, LARGER, FULL = "over the rate", "larger than the burst", "policer table full"

Start = Callable[..., Box]


@pytest.fixture(params=ENGINES)
def policer(request: pytest.FixtureRequest) -> Start:
    def start(**config: int) -> Box:
        return Box(request.param, "policer.ref.nf", {name: str(value) for name, value in config.items()})

    return start


@lru_cache
def sized(size: int, dst: str = A) -> bytes:
    return wire(udp(S, 1, dst, 2, bytes(size - 42)))


def ok(box: Box, frame: bytes, at: int | None = None) -> None:
    assert box.send("wan", frame, at).out("lan") == frame


def red(box: Box, frame: bytes, at: int | None = None) -> None:
    assert box.send("wan", frame, at).reason() == OVER


def test_first_packet_of_the_burst_passes_but_not_a_known_one_of_all_tokens(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    assert box.send("wan", sized(1001), 0).reason() == LARGER
    assert box.entries("buckets") == []
    ok(box, sized(1000), 0)
    # The bucket is full again at 1 s: still S = tokens is dropped, one octet less passes.
    red(box, sized(1000), SECOND)
    ok(box, sized(999), SECOND)
    red(box, sized(64), SECOND)


def test_dropped_packet_leaves_the_tokens(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    ok(box, sized(500), 0)
    red(box, sized(500), 0)
    ok(box, sized(499), 0)


def test_fractions_are_lost_and_last_moves(policer: Start) -> None:
    """64 octets/s, a try every millisecond earns 0.064 octets, floored to nothing each time: never again a packet."""
    box = policer(rate=64, burst=128)
    ok(box, sized(128), 0)
    for ms in range(1, 3000):
        red(box, sized(64), ms * 1_000_000)
    # Left alone for 1.1 s it earns 70.
    ok(box, sized(64), 4099 * 1_000_000)


def test_table_full_and_idle_limit(policer: Start) -> None:
    """B/R = 2 s: alive at exactly 2 s, gone one nanosecond later."""
    for late, there in ((0, True), (1, False)):
        box = policer(rate=1000, burst=2000, capacity=1)
        ok(box, sized(64), 0)
        result = box.send("wan", sized(64, B), 2 * SECOND + late)
        assert (result.drops() == [(1, FULL)]) is there


def test_idle_limit_moves_with_dropped_packets(policer: Start) -> None:
    box = policer(rate=1000, burst=1000, capacity=1)
    ok(box, sized(1000), 0)
    red(box, sized(900), SECOND // 2)
    assert box.send("wan", sized(64, B), 3 * SECOND // 2).reason() == FULL


def test_time_going_back_is_clamped(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    ok(box, sized(1000), 100 * SECOND)
    red(box, sized(64), SECOND)
    ok(box, sized(64), 100 * SECOND + 65_000_000)


def test_ipv4_only_checksums_not_verified_lan_passes(policer: Start) -> None:
    box = policer()
    v6 = wire(udp("2001:db8::1", 1, "2001:db8::2", 2))
    assert box.send("wan", v6).reason() == box.send("wan", arp()).reason() == "not IPv4"
    for frame in (v6, arp(), sized(9000)):
        assert box.send("lan", frame).out("wan") == frame
    data = bytearray(sized(100))
    data[24] ^= 1
    ok(box, bytes(data))


def test_frame_counts_whole_with_tags_and_padding(policer: Start) -> None:
    box = policer(rate=1000, burst=1000)
    frame = wire(udp(S, 1, A, 2, b""), (3, 4), padding=50)
    ok(box, frame, 0)
    red(box, sized(1000 - len(frame)), 0)
    ok(box, sized(999 - len(frame)), 0)


class Tokens:
    """The integer arithmetic of section 5, rule 3 and 4."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.known: dict[bytes, tuple[int, int]] = {}

    def passes(self, key: bytes, size: int, now: int) -> bool:
        idle = self.burst * SECOND // self.rate
        self.known = {k: (tokens, last) for k, (tokens, last) in self.known.items() if last >= now - idle}
        if key not in self.known:
            if size > self.burst:
                return False
            self.known[key] = (self.burst - size, now)
            return True
        tokens, last = self.known[key]
        gap = now - last
        # Written as the product test, not by the quotient: dt >= B*1e9/R.
        tokens = self.burst if gap * self.rate >= self.burst * SECOND else min(
            self.burst, tokens + gap * self.rate // SECOND)
        passed = tokens > size
        self.known[key] = (tokens - size if passed else tokens, now)
        return passed


@pytest.mark.parametrize(("rate", "burst"), [(999_983, 3001), (1_250_000, 9000), (7, 1500)])
def test_random_arrivals_follow_the_integer_rule(policer: Start, rate: int, burst: int) -> None:
    draw = random.Random(burst)
    box, model = policer(rate=rate, burst=burst), Tokens(rate, burst)
    now = 0
    for _ in range(2000):
        size = draw.choice((64, 65, 300, 777, 1500))
        now += draw.randrange(1, size * SECOND // rate)
        assert bool(box.send("wan", sized(size), now).sent()) is model.passes(b"", size, now)


@pytest.mark.needs("traces")
@pytest.mark.parametrize("name", ["ndpi_webex_jumbo.pcap", "snort_100conn.pcap"])
def test_trace_every_verdict_is_that_of_the_integer_rule(policer: Start, traces: Path, name: str) -> None:
    box, model = policer(rate=20_000, burst=20_000), Tokens(20_000, 20_000)
    now = passed = 0
    for time, data, length in capture(traces / name):
        if data[12:14] != b"\x08\x00":
            continue
        now = max(now, time)
        expected = model.passes(data[30:34], length, now)
        assert bool(box.send("wan", data, time, length).sent()) is expected
        passed += expected
    assert passed > 100
