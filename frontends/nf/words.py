"""The words that a program cannot use as names, and words of other languages a newcomer may write."""

from __future__ import annotations

from cora.frontends.nf.types import scalar_named

# Constructs that are planned and refused for now, with how to call them.
NOT_YET = {
    "array": "arrays", "sketch": "count-min sketches", "bloom": "Bloom filters", "ring": "consistent-hash rings",
    "queue": "queues", "timer": "timers", "header": "user-defined headers", "parser": "user-defined parse graphs",
    "import": "imports", "chain": "chains of network functions", "clone": "cloning packets",
    "reply": "replying with a packet", "flood": "flooding", "push": "pushing headers", "pop": "popping headers",
    "encap": "encapsulation", "decap": "decapsulation", "payload": "payload access", "mpls": "MPLS headers",
    "gre": "GRE headers", "vxlan": "VXLAN headers", "geneve": "Geneve headers", "esp": "ESP headers",
    "bth": "RoCEv2 headers",
}
NOT_YET_HINT = "docs/language.md, 'What is not there yet', lists what is planned"

KEYWORDS = frozenset({
    "let", "var", "if", "else", "match", "for", "lookup", "insert", "touch", "delete", "police", "count", "forward",
    "drop", "reject", "return", "true", "false", "nf", "on", "fn", "_",
})
BUILT_IN = frozenset({"min", "max", "now"})

# What to write instead of a word that other languages have.
FOREIGN = {
    "while": "loops have fixed bounds: for i in 0 .. 4 { ... }",
    "switch": "write match x { 1 => { ... } _ => { ... } }",
    "elif": "write 'else if'", "elsif": "write 'else if'", "elseif": "write 'else if'",
    "func": "write fn name(...) { ... }", "function": "write fn name(...) { ... }",
    "def": "write fn name(...) { ... }", "send": "write forward PORT;", "emit": "write forward PORT;",
    "update": "set a field of the entry: e.field = value;", "then": "the body of an 'if' stands in braces",
    "do": "bodies stand in braces", "int": "write let name = value; or var name: u32 = value;",
    "and": "write '&&'", "or": "write '||'", "not": "write '!'", "action": "write fn name(...) { ... }",
    "table": "tables are map, pair map, acl or lpm", "include": "one program is one file",
}


def refused_name(name: str) -> str | None:
    """Why a declaration or a variable cannot have this name; None when it can."""
    if name in KEYWORDS or name in NOT_YET:
        return f"'{name}' is a word of the language and cannot be a name"
    if name in BUILT_IN or scalar_named(name) is not None:
        return f"'{name}' is a built-in name"
    return None


def not_yet(word: str) -> str:
    """The message for a construct that is planned."""
    return f"'{word}' is not in this version of the language ({NOT_YET[word]})"
