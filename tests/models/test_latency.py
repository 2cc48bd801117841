"""Queueing against the textbook forms."""

from __future__ import annotations

import math

import pytest

from cora.models.latency import erlang_c, latency, waiting
from cora.models.target import Resource


def erlang_c_by_sums(c: int, a: float) -> float:
    last = a**c / math.factorial(c) * c / (c - a)
    return last / (sum(a**k / math.factorial(k) for k in range(c)) + last)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (2, 1.9), (8, 4.0), (40, 39.0)])
def test_erlang_c_agrees_with_its_sums(servers: int, offered: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(erlang_c_by_sums(servers, offered))


def test_one_server_waits_as_long_as_m_m_1_says() -> None:
    assert waiting(1, 2.0, 0.25) == pytest.approx(0.5 * 2.0 / (1 - 0.5))
    assert waiting(1, 2.0, 0.5) == math.inf
    assert erlang_c(2, 2.0) == 1.0


def test_below_saturation_times_add_up() -> None:
    core = Resource("core", 1e9, "ns", "host", scales=True)
    found = latency(2500.0, {"core": 100.0}, [core], 5e6, cores=1)
    assert [found.service, found.queueing] == pytest.approx([100.0, 100.0])
    assert found.saturated is None
    assert found.total == pytest.approx(2700.0)


def test_more_cores_keep_the_service_time_and_shorten_the_queue() -> None:
    core = Resource("core", 1e9, "ns", "host", scales=True)
    one, four = (latency(0.0, {"core": 100.0}, [core], 5e6, cores=n) for n in (1, 4))
    assert four.service == pytest.approx(one.service)
    assert four.queueing < one.queueing / 10


def test_at_saturation_the_buffer_decides() -> None:
    engines = Resource("me", 50 * 800e6, "cycle", "nic", servers=50, room=380)
    found = latency(6500.0, {"me": 1000.0}, [engines], 50e6)
    assert found.saturated == "me"
    assert found.total == pytest.approx(380 / 40e6 * 1e9)


def test_saturation_without_a_buffer_has_no_bound() -> None:
    assert latency(0.0, {"x": 1.0}, [Resource("x", 1e6, "op", "nic")], 2e6).total == math.inf


def test_unused_resources_add_nothing() -> None:
    assert latency(7.0, {}, [Resource("x", 1e6, "op", "nic")], 2e6).total == 7.0


def test_without_cores_a_packet_waits_for_ever() -> None:
    core = Resource("core", 1e9, "ns", "host", scales=True)
    link = Resource("link", 1e9, "bit", "nic")
    found = latency(100.0, {"core": 10.0, "link": 1.0}, [core, link], 1e6, cores=0)
    assert found.total == math.inf
    assert found.saturated == "core"
    # What is not used need not be there.
    assert latency(100.0, {"link": 1.0}, [core, link], 1e6, cores=0).total < 102
