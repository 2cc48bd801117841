"""Path budgets: what they say, what a check finds, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planning_fakes import NAT_LIKE, FakeTarget, nat_like, nat_profile, profile_of, target_of

from cora.errors import CoraError, Kind
from cora.explain.budget import Budget, budget_of, check_budget, load_budget, report, summary
from cora.ir.text import parse_program
from cora.ir.verify import verify
from cora.partition import plan
from cora.plan.document import Plan

# One instruction more for known packets: the fake target charges 5 cycles for it.
END = "  forward wire @11:9-11:10"
DEARER = NAT_LIKE.replace(END, f"  %more : u32 = const 1 @11:20-11:21\n{END}")


def made(text: str = NAT_LIKE, target: FakeTarget | None = None, known: int = 90) -> Plan:
    program = verify(parse_program(text))
    return plan(program, nat_profile(program, known=known), target or target_of(), rate_pps=5e6)


def saved(budget: Budget, path: Path) -> Budget:
    path.write_text(budget.to_json(), encoding="utf-8")
    return load_budget(path)


def test_a_budget_is_read_as_it_was_written(tmp_path: Path) -> None:
    budget = budget_of(made())
    assert saved(budget, tmp_path / "b.json") == budget
    known = next(p for p in budget.paths if p.history == ("conns.main hit",))
    # 20 a packet; entry 10, known 20, three accesses of 5.
    assert known.costs["nic-cycles"] == pytest.approx(65) and known.costs["latency"] == 100
    assert known.share == pytest.approx(0.9) and {line.line for line in known.lines} == {10, 11}
    assert budget.mean["nic-cycles"] == pytest.approx(sum(p.share * p.costs["nic-cycles"] for p in budget.paths))
    assert "conns.main hit; forward wire" in summary(budget) and "mean packet" in summary(budget)


def test_the_same_plan_is_within_its_budget_whatever_the_traffic() -> None:
    budget = budget_of(made())
    assert report(check_budget(budget, budget_of(made()), 0.02), 0.02) == "costs are those of the budget\n"
    other = check_budget(budget, budget_of(made(known=45)), 0.5)
    assert not other.over and all(c.path is None for c in other.changes) and other.new == ()


def test_a_dearer_path_is_told_with_its_line() -> None:
    checked = check_budget(budget_of(made()), budget_of(made(DEARER)), 0.02)
    assert checked.over
    first = next(c for c in checked.changes if c.over)
    assert (first.path, first.resource, first.added) == ("conns.main hit; forward wire", "nic-cycles", 5.0)
    assert first.lines[0][0] == "case.nf:11" and first.lines[0][2] == pytest.approx(5.0)
    text = report(checked, 0.02)
    assert "over: this change adds 5 cycles of nic-cycles at nic to the path 'conns.main hit; forward wire'" in text
    assert "65 cycles to 70 cycles (+7.7 %)" in text and text.endswith("1 cost grew by more than 2 %\n")
    assert not check_budget(budget_of(made()), budget_of(made(DEARER)), 0.08).over
    saves = report(check_budget(budget_of(made(DEARER)), budget_of(made()), 0.02), 0.02)
    assert saves.startswith("nothing is over the budget; what changed:")
    assert "this change saves 5 cycles of nic-cycles at nic from the path" in saves


def test_new_and_gone_paths_are_named() -> None:
    program = nat_like()
    few = plan(program, profile_of(program, {("entry", "known"): 90}), target_of(), rate_pps=5e6)
    checked = check_budget(budget_of(few), budget_of(made()), 0.02)
    assert checked.new and checked.gone == ()
    assert "new path, no budget yet: conns.main miss; " in report(checked, 0.02)
    # Nothing is over on the path that both have; the mean packet got dearer by the new ones.
    assert checked.over and all(c.path is None for c in checked.changes if c.over)
    assert "path no longer taken" in report(check_budget(budget_of(made()), budget_of(few), 0.02), 0.02)


def test_a_cost_where_there_was_none_is_over_at_any_tolerance() -> None:
    budget = budget_of(made())
    lighter = replace(budget, paths=tuple(
        replace(p, costs={n: a for n, a in p.costs.items() if n != "engine"}) for p in budget.paths))
    assert "(it used none)" in report(check_budget(lighter, budget, 1.0), 1.0)


@pytest.mark.parametrize(("change", "words"), [
    (lambda d: d.update(format="cora-plan"), "this is no budget"),
    (lambda d: d.update(version=2), "version 2"),
    (lambda d: d["paths"][0].update(share="much"), "paths[0].share: expected a number"),
    (lambda d: d.pop("mean"), "mean is missing"),
])
def test_a_broken_budget_is_refused(tmp_path: Path, change: object, words: str) -> None:
    data = json.loads(budget_of(made()).to_json())
    change(data)  # type: ignore[operator]  # the functions above
    path = tmp_path / "b.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CoraError) as caught:
        load_budget(path)
    assert caught.value.diagnostics[0].kind is Kind.BAD_BUDGET and words in str(caught.value)


def test_budgets_of_something_else_are_refused() -> None:
    budget = budget_of(made())
    for other, words in ((replace(budget, program="x"), "the budget is for the program x"),
                         (replace(budget, target="y"), "the budget is for the target y"),
                         (replace(budget, model_digest="z"), "other figures of the model")):
        with pytest.raises(CoraError, match=words):
            check_budget(other, budget, 0.02)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoraError, match="cannot read the budget"):
        load_budget(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(CoraError, match="this is no JSON"):
        load_budget(tmp_path / "x.json")
