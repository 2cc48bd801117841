"""What keeps a rule of decided flows out of the card's switch, with the line of the program that asks for it.

Limits of matching and rewriting are those of the mlx5 driver (DPDK 22.11): masked equality only, so ranges become
prefixes; fields are set to a value, copied, or get a constant added; 32 words of header at most are changed by a rule.
IPv4 options, IPv6 extension headers and further VLAN tags are no reason: a rule asks for a packet without them, and the
others go to the next place as packets without a rule do.

A path's conditions that are the same for every flow stand once, in a small table of their own; what a flow's entry says
is one rule of the flows' table.
"""

from __future__ import annotations

from cora.analysis.decided import Match, Rewrite, RuleTemplate
from cora.backends.bluefield.eswitch import MATCHED, PLACE, prefixes
from cora.ir.headers import QUOTED, field_of
from cora.ir.span import Span
from cora.models.target import Refusal

MODIFY_WORDS = 32
WORD_BITS = 32
# The small table is priced as one of at most 1000 rules.
MOST_RULES = 1000

# Header fields that the driver writes, and those whose value a constant can be added to.
_ADDRESSES = ("src", "dst")
_WRITTEN: dict[str, tuple[str, ...]] = {
    "eth": _ADDRESSES,
    "vlan": ("vid",),
    "ipv4": ("dscp", "ttl", *_ADDRESSES),
    "ipv6": ("dscp", "hop_limit", *_ADDRESSES),
    "tcp": ("sport", "dport", "seq", "ack", "flags"),
    "udp": ("sport", "dport"),
    "l4": ("sport", "dport"),
}


def refuse_rule(template: RuleTemplate, ports: int) -> Refusal | None:
    """The first thing a rule asks for that the switch cannot do, or None. ``ports``: of the program."""
    reason = (_extracts(template) or _matches(template) or _rewrites(template) or _counts(template)
              or _room(template, ports))
    return Refusal(template.component, PLACE, reason[0], reason[1]) if reason else None


Found = tuple[str, Span] | None


def _extracts(template: RuleTemplate) -> Found:
    for node, outcome in template.extracts:
        if node.header.startswith(QUOTED):
            return "the packet quoted in an ICMP error lies deeper than the switch's parser reads", node.span
        if node.header not in MATCHED:
            return f"the switch's rules cannot check an {node.header} header", node.span
        if outcome not in ("ok", "absent"):
            return (f"it is for packets whose {node.header} header is {outcome.replace('_', ' ')}: rules match headers "
                    "that are there and right"), node.span
    return None


def _matches(template: RuleTemplate) -> Found:
    for match in template.matches:
        if (match.header, match.field) == ("meta", "port"):
            continue
        if match.header.startswith(QUOTED):
            return "the packet quoted in an ICMP error lies deeper than the switch's parser reads", match.span
        if match.field not in MATCHED.get(match.header, ()):
            return f"the switch's rules cannot match '{match.header}.{match.field}'", match.span
    return None


def _rewrites(template: RuleTemplate) -> Found:
    words = 0
    for rewrite in template.rewrites:
        reason = _rewrite(rewrite)
        if reason:
            return reason, rewrite.span
        words += -(-_bits(rewrite.header, rewrite.field) // WORD_BITS)
        if words > MODIFY_WORDS:
            return (f"up to '{rewrite.header}.{rewrite.field}' it changes {words} words of headers: a rule of the "
                    f"switch changes at most {MODIFY_WORDS}"), rewrite.span
    return None


def _rewrite(rewrite: Rewrite) -> str | None:
    name = f"{rewrite.header}.{rewrite.field}"
    if rewrite.field not in _WRITTEN.get(rewrite.header, ()):
        return f"the switch's rules cannot rewrite '{name}'"
    if rewrite.source is None or rewrite.source == (rewrite.header, rewrite.field) or not rewrite.amount:
        return None
    return (f"'{name}' gets '{'.'.join(rewrite.source)}' plus {rewrite.amount}: the switch adds a constant to a field "
            "in place, or copies a field, not both")


def _bits(header: str, name: str) -> int:
    found = field_of(header, name)
    return found.bits if found else WORD_BITS


def _counts(template: RuleTemplate) -> Found:
    for counting in template.counts:
        if counting.octets is not None:
            return (f"'{counting.counter}' is counted by an amount of the program's: the switch counts packets and "
                    "frame lengths"), counting.span
    return None


def rules_of(template: RuleTemplate, ports: int) -> int:
    """Rules of the small table that a path takes on a card with so many ports: the product of its ranges' prefixes."""
    rules = 1
    for match in template.matches:
        rules *= _prefixes(match, ports)
    return rules


def _prefixes(match: Match, ports: int) -> int:
    """Values and masks that cover a match's ranges."""
    if not match.ranges:
        return 1
    if (match.header, match.field) == ("meta", "port"):
        return sum(low <= port <= high for low, high in match.ranges for port in range(ports))
    bits = match.mask.bit_length()
    if match.mask != (1 << bits) - 1:
        # Some bits of the field: only single values of them have a value and a mask.
        return sum(high - low + 1 for low, high in match.ranges)
    return sum(prefixes(low, high, bits) for low, high in match.ranges)


def _room(template: RuleTemplate, ports: int) -> Found:
    rules = rules_of(template, ports)
    if rules <= MOST_RULES:
        return None
    worst = max(template.matches, key=lambda match: _prefixes(match, ports))
    return (f"its conditions take {rules} rules: the switch has no ranges, '{worst.header}.{worst.field}' alone is "
            f"{_prefixes(worst, ports)} prefixes"), worst.span
