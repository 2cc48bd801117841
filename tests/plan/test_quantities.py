"""Quantities as people read them."""

from __future__ import annotations

import math

import pytest

from cora.plan.quantities import available, cores, line_rate, mpps, number, scaled, used


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (1, "1"), (2462, "2,462"), (577.42, "577.4"), (0.33451, "0.3345"), (0.0000123456, "0.00001235"),
    (1234567.8, "1,234,568"), (math.inf, "inf"), (100.0, "100"),
])
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "unit", "text"), [
    (80e9, "bit", "80 Gbit"), (1.6e9, "bytes", "1.6 GB"), (60, "bytes", "60 B"),
    (40e9, "core cycle", "40 G core cycles"), (1, "packet", "1 packet"), (54.4e6, "packet", "54.4 M packets"),
    (100e9, "bps", "100 Gbps"), (999.96e6, "byte", "1,000 MB"),
])
def test_prefixes(value: float, unit: str, text: str) -> None:
    assert scaled(value, unit) == text


def test_what_there_is() -> None:
    assert available("port", 80e9, "bit") == "80 Gbit/s"
    assert available("arm-cores", 7e9, "ns") == "7 cores"
    assert available("host-cores", 1e9, "ns") == "1 core"
    assert available("switch-pipeline", 1e9, "ns") == "1 at a time"
    assert used(207.7, "ns") == "207.7 ns"
    assert used(1, "packet") == "1 packet"


def test_rates() -> None:
    assert mpps(13.871e6) == "13.87 Mpps"
    assert mpps(None) == "-"
    assert mpps(math.inf) == "any rate"
    # The smallest Ethernet frame, 60 octets without its check sequence, fills 10 Gbit/s at 14.88 Mpps.
    assert line_rate(14_880_952, 60) == "10 Gbps"
    assert (cores(0), cores(1)) == ("0 host cores", "1 host core")
