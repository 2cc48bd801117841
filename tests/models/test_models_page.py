"""docs/models.md: its rows and its instance file are read, its accuracy is the models', its operations exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cora.models import registry
from cora.models.validation import priced_operations, summarise, validate

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
ROWS, CARD = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_rows_are_predicted(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(ROWS)
    rows = validate(None, path, count=10)
    assert [r.target for r in rows] == ["agilio-cx", "agilio-cx", "bluefield2", "host"]
    # They are near what such programs were measured at; three of the figures are only examples.
    assert abs(rows[0].error) < 0.1 and abs(rows[2].error) < 0.12


def test_the_instance_file_is_a_card(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(CARD)
    assert registry.get("agilio-cx", str(path)).model["me_count"] == 54


def test_operations_of_the_translation_table_exist() -> None:
    table = PAGE[PAGE.index("| measured program |"):PAGE.index("## Your host")]
    known = {name for nic in registry.names() for prices in priced_operations(registry.get(nic)).values()
             for name in prices}
    known |= {"lookup", "store", "count", "lookup_N", "update_N", "insert_N", "_many"}
    parameters = {"instance", "base"}
    named = set(re.findall(r"`([a-z_N]+)`", table)) - parameters
    assert named and named <= known


@pytest.mark.parametrize(("nic", "median", "over"), [("agilio-cx", 0.04, 0.05), ("bluefield2", 0.12, 0.12),
                                                      ("host", 0.12, 0.12)])
def test_the_promised_accuracy_holds(nic: str, median: float, over: float) -> None:
    found = summarise(validate(nic, count=2))
    assert found.median <= median and found.largest_over <= over
