"""Every engine does what the reference does, on random programs and packets that take their branches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import steady

from cora.engine.results import Dropped, Options, Output
from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.testing import (
    Packet,
    difference,
    exercising_packets,
    generate,
    nf_programs,
    packet_sequences,
    random_packets,
    run_native,
    run_reference,
    run_sanitized,
)
from cora.testing.compare import Execution
from cora.testing.programs import Generated

# Programs for the compiled engine: each costs a compiler run.
NATIVE_SEEDS = range(300, 312)
SANITIZED_SEEDS = (400,)


def packets_for(case: Generated, seed: int, options: Options) -> list[Packet]:
    return exercising_packets(case.program, seed, 600, options)


def disagreement(run: Execution, case: Generated, packets: list[Packet], options: Options) -> str | None:
    """What an engine and the reference disagree on; nothing for a program beyond the engine's stated limits."""
    try:
        return difference(run_reference(case.program, packets, options), run(case.program, packets, options))
    except CoraError as error:
        if error.diagnostics[0].kind == Kind.ENGINE_LIMIT and "sanitized" not in str(error):
            pytest.skip(str(error))
        raise


def options_of(seed: int) -> Options:
    return Options(ignore_checksums=seed % 3 == 1, headers_only=seed % 3 == 2)


@pytest.mark.parametrize("seed", range(200, 240))
def test_the_reference_takes_every_packet(seed: int) -> None:
    case = generate(seed)
    packets = random_packets(case.program, seed, 80, options_of(seed))
    found = run_reference(case.program, packets, options_of(seed))
    # Every packet ends once: forwarded, dropped, or held; held ones may end later.
    ends = [e.index for e in found.events if not (isinstance(e, Output) and e.is_error)]
    assert set(ends) == set(range(len(packets)))
    settled = sum(n for n, _ in found.summary.forwarded.values()) + sum(found.summary.dropped.values())
    assert settled + found.summary.held == len(packets)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", NATIVE_SEEDS)
def test_the_native_engine_agrees(seed: int) -> None:
    case, options = generate(seed), options_of(seed)
    assert disagreement(run_native, case, packets_for(case, seed, options), options) is None, case.text


@pytest.mark.needs("sanitizers")
@pytest.mark.parametrize("seed", SANITIZED_SEEDS)
def test_the_native_engine_is_clean_under_sanitizers(seed: int) -> None:
    case, options = generate(seed), options_of(seed)
    assert disagreement(run_sanitized, case, packets_for(case, seed, options), options) is None, case.text


@pytest.mark.needs("gcc")
@given(st.data())
@steady(4)
def test_the_native_engine_agrees_on_what_hypothesis_draws(data: st.DataObject) -> None:
    case = data.draw(nf_programs())
    packets = data.draw(packet_sequences(case.program, 30))
    assert disagreement(run_native, case, packets, Options()) is None


# Defects that random programs found: the program and packets made small, and what docs/semantics.md asks for.
FOUND = {
    # Section 5, insert: a primary key present in the entry that would be evicted fails, an allocated one too.
    "allocated primary key": (
        """nf x { port a: wire; pool q: u16 in 0 .. 15;
        map m { entry { f0: u8, x: u16 = alloc q } key = (x, f0); timeout 1s; capacity 1; full evict_lru; }
        on a(p: eth) { insert m { f0: 1 } prefer value = 3 { ok { drop "in"; } full { drop "full"; } } } }""",
        [Packet(0, 1, bytes(60), 60), Packet(0, 2, bytes(60), 60)],
        [Dropped(0, "in"), Dropped(1, "full")]),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_in_the_reference_stays_right(name: str) -> None:
    text, packets, expected = FOUND[name]
    assert run_reference(nf.loads(text), packets).events == expected


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_in_the_native_engine_stays_right(name: str) -> None:
    text, packets, expected = FOUND[name]
    assert run_native(nf.loads(text), packets).events == expected


def test_a_difference_is_found_and_named() -> None:
    left = nf.loads("nf x { port a: wire; port b: wire; counter c; on a(p: eth) { count c; forward b; } }")
    right = nf.loads("nf x { port a: wire; port b: wire; counter c; on a(p: eth) { count c by 1; forward b; } }")
    packets = [Packet(0, 5, bytes(60), 60)]
    same = run_reference(left, packets)
    assert difference(same, same) is None
    assert difference(same, run_reference(right, packets)) == "state: c.values[0][1]: 60 against 1"
    elsewhere = Output(0, 0, bytes(60), 60)
    assert "event 0 (packet 0)" in str(difference(same, replace(same, events=[elsewhere])))
    assert difference(same, replace(same, events=[])) == "1 events against 0"
    assert "totals" in str(difference(same, replace(same, summary=replace(same.summary, held=1))))
