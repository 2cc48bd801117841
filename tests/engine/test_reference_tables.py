"""Section 5 of docs/semantics.md: maps, pools, meters, counters, ACL and LPM tables."""

from __future__ import annotations

import ipaddress
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_kit import program

from cora.engine.reference import Reference
from cora.engine.reference.tables import MapTable, PoolTable
from cora.engine.results import Dropped, Output
from cora.ir.nodes import MapState, PoolState, Program


def frame(*values: int) -> bytes:
    """A frame whose destination MAC carries values for the programs here: two of 16 bits and an operation of 16."""
    return b"".join(v.to_bytes(2, "big") for v in values).ljust(14, b"\0")


# The fields a, b and op of `frame`.
READ = """block start ()
 extract eth limit 0 - - {ok -> go, malformed -> bad, unparsed -> bad}
block go ()
 %mac : u48 = load eth dst
 %c32 : u48 = const 32
 %c16 : u48 = const 16
 %a48 : u48 = binary shr %mac %c32
 %b48 : u48 = binary shr %mac %c16
 %a : u16 = cast %a48
 %b : u16 = cast %b48
 %op : u16 = cast %mac
"""
BAD = 'block bad ()\n drop "bad"\n'
SEND = "block send ()\n forward out\n"
LOOKUP, INSERT, TOUCH, DELETE, TOUCH_LONG, REVERSE = range(6)


def map_program(capacity: int = 3, full: str = "reject", pool: str = "", prefer: str = "[]", fields: str = "",
                keys: str = "", timeouts: str = "") -> Program:
    """Operations 0-5 on a map: look up, insert, touch (short), delete, touch (long), look up the reverse key."""
    first = '"short"' if timeouts else '""'
    touches = (' touch %e2 "short"', ' touch %e4 "long"') if timeouts else ("", "")
    reverse = "lookup m rev (%b) hit %e5 : ref<m> hit5 miss miss" if "rev" in keys else "jump miss ()"
    hit5 = "block hit5 ()\n forward out\n" if "rev" in keys else ""
    allocated = "alloc" in pool
    values = "(%a)" if allocated else "(%a, %b)"
    state = "\n".join([
        pool.split("alloc", 1)[0],
        f"map m capacity {capacity} slack 0 full {full} exact strict_order -",
        fields or " field a : u16\n field b : u16",
        keys or " key fwd (a)",
        (" alloc" + pool.split("alloc", 1)[1]) if allocated else "",
        timeouts])
    return program(f"""{state}
{READ} switch %op {{0 -> o0, 1 -> o1, 2 -> o2, 3 -> o3, 4 -> o4, 5 -> o5}} else bad
block o0 ()
 lookup m "fwd" (%a) hit %e0 : ref<m> hit0 miss miss
block o1 ()
 insert m {values} {prefer} {first} ok %e1 : ref<m> ok full no
block o2 ()
 lookup m "fwd" (%a) hit %e2 : ref<m> hit2 miss miss
block o3 ()
 lookup m "fwd" (%a) hit %e3 : ref<m> hit3 miss miss
block o4 ()
 lookup m "fwd" (%a) hit %e4 : ref<m> hit4 miss miss
block o5 ()
 {reverse.replace("m rev", 'm "rev"')}
block hit0 ()
 forward out
block ok ()
 forward out
block hit2 ()
{touches[0]}
 forward out
block hit3 ()
 delete %e3
 forward out
block hit4 ()
{touches[1]}
 forward out
{hit5}block miss ()
 drop "miss"
block no ()
 drop "full"
""" + BAD)


TIMES = ' timeout short 100\n timeout long 1000'


class Table:
    """Drives a `map_program` and keeps the clock."""

    def __init__(self, **given: Any) -> None:
        self.nf = Reference(map_program(**given))
        self.now = 0

    def do(self, op: int, a: int, b: int = 0, at: int | None = None) -> str:
        self.now = self.now if at is None else at
        (event,) = self.nf.process(0, self.now, frame(a, b, op))
        return event.reason if isinstance(event, Dropped) else "ok"

    def entries(self) -> list[dict[str, Any]]:
        return self.nf.state()["m"]["entries"]  # type: ignore[return-value]

    def keys(self) -> list[int]:
        return [e["fields"]["a"] for e in self.entries()]


class TestExpiry:
    def test_idle_for_exactly_the_time_out_is_alive(self) -> None:
        t = Table(timeouts=TIMES)
        t.do(INSERT, 1, at=50)
        assert t.do(LOOKUP, 1, at=150) == "ok"
        assert t.do(LOOKUP, 1, at=151) == "miss"
        assert t.entries() == []

    def test_a_hit_does_not_refresh_a_touch_does(self) -> None:
        t = Table(timeouts=TIMES)
        t.do(INSERT, 1)
        t.do(INSERT, 2)
        t.do(LOOKUP, 1, at=90)
        t.do(TOUCH, 2, at=90)
        assert (t.do(LOOKUP, 1, at=101), t.do(LOOKUP, 2)) == ("miss", "ok")
        assert t.entries() == [{"fields": {"a": 2, "b": 0}, "timeout": "short", "last": 90}]

    def test_touch_sets_the_class(self) -> None:
        t = Table(timeouts=TIMES)
        t.do(INSERT, 1)
        t.do(TOUCH_LONG, 1, at=10)
        assert t.do(LOOKUP, 1, at=1010) == "ok"
        t.do(TOUCH, 1, at=1010)
        assert t.do(LOOKUP, 1, at=1111) == "miss"

    def test_all_due_entries_go_and_nothing_without_classes(self) -> None:
        t = Table(timeouts=TIMES)
        for i in range(3):
            t.do(INSERT, i, at=i)
        assert t.do(LOOKUP, 9, at=10**6) == "miss"
        assert t.entries() == []
        forever = Table()
        forever.do(INSERT, 1)
        assert forever.do(LOOKUP, 1, at=2**62) == "ok"
        assert forever.entries()[0]["timeout"] == ""

    def test_state_shows_expiry_up_to_the_last_packet(self) -> None:
        t = Table(timeouts=TIMES)
        t.do(INSERT, 1)
        t.do(LOOKUP, 2, at=100)
        assert t.keys() == [1]

    def test_time_does_not_run_back(self) -> None:
        t = Table(timeouts=TIMES)
        t.do(INSERT, 1, at=500)
        t.do(INSERT, 2, at=100)
        assert [e["last"] for e in t.entries()] == [500, 500] and t.nf.now == 500


class TestInsert:
    def test_a_present_key_fails_and_stays(self) -> None:
        t = Table()
        assert [t.do(INSERT, 1, 10), t.do(INSERT, 1, 20)] == ["ok", "full"]
        assert t.entries()[0]["fields"] == {"a": 1, "b": 10}

    @pytest.mark.parametrize("full", ["reject", "pass"])
    def test_full(self, full: str) -> None:
        t = Table(full=full)
        assert [t.do(INSERT, i) for i in range(4)] == ["ok", "ok", "ok", "full"]
        t.do(DELETE, 1)
        assert t.do(INSERT, 3) == "ok" and t.keys() == [0, 2, 3]

    def test_reverse_key(self) -> None:
        t = Table(keys=" key fwd (a)\n key rev (b)")
        assert [t.do(INSERT, 1, 10), t.do(INSERT, 2, 10), t.do(INSERT, 2, 20)] == ["ok", "full", "ok"]
        assert [t.do(REVERSE, 0, b) for b in (10, 20, 30)] == ["ok", "ok", "miss"]
        t.do(DELETE, 1)
        assert [t.do(REVERSE, 0, 10), t.do(LOOKUP, 1), t.do(INSERT, 3, 10)] == ["miss", "miss", "ok"]

    def test_sorted_by_the_primary_key(self) -> None:
        t = Table(capacity=99)
        for i in random.Random(1).sample(range(50), 20):
            t.do(INSERT, i)
        assert t.keys() == sorted(t.keys())


class TestEvictLru:
    def test_the_entry_used_longest_ago_goes(self) -> None:
        t = Table(full="evict_lru", timeouts=TIMES)
        for i in range(3):
            t.do(INSERT, i)
        t.do(LOOKUP, 1)
        t.do(TOUCH_LONG, 0)
        t.do(INSERT, 3)
        assert t.keys() == [0, 2, 3]
        t.do(INSERT, 4)
        assert t.keys() == [0, 3, 4]
        t.do(INSERT, 5)
        assert t.keys() == [3, 4, 5]

    def test_a_failing_insert_evicts_nothing_and_keeps_the_order(self) -> None:
        t = Table(full="evict_lru", keys=" key fwd (a)\n key rev (b)", timeouts=TIMES)
        for i in range(3):
            t.do(INSERT, i, 10 + i)
        assert t.do(INSERT, 0, 99) == "full"  # its own key is the oldest one's
        assert t.do(INSERT, 9, 11) == "full"  # the reverse key of a younger entry
        assert [t.do(REVERSE, 0, 10), t.keys()] == ["ok", [0, 1, 2]]
        assert t.do(INSERT, 9, 99) == "ok" and t.keys() == [1, 2, 9]
        assert t.do(LOOKUP, 9, at=101) == "miss" and t.keys() == []

    def test_what_the_victim_held_is_available(self) -> None:
        pool = "pool p - -\n range v : u16 5 6\nalloc p (b)"
        t = Table(capacity=2, full="evict_lru", pool=pool, prefer="[()]", keys=" key fwd (a)\n key rev (b)")
        assert [t.do(INSERT, i) for i in range(3)] == ["ok", "ok", "ok"]
        assert [e["fields"] for e in t.entries()] == [{"a": 1, "b": 6}, {"a": 2, "b": 5}]
        assert t.nf.state()["p"] == {"kind": "pool", "used": [0, 1], "next": 1}

    def test_a_reference_to_an_evicted_entry_reads_0_and_writes_nothing(self) -> None:
        nf = Reference(program("""map m capacity 1 slack 0 full evict_lru exact strict_order -
 field a : u16
 field n : u16
 key fwd (a)
 timeout t 5
block start ()
 %x : u16 = const 1
 %y : u16 = const 2
 %n : u16 = const 7
 insert m (%x, %n) [] "t" ok %e : ref<m> one full no
block one ()
 insert m (%y, %n) [] "t" ok %f : ref<m> two full no
block two ()
 %r : u16 = load_entry %e n
 store_entry %e n %y
 touch %e "t"
 delete %e
 %q : u16 = load_entry %f n
 forward out
block no ()
 drop "no"
"""))
        steps: list[Any] = []
        nf.process(0, 0, bytes(14), None, steps)
        results = {s.node.result.name: s.detail["result"] for s in steps if "result" in s.detail}
        assert (results["r"], results["q"]) == (0, 7)
        assert nf.state()["m"]["entries"] == [{"fields": {"a": 2, "n": 7}, "timeout": "t", "last": 0}]


def pool(*ranges: tuple[int, int], preserve: bool = False) -> PoolTable:
    lines = "\n".join(f" range r{i} : u16 {low} {high}" for i, (low, high) in enumerate(ranges))
    prog = program(f"pool p {'preserve' if preserve else '-'} -\n{lines}\n" + READ + " jump send ()\n" + SEND + BAD)
    decl = prog.state("p")
    assert isinstance(decl, PoolState)
    return PoolTable(decl)


def take(table: PoolTable, *prefer: int) -> tuple[int, ...] | None:
    index = table.allocate(prefer)
    return None if index is None else table.values_of(index)


class TestPools:
    def test_row_major_and_exhausted(self) -> None:
        t = pool((1, 2), (10, 12))
        got = [take(t) for _ in range(7)]
        assert got == [(1, 10), (1, 11), (1, 12), (2, 10), (2, 11), (2, 12), None]
        assert [t.index_of(v) for v in got if v] == list(range(6))

    def test_goes_on_behind_the_previous_allocation(self) -> None:
        t = pool((0, 4))
        for _ in range(3):
            t.allocate(())
        t.release(0)
        assert [take(t), take(t), take(t), take(t)] == [(3,), (4,), (0,), None]
        assert t.dump() == {"kind": "pool", "used": [0, 1, 2, 3, 4], "next": 1}

    def test_a_preference_is_clamped_and_does_not_move_the_position(self) -> None:
        t = pool((5, 9))
        assert [take(t, 7), take(t, 0), take(t, 99), take(t)] == [(7,), (5,), (9,), (6,)]

    def test_without_preserve_upward_and_around(self) -> None:
        t = pool((1, 2), (10, 12))
        assert [take(t, 2, 11) for _ in range(6)] == [(2, 11), (2, 12), (1, 10), (1, 11), (1, 12), (2, 10)]

    def test_preserve_keeps_parity_then_range_then_block(self) -> None:
        t = pool((1, 2), (1020, 1029), preserve=True)
        order = [take(t, 1, 1026) for _ in range(12)]
        assert order == [(1, p) for p in (1026, 1028, 1024, 1027, 1029, 1025, 1020, 1021, 1022, 1023)] + [
            (2, 1020), (2, 1021)]

    def test_preserve_below_1024(self) -> None:
        t = pool((1020, 1029), preserve=True)
        assert [take(t, 1022) for _ in range(5)] == [(1022,), (1020,), (1023,), (1021,), (1024,)]

    def test_a_failing_insert_gives_everything_back(self) -> None:
        two = "pool p - -\n range v : u16 5 9\npool q - -\n range w : u16 1 1\nalloc p (b)\n alloc q (c)"
        t = Table(pool=two, prefer="[(), ()]", fields=" field a : u16\n field b : u16\n field c : u16")
        assert [t.do(INSERT, 1), t.do(INSERT, 2)] == ["ok", "full"]
        assert t.nf.state()["p"] == {"kind": "pool", "used": [0], "next": 1}
        t.do(DELETE, 1)
        assert t.nf.state()["p"] == {"kind": "pool", "used": [], "next": 1}
        assert t.do(INSERT, 2) == "ok" and t.entries()[0]["fields"] == {"a": 2, "b": 6, "c": 1}

    def test_expiry_frees(self) -> None:
        t = Table(pool="pool p - -\n range v : u16 5 5\nalloc p (b)", prefer="[(%b)]", timeouts=TIMES)
        assert [t.do(INSERT, 1), t.do(INSERT, 2), t.do(INSERT, 2, at=101)] == ["ok", "full", "ok"]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from([INSERT, INSERT, INSERT, DELETE, TOUCH, TOUCH_LONG]), st.integers(0, 9),
                              st.integers(0, 9), st.integers(0, 60)), max_size=60),
           st.sampled_from(["reject", "evict_lru"]))
    def test_values_and_entries_stay_one_to_one(self, ops: list[tuple[int, int, int, int]], full: str) -> None:
        t = Table(capacity=4, full=full, timeouts=TIMES, keys=" key fwd (a)\n key rev (b)",
                  pool="pool p preserve -\n range v : u16 1 5\nalloc p (b)", prefer="[(%b)]")
        model: dict[int, tuple[int, int]] = {}  # key -> (last, time-out)
        for op, a, b, wait in ops:
            t.now += wait
            model = {k: v for k, v in model.items() if sum(v) >= t.now}
            result = t.do(op, a, b)
            if op == INSERT and result == "ok":
                if len(model) == 4:
                    assert full == "evict_lru"
                    model.pop(next(iter(model)))
                model[a] = (t.now, 100)
            elif op == INSERT:
                assert a in model or (len(model) == 4 and full == "reject")
            elif a in model:
                del model[a]
                if op != DELETE:
                    model[a] = (t.now, 100 if op == TOUCH else 1000)
            assert t.keys() == sorted(model)
            values = [e["fields"]["b"] for e in t.entries()]
            assert sorted(v - 1 for v in values) == t.nf.state()["p"]["used"]
            assert all(t.do(REVERSE, 0, v) == "ok" for v in values)


def meter(algorithm: str, rate: int, burst: int, excess: int = 0, peak: int = 0, peak_burst: int = 0,
          capacity: int = 2, timeout: int = 10**12, full: str = "reject") -> Reference:
    yellow = "-" if algorithm == "token_bucket" else "y"
    extra = "" if yellow == "-" else 'block y ()\n drop "yellow"\n'
    return Reference(program(
        f"meter m {algorithm} capacity {capacity} rate {rate} burst {burst} excess {excess} peak {peak} {peak_burst} "
        f"timeout {timeout} slack 0 full {full} exact strict_order -\n field k : u16\n" + READ
        + f""" %size : u32 = cast %b
 police m (%a) size %size green g yellow {yellow} red r full f
block g ()
 drop "green"
{extra}block r ()
 drop "red"
block f ()
 drop "full"
""" + BAD))


def police(nf: Reference, key: int, size: int, at: int) -> str:
    (event,) = nf.process(0, at, frame(key, size))
    assert isinstance(event, Dropped)
    return event.reason


class TestMeters:
    def test_a_new_key(self) -> None:
        nf = meter("token_bucket", 1000, 500)
        assert [police(nf, 1, 501, 0), police(nf, 1, 500, 0), police(nf, 1, 1, 0)] == ["red", "green", "red"]
        assert nf.state()["m"] == {"kind": "meter", "entries": [{"key": {"k": 1}, "credits": [0], "last": 0}]}

    def test_full_and_red_before_full(self) -> None:
        nf = meter("token_bucket", 1000, 500)
        assert [police(nf, k, 1, 0) for k in (1, 2, 3)] == ["green", "green", "full"]
        assert police(nf, 3, 501, 0) == "red"

    def test_evict_lru(self) -> None:
        nf = meter("token_bucket", 1000, 500, full="evict_lru")
        for key in (1, 2, 1, 3):
            police(nf, key, 400, 0)
        rows: Any = nf.state()["m"]["entries"]
        assert [row["key"]["k"] for row in rows] == [1, 3]

    def test_expiry(self) -> None:
        nf = meter("token_bucket", 1, 500, timeout=100)
        police(nf, 1, 500, 0)
        assert police(nf, 1, 1, 100) == "red"  # alive at exactly the time-out; red refreshes
        assert police(nf, 1, 1, 200) == "red"
        assert police(nf, 1, 500, 301) == "green"

    def test_no_remainder_is_lost(self) -> None:
        nf = meter("token_bucket", 1, 1)  # one octet a second
        police(nf, 1, 1, 0)
        assert {police(nf, 1, 1, t * 10**6) for t in range(1, 1000)} == {"red"}
        assert police(nf, 1, 1, 10**9) == "green"

    def test_srtcm_new_keys(self) -> None:
        for size, colour, credits in ((100, "green", [0, 300]), (101, "yellow", [100, 199]), (301, "red", None)):
            nf = meter("srtcm", 1000, 100, excess=300)
            assert police(nf, 1, size, 0) == colour
            rows = nf.state()["m"]["entries"]
            assert rows == ([] if credits is None else [
                {"key": {"k": 1}, "credits": [c * 10**9 for c in credits], "last": 0}])

    def test_trtcm_new_keys(self) -> None:
        for size, colour, credits in ((100, "green", [0, 200]), (101, "yellow", [100, 199]), (301, "red", None)):
            nf = meter("trtcm", 1000, 100, peak=2000, peak_burst=300)
            assert police(nf, 1, size, 0) == colour
            rows = nf.state()["m"]["entries"]
            assert rows == ([] if credits is None else [
                {"key": {"k": 1}, "credits": [c * 10**9 for c in credits], "last": 0}])

    @pytest.mark.parametrize("algorithm", ["token_bucket", "srtcm", "trtcm"])
    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_against_exact_fractions(self, algorithm: str, data: st.DataObject) -> None:
        rate, burst = data.draw(st.integers(1, 10**6)), data.draw(st.integers(1, 2000))
        second_rate, second = data.draw(st.integers(1, 10**6)), data.draw(st.integers(1, 2000))
        nf = meter(algorithm, rate, burst, second, second_rate, second)
        model = FractionMeter(algorithm, rate, burst, second_rate, second)
        now = 0
        for wait, size in data.draw(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 2500)), max_size=30)):
            now += wait
            assert police(nf, 1, size, now) == model.police(size, now)


class FractionMeter:
    """RFC 2697 and 2698 in colour-blind mode over real-valued buckets, written from the RFCs' own update rules."""

    def __init__(self, algorithm: str, rate: int, burst: int, second_rate: int, second: int) -> None:
        self.algorithm, self.rate, self.burst = algorithm, rate, burst
        self.second_rate, self.second = second_rate, second
        self.c, self.e = Fraction(burst), Fraction(second)
        self.last: int | None = None

    def police(self, size: int, now: int) -> str:
        known = self.last is not None
        seconds = Fraction(now - (self.last or 0), 10**9) if known else Fraction(0)
        if self.algorithm == "srtcm":
            grown = self.c + seconds * self.rate
            self.e = min(Fraction(self.second), self.e + max(Fraction(0), grown - self.burst))
        else:
            self.e = min(Fraction(self.second), self.e + seconds * self.second_rate)
        self.c = min(Fraction(self.burst), self.c + seconds * self.rate)
        colour = self.colour(size)
        if known or colour != "red":
            self.last = now
        return colour

    def colour(self, size: int) -> str:
        if self.algorithm == "trtcm":
            if self.e < size:
                return "red"
            self.e -= size
            if self.c < size:
                return "yellow"
            self.c -= size
            return "green"
        if self.c >= size:
            self.c -= size
            return "green"
        if self.algorithm == "srtcm" and self.e >= size:
            self.e -= size
            return "yellow"
        return "red"


class TestCounters:
    def test_count(self) -> None:
        nf = Reference(program("counter c size 3\ncounter all size 1\n" + READ + """ %n : u32 = cast %b
 count c %a %n
 count all - -
 jump send ()
""" + SEND + BAD))
        for index, amount in ((0, 5), (2, 7), (2, 8), (3, 9), (65535, 9)):
            nf.process(0, 0, frame(index, amount), 100)
        assert nf.state() == {"c": {"kind": "counter", "values": [[1, 5], [0, 0], [2, 15]]},
                              "all": {"kind": "counter", "values": [[5, 500]]}}

    def test_wraps_at_64_bits(self) -> None:
        nf = Reference(program("counter c size 1\n" + READ + " count c - -\n jump send ()\n" + SEND + BAD))
        nf.load_state({"c": {"kind": "counter", "values": [[2**64 - 1, 2**64 - 10]]}})
        nf.process(0, 0, frame())
        assert nf.state()["c"]["values"] == [[0, 4]]


def static(text: str, operands: str, prepare: str = "") -> Reference:
    return Reference(program(text + "\n" + READ + prepare + f""" lookup t "" ({operands}) hit %e : ref<t> hit miss miss
block hit ()
 %v : u16 = load_entry %e v
 %v32 : u32 = cast %v
 count seen - %v32
 forward out
block miss ()
 drop "miss"
""" + BAD))


def ask(nf: Reference, *values: int) -> int | None:
    """The value of the entry that hits, or None."""
    def seen() -> Any:
        counters: Any = nf.state()["seen"]["values"]
        return counters[0][1]

    before = seen()
    (event,) = nf.process(0, 0, frame(*values))
    return seen() - before if isinstance(event, Output) else None


class TestAcl:
    RULES = """counter seen size 1
acl t capacity 9 kinds (ternary, range)
 keyfield x : u16
 keyfield y : u16
 field v : u16
 rule (16/240, 10/20) (1) priority 5
 rule (16/240, 15/30) (2) priority 5
 rule (0/0, 18/18) (3) priority 7
 rule (17/65535, 0/65535) (4) priority 1"""

    @pytest.mark.parametrize(("x", "y", "expected"), [
        (0x10, 10, 1), (0x1F, 20, 1), (0x10, 15, 1), (0x10, 21, 2), (0x10, 30, 2), (0x10, 31, None), (0x10, 9, None),
        (0x10, 18, 3), (0x99, 18, 3), (17, 31, 4), (17, 12, 1), (0x20, 12, None), (0x110, 12, 1)])
    def test_priority_order_and_bounds(self, x: int, y: int, expected: int | None) -> None:
        assert ask(static(self.RULES, "%a, %b"), x, y) == expected


class TestLpm:
    def test_longest_prefix_against_ipaddress(self) -> None:
        rng = random.Random(7)
        nets = {ipaddress.ip_network((rng.getrandbits(32) & (2**32 - 2**20), n), strict=False)
                for n in (0, 4, 8, 12, 12, 12, 8, 4) for _ in range(3)}
        numbered = dict(enumerate(sorted(nets), 1))
        text = "counter seen size 1\nlpm t capacity 99\n keyfield k : u32\n field v : u16\n" + "\n".join(
            f" prefix {int(n.network_address)} {n.prefixlen} ({i})" for i, n in numbered.items())
        nf = static(text, "%key", " %a32 : u32 = cast %a\n %six : u32 = const 16\n %high : u32 = binary shl %a32 %six\n"
                                  " %b32 : u32 = cast %b\n %key : u32 = binary or %high %b32\n")
        for _ in range(200):
            value = rng.getrandbits(32)
            address = ipaddress.ip_address(value)
            found = max((n.prefixlen, i) for i, n in numbered.items() if address in n)
            assert ask(nf, value >> 16, value & 0xFFFF) == found[1]

    def test_full_length_and_miss(self) -> None:
        text = ("counter seen size 1\nlpm t capacity 9\n keyfield k : u16\n field v : u16\n"
                " prefix 7 16 (1)\n prefix 256 8 (2)")
        nf = static(text, "%a")
        assert [ask(nf, v) for v in (7, 6, 256, 511, 512)] == [1, None, 2, 2, None]


def test_map_table_deletes_by_another_reference() -> None:
    """Two references to one entry: what one deletes is gone for the other."""
    prog = map_program(timeouts=TIMES)
    decl = prog.state("m")
    assert isinstance(decl, MapState)
    table = MapTable(decl, {})
    entry = table.insert([1, 2], [], "short", 0)
    other = table.lookup("fwd", (1,))
    assert entry is not None and other is entry
    table.remove(entry)
    table.remove(entry)
    table.touch(entry, "short", 5)
    assert entry.read("b") == 0 and len(table) == 0
