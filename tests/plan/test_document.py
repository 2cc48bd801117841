"""The plan document: round trip, schema, atomic writing, and one clear message for every kind of broken file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from planning_fakes import nat_like, nat_profile, target_of

from cora.errors import CoraError, Kind
from cora.partition import plan
from cora.plan import document
from cora.plan.document import Plan, json_schema, load_plan, plan_from_json, save

SCHEMA = Path(document.__file__).with_name("schema.json")


@lru_cache(maxsize=4)
def made(cores: int | None = 2, rate: float | None = None) -> Plan:
    program = nat_like()
    return plan(program, nat_profile(program), target_of(), cores=cores, rate_pps=rate)


def test_round_trip() -> None:
    for one in (made(), made(None, 5e6), made(None, 18e6)):
        assert plan_from_json(one.to_json()) == one
        assert plan_from_json(one.to_json()).to_json() == one.to_json()


def test_one_row_a_line() -> None:
    lines = made().to_json().splitlines()
    assert sum(line.startswith('  {"block"') for line in lines) == len(made().blocks)
    assert sum(line.startswith('  {"name": "conns"') for line in lines) == 1


def test_the_shipped_schema_is_that_of_the_classes() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "write cora/plan/schema.json again from json_schema()"


def test_plans_obey_the_schema_and_broken_ones_do_not() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for one in (made(), made(None, 5e6)):
        validator.validate(json.loads(one.to_json()))
    data = json.loads(made().to_json())
    changes: list[dict[str, Any]] = [{"version": 4}, {"cores": "2"}, {"states": [{}]}, {"more": 1}]
    for change in changes:
        assert not validator.is_valid({**data, **change})


def test_a_byte_order_mark_is_skipped_and_an_endless_file_refused(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text(made().to_json(), encoding="utf-8-sig")
    assert load_plan(path) == made()
    monkeypatch.setattr("cora.documents.MAX_DOCUMENT", 100)
    with pytest.raises(CoraError, match="longer than a document can be"):
        load_plan(path)


def test_save_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save(made(), path)
    assert load_plan(path) == made()
    assert os.listdir(tmp_path) == ["plan.json"]
    with pytest.raises(ValueError, match="Out of range float"):
        save(replace(made(), mean_frame=float("nan")), path)
    assert load_plan(path) == made()
    assert os.listdir(tmp_path) == ["plan.json"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(CoraError) as caught:
        save(made(), tmp_path / "no such folder" / "plan.json")
    assert caught.value.diagnostics[0].kind is Kind.CANNOT_WRITE


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CoraError, match="cannot read the plan: No such file") as caught:
        load_plan(tmp_path / "none.json")
    assert caught.value.diagnostics[0].kind is Kind.BAD_PLAN


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CoraError, match="byte 0 is not UTF-8"):
        load_plan(path)


@lru_cache(maxsize=1)
def text_of_plan() -> str:
    return made().to_json()


def changed(*path: Any, value: Any = None, drop: bool = False) -> str:
    data = json.loads(text_of_plan())
    at = data
    for step in path[:-1]:
        at = at[step]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(data)


CORRUPTED: list[tuple[str, Callable[[], str], Kind, str]] = [
    ("empty", lambda: "", Kind.BAD_PLAN, "this is no JSON: Expecting value"),
    ("cut off", lambda: made().to_json()[:500], Kind.BAD_PLAN, "this is no JSON"),
    ("not an object", lambda: "[1]", Kind.BAD_PLAN, "its format is not 'cora-plan'"),
    ("a profile", lambda: '{"format": "cora-profile", "version": 1}', Kind.BAD_PLAN, "its format is not 'cora-plan'"),
    ("nested", lambda: "[" * 100_000, Kind.BAD_PLAN, "nested too deeply"),
    ("many digits", lambda: made().to_json().replace('"cores": ', '"cores": ' + "9" * 5000, 1), Kind.BAD_PLAN,
     "too many digits"),
    ("twice", lambda: '{"format": "cora-plan", "format": "cora-plan"}', Kind.BAD_PLAN,
     "format: the field stands twice"),
    ("half a character", lambda: changed("program", value="\ud800"), Kind.BAD_PLAN, r"program: U\+D800"),
    ("a number beyond all reckoning", lambda: changed("throughput_pps", value=10**400), Kind.BAD_PLAN,
     "throughput_pps: a whole number has less than 41 digits"),
    ("no host work", lambda: changed("figures", 1, "name", value="work"), Kind.BAD_PLAN, "there is no 'host work'"),
    ("text that acts on a terminal", lambda: changed("costs", 0, "subject", value="\x1b]0;title\x07"), Kind.BAD_PLAN,
     r"costs\[0\]\.subject: U\+001B"),
    ("text that is reordered", lambda: changed("states", 0, "reason", value="\u202eelohw"), Kind.BAD_PLAN,
     r"states\[0\]\.reason: U\+202E"),
    ("old", lambda: changed("version", value=0), Kind.PLAN_VERSION, "version 0, this program reads version 3"),
    ("new", lambda: changed("version", value=4), Kind.PLAN_VERSION, "version 4, this program reads version 3"),
    ("version true", lambda: changed("version", value=True), Kind.PLAN_VERSION, "version True"),
    ("no version", lambda: changed("version", drop=True), Kind.PLAN_VERSION, "version None"),
    ("field missing", lambda: changed("cores", drop=True), Kind.BAD_PLAN, "cores is missing"),
    ("inner field missing", lambda: changed("states", 1, "tier", drop=True), Kind.BAD_PLAN,
     r"states\[1\].tier is missing"),
    ("field unknown", lambda: changed("states", 0, "colour", value=1), Kind.BAD_PLAN,
     r"states\[0\].colour: there is no such field"),
    ("wrong type", lambda: changed("cores", value="two"), Kind.BAD_PLAN,
     'cores: expected a whole number, found "two"'),
    ("bool for int", lambda: changed("cores", value=True), Kind.BAD_PLAN,
     "cores: expected a whole number, found true"),
    ("float for int", lambda: changed("cores", value=1.5), Kind.BAD_PLAN,
     "cores: expected a whole number, found 1.5"),
    ("list for object", lambda: changed("request", value=[]), Kind.BAD_PLAN,
     r"request: expected an object, found \[\]"),
    ("object for list", lambda: changed("blocks", value={}), Kind.BAD_PLAN, "blocks: expected a list"),
    ("null", lambda: changed("binding", value=None), Kind.BAD_PLAN, "binding: expected text, found null"),
    ("kind", lambda: changed("figures", 0, "kind", value="measured"), Kind.BAD_PLAN,
     r"figures\[0\].kind: expected 'predicted', found \"measured\""),
    ("place", lambda: changed("blocks", 0, "place", value="moon"), Kind.BAD_PLAN,
     r"blocks\[0\].place: 'moon' is none of the plan's places nic, host"),
    ("no place", lambda: changed("places", value=[]), Kind.BAD_PLAN, "a plan needs at least one"),
    ("twice", lambda: changed("states", 1, "name", value="conns"), Kind.BAD_PLAN, "state conns stands twice"),
    ("negative", lambda: changed("cores", value=-1), Kind.BAD_PLAN, "cores: -1 is less than 0"),
    ("infinite", lambda: changed("mean_frame", value=float("inf")), Kind.BAD_PLAN, "Infinity is no number"),
    ("huge", lambda: changed("mean_frame", value=10**400), Kind.BAD_PLAN, "mean_frame: expected a number"),
    ("no digest", lambda: changed("digest", drop=True), Kind.BAD_PLAN, "digest is missing"),
    ("another digest", lambda: changed("digest", value="0" * 64), Kind.BAD_PLAN, "the plan was changed after"),
    ("another place", lambda: changed("states", 0, "place", value="host"), Kind.BAD_PLAN,
     "the plan was changed after it was made"),
    ("another share", lambda: changed("blocks", 0, "share", value=0.5), Kind.BAD_PLAN, "the plan was changed after"),
    ("another throughput", lambda: changed("throughput_pps", value=10**9), Kind.BAD_PLAN,
     "throughput is 1.54797e.07, elsewhere in the plan it is 1000000000"),
    ("binding", lambda: changed("binding", value="nothing"), Kind.BAD_PLAN,
     "binding: 'nothing' is none of the plan's resources"),
    ("samples", lambda: changed("samples_met", value=201), Kind.BAD_PLAN, "samples_met: 201 is not between 0 and"),
    ("no throughput", lambda: changed("figures", value=[]), Kind.BAD_PLAN, "there is no 'throughput'"),
    ("mapping", lambda: changed("alternatives", 0, "states", value={"conns": 1}), Kind.BAD_PLAN,
     r"alternatives\[0\].states.conns: expected text, found 1"),
]


@pytest.mark.parametrize(("text", "kind", "message"), [c[1:] for c in CORRUPTED], ids=[c[0] for c in CORRUPTED])
def test_corrupted(text: Callable[[], str], kind: Kind, message: str) -> None:
    with pytest.raises(CoraError, match=message) as caught:
        plan_from_json(text(), "plan.json")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.kind is kind
    assert (diagnostic.where or "").startswith("plan.json")
    assert diagnostic.hint is not None


def test_cores_and_their_figure_have_to_agree() -> None:
    with pytest.raises(CoraError, match="host cores is 0, elsewhere in the plan it is 3"):
        plan_from_json(replace(made(None, 5e6), cores=3).to_json())


def test_a_plan_laid_out_in_another_way_is_the_same_plan() -> None:
    assert plan_from_json(json.dumps(json.loads(made().to_json()), indent=4)) == made()


def test_the_digest_is_of_everything_before_it() -> None:
    lines = made().to_json().splitlines()
    assert lines[-2] == f' "digest": "{made().digest()}"'
    assert replace(made(), cores=made().cores + 1).digest() != made().digest()


def test_every_cut_of_a_plan_is_refused() -> None:
    text = made().to_json().rstrip()
    for end in range(0, len(text), 211):
        with pytest.raises(CoraError):
            plan_from_json(text[:end])


def test_any_value_replaced_by_any_other_is_read_or_refused() -> None:
    """Whatever one value becomes, the answer is a plan or a message, never another exception."""
    def spots(item: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if isinstance(item, dict):
            return [p for k, v in item.items() for p in [(*path, k), *spots(v, (*path, k))]]
        if isinstance(item, list):
            return [p for i, v in enumerate(item[:1]) for p in [(*path, i), *spots(v, (*path, i))]]
        return []

    refused = 0
    values: tuple[Any, ...] = (None, True, -1, "x", [], {"a": {}})
    for path in spots(json.loads(made().to_json())):
        for value in values:
            try:
                plan_from_json(changed(*path, value=value))
            except CoraError:
                refused += 1
    assert refused > 300
