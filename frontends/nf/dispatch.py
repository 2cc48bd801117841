"""From header patterns to a parse tree: which handler gets a packet, and which headers are checked on the way.

The handler with the longest pattern that fits wins. A header that its predecessor announces (an EtherType, a protocol
number) but that is malformed or not captured never falls through to a shorter pattern: such packets are dropped
under their own names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cora.errors import Kind
from cora.frontends.nf import ast
from cora.frontends.nf.builder import Builder
from cora.frontends.nf.declare import Errors, Symbols
from cora.frontends.nf.words import NOT_YET, NOT_YET_HINT, not_yet
from cora.ir import nodes
from cora.ir.headers import ETHERTYPE, ICMP6_ERRORS, ICMP_ERRORS, PROTOCOL, field_of
from cora.ir.span import Span
from cora.ir.types import U16

# Which headers may follow which in a pattern. Names below "quoted" are those of the quoted packet.
_AFTER: dict[str, tuple[str, ...]] = {
    "": ("eth",), "eth": ("vlan", "arp", "ipv4", "ipv6"), "vlan": ("arp", "ipv4", "ipv6"),
    "ipv4": ("tcp", "udp", "icmp"), "ipv6": ("tcp", "udp", "icmp6"),
    "icmp": ("quoted.ipv4",), "icmp6": ("quoted.ipv6",),
    "quoted.ipv4": ("quoted.tcp", "quoted.udp", "quoted.icmp"),
    "quoted.ipv6": ("quoted.tcp", "quoted.udp", "quoted.icmp6"),
}

# How the failing outcomes of an extraction are named.
_FAILED = {"malformed": "malformed", "bad_checksum": "bad IPv4 checksum", "source_route": "source route"}
_FRAGMENT_FAILED = {"malformed": "malformed fragment", "tiny": "tiny fragment", "overlap": "overlapping fragment",
                    "duplicate": "duplicate fragment", "too_many": "too many fragments held",
                    "dead": "fragment of a condemned datagram", "full": "fragment table full"}


@dataclass
class Node:
    """A step of the tree: the handler whose pattern ends here, and the headers that longer patterns go on with.

    ``span`` is the first pattern with this step; the code that checks the step's header carries it.
    """

    span: Span
    handler: ast.HandlerDecl | None = None
    children: dict[str, Node] = field(default_factory=dict)


@dataclass
class Entered:
    """A handler's first block and the headers extracted on every way into it."""

    label: str
    headers: frozenset[str]


class Dispatch:
    """Builds the parse tree of every port and remembers where each handler is entered."""

    def __init__(self, symbols: Symbols, errors: Errors, builder: Builder, span: Span) -> None:
        self.symbols = symbols
        self.errors = errors
        self.builder = builder
        self.span = span
        self.entered: dict[int, Entered] = {}
        self.handlers: dict[int, ast.HandlerDecl] = {}
        self.port = ""

    def build(self) -> str | None:
        """Emit everything up to the handlers; the entry block's label, or None after an error."""
        trees = {name: self.tree(name) for name in self.symbols.ports}
        if self.errors.found:
            return None
        entry = self.builder.label("arrive")
        if len(trees) == 1:
            name, tree = next(iter(trees.items()))
            return self.port_tree(name, tree, entry)
        port = self.builder.value(U16, "port")
        labels = {name: self.builder.label(f"from_{name}") for name in trees}
        names = list(trees)
        cases = tuple((i, labels[n]) for i, n in enumerate(names[:-1]))
        self.block(entry, (nodes.Meta(port, "port", self.span),),
                   nodes.Switch(port, cases, labels[names[-1]], self.span))
        for name, tree in trees.items():
            self.port_tree(name, tree, labels[name])
        return entry

    # Patterns.

    def tree(self, port: str) -> Node:
        root = Node(self.span)
        for handler in self.symbols.handlers:
            if port not in {n.text for n in handler.ports}:
                continue
            for path in handler.paths:
                self.add(root, handler, path)
        return root

    def add(self, root: Node, handler: ast.HandlerDecl, path: tuple[str, ...]) -> None:
        node, before, quoted = root, "", False
        for step in path:
            if step == "quoted":
                if quoted or before not in ("icmp", "icmp6"):
                    self.bad_step(handler, step, before)
                    return
                quoted = True
                continue
            name = f"quoted.{step}" if quoted else step
            if name not in _AFTER.get(before, ()):
                self.bad_step(handler, step, before)
                return
            node = node.children.setdefault(name, Node(handler.path_span))
            before = name
        if quoted and not before.startswith("quoted."):
            self.errors.add(Kind.BAD_PATTERN, "'quoted' must be followed by the quoted packet's headers",
                            handler.path_span, "for example eth/ipv4/icmp/quoted/ipv4/udp")
            return
        if node.handler is not None and node.handler is not handler:
            self.errors.add(Kind.DUPLICATE_NAME, f"two handlers take {'/'.join(path)} on the same port",
                            handler.path_span, None, [("the other one", node.handler.path_span)])
            return
        node.handler = handler

    def bad_step(self, handler: ast.HandlerDecl, step: str, before: str) -> None:
        if step in NOT_YET:
            self.errors.add(Kind.NOT_YET, not_yet(step), handler.path_span, NOT_YET_HINT)
            return
        follow = [n.removeprefix("quoted.") for n in _AFTER.get(before, ())]
        if before in ("icmp", "icmp6"):
            follow = ["quoted"]
        where = f"'{before.removeprefix('quoted.')}'"
        if not before:
            self.errors.add(Kind.BAD_PATTERN, f"a pattern cannot start with '{step}'", handler.path_span,
                            "patterns start with eth, for example eth/ipv4/tcp")
            return
        hint = f"after {where} can come: {', '.join(follow)}" if follow else f"nothing can follow {where}"
        self.errors.add(Kind.BAD_PATTERN, f"'{step}' cannot follow {where}", handler.path_span, hint)

    # Emission.

    def block(self, label: str, instructions: tuple[nodes.Instruction, ...], terminator: nodes.Terminator) -> None:
        self.builder.blocks[label] = nodes.Block(label, (), instructions, terminator, self.span)

    def drop(self, reason: str) -> str:
        return self.builder.drop(reason, self.span)

    def unparsed(self) -> str:
        if self.symbols.policies.unparsed == "drop":
            return self.drop("unparsed")
        # With more than two ports this is an error that was reported already.
        other = next((p for p in self.symbols.ports if p != self.port), self.port)
        label = f"pass_to_{other}"
        self.block(label, (), nodes.Forward(other, self.span))
        return label

    def enter(self, handler: ast.HandlerDecl | None, headers: frozenset[str]) -> str:
        """The label where a packet goes on: the handler's first block, or the drop of packets nobody handles."""
        if handler is None:
            return self.drop("no handler")
        known = self.entered.get(id(handler))
        if known is None:
            name = "_".join(("on", handler.ports[0].text, *handler.paths[0][1:])) or "on"
            known = self.entered[id(handler)] = Entered(self.builder.label(name), headers)
            self.handlers[id(handler)] = handler
        known.headers &= headers
        return known.label

    def extract(self, label: str, header: str, ok: str, limit: int = 0) -> None:
        policies = self.symbols.policies
        v4 = header == "ipv4"
        verify, routes = v4 and policies.verify, v4 and policies.source_routes == "drop"
        names = nodes.extract_outcomes(header, verify=verify, source_route=routes)
        targets = {"ok": ok, "unparsed": self.unparsed()}
        outcomes = tuple((o, targets[o] if o in targets else self.drop(_FAILED[o])) for o in names)
        self.block(label, (), nodes.Extract(header, limit, verify, routes, outcomes, self.span))

    def port_tree(self, port: str, tree: Node, label: str) -> str:
        self.port = port
        eth = tree.children.get("eth")
        if eth is None:
            self.block(label, (), nodes.Drop("no handler", self.span))
            return label
        self.span = eth.span
        after = self.builder.label(f"{port}_l2")
        self.extract(label, "eth", after, self.symbols.policies.vlan_tags)
        self.layer2(after, eth, frozenset({"eth"}))
        return label

    def layer2(self, label: str, node: Node, headers: frozenset[str]) -> None:
        if "vlan" not in node.children:
            self.layer3(label, node, headers, node.handler)
            return
        tagged, plain = self.builder.label("tagged"), self.builder.label("untagged")
        outcomes = (("ok", tagged), ("absent", plain))
        self.block(label, (), nodes.Extract("vlan", 0, False, False, outcomes, self.span))
        bare = Node(node.span, node.handler, {k: v for k, v in node.children.items() if k != "vlan"})
        both = _overlay(node.children["vlan"], bare)
        self.layer3(tagged, both, headers | {"vlan"}, both.handler)
        self.layer3(plain, bare, headers, bare.handler)

    def layer3(self, label: str, node: Node, headers: frozenset[str], fallback: ast.HandlerDecl | None) -> None:
        kinds = [k for k in ("arp", "ipv4", "ipv6") if k in node.children]
        if not kinds:
            self.block(label, (), nodes.Jump(self.enter(fallback, headers), (), self.span))
            return
        labels = {k: self.builder.label(f"{self.port}_{k}") for k in kinds}
        self.switch(label, "eth", "type", [(ETHERTYPE[k], labels[k]) for k in kinds], self.enter(fallback, headers))
        for kind in kinds:
            child = node.children[kind]
            self.span = child.span
            handler = child.handler or fallback
            after = self.builder.label(f"{self.port}_{kind}_ok")
            limit = self.symbols.policies.ipv6_headers if kind == "ipv6" else 0
            self.extract(labels[kind], kind, after, limit)
            self.layer4(after, child, kind, headers | {kind}, handler)

    def layer4(self, label: str, node: Node, kind: str, headers: frozenset[str], fallback: ast.HandlerDecl | None
               ) -> None:
        kinds = list(node.children)
        if not kinds:
            self.block(label, (), nodes.Jump(self.enter(fallback, headers), (), self.span))
            return
        whole = self.fragments(label, kind, kinds, self.enter(fallback, headers))
        labels = {k: self.builder.label(f"{self.port}_{k}") for k in kinds}
        cases = [(PROTOCOL[k], labels[k]) for k in kinds]
        self.switch(whole, kind, "proto", cases, self.enter(fallback, headers))
        for k in kinds:
            child = node.children[k]
            self.span = child.span
            provided = headers | {k} | ({"l4"} if k in ("tcp", "udp") else frozenset())
            handler = child.handler or fallback
            if not child.children:
                self.extract(labels[k], k, self.enter(handler, provided))
                continue
            after = self.builder.label(f"{self.port}_{k}_ok")
            self.extract(labels[k], k, after)
            self.quoted(after, child, k, provided, handler)

    def fragments(self, label: str, kind: str, kinds: list[str], other: str) -> str:
        """Deal with fragments of the protocols that have handlers; the label where whole packets go on."""
        policy = self.symbols.policies.fragments
        if policy is None:
            self.errors.add(Kind.BAD_DECLARATION, "this handler needs a header that later fragments lack", self.span,
                            "say what happens to fragments: 'fragments track;', 'fragments drop;' or "
                            "'fragments ignore;'")
        if policy in (None, "ignore"):
            return label
        test, whole = self.builder.label("fragment"), self.builder.label("whole")
        self.switch(label, kind, "proto", [(PROTOCOL[k], test) for k in kinds], other)
        if policy == "drop":
            self.block(test, (), nodes.IsFragment(kind, self.drop("fragment"), whole, self.span))
            return whole
        hold = self.builder.label("hold")
        self.block(hold, (), nodes.Hold(self.span))
        targets = {"ok": whole, "hold": hold, **{o: self.drop(r) for o, r in _FRAGMENT_FAILED.items()}}
        # Whole packets pass by the tracker, so that they may stay where it cannot be.
        track = self.builder.label("track")
        self.block(test, (), nodes.IsFragment(kind, track, whole, self.span))
        self.block(track, (), nodes.TrackFragment(
            "fragments", kind, tuple((o, targets[o]) for o in nodes.FRAGMENT_OUTCOMES), self.span))
        return whole

    def quoted(self, label: str, node: Node, kind: str, headers: frozenset[str], fallback: ast.HandlerDecl | None
               ) -> None:
        """ICMP errors: the quoted packet decides the handler."""
        errors = ICMP_ERRORS if kind == "icmp" else ICMP6_ERRORS
        name, child = next(iter(node.children.items()))
        inner = self.builder.label(f"{self.port}_{name.replace('.', '_')}")
        self.span = child.span
        self.switch(label, kind, "type", [(t, inner) for t in errors], self.enter(fallback, headers))
        after = self.builder.label(f"{self.port}_quoted")
        self.extract(inner, name, after, self.symbols.policies.ipv6_headers if name == "quoted.ipv6" else 0)
        here = headers | {name}
        handler = child.handler or fallback
        if not child.children:
            self.block(after, (), nodes.Jump(self.enter(handler, here), (), self.span))
            return
        labels = {k: self.builder.label(f"{self.port}_{k.replace('.', '_')}") for k in child.children}
        cases = [(PROTOCOL[k.removeprefix("quoted.")], labels[k]) for k in child.children]
        self.switch(after, name, "proto", cases, self.enter(handler, here))
        for k, grandchild in child.children.items():
            self.span = grandchild.span
            provided = here | {k} | ({"quoted.l4"} if k in ("quoted.tcp", "quoted.udp") else frozenset())
            self.extract(labels[k], k, self.enter(grandchild.handler or handler, provided))

    def switch(self, label: str, header: str, name: str, cases: list[tuple[int, str]], default: str) -> None:
        found = field_of(header, name)
        assert found is not None, "selectors are built-in fields"
        value = self.builder.value(found.type, name)
        self.block(label, (nodes.Load(value, header, name, self.span),),
                   nodes.Switch(value, tuple(cases), default, self.span))


def _overlay(top: Node, below: Node) -> Node:
    """A tree that prefers ``top`` and falls back to ``below`` at every step."""
    names = {**below.children, **top.children}
    children = {}
    for name in names:
        a, b = top.children.get(name), below.children.get(name)
        children[name] = _overlay(a, b) if a and b else (a or below.children[name])
    return Node(top.span, top.handler or below.handler, children)

