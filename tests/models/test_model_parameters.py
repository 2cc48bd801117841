"""Reading model files, what is said about bad ones, instances, and sampling the parameter box."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from cora.errors import CoraError
from cora.models.parameters import Model, Parameter, load_model, samples

GOOD = """\
name = "card"
version = "1"
[sources]
LAB = "A laboratory, a paper"
[parameter.clock]
value = 0.8
unit = "GHz"
low = 0.7
high = 0.9
kind = "published"
source = "LAB: the clock"
[parameter.ports]
value = 2
unit = "ports"
low = 2
high = 2
kind = "specified"
source = "LAB: ports"
[instance.fast]
description = "a faster one"
[instance.fast.values]
clock = 1.6
"""

BAD = (
    ("nothing", "", "a model needs a name and [parameter.NAME] tables"),
    ("toml", "name = ", "cannot read the model: Invalid value (at end of document)"),
    ("no unit", GOOD.replace('unit = "GHz"\n', ""), "parameter clock lacks unit"),
    ("no source", GOOD.replace('source = "LAB: the clock"\n', ""), "parameter clock lacks source"),
    ("kind", GOOD.replace('"published"', '"guessed"'),
     "parameter clock: kind 'guessed' is none of measured, published, specified, derived, assumed"),
    ("order", GOOD.replace("low = 0.7", "low = 0.85"), "parameter clock: need numbers low <= value <= high"),
    ("text", GOOD.replace("value = 0.8", 'value = "0.8"'), "parameter clock: need numbers low <= value <= high"),
    ("bool", GOOD.replace("value = 0.8", "value = true"), "parameter clock: need numbers low <= value <= high"),
    ("nan", GOOD.replace("value = 0.8", "value = nan"), "parameter clock: need numbers low <= value <= high"),
    ("source key", GOOD.replace('"LAB: the clock"', '"LIB: the clock"'),
     "parameter clock: source 'LIB: the clock' is no 'KEY: what' with a key of [sources]"),
    ("source text", GOOD.replace('"LAB: the clock"', '"LAB"'),
     "parameter clock: source 'LAB' is no 'KEY: what' with a key of [sources]"),
    ("column", GOOD.replace("value = 0.8", "value = 0.8\nvalu = 1"), "parameter clock has the unknown column valu"),
    ("instance", GOOD.replace("clock = 1.6", "clok = 1.6"), "instance fast sets the unknown parameter clok"),
    ("instance text", GOOD.replace("clock = 1.6", 'clock = "x"'), "instance fast: clock is no number"),
    ("instance shape", GOOD.replace('description = "a faster one"\n', ""),
     "instance fast needs a description and [instance.fast.values]"),
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.toml"
    path.write_text(text)
    return path


def test_a_good_file_gives_values_sources_and_instances(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, GOOD))
    assert (model["clock"], model.name, len(list(model))) == (0.8, "card", 2)
    assert model.reference(model.parameters["clock"]) == "the clock (A laboratory, a paper)"


@pytest.mark.parametrize(("text", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(CoraError) as caught:
        load_model(path)
    assert caught.value.render() == f"{path}: error[E401 bad-model]: {message}"


def test_an_absent_file_is_an_error_of_the_same_kind(tmp_path: Path) -> None:
    with pytest.raises(CoraError, match="cannot read the model"):
        load_model(tmp_path / "none.toml")


def test_an_instance_moves_the_bounds_with_the_value(tmp_path: Path) -> None:
    fast = load_model(write(tmp_path, GOOD)).at_instance("fast")
    clock = fast.parameters["clock"]
    assert (clock.low, clock.value, clock.high) == pytest.approx((1.4, 1.6, 1.8))


def test_an_unknown_instance_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CoraError) as caught:
        load_model(write(tmp_path, GOOD)).at_instance("fats")
    assert caught.value.render() == ("card: error[E402 unknown-nic]: unknown card instance 'fats'; known: fast\n"
                                     "help: did you mean 'fast'?")


def box(**rows: tuple[float, float, float]) -> Model:
    return Model("box", "1", {n: Parameter(n, v, "1", low, high, "assumed", "T: t")
                              for n, (low, v, high) in rows.items()})


def test_samples_have_the_bounds_as_their_deciles_and_the_value_as_their_median() -> None:
    drawn = [m["x"] for m in samples(box(x=(0.5, 1.0, 4.0)), 4000, seed=1)]
    deciles = statistics.quantiles(drawn, n=10)
    assert (deciles[0], deciles[4], deciles[8]) == pytest.approx((0.5, 1.0, 4.0), rel=0.08)


def test_samples_with_a_zero_bound_stay_on_their_side() -> None:
    drawn = [m["x"] for m in samples(box(x=(0.0, 0.0, 1.0)), 8000, seed=1)]
    assert min(drawn) == 0.0
    assert statistics.quantiles(drawn, n=10)[8] == pytest.approx(1.0, rel=0.1)


def test_samples_repeat_with_their_seed_and_leave_exact_figures_alone() -> None:
    model = box(x=(0.9, 1.0, 1.1), exact=(3.0, 3.0, 3.0))
    first, again, other = ([m["x"] for m in samples(model, 20, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert {m["exact"] for m in samples(model, 20, 1)} == {3.0}
    assert {m["x"] for m in samples(model.pinned({"x": 2.0}), 20, 1)} == {2.0}


def test_values_can_only_be_given_to_parameters_there_are() -> None:
    for change in (Model.with_values, Model.pinned, Model.rescaled):
        with pytest.raises(KeyError):
            change(box(x=(1, 1, 1)), {"y": 1.0})


def test_a_joined_model_keeps_both_under_their_names() -> None:
    joined = box(x=(1, 1, 1)).joined(box(x=(2, 2, 2)), "host.")
    assert (joined["x"], joined["host.x"], joined.parameters["host.x"].name) == (1.0, 2.0, "host.x")
