"""Calibrations of the host: documents, what a model becomes with one, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cora.errors import CoraError, Kind
from cora.models import calibration, registry
from cora.models.calibration import Check, HostCalibration, Machine, Measured, last_level_cache, load, store
from cora.models.parameters import HostModel

MACHINE = Machine("0123456789abcdef", "Test CPU", 4, 8 << 20, 16 << 30, "Linux 1.0 x86_64")
MADE = HostCalibration(
    MACHINE, "2026-01-02T03:04:05Z", "cora calibrate", 25.0, 9, 0.1, 1.5,
    (Measured("hash_ns", 8.0, 7.9, 8.1, "ns", (8.0, 7.9, 8.1)),
     Measured("miss_ns_4096k", 90.0, 70.0, 99.0, "ns", (90.0,))),
    (Check("flow_counter", 1000, 20.0, 19.0, 21.0, 30.0),), ("the weather",))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORA_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def kept() -> None:
    """Keep the calibration as this machine's."""
    store(replace(MADE, machine=replace(MACHINE, identity=calibration.machine().identity)))


def test_documents_come_back_as_they_were(tmp_path: Path) -> None:
    assert load(store(MADE, tmp_path / "made.json")) == MADE
    assert MADE.figure("hash_ns").value == 8.0
    with pytest.raises(KeyError):
        MADE.figure("nothing")


def test_a_calibration_is_kept_for_its_machine(data: Path) -> None:
    assert calibration.stored() is None
    kept()
    found = calibration.stored()
    assert found is not None and found.made == MADE.made
    assert [p.parent.name for p in data.rglob("*.json")] == ["calibrations"]


def test_measured_figures_replace_the_models_and_the_rest_is_carried_over() -> None:
    model = calibration.apply(registry.get("host").model, MADE)
    published = registry.get("host").model
    own = model.parameters["hash_ns"]
    # The samples lie closer than the 3 % that a figure varies by at least.
    assert [own.value, own.low, own.high] == pytest.approx([8.0, 8 / 1.03, 8 * 1.03])
    assert own.kind == "measured" and own.source == "HERE: cora calibrate of 2026-01-02T03:04:05Z on Test CPU"
    wide = model.parameters["miss_ns_4096k"]
    assert (wide.low, wide.high) == (70.0, 99.0)
    # Half the 3 GHz that assumed costs belong to, and 1/2.4 of the 3.6 GHz of the published input.
    assert model["header_ns"] == 2 * published["header_ns"]
    assert model["rx_ns"] == pytest.approx(2.4 * 22.9)
    assert model.parameters["rx_ns"].kind == "published" and "carried over" in model.parameters["rx_ns"].note
    assert model.parameters["rx_ns"].high == pytest.approx(2.4 * 24.0 * 1.25)
    assert (model["llc_bytes"], model["reference_llc_bytes"], model["clock_ratio"]) == (8 << 20, 8 << 20, 1.0)
    assert model["word_ns"] == published["word_ns"], "no kernel measured it: the figure stays"
    assert model.host == HostModel("measured", "Test CPU", MADE.made, "cora calibrate")


def test_an_unknown_cache_leaves_the_published_sizes() -> None:
    model = calibration.apply(registry.get("host").model, replace(MADE, machine=replace(MACHINE, llc_bytes=0)))
    assert model["llc_bytes"] == registry.get("host").model["llc_bytes"]


@pytest.mark.parametrize("nic", ["host", "agilio-cx", "bluefield2"])
def test_every_target_takes_the_measured_host(nic: str) -> None:
    kept()
    prefix = "" if nic == "host" else "host."
    plain, measured, default = (registry.get(nic, None, (), which) for which in ("published", "measured", None))
    assert measured.model[prefix + "hash_ns"] == default.model[prefix + "hash_ns"] == 8.0
    assert plain.model[prefix + "hash_ns"] == 4.0 and plain.model.host.kind == "published"
    # A target made again from a sample of its model keeps it.
    assert type(measured)(measured.model.with_values({prefix + "word_ns": 1.0})).model.host.kind == "measured"


def test_a_file_is_a_host_model(tmp_path: Path) -> None:
    path = store(MADE, tmp_path / "other.json")
    assert registry.get("host", None, (), str(path)).model["hash_ns"] == 8.0


def test_without_a_calibration_the_published_figures_are_the_default() -> None:
    assert registry.get("host", None, (), None).model.host.kind == "published"
    with pytest.raises(CoraError) as caught:
        registry.get("host", None, (), "measured")
    assert caught.value.diagnostics[0].kind is Kind.BAD_CALIBRATION and "cora calibrate" in caught.value.render()


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(MADE.to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(("text", "message"), [
    ("", "this is no calibration, nor JSON at all"),
    ("[]", "its format is not 'cora-host-calibration', version 1"),
    (changed(lambda d: d.update(version=2)), "its format is not 'cora-host-calibration', version 1"),
    (changed(lambda d: d.pop("made")), "made"),
    (changed(lambda d: d.update(clock_ghz=0.01)), "clock_ghz or llc_bytes is out of range"),
    (changed(lambda d: d["figures"][0].update(low=9.5)), "hash_ns needs 0 <= low <= value <= high"),
    (changed(lambda d: d["figures"][0].update(value="much")), "figures[0].value"),
])
def test_documents_that_make_no_sense(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CoraError) as caught:
        load(path)
    shown = caught.value.render()
    assert "E407" in shown and message in shown and str(path) in shown and "cora calibrate" in shown


def test_a_figure_the_model_lacks_is_named() -> None:
    other = replace(MADE, figures=(Measured("flux_ns", 1, 1, 1, "ns", (1,)),))
    with pytest.raises(CoraError, match="the host model has no figure 'flux_ns'"):
        calibration.apply(registry.get("host").model, other)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoraError) as caught:
        store(MADE, tmp_path / "file" / "made.json")
    assert caught.value.diagnostics[0].kind is Kind.CANNOT_WRITE


def test_the_cache_of_the_highest_level_counts(tmp_path: Path) -> None:
    for number, (level, size) in enumerate((("1", "32K"), ("3", "24M"), ("2", "1M"), ("x", "9M"))):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n")
        (folder / "size").write_text(size + "\n")
    assert last_level_cache(tmp_path) == 24 << 20
    assert last_level_cache(tmp_path / "none") == 0
