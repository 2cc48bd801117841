"""docs/profile.md describes the profile document."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import cora
from cora.analysis.profile import (
    Admission,
    AdmissionPoint,
    AdmissionWindow,
    Budget,
    PathUse,
    Profile,
    StateUse,
    TimeoutUse,
    WindowUse,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [
    Profile, PathUse, StateUse, TimeoutUse, WindowUse, Admission, AdmissionPoint, AdmissionWindow, Budget])
def test_every_field_is_described(document: type) -> None:
    assert [f.name for f in fields(document) if f"`{f.name}`" not in PAGE] == []


@pytest.mark.needs("gcc")
def test_every_key_of_the_source_is_described() -> None:
    program = cora.load(ROOT / "examples" / "nat.nf")
    profile = cora.profile(program, ROOT / "examples" / "captures" / "office.pcap")
    keys = {*profile.source, *profile.source["options"]}
    assert {k for k in keys if f"`{k}`" not in PAGE} == set()
