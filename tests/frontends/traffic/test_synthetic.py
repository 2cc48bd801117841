"""Synthetic traffic: the same bytes everywhere, the distributions asked for, valid packets, and clear refusals."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import struct
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packet_oracle import IPV4, IPV6, TCP, UDP, Record, both_ways, header_sum_ok, records, transport_sum_ok

from cora.errors import CoraError, Kind
from cora.frontends.traffic import synthetic
from cora.frontends.traffic.synthetic import (
    DEFAULT_NETWORKS,
    FIELDS,
    TrafficSpec,
    generate,
    is_spec_file,
    load,
    materialise,
    save,
    write,
)
from cora.frontends.traffic.synthetic_blocks import inverse_power, splitmix64
from cora.units import Rate

FIN, SYN, PSH, ACK = 1, 2, 8, 16


def capture(**values: object) -> bytes:
    return b"".join(generate(TrafficSpec.parse(values)))


def packets(**values: object) -> list[Record]:
    return list(records(capture(**values)))


def tcp_flags(record: Record) -> int:
    return record.segment[13]


def payload(record: Record) -> bytes:
    return record.segment[20 if record.protocol == TCP else 8:]


def by_flow(found: list[Record]) -> dict[tuple[object, ...], list[Record]]:
    flows = defaultdict(list)
    for record in found:
        flows[both_ways(record.flow)].append(record)
    return flows


def inward(record: Record) -> bool:
    return record.frame[6:12] == bytes.fromhex("020000000002")


# The bytes are part of the contract: a change here needs a new GENERATOR number.
@pytest.mark.parametrize(("values", "digest"), [
    ({}, "0c982dc4745a2f301b0a08996c39154da536caec0da5f7bd63badaa1fa35da3b"),
    ({"packets": 70000, "flows": 50, "churn": "2000", "size": "60:1,1514:2,333:3", "seed": 7},
     "31ac93e0ca72104cbf3e65958a7a23410d6954a70b46cfe60f3e3bb07901e0ec"),
    ({"packets": 3000, "flows": 100, "family": 6, "rate": "10Gbps", "zipf": "1.3", "churn": "5000"},
     "5ff0eb05c633768e6482e086bc0aa82f89d152dd33e1fffe78f136c478bb740c"),
    ({"packets": 2000, "flows": 2000, "udp": "100%", "size": 64, "replies": 0, "zipf": 0},
     "a6b6bf9bd6f7c7bb07c8b771ebfe7fd95ec6ecd99aaac510596ec793d403dc2c"),
])
def test_the_bytes_are_fixed(values: dict[str, object], digest: str) -> None:
    assert hashlib.sha256(capture(**values)).hexdigest() == digest


def test_other_seeds_give_other_packets_of_the_same_kind() -> None:
    one, two = capture(seed=1), capture(seed=2)
    assert one != two
    assert len(list(records(one))) == len(list(records(two)))


def test_hash_is_splitmix64() -> None:
    # The first outputs of the reference implementation for state 0.
    assert list(splitmix64(np.arange(3, dtype=np.uint64))) == [
        0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 1.1, 4.0])
def test_inverse_power(exponent: float) -> None:
    ranks = np.array([1, 2, 3, 10, 997, 10**5, 10**7], np.float64)
    expected = [math.pow(rank, -exponent) for rank in ranks]
    assert inverse_power(ranks, exponent) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("values", [
    {"packets": 3000, "flows": 1000},
    {"packets": 9000, "flows": 10, "churn": "90k", "rate": "1Mpps"},
    {"packets": 140_000, "flows": 3, "churn": "100", "zipf": 3},
    {"packets": 140_000, "flows": 40_000, "zipf": "2.5"},
    # Not one packet to spare, over two blocks.
    {"packets": 3 * 40_000 + 2 * 32, "flows": 40_000, "udp": 0},
    {"packets": 5000, "flows": 700, "udp": 1, "churn": "800k"},
    {"packets": 5000, "flows": 700, "udp": 0, "replies": 0, "churn": "100k"},
    {"packets": 1, "flows": 1, "udp": 1},
    {"packets": 4000, "flows": 500, "family": 6, "churn": "10k", "rate": "1Gbps"},
])
def test_exactly_the_flows_asked_for(values: dict[str, object]) -> None:
    spec = TrafficSpec.parse(values)
    found = list(records(b"".join(generate(spec))))
    assert len(found) == spec.packets
    assert len(by_flow(found)) == spec.flows + spec.new_flows


@pytest.mark.parametrize("skew", ["0", "0.8", "1.2"])
def test_popularity_is_zipf(skew: str) -> None:
    flows, count = 400, 120_000
    sizes = sorted((len(f) for f in by_flow(packets(packets=count, flows=flows, zipf=skew, size=64)).values()),
                   reverse=True)
    weights = [rank ** -float(skew) for rank in range(1, flows + 1)]
    assert sizes[0] == pytest.approx(count * weights[0] / sum(weights), rel=0.03 if float(skew) else 0.3)
    ranks = np.log(np.arange(1, 101))
    slope = np.polyfit(ranks, np.log(sizes[:100]), 1)[0]
    assert slope == pytest.approx(-float(skew), abs=0.03)


def test_sizes_follow_their_weights() -> None:
    found = packets(packets=60_000, flows=100, size="64:7,576:4,1500:1", udp="0.5")
    data = Counter(r.length for r in found if payload(r))
    total = sum(data.values())
    assert {size: round(count / total, 2) for size, count in data.items()} == {64: 0.58, 576: 0.33, 1500: 0.08}
    assert {r.length for r in found if not payload(r)} == {64}


def test_one_size_is_every_packets_size() -> None:
    assert {r.length for r in packets(size=64)} == {64}
    assert {r.length for r in packets(size=64, udp=1)} == {64}
    assert {r.length for r in packets(size=1500)} == {1500, 64}
    assert {r.length for r in packets(size=1500, family=6)} == {1500, 74}
    assert {r.length for r in packets(size=60)} == {60}


def test_packet_rate_is_exact_over_blocks() -> None:
    rate = 14_880_953
    times = [r.time for r in packets(packets=140_000, size=64, rate=f"{rate}pps", start="12.000000345")]
    assert times == [12_000_000_345 + n * 10**9 // rate for n in range(140_000)]


def test_bit_rate_is_exact_over_blocks() -> None:
    rate, bits = 3_333_333_331, 0
    for record in packets(packets=140_000, rate=f"{rate}bps", start="0"):
        assert record.time == bits * 10**9 // rate
        bits += record.length * 8


@pytest.mark.parametrize("rate", ["1Mpps", "4Gbps"])
def test_flows_are_replaced_evenly_at_the_rate_asked_for(rate: str) -> None:
    found = packets(packets=100_000, flows=200, churn="20k", rate=rate, udp=0)
    duration = (found[-1].time - found[0].time) / 1e9
    firsts = sorted(flow[0].time for flow in by_flow(found).values())
    assert (len(firsts) - 200) / duration == pytest.approx(20_000, rel=0.02)
    ends = [r.time for r in found if tcp_flags(r) & FIN and not inward(r)]
    assert len(ends) == len(firsts) - 200
    tenths = Counter(int((time - found[0].time) / duration / 1e8) for time in ends)
    assert all(count == pytest.approx(len(ends) / 10, rel=0.05) for tenth, count in tenths.items() if tenth < 10)


def test_shares_of_udp_and_replies() -> None:
    flows = by_flow(packets(packets=50_000, flows=1000, udp="0.3", replies="0.75", size=100))
    assert sum(flow[0].protocol == UDP for flow in flows.values()) == 300
    data = [r for flow in flows.values() for r in flow[1:] if payload(r)]
    assert sum(map(inward, data)) / len(data) == pytest.approx(0.75, abs=0.01)
    assert not any(inward(flow[0]) for flow in flows.values())
    assert all(not inward(r) for r in packets(replies=0))
    assert all(inward(r) for flow in by_flow(packets(replies=1, udp=1)).values() for r in flow[1:])


@pytest.mark.parametrize("values", [
    {}, {"family": 6}, {"size": 9216, "packets": 300, "flows": 20}, {"size": "61:1,63:1,1001:1"},
    {"udp": 1, "size": "60:1,71:1"}, {"family": 6, "udp": 1, "size": "62:1,69:1,70:1"},
    {"family": 6, "size": 74}, {"packets": 3000, "replies": 0, "churn": "20k", "flows": 100},
    {"family": 6, "inside": "2001:db8::/33", "outside": "2001:db8:8000::/33"},
])
def test_every_checksum_is_right(values: dict[str, object]) -> None:
    found = packets(**values)
    assert all(r.ethertype == (IPV6 if values.get("family") == 6 else IPV4) for r in found)
    assert all(header_sum_ok(r) for r in found if r.ethertype == IPV4)
    assert all(transport_sum_ok(r) for r in found)


def test_a_udp_checksum_is_never_zero_on_the_wire() -> None:
    sums = Counter(r.segment[6:8] for r in packets(packets=140_000, size=64, udp=1))
    assert b"\0\0" not in sums
    assert sums[b"\xff\xff"] > 0, "no packet reached the case"


def test_payloads_carry_the_packets_index() -> None:
    found = packets(packets=70_000, size="62:1,300:1", flows=50)
    carried = [(index, payload(r)) for index, r in enumerate(found) if payload(r)]
    assert len(carried) > 60_000
    assert all(struct.unpack_from(">Q", data)[0] == index and not any(data[8:]) for index, data in carried)


@pytest.mark.parametrize("family", [4, 6])
def test_macs_subnets_and_initiators_name_the_same_sides(family: int) -> None:
    spec = TrafficSpec.parse({"family": family, "churn": "50k"})
    found = list(records(b"".join(generate(spec))))
    assert [str(spec.inside), str(spec.outside)] == list(DEFAULT_NETWORKS[family])
    initiators = {key: flow[0].addresses[0] for key, flow in by_flow(found).items()}
    for record in found:
        source, destination = (ip_address(address) for address in record.addresses)
        from_inside = source in spec.inside
        assert from_inside != (source in spec.outside)
        assert from_inside == (destination in spec.outside)
        assert record.frame[:12].hex() == ("020000000002020000000001" if from_inside else "020000000001020000000002")
        assert from_inside == (record.addresses[0] == initiators[both_ways(record.flow)])


def test_addresses_stay_within_small_networks() -> None:
    found = packets(inside="192.0.2.0/30", outside="192.0.2.77/32", flows=900)
    assert {r.flow[1] for r in found if not inward(r)} == {bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))}
    assert {r.flow[3] for r in found if not inward(r)} == {bytes((192, 0, 2, 77))}


def check_connection(flow: list[Record]) -> bool:
    """Assert that a TCP flow seen from both sides is one connection; returns whether it was closed."""
    flags = [tcp_flags(record) for record in flow]
    assert flags[:3] == [SYN, SYN | ACK, ACK]
    assert [inward(record) for record in flow[:3]] == [False, True, False]
    follows: dict[bool, int] = {}
    for record in flow:
        side = inward(record)
        seq, ack = struct.unpack_from(">II", record.segment, 4)
        assert seq == follows.get(side, seq)
        if tcp_flags(record) & ACK:
            assert ack == follows[not side]
        follows[side] = (seq + len(payload(record)) + bool(tcp_flags(record) & (SYN | FIN))) % 2**32
    assert all(not flag & SYN for flag in flags[2:])
    if not any(flag & FIN for flag in flags):
        return False
    assert flags[-3:] == [FIN | ACK, FIN | ACK, ACK]
    assert [inward(record) for record in flow[-3:]] == [False, True, False]
    assert not any(flag & FIN for flag in flags[:-3])
    return True


@pytest.mark.parametrize("values", [
    {"packets": 140_000, "flows": 60, "churn": "4000", "udp": "0.25"},
    {"packets": 20_000, "flows": 300, "churn": "50k", "udp": 0, "zipf": "0.5", "family": 6, "replies": "0.9"},
])
def test_connections_open_count_and_close_as_tcp_does(values: dict[str, object]) -> None:
    spec = TrafficSpec.parse(values)
    flows = [flow for flow in by_flow(packets(**values)).values() if flow[0].protocol == TCP]
    closed = sum(check_connection(flow) for flow in flows)
    # All but one flow a slot have been replaced; some slots hold UDP.
    assert 0 <= closed - (len(flows) - spec.flows) <= spec.flows * spec.udp


def test_one_sided_connections_are_one_half_of_such() -> None:
    for flow in by_flow(packets(replies=0, udp=0, churn="20k", flows=300)).values():
        flags = [tcp_flags(record) for record in flow]
        assert flags[:2] == [SYN, ACK]
        follows = None
        for record in flow:
            seq, ack = struct.unpack_from(">II", record.segment, 4)
            assert follows is None or seq == follows
            assert bool(ack) == bool(tcp_flags(record) & ACK)
            follows = (seq + len(payload(record)) + bool(tcp_flags(record) & (SYN | FIN))) % 2**32
        assert sum(bool(flag & FIN) for flag in flags) <= 1
        if any(flag & FIN for flag in flags):
            assert flags[-2:] == [FIN | ACK, ACK]


def test_memory_does_not_grow_with_the_packets() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in generate(TrafficSpec.parse({"packets": count, "size": 64})):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(400_000) < 1.5 * peak(100_000)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    packets_=st.integers(200, 3000), flows=st.integers(1, 60), zipf=st.sampled_from(["0", "0.7", "1", "2.25"]),
    churn=st.sampled_from(["0", "10", "3k"]), rate=st.sampled_from(["100kpps", "1Gbps", "7777pps"]),
    udp=st.sampled_from(["0", "0.5", "1"]), replies=st.sampled_from(["0", "0.25", "1"]), seed=st.integers(0, 2**64 - 1),
    family=st.sampled_from([4, 6]), size=st.sampled_from(["imix", "80", "75:1,1400:3"]),
)
def test_any_valid_specification_gives_valid_packets(packets_: int, **values: object) -> None:
    try:
        spec = TrafficSpec.parse({"packets": packets_, **values})
    except CoraError as error:
        assert {d.where for d in error.diagnostics} == {"--packets"}
        return
    found = list(records(b"".join(generate(spec))))
    assert len(found) == packets_
    flows = by_flow(found)
    assert len(flows) == spec.flows + spec.new_flows
    assert all(transport_sum_ok(record) for record in found)
    if spec.replies:
        for flow in flows.values():
            assert flow[0].protocol == UDP or check_connection(flow) in (True, False)


BAD = [
    ({"packets": "0"}, "packets", "out of range"),
    ({"packets": "many"}, "packets", "'many' is not a number"),
    ({"packets": "1.5"}, "packets", "not a whole number"),
    ({"packets": 999}, "packets", "too few for 1000 flows"),
    ({"packets": 10**12}, "packets", "out of range"),
    ({"flows": 0}, "flows", "out of range"),
    ({"flows": -3}, "flows", "is below zero"),
    ({"flows": True}, "flows", "neither text nor a number"),
    ({"flows": [1]}, "flows", "neither text nor a number"),
    ({"size": "0"}, "size", "a frame of 0 bytes is not possible for TCP over IPv4"),
    ({"size": "59"}, "size", "a frame of 59 bytes"),
    ({"size": "64", "family": 6}, "size", "a frame of 64 bytes is not possible for TCP over IPv6"),
    ({"size": "61", "family": 6, "udp": 1}, "size", "not possible for UDP over IPv6"),
    ({"size": "9217"}, "size", "a frame of 9217 bytes"),
    ({"size": "big"}, "size", "'big' is not a frame size"),
    ({"size": "64:"}, "size", "'64:' is not a frame size"),
    ({"size": "64:0"}, "size", "weight is out of range"),
    ({"size": "64,64"}, "size", "given twice"),
    ({"size": ",".join(map(str, range(100, 200)))}, "size", "100 sizes"),
    ({"size": ""}, "size", "'' is not a frame size"),
    ({"zipf": "-1"}, "zipf", "is below zero"),
    ({"zipf": "5"}, "zipf", "out of range"),
    ({"zipf": "0.12345678901"}, "zipf", "more than nine decimals"),
    ({"churn": "often"}, "churn", "is not a number"),
    ({"churn": "1M"}, "packets", "1000 flows and 10000 new ones"),
    ({"rate": "10"}, "rate", "does not say packets (pps) or bits (bps)"),
    ({"rate": "0pps"}, "rate", "is zero"),
    ({"rate": "1pps", "packets": "5G"}, "rate", "after the year 2106"),
    ({"rate": "999Tbps"}, "rate", "out of range"),
    ({"udp": "2"}, "udp", "more than the whole"),
    ({"replies": "-0.5"}, "replies", "is below zero"),
    ({"seed": "x"}, "seed", "is not a whole number"),
    ({"seed": str(2**64)}, "seed", "out of range"),
    ({"family": "5"}, "family", "no IP version '5'"),
    ({"inside": "10.0.0.1/8"}, "inside", "has host bits set"),
    ({"inside": "lan"}, "inside", "'lan' is not a network"),
    ({"inside": "2001:db8::/64"}, "inside", "not an IPv4 network"),
    ({"inside": "198.18.0.0/16"}, "outside", "overlaps the inside network"),
    ({"inside": "10.0.0.1/32", "flows": "70k", "packets": "1M"}, "inside", "has room for 64512 flows"),
    ({"start": "soon"}, "start", "is not a number"),
    ({"start": "0.0000000001"}, "start", "finer than a nanosecond"),
    ({"start": "5G"}, "start", "out of range"),
    ({"flow": 3}, "flow", "no traffic property 'flow'"),
]


@pytest.mark.parametrize(("values", "field", "words"), BAD)
def test_nonsense_is_refused(values: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(CoraError) as caught:
        TrafficSpec.parse(values)
    [problem] = caught.value.diagnostics
    assert problem.kind is Kind.TRAFFIC_SPEC
    assert problem.where == f"--{field}"
    assert words in problem.message
    assert problem.hint


def test_all_problems_come_in_one_error() -> None:
    with pytest.raises(CoraError) as caught:
        TrafficSpec.parse({"packets": "x", "rate": "3", "sise": 1}, source="a.traffic.json")
    assert [d.where for d in caught.value.diagnostics] == [
        "a.traffic.json: sise", "a.traffic.json: packets", "a.traffic.json: rate"]
    assert caught.value.diagnostics[0].hint == "did you mean 'size'?"


def test_a_specification_made_in_python_is_checked_too() -> None:
    with pytest.raises(CoraError):
        TrafficSpec(flows=0)
    with pytest.raises(CoraError):
        TrafficSpec(sizes=())
    with pytest.raises(CoraError):
        TrafficSpec(rate=Rate(0, "pps"))
    with pytest.raises(CoraError):
        TrafficSpec(zipf=Fraction(1, 3))


def test_every_field_has_a_default_and_the_defaults_are_the_classes() -> None:
    assert TrafficSpec.parse({}) == TrafficSpec()
    assert TrafficSpec.parse({key: default for key, (default, _) in FIELDS.items()}) == TrafficSpec()
    assert TrafficSpec.parse(dict.fromkeys(FIELDS)) == TrafficSpec()


def test_a_saved_specification_reads_back(tmp_path: Path) -> None:
    spec = TrafficSpec.parse({"size": "80:1,900:5", "rate": "2.5Gbps", "zipf": "0.95", "start": "1.000000001",
                              "family": 6, "churn": "0.5", "seed": 2**64 - 1})
    path = tmp_path / "x.traffic.json"
    save(spec, path)
    assert is_spec_file(path) and not is_spec_file(tmp_path / "x.pcap")
    assert load(path) == spec
    assert load(path).digest() == spec.digest() != TrafficSpec().digest()
    document = json.loads(path.read_text())
    assert document["format"] == "cora-traffic" and document["version"] == 1
    assert set(document) == {"format", "version", *FIELDS}


def test_a_specification_file_is_usable_as_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "small.traffic.json"
    path.write_text(json.dumps({"format": "cora-traffic", "version": 1, "packets": 500, "flows": 20, "udp": 0.5,
                                "rate": "1Gbps"}))
    first = materialise(path)
    assert first.read_bytes() == capture(packets=500, flows=20, udp="0.5", rate="1Gbps")
    assert materialise(path) == first
    assert tmp_path not in first.parents


@pytest.mark.parametrize(("text", "kind", "where", "words"), [
    (None, Kind.FILE_UNREADABLE, "", "cannot read the file: No such file"),
    (b"\xff\xfe{}", Kind.FILE_UNREADABLE, "", "not UTF-8"),
    (b"{\n  nope", Kind.TRAFFIC_SPEC, ":2:3", "not JSON"),
    (b"[" * 100_000, Kind.TRAFFIC_SPEC, "", "nested too deep"),
    (b"[]", Kind.TRAFFIC_SPEC, "", "not a traffic specification"),
    (b'{"packets": 5}', Kind.TRAFFIC_SPEC, "", "not a traffic specification"),
    (b'{"format": "cora-traffic", "version": 2}', Kind.TRAFFIC_SPEC, ": version", "version"),
    (b'{"format": "cora-traffic", "version": 1, "rate": 7}', Kind.TRAFFIC_SPEC, ": rate", "does not say packets"),
    (b'{"format": "cora-traffic", "version": 1, "udp": NaN}', Kind.TRAFFIC_SPEC, ": udp", "not a share"),
    (b'{"packets": 1' + b"0" * 5000 + b"}", Kind.TRAFFIC_SPEC, "", "a number too long"),
    (b'{"format": "cora-traffic", "version": 1, "size": {}}', Kind.TRAFFIC_SPEC, ": size", "neither text nor"),
])
def test_bad_specification_files(tmp_path: Path, text: bytes | None, kind: Kind, where: str, words: str) -> None:
    path = tmp_path / "bad.traffic.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(CoraError) as caught:
        materialise(path)
    [problem] = caught.value.diagnostics
    assert problem.kind is kind
    assert problem.where == f"{path}{where}"
    assert words in problem.message


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.pcap"
    progress: list[int] = []
    write(TrafficSpec.parse({"packets": 140_000, "size": 64}), path, progress.append)
    assert sum(progress) == 140_000 and len(progress) == 3
    before = path.read_bytes()

    def broken(spec: TrafficSpec) -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(synthetic, "generate", broken)
    with pytest.raises(CoraError) as caught:
        write(TrafficSpec(), path)
    assert caught.value.diagnostics[0].kind is Kind.CANNOT_WRITE
    assert "No space left on device" in caught.value.diagnostics[0].message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(TrafficSpec(), tmp_path / "out.pcap.gz", stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["absent/out.pcap", "file/out.pcap", "."])
def test_places_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoraError) as caught:
        write(TrafficSpec(), tmp_path / name)
    assert caught.value.diagnostics[0].kind is Kind.CANNOT_WRITE
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_gz_name_compresses_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap.gz"
    write(TrafficSpec(), path)
    assert gzip.decompress(path.read_bytes()) == capture()
