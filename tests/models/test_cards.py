"""Cards that the model file does not know: instance files and reservations."""

from __future__ import annotations

from pathlib import Path

import pytest

from cora.errors import CoraError
from cora.models import registry
from cora.models.target import Target


def tiers(target: Target, place: int) -> dict[str, int]:
    return {t.name: t.capacity for t in target.places[place].tiers}


def test_what_others_use_is_gone() -> None:
    plain, kept = registry.get("agilio-cx"), registry.get("agilio-cx", None, ("emem=512MiB", "code=1k", "cls=1000"))
    assert tiers(plain, 0)["emem"] - tiers(kept, 0)["emem"] == 512 << 20
    assert tiers(plain, 0)["cls"] - tiers(kept, 0)["cls"] == 1000
    assert (plain.places[0].code_capacity or 0) - (kept.places[0].code_capacity or 0) == 1000
    assert tiers(plain, 1) == tiers(kept, 1)


def test_rules_of_others_and_arm_memory() -> None:
    kept = registry.get("bluefield2", "2x25", ("rules=1.5M", "dram=1GiB"))
    assert tiers(kept, 0)["rules"] == 2_500_000
    assert tiers(kept, 1)["dram"] == 7 << 30
    assert kept.model["port_bits"] == 50


def test_a_sample_of_the_box_keeps_the_reservation() -> None:
    kept = registry.get("agilio-cx", None, ("imem=1MiB",))
    again = type(kept)(kept.model.with_values({"imem_free": 0.9}))
    assert tiers(again, 0)["imem"] == int(4194304 * 0.9) - (1 << 20)


@pytest.mark.parametrize(("nic", "asked", "message"), [
    ("agilio-cx", ("rules=1",), "nothing that this card has: lmem, cls, ctm, imem, emem, emem-cache, code"),
    ("agilio-cx", ("emem",), "'emem' reserves nothing"),
    ("agilio-cx", ("emem=3GiB",), "emem has 1,610,612,736 bytes: 3,221,225,472 cannot be reserved"),
    ("agilio-cx", ("emem=1", "emem=2"), "emem is reserved twice"),
    ("agilio-cx", ("emem=much",), "'much' is not a"),
    ("bluefield2", ("rules=5M",), "rules has 4,000,000 rules: 5,000,000 cannot be reserved"),
    ("host", ("dram=1",), "reserves nothing that this card has: nothing"),
])
def test_reservations_that_make_no_sense(nic: str, asked: tuple[str, ...], message: str) -> None:
    with pytest.raises(CoraError) as caught:
        registry.get(nic, None, asked)
    assert "E701" in caught.value.render() and message in caught.value.render()


CARD = """\
description = "our card"
instance = "1x40"
[values]
me_count = 54
[bounds]
me_count = [50, 54]
[reserve]
emem = "256MiB"
"""


def test_an_instance_file_starts_from_a_known_card(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(CARD)
    card = registry.get("agilio-cx", str(path), ("emem=256MiB",))
    assert card.model["port_bits"] == 40
    engines = card.model.parameters["me_count"]
    assert (engines.low, engines.value, engines.high) == (50, 54, 54)
    # 54 engines at 800 MHz.
    assert {r.name: r.rate for r in card.resources(64)}["micro-engines"] == 54 * 0.8e9
    assert tiers(card, 0)["emem"] == 1610612736 - (512 << 20)


@pytest.mark.parametrize(("text", "message"), [
    (CARD.replace("[values]", "[worth]"), "an instance file has no worth"),
    (CARD.replace("1x40", "9x9"), "unknown card instance '9x9'"),
    (CARD.replace("me_count = 54", "engines = 54"), "instance ours sets the unknown parameter engines"),
    (CARD.replace("[50, 54]", "[55, 56]"), "the bounds of me_count must be two numbers around 54"),
    (CARD.replace('description = "our card"', ""), "instance ours needs a description"),
    (CARD.replace('"256MiB"', "[1]"), "reserve must be a table"),
    (CARD.replace('"1x40"', "3"), "instance must be the name"),
    (CARD.replace("256MiB", "9TB"), "cannot be reserved"),
    ("=", "cannot read the model"),
])
def test_instance_files_that_make_no_sense(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(CoraError) as caught:
        registry.get("agilio-cx", str(path))
    assert message in caught.value.render()
