"""What keeps rules of decided flows out of the switch: one template per limit, and those of the shipped programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cora.analysis.decided import Counting, Match, Rewrite, RuleTemplate, decide
from cora.analysis.paths import enumerate_paths
from cora.analysis.sharding import Anchor
from cora.analysis.symbolic import Expressions
from cora.api import load
from cora.backends.bluefield.decided import refuse_rule, rules_of
from cora.ir import nodes
from cora.ir.span import Span
from cora.models import registry
from cora.models.target import Refusal

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HERE, THERE = Span("case.nf", 3, 1, 3, 9), Span("case.nf", 8, 1, 8, 9)
ANCHOR = Anchor("flows", "flows", "key", "b", ("wire",), (), HERE)
PLAIN = RuleTemplate("flows", (), (), ANCHOR, (), (), (), (), (), (), (), None, "out", "", frozenset())
MAKE = Expressions()


def match(header: str, field: str, *ranges: tuple[int, int], mask: int = 0xffff, entry: str = "") -> Match:
    return Match(header, field, mask, ranges, entry, False, THERE)


def setting(header: str, field: str) -> Rewrite:
    return Rewrite(header, field, MAKE.const(1, 32), None, 0, THERE)


def extract(header: str, limit: int = 0) -> nodes.Extract:
    return nodes.Extract(header, limit, False, False, (), THERE)


def moving(header: str, field: str, source: tuple[str, str], amount: int) -> Rewrite:
    return Rewrite(header, field, None, source, amount, THERE)


@pytest.mark.parametrize("template", [
    PLAIN,
    replace(PLAIN, matches=(match("ipv4", "src", entry="src"), match("l4", "dport", (80, 80)),
                            match("meta", "port", (0, 0)))),
    replace(PLAIN, rewrites=(setting("ipv4", "src"), setting("l4", "sport"), moving("ipv4", "ttl", ("ipv4", "ttl"), -1),
                             moving("eth", "dst", ("eth", "src"), 0))),
    replace(PLAIN, extracts=((extract("eth", 4), "ok"), (extract("ipv6", 8), "ok"), (extract("tcp"), "ok"))),
    replace(PLAIN, counts=(Counting("hits", None, None, THERE),)),
    # 32 words: sixteen MAC addresses would be; eight of IPv6 are.
    replace(PLAIN, rewrites=(setting("ipv6", "src"),) * 8),
], ids=["plain", "matches", "rewrites", "options", "counts", "words"])
def test_what_the_switch_can_do_is_a_rule(template: RuleTemplate) -> None:
    assert refuse_rule(template, 2) is None


@pytest.mark.parametrize(("template", "part"), [
    (replace(PLAIN, matches=(match("ipv4", "id", (1, 1)),)), "cannot match 'ipv4.id'"),
    (replace(PLAIN, matches=(match("meta", "size", (1, 64)),)), "cannot match 'meta.size'"),
    (replace(PLAIN, matches=(match("quoted.ipv4", "src", entry="src"),)), "deeper than the switch's parser"),
    (replace(PLAIN, extracts=((extract("quoted.ipv4"), "ok"),)), "deeper than the switch's parser"),
    (replace(PLAIN, extracts=((extract("arp"), "ok"),)), "cannot check an arp header"),
    (replace(PLAIN, extracts=((extract("ipv4"), "bad_checksum"),)), "whose ipv4 header is bad checksum"),
    (replace(PLAIN, rewrites=(setting("eth", "type"),)), "cannot rewrite 'eth.type'"),
    (replace(PLAIN, rewrites=(setting("icmp", "id"),)), "cannot rewrite 'icmp.id'"),
    (replace(PLAIN, rewrites=(moving("l4", "sport", ("l4", "dport"), 5),)), "'l4.sport' gets 'l4.dport' plus 5"),
    (replace(PLAIN, rewrites=(setting("ipv6", "src"),) * 9), "changes 36 words"),
    (replace(PLAIN, counts=(Counting("hits", None, MAKE.const(1, 64), THERE),)), "counts packets and frame lengths"),
    (replace(PLAIN, matches=(match("l4", "sport", (1, 65534)), match("l4", "dport", (1, 65534)),
                             match("ipv4", "ttl", (2, 255), mask=0xff))), "'l4.sport' alone is 30 prefixes"),
])
def test_what_it_cannot_is_refused_with_the_line(template: RuleTemplate, part: str) -> None:
    found = refuse_rule(template, 2)
    assert found is not None and part in found.reason, found
    assert (found.place, found.subject, found.span) == ("switch", "flows", THERE)


def test_ranges_of_a_small_table_multiply() -> None:
    ttl, ports = match("ipv4", "ttl", (2, 255), mask=0xff), match("l4", "dport", (1024, 65535))
    # 2..255 is seven prefixes, 1024..65535 is six.
    assert rules_of(replace(PLAIN, matches=(ttl,)), 2) == 7
    assert rules_of(replace(PLAIN, matches=(ttl, ports)), 2) == 42
    # All ports but one of three; two values of two bits of a field.
    assert rules_of(replace(PLAIN, matches=(match("meta", "port", (0, 0), (2, 65535)),)), 3) == 2
    assert rules_of(replace(PLAIN, matches=(match("tcp", "flags", (0, 0), (2, 2), mask=6),)), 3) == 2


def test_rules_of_the_shipped_programs() -> None:
    target = registry.get("bluefield2")
    for name, component, refused in (("nat", "conns", {238, 264}), ("firewall", "conns4", set[int]())):
        program = load(EXAMPLES / f"{name}.nf")
        found: Counter[str] = Counter()
        lines = set()
        for path in enumerate_paths(program):
            template = decide(program, component, path.blocks, path.outcomes)
            if not isinstance(template, RuleTemplate):
                continue
            answer = target.rule(program, template, 0, 1000)
            found["refused" if isinstance(answer, Refusal) else "rule"] += 1
            if isinstance(answer, Refusal) and "icmp.id" in answer.reason:
                lines.add(answer.span.line if answer.span else 0)
        assert found["rule"] > 0
        # The identifier of a ping is rewritten by the NAT only.
        assert lines == refused
