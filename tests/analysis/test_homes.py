"""Where entries live when cores divide state, and which first accesses can be led there. Expectations read off the
programs by hand."""

from __future__ import annotations

from pathlib import Path

from cora.analysis.homes import homes_of, led_at
from cora.frontends import nf
from cora.ir.nodes import Insert, Lookup, Police, Program, TrackFragment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEAD = "nf x { port a: wire; port b: wire; fragments ignore; unparsed drop; "
MAP = "map m {{ entry {{ {fields} }} {keys} timeout 9s; capacity 9; full {full}; }} "


def led(program: Program) -> dict[int, tuple[str, str]]:
    """How packets are led and why not, by the line of their access."""
    homes = homes_of(program)
    found: dict[int, tuple[str, str]] = {}
    for block in program.blocks:
        if isinstance(block.terminator, Lookup | Insert | Police | TrackFragment):
            item = led_at(program, homes, block)
            found[item.span.line] = (item.by, item.reason)
    return found


def look_up(program: Program) -> tuple[str, str]:
    """How packets are led by the first look-up of a program."""
    block = next(b for b in program.blocks if isinstance(b.terminator, Lookup))
    item = led_at(program, homes_of(program), block)
    return item.by, item.reason


def test_the_nat_leads_by_flow_by_pool_value_and_by_quoted_packets() -> None:
    program = nf.load(EXAMPLES / "nat.nf")
    assert homes_of(program).fields == {"conns": ("flow.src", "flow.sp", "flow.dst", "flow.dp")}
    found = led(program)
    by = {line: kind for line, (kind, _) in found.items()}
    # Outbound TCP, UDP and queries; errors that quote an inside flow: by the flow.
    assert {by[143], by[234], by[339], by[352]} == {"home"}
    # Answers, and errors from outside that quote a translated packet: by the external port.
    assert {by[215], by[259], by[275], by[290]} == {"owner"}
    # Hairpins need two entries; fragments meet at their tracker.
    assert {by[166], by[315], by[205], by[213]} == {"alone"}
    assert "another entry" in found[166][1]


def test_both_directions_of_the_firewall_name_one_home() -> None:
    found = led(nf.load(EXAMPLES / "firewall.ref.nf"))
    assert found[28][0] == found[40][0] == "home"


def test_protocol_numbers_are_no_part_of_a_home() -> None:
    program = nf.loads(HEAD + MAP.format(fields="s: ipv4, p: u8", keys="key by = (s, p);", full="reject") +
                       "on a(p: eth/ipv4) { lookup m.by[(p.ip.src, p.ip.proto)] { hit e { forward b; } "
                       "miss { drop \"no\"; } } } on b(p: eth) { forward a; } }")
    assert homes_of(program).fields["m"] == ("s",)


def test_what_evicts_lives_at_one_core() -> None:
    program = nf.loads(HEAD + MAP.format(fields="s: ipv4", keys="key by = s;", full="evict_lru") +
                       "on a(p: eth/ipv4) { lookup m.by[p.ip.src] { hit e { touch e; forward b; } miss { insert m "
                       "{ s: p.ip.src } { ok { forward b; } full { forward b; } } } } } on b(p: eth) { forward a; } }")
    homes = homes_of(program)
    assert homes.fields["m"] == () and "one order of use over all entries" in homes.why["m"]
    assert {kind for kind, _ in led(program).values()} == {"alone"}


def test_an_entry_made_for_another_key_is_made_alone() -> None:
    text = HEAD + MAP.format(fields="s: ipv4", keys="key by = s;", full="reject") + (
        "on a(p: eth/ipv4) { lookup m.by[p.ip.src] { hit e { forward b; } miss { insert m { s: KEY } "
        "{ ok { forward b; } full { drop \"full\"; } } } } } on b(p: eth) { forward a; } }")
    homes = {key: look_up(nf.loads(text.replace("KEY", f"p.ip.{key}"))) for key in ("src", "dst")}
    assert homes["src"] == ("home", "")
    kind, reason = homes["dst"]
    assert kind == "alone" and "whose home is not known to be here" in reason


def test_a_second_table_makes_a_packet_run_alone() -> None:
    program = nf.loads(HEAD + MAP.format(fields="s: ipv4", keys="key by = s;", full="reject") +
                       MAP.format(fields="d: ipv4", keys="key by = d;", full="reject").replace("map m", "map n") +
                       "on a(p: eth/ipv4) { lookup m.by[p.ip.src] { hit e { lookup n.by[p.ip.dst] { hit f { "
                       "forward b; } miss { drop \"n\"; } } } miss { drop \"m\"; } } } on b(p: eth) { forward a; } }")
    homes = homes_of(program)
    first = next(b for b in program.blocks if isinstance(b.terminator, Lookup) and b.terminator.state == "m")
    found = led_at(program, homes, first)
    assert found.by == "alone" and "go on to an entry of 'n'" in found.reason
