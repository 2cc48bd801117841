"""What users read: summary, explanation, difference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
from planning_fakes import nat_like, nat_profile, target_of

from cora.errors import CoraError, Kind
from cora.partition import plan
from cora.plan.document import Copy, FrontPoint, Lent, Plan, RefusedAt
from cora.plan.quantities import mpps
from cora.plan.render import diff, differences, explain, explained, headline, render, summary


@lru_cache(maxsize=8)
def made(cores: int | None = None, rate: float | None = None,
         refused: frozenset[tuple[str, str]] = frozenset()) -> Plan:
    program = nat_like()
    found = plan(program, nat_profile(program), target_of(refused=refused), cores=cores, rate_pps=rate)
    # What depends on the solver's version and the machine stays out of the golden files.
    steady = replace(found.evidence, solver="a solver", seconds=0.01, bound=0.0, gap=0.0, stages=())
    return replace(found, evidence=steady)


def test_summary(golden: Callable[[str, str], None]) -> None:
    golden("rate.txt", summary(made(None, 5e6)))
    golden("cores.txt", summary(made(2)))
    golden("refusals.txt", summary(made(2, None, frozenset({("peers", "nic"), ("deny", "nic")}))))


def test_plans_of_the_front_that_keep_the_same_states_say_what_differs() -> None:
    found = made(2)
    states = {"conns": "host/dram"}
    front = (FrontPoint(1, 2_000_000, 3000.0, 0, True, states, {"nic": 3, "host": 4}, {"nic": 0.25, "host": 0.75}),
             FrontPoint(1, 1_000_000, None, 0, True, states, {"host": 7}, {"host": 1.0}),
             FrontPoint(0, 500_000, 2000.0, 60, True, {"conns": "nic/fast"}, {"nic": 7}, {"nic": 1.0}))
    text = summary(replace(found, pareto=front, request=replace(found.request, rate_pps=1_500_000)))
    assert "latency at 1.50 Mpps" in text and "the rate is not carried" in text
    assert "nic: 3 blocks, end of 25.0 %, host: 4 blocks, end of 75.0 %" in text
    assert "host: 7 blocks, end of 100.0 %" in text and "nic: 7 blocks" not in text


def test_explanations(golden: Callable[[str, str], None]) -> None:
    golden("explain-conns.txt", explain(made(2), "conns"))
    golden("explain-hits.txt", explain(made(None, 5e6), "hits"))
    golden("explain-refused.txt", explain(made(2, None, frozenset({("peers", "nic")})), "conns"))


def test_a_split_state_is_told_with_its_owner_and_what_is_lent() -> None:
    found = made(2)
    lent = Lent("nic", "fast", 1024, 2, 8192, "bytes", "resume", 0.625, 0.01, 0.001)
    split = replace(found, states=tuple(replace(s, lent=lent, place="host", tier="dram", copies=())
                                        if s.name == "conns" else s for s in found.states))
    first = explain(split, "conns").splitlines()[0]
    assert "its owner is host, in dram; at most 1,024 entries at once are lent to nic, in fast" in first
    assert "each after 2 packets of its flow (8,192 bytes); 62.5 % of packets" in first


def test_a_copied_state_is_told_with_all_its_places() -> None:
    found = made(2)
    copies = (Copy("nic", "fast", 16, "bytes"), Copy("host", "dram", 16, "bytes"))
    copied = replace(found, states=tuple(replace(s, copies=copies) if s.name == "hits" else s for s in found.states))
    assert "has a copy at each place that uses it: nic/fast + host/dram" in explain(copied, "hits").splitlines()[0]


def test_no_colour_and_no_escape_in_a_pipe() -> None:
    assert render(made(2)) + "\n" == summary(made(2))
    assert "\x1b" not in render(made(2))


def test_a_terminal_gets_the_same_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = render(made(2), terminal=True)
    assert "\x1b[" in text
    for fact in ("nic/slow", "host-only", "15.48 Mpps", "Why there", "exact check passed"):
        assert fact in text


def test_a_narrow_terminal_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", render(made(2), terminal=True)).splitlines()
    assert max(len(line) for line in lines) <= 60


def test_markup_in_names_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "[red]x[/red]" in render(replace(made(2), program="[red]x[/red]"), terminal=True)


def test_explaining_a_state_there_is_not() -> None:
    with pytest.raises(CoraError, match="the plan has no state 'none'; it has conns, peers, hits") as caught:
        explain(made(2), "none")
    assert caught.value.diagnostics[0].kind is Kind.UNKNOWN_NAME


def test_equal_plans_do_not_differ() -> None:
    assert diff(made(2), made(2)) == ""
    other = replace(made(2), evidence=replace(made(2).evidence, seconds=9.0))
    assert diff(made(2), other) == ""


def test_differences_are_named() -> None:
    text = diff(made(None, 5e6), made(None, 16e6))
    assert "asked: 5.00 Mpps -> 16.00 Mpps" in text
    assert f"host cores: 0 -> {made(None, 16e6).cores}" in text
    assert "state conns: nic/fast -> host/dram" in text
    assert re.search(r"\d blocks nic -> host: .*known \(conns.main hit\)", text)
    assert "latency at the asked rate: 0.2 us -> " in text
    assert "host work: 0.00 cores -> " in text
    fewer = replace(made(2), states=made(2).states[1:])
    assert "state conns: nic/fast -> no longer there" in diff(made(2), fewer)
    assert "state conns: new, nic/fast" in diff(fewer, made(2))


def test_many_blocks_that_move_are_one_line() -> None:
    one = made(None, 5e6)
    far = replace(one, blocks=tuple(replace(b, place="host") for b in one.blocks))
    (line,) = [x for x in diff(one, far).splitlines() if "block" in x]
    assert re.fullmatch(r"\d+ blocks nic -> host: lines 10-15: .* and \d+ more", line)


def test_plans_of_two_programs_are_not_compared() -> None:
    text = diff(made(2), replace(made(2), program="other", cores=7))
    assert text == "program: small -> other; plans of two programs are not compared\n"
    assert differences(made(2), replace(made(2), program="other", cores=7)) == {"program": ["small", "other"]}


def test_differences_and_reasons_for_programs() -> None:
    found = differences(made(None, 5e6), made(None, 16e6))
    assert found["states"]["conns"] == ["nic/fast", "host/dram"]
    assert found["blocks"]["known (conns.main hit)"] == ["nic", "host"]
    assert found["cores"] == [0, made(None, 16e6).cores]
    assert differences(made(2), made(2)) == {}
    told = explained(made(2), "conns")
    assert told["state"]["place"] == "nic" and told["binding"]["name"] == made(2).binding
    json.dumps([found, told], allow_nan=False)


def test_reasons_are_cut_to_the_most_important_unless_all_are_asked_for() -> None:
    refusals = tuple(RefusedAt(f"b{i}", "nic", f"reason {i}", None) for i in range(9))
    one = replace(made(2), refusals=(*refusals, RefusedAt("conns", "nic", "it is a state", None)))
    short, whole = summary(one).splitlines(), summary(one, everything=True).splitlines()
    assert "  not at nic: conns: it is a state" in short[-6]
    assert short[-1] == "  and 5 more reasons: see them with --all"
    assert sum(line.startswith("  not at") for line in whole) == 10


def test_cores_that_are_given_and_not_needed() -> None:
    program = nat_like()
    # The engine is so slow that nothing is won by a host that takes no part.
    target = target_of({"port": 1e6, "link": 1.0})
    one = plan(program, nat_profile(program), target, cores=2)
    assert (one.cores, one.request.cores) == (0, 2)
    assert "0 of 2 host cores used" in headline(one)
    assert "throughput, 2 host cores" in summary(one)


def test_the_headline_says_how_sure_the_rate_is() -> None:
    sure, unsure = made(None, 5e6), made(None, 14.4e6)
    assert "5.00 Mpps asked, carried in 200 of 200 samples of the model's uncertainty" in headline(sure)
    assert unsure.samples_met is not None and 40 < unsure.samples_met < 160
    assert made(2).samples_met is None


def test_small_rates_are_not_rounded_away() -> None:
    assert [mpps(r) for r in (None, float("inf"), 7, 1200, 99_999, 1e5, 13.87e6)] == [
        "-", "any rate", "7 pps", "1.20 kpps", "100.00 kpps", "0.10 Mpps", "13.87 Mpps"]
