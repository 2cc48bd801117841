"""Numbers with units: exact values, and one clear message for everything else."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.errors import CoraError, Kind
from cora.units import Rate, parse_amount, parse_bytes, parse_count, parse_duration, parse_rate, parse_share


@pytest.mark.parametrize(("parse", "text", "value"), [
    (parse_rate, "10Mpps", Rate(10_000_000, "pps")),
    (parse_rate, " 14.88 Mpps ", Rate(14_880_000, "pps")),
    (parse_rate, "40Gbps", Rate(40_000_000_000, "bps")),
    (parse_rate, "2.5Gbit/s", Rate(2_500_000_000, "bps")),
    (parse_rate, "64kb/s", Rate(64_000, "bps")),
    (parse_rate, "7pps", Rate(7, "pps")),
    (parse_duration, "300s", 300 * 10**9),
    (parse_duration, "1.5us", 1500),
    (parse_duration, "2min", 120 * 10**9),
    (parse_duration, "0ns", 0),
    (parse_bytes, "1500", 1500),
    (parse_bytes, "64kB", 64_000),
    (parse_bytes, "2MiB", 2 * 2**20),
    (parse_count, "1.5M", 1_500_000),
    (parse_count, "100k", 100_000),
    (parse_amount, "1.1", Fraction(11, 10)),
    (parse_share, "20%", Fraction(1, 5)),
    (parse_share, ".2", Fraction(1, 5)),
])
def test_values(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text", "words"), [
    (parse_rate, "", "'' is not a rate"),
    (parse_rate, "fast", "'fast' is not a rate"),
    (parse_rate, "-1pps", "the rate '-1pps' is below zero"),
    (parse_rate, "40G", "does not say packets (pps) or bits (bps)"),
    (parse_rate, "5GB/s", "in bytes"),
    (parse_rate, "5Xpps", "unknown unit 'Xpps'"),
    (parse_rate, "0Gbps", "is zero"),
    (parse_rate, "0.5pps", "not a whole number of packets or bits per second"),
    (parse_rate, "1" * 100, "..."),
    (parse_rate, "١pps", "is not a rate"),
    (parse_duration, "300", "has no unit"),
    (parse_duration, "3d", "unknown unit 'd'"),
    (parse_duration, "0.5ns", "not a whole number of nanoseconds"),
    (parse_bytes, "1kb", "unknown unit 'kb'"),
    (parse_bytes, "0.5B", "not a whole number of bytes"),
    (parse_count, "1.5", "not a whole number"),
    (parse_count, "3x", "unknown suffix 'x'"),
    (parse_amount, "1e3", "is not a number"),
    (parse_share, "1.1", "more than the whole"),
    (parse_share, "2k", "unknown unit 'k'"),
    (parse_share, "nan", "is not a share"),
])
def test_refusals(parse: Callable[..., object], text: str, words: str) -> None:
    with pytest.raises(CoraError) as caught:
        parse(text, where="--flag")
    [problem] = caught.value.diagnostics
    assert problem.kind is Kind.BAD_FLAG
    assert problem.where == "--flag"
    assert words in problem.message
    assert problem.hint


def test_the_callers_error_kind_is_used() -> None:
    with pytest.raises(CoraError) as caught:
        parse_count("x", kind=Kind.TRAFFIC_SPEC)
    assert caught.value.diagnostics[0].kind is Kind.TRAFFIC_SPEC


@given(st.integers(1, 10**15), st.sampled_from(["pps", "bps"]))
def test_a_rate_reads_back_as_written(amount: int, unit: str) -> None:
    rate = Rate(amount, "pps" if unit == "pps" else "bps")
    assert parse_rate(str(rate)) == rate


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_rate, parse_duration, parse_bytes, parse_count, parse_amount, parse_share):
        try:
            parse(text)
        except CoraError as error:
            assert error.diagnostics[0].hint
