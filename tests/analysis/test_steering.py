"""Whether cores can divide a state by a steering hash: by hand, and against the entries that packets really touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from sharding_kit import SHIPPED, office, random_program, shipped, written
from sharding_oracle import Passage, Watched, arrived_fields

from cora.analysis.sharding import sharding_of
from cora.analysis.steering import Steering, SteeringKey, steering_of
from cora.engine.reference.packet import Packet as Arrived
from cora.engine.results import Options
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.testing import Packet, covering_packets, exercising_packets

HEAD = """nf small {
  port inside: wire;
  port outside: wire;
  struct Flow { src: ipv4, sp: u16, dst: ipv4, dp: u16 }
  pool ports: u16 in 1024 .. 65535;
  pair map conns { entry { flow: Flow, xp: u16 = alloc ports, mark: u32, n: u32 } key fwd = flow; key rev = REV;
    capacity 100; }
  map hosts { entry { a: ipv4, n: u32 } key = a; capacity 100; }
  fragments drop;
"""
OPEN = ("insert conns { flow: FLOW, mark: 7, n: 0 } "
        '{ ok e { p.l4.sport = e.xp; forward outside; } full { drop "full"; } }')
FLOW = "Flow(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport)"


def pair(rev: str, key: str, flow: str = FLOW) -> Steering:
    text = HEAD.replace("REV", rev)
    text += ("  on inside(p: eth/ipv4/(tcp|udp)) { lookup conns.fwd[" + FLOW + "] { "
             "hit e { e.n = 1; forward outside; } miss { " + OPEN.replace("FLOW", flow) + " } } }\n"
             "  on outside(p: eth/ipv4/(tcp|udp)) { lookup conns.rev[" + key + "] { hit e { e.n = 2; } } "
             "forward inside; }\n}")
    return steering_of(written(text), "conns")


def hosts(inside: str, outside: str) -> Steering:
    text = HEAD.replace("REV", "xp")
    text += f"  on inside(p: eth/ipv4/(tcp|udp)) {{ {inside} forward outside; }}\n"
    text += f"  on outside(p: eth/ipv4/(tcp|udp)) {{ {outside} forward inside; }}\n}}"
    return steering_of(written(text), "hosts")


def header_fields(key: SteeringKey) -> set[str]:
    return {h for _, h in key.fields}


def test_nat_meets_by_the_pool_value() -> None:
    found = steering_of(shipped("nat.ref"), "conns")
    assert found.meeting == "pool value"
    assert [(k.port, header_fields(k)) for k in found.keys] == [
        ("inside", {"ipv4.src", "l4.sport", "ipv4.dst", "l4.dport", "ipv4.proto"}), ("outside", {"l4.dport"})]
    assert {r.span.line for r in found.refusals} == {15, 17}


def test_directions_meet_by_the_fields_both_keys_have() -> None:
    found = pair("(xp, flow.dst, flow.dp)", "(p.l4.dport, p.ip.src, p.l4.sport)")
    assert found.meeting == "common fields"
    assert [k.fields for k in found.keys] == [
        (("flow.dp", "l4.dport"), ("flow.dst", "ipv4.dst")), (("flow.dp", "l4.sport"), ("flow.dst", "ipv4.src"))]
    assert not found.elsewhere


def test_keys_without_a_common_field_or_a_pool_do_not_meet() -> None:
    found = pair("mark", "u32(p.ip.id)")
    assert found.meeting == ""
    assert any("share no field" in r.text for r in found.refusals)


def test_an_entry_made_for_another_flow_belongs_to_another_core() -> None:
    found = pair("(xp, flow.dst, flow.dp)", "(p.l4.dport, p.ip.src, p.l4.sport)",
                 flow="Flow(p.ip.dst, p.l4.dport, p.ip.src, p.l4.sport)")
    assert [o.kind for o in found.elsewhere] == ["insert"]


def test_one_key_by_other_fields_on_each_port() -> None:
    found = hosts("lookup hosts[p.ip.src] { hit e { e.n = 1; } }", "lookup hosts[p.ip.dst] { hit e { e.n = 2; } }")
    assert found.meeting == "one key"
    assert [(k.port, header_fields(k)) for k in found.keys] == [("inside", {"ipv4.src"}), ("outside", {"ipv4.dst"})]
    assert not found.elsewhere


def test_two_fields_on_one_port_do_not_meet() -> None:
    found = hosts("if p.ip.ttl > 9 { lookup hosts[p.ip.src] { hit e { e.n = 1; } } } "
                  "else { lookup hosts[p.ip.dst] { hit e { e.n = 2; } } }", "")
    assert [(o.kind, "steered by other fields" in o.reason) for o in found.elsewhere] == [("lookup", True)]


def test_computed_keys_are_not_steered_by() -> None:
    found = hosts("lookup hosts[ipv4(u32(p.ip.src) & 0xff)] { hit e { e.n = 1; } }", "")
    assert found.meeting == ""
    assert not found.divides


def test_the_card_does_not_steer_by_time() -> None:
    """The smallest form of what random program 656 showed."""
    found = hosts("lookup hosts[ipv4(u32(u64(now)))] { hit e { e.n = 1; } }", "")
    assert not found.keys
    text = ("nf t { port a: wire; port b: wire; meter m { key at: u32; rate 1000; burst 2000B; capacity 10; } "
            "fragments drop; on a(p: eth) { police m[p.size] { green { } red { drop \"r\"; } full { drop \"f\"; } } "
            "forward b; } on b(p: eth) { forward a; } }")
    found = steering_of(written(text), "m")
    assert not found.keys
    assert found.meeting == ""


def test_per_shard_divides() -> None:
    text = ("nf t { port a: wire; port b: wire; "
            "map hosts { entry { a: ipv4, n: u32 } key = a; capacity 10; per_shard; }"
            "fragments drop; on a(p: eth/ipv4) { lookup hosts[p.ip.src] { hit e { e.n = 1; } } forward b; }"
            "on b(p: eth) { forward a; } }")
    assert steering_of(written(text), "hosts").divides
    assert not steering_of(written(text.replace("per_shard; ", "")), "hosts").divides


def test_an_icmp_error_is_led_by_its_outer_headers() -> None:
    lines = {o.span.line for o in steering_of(shipped("nat"), "conns").elsewhere if "quotes" in o.reason}
    assert lines == {275, 290, 339, 352}


# --- brute force ---


def steered_by(found: Steering, program: Program, passage: Passage, packet: Arrived) -> SteeringKey | None:
    """The key that the card would use for a packet, by its port and the headers it has."""
    port = program.ports[passage.packet.port].name
    network = next((h for h in ("ipv4", "ipv6", "arp") if h in packet.at), "")
    upper = next((h for h in ("l4", "icmp", "icmp6") if h in packet.at), "")
    for key in found.keys:
        if key.port == port and key.headers[0] in ("", network) and key.headers[1] in ("", upper):
            return key
    return None


def strays(program: Program, component: str, packets: Sequence[Packet], planting: int | None) -> Iterator[str]:
    """Entries that a packet touches although its steering key is not theirs, where that is not said."""
    found = steering_of(program, component)
    if not found.meeting:
        return
    said = {o.block for o in found.elsewhere}
    watched = Watched(program, Options(), planting)
    for number, sent in enumerate(packets):
        for passage in watched.process(sent):
            tracked = any(isinstance(program.block(b).terminator, nodes.TrackFragment) for b in passage.blocks)
            if passage.follower or tracked or said.intersection(passage.blocks):
                continue
            packet = arrived_fields(program, passage, Options())
            for access in (a for a in passage.accesses if a.component == component and a.entry is not None):
                if access.kind not in ("lookup", "insert", "police"):
                    continue
                key = steered_by(found, program, passage, packet)
                if key is None:
                    yield f"packet {number} is not steered"
                    continue
                for entry_field, header in key.fields:
                    name, _, part = header.partition(".")
                    value = packet.load(name, part) if part else int(header)
                    if value != access.fields[entry_field]:
                        yield f"packet {number} with {header} {value} at an entry of {access.fields[entry_field]}"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_programs(name: str) -> None:
    program = shipped(name)
    for component, sharding in sharding_of(program).items():
        if sharding.anchors:
            assert list(strays(program, component, covering_packets(program, 8, 600).packets, planting=8)) == []
            assert list(strays(program, component, office(name, 1000), None)) == []


@pytest.mark.parametrize("seed", range(100, 130))
def test_random_programs(seed: int) -> None:
    program = random_program(seed)
    packets = exercising_packets(program, seed, 150)
    for component, sharding in sharding_of(program).items():
        if sharding.anchors:
            assert list(strays(program, component, packets, planting=seed)) == []


def test_brute_force_finds_a_wrong_steering_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The firewall's outside key with source and destination exchanged leads replies to another core."""
    program = shipped("firewall.ref")
    right = steering_of(program, "conns")
    turned = tuple(k if k.port == "inside" else SteeringKey(k.port, k.headers, k.key, right.keys[0].fields)
                   for k in right.keys)
    wrong = Steering("conns", turned, right.meeting, (), ())
    monkeypatch.setattr("test_steering.steering_of", lambda *_: wrong)
    assert list(strays(program, "conns", office("firewall.ref", 400), None))
