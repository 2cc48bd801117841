"""What users read: summary, explanation, difference."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
from planning_fakes import nat_like, nat_profile, target_of

from cora.errors import CoraError, Kind
from cora.partition import plan
from cora.plan.document import Plan
from cora.plan.render import diff, explain, render, summary


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


def test_explanations(golden: Callable[[str, str], None]) -> None:
    golden("explain-conns.txt", explain(made(2), "conns"))
    golden("explain-hits.txt", explain(made(None, 5e6), "hits"))
    golden("explain-refused.txt", explain(made(2, None, frozenset({("peers", "nic")})), "conns"))


def test_no_colour_and_no_escape_in_a_pipe() -> None:
    assert render(made(2)) + "\n" == summary(made(2))
    assert "\x1b" not in render(made(2))


def test_a_terminal_gets_the_same_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = render(made(2), terminal=True)
    assert "\x1b[" in text
    for fact in ("nic/slow", "host-only", "17.81 Mpps", "Why there", "exact check passed"):
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
    assert "host cores: 0 -> 2" in text or "host cores: 0 -> 1" in text
    assert "state hits: nic/fast -> host/dram" in text
    assert "block known part 1 (conns.main hit): nic -> host" in text
    fewer = replace(made(2), states=made(2).states[1:])
    assert "state conns: nic/fast -> no longer there" in diff(made(2), fewer)
    assert "state conns: new, nic/fast" in diff(fewer, made(2))
