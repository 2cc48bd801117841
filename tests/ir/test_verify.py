"""Every rule of the verifier: one broken program each, its place, and its message in tests/golden/test_verify."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import random_ir

from cora.errors import CoraError, Kind
from cora.frontends.nf import load
from cora.ir import verify as verify_module
from cora.ir import verify_declarations
from cora.ir.nodes import Cast, Punt, Value
from cora.ir.text import parse_program
from cora.ir.types import UInt
from cora.ir.verify import verify

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.nf"))
PORTS = "port in faces (wire)\nport out faces (wire)\n"
MAP = "map m capacity 4 slack 0 full reject exact strict_order -\n  field k : u16\n  field n : u32\n  key key (k)\n"
PAIR = ("pool p - -\n  range x : u16 1 9\nmap m capacity 4 slack 0 full reject exact strict_order -\n  field k : u16\n"
        "  field x : u16\n  key a (k)\n  key b (x)\n  alloc p (x)\n  timeout one 5\n  timeout two 6\n")
ACL = "acl t capacity 4 kinds (exact)\n  keyfield k : u16\n  field v : bool\n"
LPM = "lpm t capacity 4\n  keyfield k : u32\n  field v : bool\n"
METER = ("meter t token_bucket capacity 4 rate 5 burst 6 excess 0 peak 0 0 timeout 9 slack 0 full reject exact "
         "strict_order -\n  field k : u16\n")
END = "block start ()\n forward out\n"
ETH = ("block start ()\n extract eth limit 2 - - {ok -> l3, malformed -> bad, unparsed -> bad}\nblock bad ()\n"
       " drop \"bad\"\n")
IP = (ETH + "block l3 ()\n extract ipv4 limit 0 - - {ok -> on, malformed -> bad2, unparsed -> bad2}\n"
      "block bad2 ()\n drop \"b\"\n")
FOUND = MAP + "block start ()\n %k : u16 = const 1\n lookup m \"key\" (%k) hit %e : ref<m> hit miss miss\n"
MISS = "block miss ()\n drop \"miss\"\n"

# Declarations, then blocks; the number is the line that the first message stands at.
BROKEN: dict[str, tuple[str, int]] = {
    # Declarations.
    "port twice": ("port in faces (wire)\n" + END, 1),
    "port faces nothing": ("port x faces (moon)\n" + END, 4),
    "config twice": ("config c : u8 = 1 \"\"\nconfig c : u8 = 1 \"\"\n" + END, 1),
    "config too large": ("config c : u8 = 256 \"\"\n" + END, 4),
    "config of a reference": ("config c : ref<m> = 1 \"\"\n" + END, 4),
    "state twice": ("counter c size 1\ncounter c size 1\n" + END, 1),
    "counter without element": ("counter c size 0\n" + END, 4),
    "tracker without room": ("fragments f capacity 0 timeout 5 held 3\n" + END, 4),
    "map without room": (MAP.replace("capacity 4", "capacity 0") + END, 4),
    "map that explodes": (MAP.replace("full reject", "full explode") + END, 4),
    "field twice": (MAP.replace("field n : u32", "field k : u32") + END, 4),
    "field of a reference": (MAP.replace("field n : u32", "field n : ref<m>") + END, 6),
    "no key": (MAP.replace("  key key (k)\n", "") + END, 4),
    "key twice": (PAIR.replace("key b", "key a") + END, 6),
    "key of no field": (MAP.replace("key (k)", "key (z)") + END, 7),
    "time-out class twice": (PAIR.replace("timeout two", "timeout one") + END, 6),
    "time-out of nothing": (PAIR.replace("two 6", "two 0") + END, 13),
    "field from two pools": (PAIR.replace("alloc p (x)", "alloc p (x)\n  alloc p (x)") + END, 6),
    "no such pool": (PAIR.replace("alloc p", "alloc q") + END, 11),
    "pool of another size": (PAIR.replace("alloc p (x)", "alloc p (x, k)") + END, 11),
    "pool of another type": (PAIR.replace("range x : u16", "range x : u8") + END, 11),
    "pool without values": ("pool p - -\n" + END, 4),
    "pool range empty": ("pool p - -\n  range x : u8 5 1\n" + END, 5),
    "pool range too large": ("pool p - -\n  range x : u8 5 256\n" + END, 5),
    "meter of no kind": (METER.replace("token_bucket", "leaky") + END, 4),
    "acl kinds": (ACL.replace("(exact)", "(exact, range)") + END, 4),
    "acl of no kind": (ACL.replace("(exact)", "(fuzzy)") + END, 4),
    "acl entry too long": (ACL + "  rule (1/2, 3/4) (1) priority 1\n" + END, 7),
    "acl entry without value": (ACL + "  rule (1/2) () priority 1\n" + END, 7),
    "acl entry too large": (ACL + "  rule (65536/2) (1) priority 1\n" + END, 7),
    "acl value too large": (ACL + "  rule (1/2) (2) priority 1\n" + END, 7),
    "acl too full": (ACL.replace("capacity 4", "capacity 1") + "  rule (1/2) (1) priority 1\n" * 2 + END, 4),
    "lpm key": (LPM.replace("u32", "bool") + END, 5),
    "lpm prefix": (LPM + "  prefix 1 8 (1)\n" + END, 7),
    "lpm prefix too long": (LPM + "  prefix 1 33 (1)\n" + END, 7),
    "lpm prefix twice": (LPM + "  prefix 0 8 (1)\n" * 2 + END, 7),
    "lpm too full": (LPM.replace("capacity 4", "capacity 1") + "  prefix 0 8 (1)\n  prefix 0 9 (1)\n" + END, 4),
    # The graph.
    "no block": ("", 1),
    "block twice": (END + END, 1),
    "no such block": ("block start ()\n jump nowhere ()\n", 5),
    "back": ("block start ()\n jump next ()\nblock next ()\n jump start ()\n", 7),
    "never reached": (END + "block other ()\n forward out\n", 6),
    "entry with parameters": ("block start (%a : u8)\n forward out\n", 4),
    "arm with two ways in": (FOUND.replace("miss miss", "miss hit") + "block hit ()\n forward out\n", 10),
    "hold without tracker": ("block start ()\n jump wait ()\nblock wait ()\n hold\n", 5),
    # Values.
    "not defined": ("block start ()\n %t : bool = const 1\n branch %t a b\nblock a ()\n %x : u8 = const 1\n"
                    " forward out\n"
                    "block b ()\n %y : u8 = cast %x\n forward out\n", 11),
    "defined twice": ("block start ()\n %x : u8 = const 1\n %x : u8 = const 1\n forward out\n", 1),
    "used after delete": (FOUND + "block hit ()\n delete %e\n %n : u32 = load_entry %e n\n forward out\n" + MISS, 13),
    "arguments": ("block start ()\n %x : u8 = const 1\n jump a (%x)\nblock a (%y : u16)\n forward out\n", 6),
    "parameters of an arm": ("block start ()\n %t : bool = const 1\n branch %t a b\nblock a (%y : u16)\n forward out\n"
                             "block b ()\n forward out\n", 6),
    # Instructions.
    "const too large": ("block start ()\n %x : u8 = const 256\n forward out\n", 5),
    "unary of no kind": ("block start ()\n %x : u8 = const 2\n %y : u8 = unary neg %x\n forward out\n", 6),
    "not of a number": ("block start ()\n %x : u8 = const 2\n %y : u8 = unary not %x\n forward out\n", 6),
    "types of unary": ("block start ()\n %x : u8 = const 2\n %y : u16 = unary invert %x\n forward out\n", 6),
    "binary of no kind": ("block start ()\n %x : u8 = const 2\n %y : u8 = binary pow %x %x\n forward out\n", 6),
    "types of binary": ("block start ()\n %x : u8 = const 2\n %y : u16 = binary add %x %x\n forward out\n", 6),
    "add of bools": ("block start ()\n %x : bool = const 1\n %y : bool = binary add %x %x\n forward out\n", 6),
    "add of references": (FOUND + "block hit ()\n %y : ref<m> = binary add %e %e\n forward out\n" + MISS, 12),
    "compare of no kind": ("block start ()\n %x : u8 = const 2\n %y : bool = compare like %x %x\n forward out\n", 6),
    "types of compare": ("block start ()\n %x : u8 = const 2\n %z : u16 = const 2\n %y : bool = compare eq %x %z\n"
                         " forward out\n", 7),
    "result of compare": ("block start ()\n %x : u8 = const 2\n %y : u8 = compare eq %x %x\n forward out\n", 6),
    "order of bools": ("block start ()\n %x : bool = const 1\n %y : bool = compare lt %x %x\n forward out\n", 6),
    "cast of a reference": (FOUND + "block hit ()\n %y : u8 = cast %e\n forward out\n" + MISS, 12),
    "condition of select": ("block start ()\n %x : u8 = const 2\n %y : u8 = select %x %x %x\n forward out\n", 6),
    "types of select": ("block start ()\n %c : bool = const 1\n %x : u8 = const 2\n %y : u8 = select %c %x %c\n"
                        " forward out\n", 7),
    "no such config": ("block start ()\n %x : u8 = config c\n forward out\n", 5),
    "type of config": ("config c : u8 = 1 \"\"\nblock start ()\n %x : u16 = config c\n forward out\n", 6),
    "meta of no kind": ("block start ()\n %x : u16 = meta weather\n forward out\n", 5),
    "type of meta": ("block start ()\n %x : u16 = meta time\n forward out\n", 5),
    "no such field": (ETH + "block l3 ()\n %x : u16 = load eth colour\n forward out\n", 9),
    "type of a field": (ETH + "block l3 ()\n %x : u16 = load eth src\n forward out\n", 9),
    "header not there": (ETH + "block l3 ()\n %x : u32 = load ipv4 src\n forward out\n", 9),
    "store of a checksum": (IP + "block on ()\n %x : u16 = const 1\n store ipv4 checksum %x\n forward out\n", 14),
    "load of no entry": ("block start ()\n %x : u8 = const 1\n %y : u8 = load_entry %x n\n forward out\n", 6),
    "no such entry field": (FOUND + "block hit ()\n %n : u32 = load_entry %e z\n forward out\n" + MISS, 12),
    "type of an entry field": (FOUND + "block hit ()\n %n : u8 = load_entry %e n\n forward out\n" + MISS, 12),
    "store to a key": (FOUND + "block hit ()\n store_entry %e k %k\n forward out\n" + MISS, 12),
    "store to an acl": (ACL + "block start ()\n %k : u16 = const 1\n %v : bool = const 1\n"
                        " lookup t \"\" (%k) hit %e : ref<t> hit miss miss\nblock hit ()\n store_entry %e v %v\n"
                        " forward out\n" + MISS, 12),
    "touch of an acl": (ACL + "block start ()\n %k : u16 = const 1\n lookup t \"\" (%k) hit %e : ref<t> hit miss miss\n"
                        "block hit ()\n touch %e \"\"\n forward out\n" + MISS, 11),
    "delete of an acl": (ACL + "block start ()\n %k : u16 = const 1\n"
                               " lookup t \"\" (%k) hit %e : ref<t> hit miss miss\n"
                         "block hit ()\n delete %e\n forward out\n" + MISS, 11),
    "touch of no class": (FOUND + "block hit ()\n touch %e \"long\"\n forward out\n" + MISS, 12),
    "count of no counter": (MAP + "block start ()\n count m - -\n forward out\n", 9),
    "index of a counter": ("counter c size 2\nblock start ()\n %x : bool = const 1\n count c %x -\n forward out\n", 7),
    "amount of a counter": ("counter c size 2\nblock start ()\n %x : u8 = const 1\n count c - %x\n forward out\n", 7),
    # Terminators.
    "condition of branch": ("block start ()\n %x : u8 = const 1\n branch %x a b\nblock a ()\n forward out\nblock b ()\n"
                            " forward out\n", 6),
    "switch of a bool": ("block start ()\n %x : bool = const 1\n switch %x {1 -> a} else b\nblock a ()\n forward out\n"
                         "block b ()\n forward out\n", 6),
    "case twice": ("block start ()\n %x : u8 = const 1\n switch %x {1 -> a, 1 -> b} else b\nblock a ()\n forward out\n"
                   "block b ()\n forward out\n", 6),
    "case too large": ("block start ()\n %x : u8 = const 1\n switch %x {256 -> a} else b\nblock a ()\n forward out\n"
                       "block b ()\n forward out\n", 6),
    "no such header": ("block start ()\n extract ipx limit 0 - - {ok -> a}\nblock a ()\n forward out\n", 5),
    "header before its time": ("block start ()\n extract tcp limit 0 - - {ok -> a, malformed -> a, unparsed -> a}\n"
                               "block a ()\n forward out\n", 5),
    "outcomes of extract": ("block start ()\n extract eth limit 0 - - {ok -> a, malformed -> a}\nblock a ()\n"
                            " forward out\n", 5),
    "has of no header": ("block start ()\n has ipx a b\nblock a ()\n forward out\nblock b ()\n forward out\n", 5),
    "fragment of no header": ("block start ()\n is_fragment ipv4 a b\nblock a ()\n forward out\nblock b ()\n"
                              " forward out\n", 5),
    "track without tracker": (IP + "block on ()\n track_fragment f ipv4 {ok -> a}\nblock a ()\n forward out\n", 13),
    "lookup of no table": ("counter c size 1\nblock start ()\n %k : u16 = const 1\n"
                           " lookup c \"\" (%k) hit %e : ref<c> hit miss miss\nblock hit ()\n forward out\n" + MISS, 7),
    "key of lookup": (FOUND.replace("(%k)", "(%k, %k)") + "block hit ()\n forward out\n" + MISS, 10),
    "name of a key": (FOUND.replace('"key"', '"other"') + "block hit ()\n forward out\n" + MISS, 10),
    "entry of lookup": (FOUND.replace("ref<m>", "ref<n>") + "block hit ()\n forward out\n" + MISS, 10),
    "insert of no map": (ACL + "block start ()\n insert t () [] \"\" ok %e : ref<t> a full b\nblock a ()\n"
                               " forward out\n"
                         "block b ()\n forward out\n", 8),
    "values of insert": (MAP + "block start ()\n insert m () [] \"\" ok %e : ref<m> a full b\nblock a ()\n"
                               " forward out\n"
                         "block b ()\n forward out\n", 9),
    "wishes of insert": (PAIR + "block start ()\n %k : u16 = const 1\n"
                                " insert m (%k) [] \"one\" ok %e : ref<m> a full b\n"
                         "block a ()\n forward out\nblock b ()\n forward out\n", 16),
    "types of wishes": (PAIR + "block start ()\n %k : u16 = const 1\n %w : u8 = const 1\n"
                        " insert m (%k) [(%w)] \"one\" ok %e : ref<m> a full b\nblock a ()\n forward out\nblock b ()\n"
                        " forward out\n", 17),
    "class of insert": (PAIR + "block start ()\n %k : u16 = const 1\n insert m (%k) [()] \"\" ok %e : ref<m> a full b\n"
                        "block a ()\n forward out\nblock b ()\n forward out\n", 16),
    "police of no meter": (MAP + "block start ()\n %k : u16 = const 1\n %s : u32 = meta size\n"
                           " police m (%k) size %s green a yellow - red a full a\nblock a ()\n forward out\n", 11),
    "key of police": (METER + "block start ()\n %k : u8 = const 1\n %s : u32 = meta size\n"
                      " police t (%k) size %s green a yellow - red a full a\nblock a ()\n forward out\n", 9),
    "colour of police": (METER + "block start ()\n %k : u16 = const 1\n %s : u32 = meta size\n"
                         " police t (%k) size %s green a yellow a red a full a\nblock a ()\n forward out\n", 9),
    "size of police": (METER + "block start ()\n %k : u16 = const 1\n"
                       " police t (%k) size %k green a yellow - red a full a\nblock a ()\n forward out\n", 8),
    "no such port": ("block start ()\n forward moon\n", 5),
    "reject of no header": ("block start ()\n %a : u32 = const 1\n reject \"r\" ipv4 type 3 code 1 from %a\n", 6),
    "source of reject": (IP + "block on ()\n %a : u16 = const 1\n reject \"r\" ipv4 type 3 code 1 from %a\n", 14),
}


def broken(text: str) -> CoraError:
    """What the verifier says about IR text without head and spans."""
    lines = ['program test file "test.nf"', *(line for line in (PORTS + text).splitlines() if line.strip())]
    program = parse_program("\n".join(f"{line} @{i}:1-{i}:2" for i, line in enumerate(lines, 1)))
    with pytest.raises(CoraError) as caught:
        verify(program)
    return caught.value


def test_messages(golden: Callable[[str, str], None]) -> None:
    shown = []
    for name, (text, line) in BROKEN.items():
        error = broken(text)
        assert {d.kind for d in error.diagnostics} == {Kind.IR_INVALID}, name
        first = error.diagnostics[0].span
        assert first is not None
        assert first.line == line, (name, error.render())
        shown.append(f"{name}\n{error.render()}\n")
    golden("messages.txt", "\n".join(shown))


def test_program_without_port() -> None:
    with pytest.raises(CoraError, match="a program needs a port"):
        verify(parse_program('program t file "t.nf" @1:1-1:2\nblock start () @2:1-2:2\n drop "x" @3:1-3:2\n'))


def test_value_used_with_another_type() -> None:
    program = parse_program('program t file "t.nf" @1:1-1:2\nport p faces (wire) @2:1-2:2\nblock start () @3:1-3:2\n'
                            " %x : u8 = const 1 @4:1-4:2\n %y : u16 = cast %x @5:1-5:2\n forward p @6:1-6:2\n")
    start = program.blocks[0]
    cast = start.instructions[1]
    assert isinstance(cast, Cast)
    wrong = replace(cast, operand=Value("x", UInt(9)))
    changed = replace(program, blocks=(replace(start, instructions=(start.instructions[0], wrong)),))
    with pytest.raises(CoraError, match="%x is a u8, used as a u9"):
        verify(changed)


def test_punt_in_a_program_that_is_no_part() -> None:
    program = parse_program('program t file "t.nf" @1:1-1:2\nport p faces (wire) @2:1-2:2\nblock start () @3:1-3:2\n'
                            " forward p @4:1-4:2\n")
    start = program.blocks[0]
    punting = replace(program, blocks=(replace(start, terminator=Punt("host", 0, (), start.span)),))
    with pytest.raises(CoraError, match="only the parts of a split program hand packets over"):
        verify(punting)


def test_every_rule_is_broken_by_a_test() -> None:
    """The words of each message in the source stand in the golden file."""
    text = (Path(__file__).parents[1] / "golden" / "test_verify" / "messages.txt").read_text()
    missing = []
    for module in (verify_module, verify_declarations):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if name not in ("error", "require") or not isinstance(node, ast.Call):
                continue
            parts = [c.value for c in ast.walk(node.args[-1]) if isinstance(c, ast.Constant)]
            longest = max((p for p in parts if isinstance(p, str)), key=len, default="")
            if longest not in text:
                missing.append(longest)
    own = ["only the parts of a split program hand packets over", ", used as a ", "a program needs a port"]
    assert missing == own, "each has a test of its own"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_valid(path: Path) -> None:
    program = load(path)
    assert verify(program) is program


@pytest.mark.parametrize("seed", range(20))
def test_random_ir_is_valid(seed: int) -> None:
    program = random_ir.random_program(seed)
    assert verify(program) is program
