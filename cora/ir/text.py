"""The textual IR: one node a line, printed and parsed from the same table of formats.

``parse_program(print_program(p)) == p`` for every program, spans included. A span is written
``@line:column-line:column`` and carries its file only where it is not the program's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from cora.errors import CoraError, Kind, fail
from cora.ir import nodes
from cora.ir.nodes import Block, Program, Value
from cora.ir.span import Span
from cora.ir.types import BOOL, EntryRef, Type, UInt

# Per node: the line's format. ``{field:how}`` stands for a field of the node; everything else is literal. How:
#   def/use      a value being defined / used        uses   several, in brackets     prefer  a list of those
#   name/int/str/type                                 names  several names            ints    several numbers
#   label        a block                              maybe  a block or "-"           optional a value or "-"
#   edges        {outcome -> block, ...}              cases  {number -> block, ...}
#   flag         the field's name when true, else "-"  pairs  (a/b, ...)
FORMATS: dict[type, str] = {
    nodes.Port: "port {name:name} faces {faces:names}",
    nodes.Config: "config {name:name} : {type:type} = {value:int} {shown:str}",
    nodes.FieldDecl: "field {name:name} : {type:type}",
    nodes.KeyDecl: "key {name:name} {fields:names}",
    nodes.Timeout: "timeout {name:name} {nanoseconds:int}",
    nodes.AllocDecl: "alloc {pool:name} {fields:names}",
    nodes.MapState: ("map {name:name} capacity {capacity:int} slack {slack:int} full {full:name} {exact:flag} "
                     "{strict_order:flag} {per_shard:flag}"),
    nodes.PoolRange: "range {name:name} : {type:type} {low:int} {high:int}",
    nodes.PoolState: "pool {name:name} {preserve:flag} {per_shard:flag}",
    nodes.MeterState: ("meter {name:name} {algorithm:name} capacity {capacity:int} rate {rate:int} burst {burst:int} "
                       "excess {excess_burst:int} peak {peak_rate:int} {peak_burst:int} timeout {timeout:int} "
                       "slack {slack:int} full {full:name} {exact:flag} {strict_order:flag} {per_shard:flag}"),
    nodes.CounterState: "counter {name:name} size {size:int}",
    nodes.AclEntry: "rule {match:pairs} {values:ints} priority {priority:int}",
    nodes.AclState: "acl {name:name} capacity {capacity:int} kinds {kinds:names}",
    nodes.LpmEntry: "prefix {value:int} {length:int} {values:ints}",
    nodes.LpmState: "lpm {name:name} capacity {capacity:int}",
    nodes.FragmentState: ("fragments {name:name} capacity {capacity:int} timeout {timeout:int} "
                          "held {max_held:int}"),
    nodes.Block: "block {label:name} {params:params}",
    nodes.Const: "{result:def} = const {value:int}",
    nodes.Unary: "{result:def} = unary {op:name} {operand:use}",
    nodes.Binary: "{result:def} = binary {op:name} {left:use} {right:use}",
    nodes.Compare: "{result:def} = compare {op:name} {left:use} {right:use}",
    nodes.Cast: "{result:def} = cast {operand:use}",
    nodes.Select: "{result:def} = select {condition:use} {if_true:use} {if_false:use}",
    nodes.LoadConfig: "{result:def} = config {config:name}",
    nodes.Meta: "{result:def} = meta {what:name}",
    nodes.Load: "{result:def} = load {header:name} {field:name}",
    nodes.Store: "store {header:name} {field:name} {value:use}",
    nodes.LoadEntry: "{result:def} = load_entry {entry:use} {field:name}",
    nodes.StoreEntry: "store_entry {entry:use} {field:name} {value:use}",
    nodes.Touch: "touch {entry:use} {timeout:str}",
    nodes.Delete: "delete {entry:use}",
    nodes.Count: "count {counter:name} {index:optional} {amount:optional}",
    nodes.Jump: "jump {target:label} {args:uses}",
    nodes.Branch: "branch {condition:use} {if_true:label} {if_false:label}",
    nodes.Switch: "switch {value:use} {cases:cases} else {default:label}",
    nodes.HasHeader: "has {header:name} {if_present:label} {if_absent:label}",
    nodes.Extract: ("extract {header:name} limit {limit:int} {verify:flag} {source_route:flag} "
                    "{outcomes:edges}"),
    nodes.TrackFragment: "track_fragment {state:name} {header:name} {outcomes:edges}",
    nodes.IsFragment: "is_fragment {header:name} {if_fragment:label} {if_whole:label}",
    nodes.Lookup: "lookup {state:name} {key:str} {operands:uses} hit {entry:def} {hit:label} miss {miss:label}",
    nodes.Insert: ("insert {state:name} {values:uses} {prefer:prefer} {timeout:str} ok {entry:def} {ok:label} "
                   "full {full:label}"),
    nodes.Police: ("police {state:name} {operands:uses} size {size:use} green {green:label} yellow {yellow:maybe} "
                   "red {red:label} full {full:label}"),
    nodes.Forward: "forward {port:name}",
    nodes.Drop: "drop {reason:str}",
    nodes.Reject: ("reject {reason:str} {header:name} type {icmp_type:int} code {icmp_code:int} "
                   "from {source:use}"),
    nodes.Hold: "hold",
    nodes.Punt: "punt {place:name} {entry:int} {values:uses}",
}

# Fields that stand on lines of their own below the node, in this order: (field, node type); `one` for a single node.
CHILDREN: dict[type, tuple[tuple[str, type, bool], ...]] = {
    nodes.MapState: (("fields", nodes.FieldDecl, False), ("keys", nodes.KeyDecl, False),
                     ("allocs", nodes.AllocDecl, False), ("timeouts", nodes.Timeout, False)),
    nodes.PoolState: (("ranges", nodes.PoolRange, False),),
    nodes.MeterState: (("fields", nodes.FieldDecl, False),),
    nodes.AclState: (("keys", nodes.FieldDecl, False), ("values", nodes.FieldDecl, False),
                     ("entries", nodes.AclEntry, False)),
    nodes.LpmState: (("key", nodes.FieldDecl, True), ("values", nodes.FieldDecl, False),
                     ("entries", nodes.LpmEntry, False)),
}

# ACL and LPM tables have two lists of fields; their key fields are printed under another word.
_AS_KEY = {(nodes.AclState, "keys"), (nodes.LpmState, "key")}

_PART = re.compile(r"\{(\w+):(\w+)\}|(\S+)")


def print_program(program: Program) -> str:
    """The text of a program."""
    return _Printer(program.span.file).program(program)


def print_node(node: Any, file: str = "") -> str:
    """One line for an instruction, terminator or declaration, without its span (for messages and listings)."""
    return _Printer(file).line(node).strip()


class _Printer:
    def __init__(self, file: str) -> None:
        self.file = file

    def program(self, program: Program) -> str:
        out = [f"program {program.name} file {_quote(self.file)} {self.span(program.span)}"]
        for declaration in (*program.ports, *program.configs, *program.states):
            out += self.tree(declaration)
        for block in program.blocks:
            out.append(f"{self.line(block)} {self.span(block.span)}")
            for node in (*block.instructions, block.terminator):
                out.append(f"  {self.line(node)} {self.span(node.span)}")
        return "\n".join(out) + "\n"

    def tree(self, node: Any) -> list[str]:
        out = [f"{self.line(node)} {self.span(node.span)}"]
        for name, _, single in CHILDREN.get(type(node), ()):
            children = (getattr(node, name),) if single else getattr(node, name)
            prefix = "key" if (type(node), name) in _AS_KEY else ""
            out += [f"  {prefix}{self.line(child)} {self.span(child.span)}" for child in children]
        return out

    def line(self, node: Any) -> str:
        parts = [
            self.show(getattr(node, m[1]), m[2], m[1]) if m[1] else m[3]
            for m in _PART.finditer(FORMATS[type(node)])
        ]
        return " ".join(parts)

    def span(self, span: Span) -> str:
        file = "" if span.file == self.file else _quote(span.file) + ":"
        return f"@{file}{span.short}"

    def show(self, item: Any, how: str, name: str) -> str:
        return name if how == "flag" and item else _SHOW[how](item)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])


def _type_text(type_: Type) -> str:
    return f"ref<{type_.state}>" if isinstance(type_, EntryRef) else str(type_)


def _bracketed(items: Iterable[str], brackets: str = "()") -> str:
    return brackets[0] + ", ".join(items) + brackets[1]


def _defined(value: Value) -> str:
    return f"%{value.name} : {_type_text(value.type)}"


def _used(values: Iterable[Value]) -> str:
    return _bracketed(f"%{v.name}" for v in values)


_SHOW: dict[str, Callable[[Any], str]] = {
    "def": _defined,
    "use": lambda value: f"%{value.name}",
    "optional": lambda value: "-" if value is None else f"%{value.name}",
    "maybe": lambda label: "-" if label is None else label,
    "uses": _used,
    "params": lambda values: _bracketed(map(_defined, values)),
    "prefer": lambda groups: _bracketed(map(_used, groups), "[]"),
    "names": lambda items: _bracketed(map(str, items)),
    "ints": lambda items: _bracketed(map(str, items)),
    "pairs": lambda items: _bracketed(f"{a}/{b}" for a, b in items),
    "edges": lambda items: _bracketed((f"{a} -> {b}" for a, b in items), "{}"),
    "cases": lambda items: _bracketed((f"{a} -> {b}" for a, b in items), "{}"),
    "flag": lambda _: "-",
    "str": _quote,
    "type": _type_text,
    "name": str,
    "int": str,
    "label": str,
}


_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<span>@(?:"(?:[^"\\]|\\.)*":)?\d+:\d+-\d+:\d+)|(?P<value>%[\w.]+)"""
    r"""|(?P<ref>ref<[\w.]+>)|(?P<arrow>->)|(?P<word>[A-Za-z_][\w.]*|\d+)|(?P<mark>[-(){}\[\],:=/]))""",
    re.ASCII,
)
_SPAN = re.compile(r'@(?:("(?:[^"\\]|\\.)*"):)?(\d+):(\d+)-(\d+):(\d+)$')


def parse_program(text: str, where: str = "<ir>") -> Program:
    """Read the text form back.

    Raises:
        CoraError: `Kind.IR_TEXT` naming the line and column of ``where`` that cannot be read.
    """
    return _Parser(text, where).program()


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
        self.at = 0
        self.file = ""
        self.values: dict[str, Value] = {}

    def program(self) -> Program:
        head = self.take()
        head.literal("program")
        name = head.next("word")
        head.literal("file")
        self.file = _unquote(head.next("string"))
        span = head.span(self.file)
        ports, configs, states, blocks = [], [], [], []
        while (line := self.peek()) is not None:
            match line.first:
                case "port":
                    ports.append(self.node(nodes.Port))
                case "config":
                    configs.append(self.node(nodes.Config))
                case "block":
                    blocks.append(self.block())
                case first:
                    kind = _STATES.get(first)
                    if kind is None:
                        raise line.error("a declaration or a block")
                    states.append(self.node(kind))
        return Program(name, tuple(ports), tuple(configs), tuple(states), tuple(blocks), span)

    def peek(self) -> _Line | None:
        if self.at >= len(self.lines):
            return None
        return _Line(*self.lines[self.at], self.where)

    def take(self) -> _Line:
        line = self.peek()
        if line is None:
            last = self.lines[-1][0] if self.lines else 1
            raise _text_error(self.where, last, 1, "the text ends here, something more was expected")
        self.at += 1
        return line

    def block(self) -> Block:
        line = self.take()
        values, span = self.read(line, FORMATS[Block])
        instructions: list[Any] = []
        while True:
            inner = self.take()
            kind = _BODY.get(inner.mnemonic)
            if kind is None:
                raise inner.error("an instruction or a terminator")
            got, where = self.read(inner, FORMATS[kind])
            node = kind(**got, span=where)
            if isinstance(node, nodes.Terminator):
                return Block(**values, instructions=tuple(instructions), terminator=node, span=span)
            instructions.append(node)

    def node(self, kind: type) -> Any:
        line = self.take()
        values, span = self.read(line, FORMATS[kind])
        for name, child, single in CHILDREN.get(kind, ()):
            word = ("key" if (kind, name) in _AS_KEY else "") + FORMATS[child].split()[0]
            found = []
            while (inner := self.peek()) is not None and inner.indented and inner.first == word:
                self.at += 1
                if word != FORMATS[child].split()[0]:
                    inner.rename(FORMATS[child].split()[0])
                got, where = self.read(inner, FORMATS[child])
                found.append(child(**got, span=where))
            if single and len(found) != 1:
                raise line.error(f"exactly one {word} line below")
            values[name] = found[0] if single else tuple(found)
        return kind(**values, span=span)

    def read(self, line: _Line, template: str) -> tuple[dict[str, Any], Span]:
        values: dict[str, Any] = {}
        for part in _PART.finditer(template):
            if part[1]:
                values[part[1]] = self.item(line, part[2], part[1])
            else:
                line.literal(part[3])
        return values, line.span(self.file)

    def item(self, line: _Line, how: str, name: str) -> Any:
        if how == "flag":
            if line.skip("-"):
                return False
            line.literal(name)
            return True
        return _READ[how](self, line)

    def define(self, line: _Line) -> Value:
        name = line.next("value")[1:]
        line.literal(":")
        value = Value(name, line.type())
        self.values[name] = value
        return value

    def use(self, line: _Line) -> Value:
        name = line.next("value")[1:]
        if name not in self.values:
            raise line.error(f"a value defined above, %{name} is not")
        return self.values[name]


_READ: dict[str, Callable[[_Parser, Any], Any]] = {
    "def": lambda parser, line: parser.define(line),
    "use": lambda parser, line: parser.use(line),
    "optional": lambda parser, line: None if line.skip("-") else parser.use(line),
    "maybe": lambda parser, line: None if line.skip("-") else line.next("word"),
    "uses": lambda parser, line: line.sequence("()", lambda: parser.use(line)),
    "params": lambda parser, line: line.sequence("()", lambda: parser.define(line)),
    "prefer": lambda parser, line: line.sequence("[]", lambda: line.sequence("()", lambda: parser.use(line))),
    "names": lambda _, line: line.sequence("()", lambda: line.next("word")),
    "ints": lambda _, line: line.sequence("()", line.number),
    "pairs": lambda _, line: line.sequence("()", lambda: line.pair("/", line.number, line.number)),
    "edges": lambda _, line: line.sequence("{}", lambda: line.pair("->", line.word, line.word)),
    "cases": lambda _, line: line.sequence("{}", lambda: line.pair("->", line.number, line.word)),
    "str": lambda _, line: _unquote(line.next("string")),
    "type": lambda _, line: line.type(),
    "name": lambda _, line: line.word(),
    "int": lambda _, line: line.number(),
    "label": lambda _, line: line.word(),
}


# How a message calls a kind of token.
_TOKENS = {"word": "a word or number", "string": "a text in quotes", "value": "a value such as %x",
           "span": "a place such as @3:1-3:9"}
# Longer numbers fit no value, and take long to read.
_MAX_DIGITS = 60


class _Line:
    def __init__(self, number: int, text: str, where: str) -> None:
        self.line_number, self.where = number, where
        self.indented = text[:1].isspace()
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if found is None:
                raise _text_error(where, number, at + 1, f"cannot read {stripped[at:at + 10]!r}")
            kind = found.lastgroup or ""
            self.tokens.append((kind, found[kind], found.start(kind) + 1))
            at = found.end()
        self.at = 0

    @property
    def first(self) -> str:
        return self.tokens[0][1]

    @property
    def mnemonic(self) -> str:
        equals = next((i for i, t in enumerate(self.tokens) if t[1] == "="), -1)
        return self.tokens[equals + 1][1] if 0 <= equals < len(self.tokens) - 1 else self.first

    def rename(self, word: str) -> None:
        self.tokens[0] = ("word", word, self.tokens[0][2])

    def next(self, kind: str) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != kind:
            raise self.error(_TOKENS.get(kind, kind))
        self.at += 1
        return self.tokens[self.at - 1][1]

    def skip(self, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def literal(self, text: str) -> None:
        if not self.skip(text):
            raise self.error(f"'{text}'")

    def word(self) -> str:
        return self.next("word")

    def pair(self, mark: str, left: Callable[[], Any], right: Callable[[], Any]) -> tuple[Any, Any]:
        first = left()
        self.literal(mark)
        return first, right()

    def number(self) -> int:
        text = self.next("word")
        if not text.isdigit() or len(text) > _MAX_DIGITS:
            self.at -= 1
            raise self.error("a number")
        return int(text)

    def type(self) -> Type:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "ref":
            return EntryRef(self.next("ref")[4:-1])
        text = self.next("word")
        if text == "bool":
            return BOOL
        if re.fullmatch(r"u\d+", text) and 1 <= int(text[1:]) <= 128:
            return UInt(int(text[1:]))
        self.at -= 1
        raise self.error("a type")

    def sequence(self, brackets: str, item: Callable[[], Any]) -> tuple[Any, ...]:
        self.literal(brackets[0])
        found: list[Any] = []
        while not self.skip(brackets[1]):
            if found:
                self.literal(",")
            found.append(item())
        return tuple(found)

    def span(self, file: str) -> Span:
        text = self.next("span")
        if self.at != len(self.tokens):
            raise self.error("the end of the line")
        found = _SPAN.match(text)
        assert found is not None, "the token's own pattern"
        other = _unquote(found[1]) if found[1] else file
        if len(text) - len(found[1] or "") > 4 * _MAX_DIGITS:
            raise self.error("a place")
        return Span(other, *(int(found[i]) for i in range(2, 6)))

    def error(self, expected: str) -> CoraError:
        if self.at < len(self.tokens):
            _, text, column = self.tokens[self.at]
            return _text_error(self.where, self.line_number, column, f"expected {expected}, found {text!r}")
        column = self.tokens[-1][2] + len(self.tokens[-1][1])
        return _text_error(self.where, self.line_number, column, f"expected {expected}, the line ends")


def _text_error(where: str, line: int, column: int, message: str) -> CoraError:
    return fail(Kind.IR_TEXT, message, span=Span(where, line, column, line, column + 1),
                hint="the text form is what `cora check --emit-ir` prints; each node is one line")


_STATES: dict[str, type] = {FORMATS[k].split()[0]: k for k in (
    nodes.MapState, nodes.PoolState, nodes.MeterState, nodes.CounterState, nodes.AclState, nodes.LpmState,
    nodes.FragmentState)}
_BODY: dict[str, type] = {k.mnemonic: k for k in FORMATS if hasattr(k, "mnemonic")}


def _formats_are_complete() -> bool:
    return all(
        {f.name for f in fields(k)} - {"span", "shown_as", "instructions", "terminator"}
        == {m[1] for m in _PART.finditer(text) if m[1]} | {c[0] for c in CHILDREN.get(k, ())}
        for k, text in FORMATS.items()
    )


assert _formats_are_complete(), "a node's field is missing from its text format"
