"""The user half on packets from a file: what it sends is what the native engine sends, and nothing crashes it."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdp_cases import all_in_user_space, example, replayer

from cora.emit.bpf import punt_meta
from cora.engine.results import Output
from cora.ir.hashing import program_hash
from cora.ir.nodes import Value
from cora.ir.parts import Split
from cora.ir.types import EntryRef, bytes_of
from cora.testing import run_native
from cora.testing.choices import RandomChoices
from cora.testing.packets import random_packets
from cora.testing.placements import random_split

pytestmark = [pytest.mark.needs("sanitizers"), pytest.mark.needs("xdp-libraries")]

# struct cora_punt_head of cora/emit/runtime/wire.h.
HEAD = struct.Struct("=QQII8I4H6B20sB5x")
# Bits of CORA_HAS_* in cora/emit/runtime/packet.h.
BITS = {n: 1 << i for i, n in enumerate((
    "eth", "vlan", "arp", "ipv4", "ipv6", "tcp", "udp", "icmp", "icmp6", "l4", "quoted.ipv4", "quoted.ipv6",
    "quoted.tcp", "quoted.udp", "quoted.icmp", "quoted.icmp6", "quoted.l4"))}


@dataclass(frozen=True)
class Replayed:
    """Whether a packet's header was believed, and what was sent: (port, frame)."""

    believed: bool
    sent: tuple[tuple[int, bytes], ...]


def replay(split: Split, packets: Sequence[tuple[int, bytes, bytes]], folder: Path) -> list[Replayed]:
    """Packets as (port, metadata, frame)."""
    meta = punt_meta(split)
    given, found = folder / "in", folder / "out"
    given.write_bytes(b"".join(struct.pack("=II", port, len(frame)) + head.ljust(meta, b"\0") + frame
                               for port, head, frame in packets))
    done = subprocess.run([replayer(split), given, found], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(_read(found.read_bytes()))


def _read(data: bytes) -> Iterator[Replayed]:
    at = 0
    while at < len(data):
        believed, count = struct.unpack_from("=II", data, at)
        at += 8
        sent = []
        for _ in range(count):
            port, length = struct.unpack_from("=II", data, at)
            sent.append((port, data[at + 8:at + 8 + length]))
            at += 8 + length
        yield Replayed(bool(believed), tuple(sent))


def plain_head(split: Split, port: int, now: int, frame: bytes) -> bytes:
    """What stands before a packet that is handed on as it arrived."""
    program = int(program_hash(split.program)[:16], 16)
    return HEAD.pack(program, now, 1, len(frame), *[0] * 8, port, 1, 0, 0, *[0] * 6, bytes(20), 0)


@pytest.mark.parametrize("name", ["nat", "firewall"])
def test_it_sends_what_the_native_engine_sends(name: str, tmp_path: Path) -> None:
    program = example(name)
    split = all_in_user_space(program)
    packets = [p for p in random_packets(program, 7, 2500) if p.wirelen == len(p.frame) <= 1500]
    found = replay(split, [(p.port, plain_head(split, p.port, p.time_ns, p.frame), p.frame) for p in packets], tmp_path)
    assert all(f.believed for f in found)
    left = {i: [f.frame for f in run_native(program, packets).events if isinstance(f, Output) and f.port == i]
            for i in range(len(program.ports))}
    assert min(len(frames) for frames in left.values()) > 50
    assert {i: [frame for f in found for port, frame in f.sent if port == i] for i in left} == left


# Fields of a header: offset and size of what decides whether it is believed, or what it leads to.
FIELDS = (*((at, 4) for at in range(20, 56, 4)), (56, 2), (58, 2), (60, 2), *((i, 1) for i in range(64, 70)))


def parsed(frame: bytes) -> dict[str, int]:
    """Offsets of an untagged frame's headers, as the kernel half would find them, and the bits of what it has."""
    found = dict.fromkeys(("present", "l3", "l4", "end", "start", "quoted", "quoted_l4", "id", "upper", "family",
                           "quoted_family", "quoted_upper"), 0)
    if len(frame) < 34:
        return found
    found.update(present=BITS["eth"], l3=14)
    kind = int.from_bytes(frame[12:14], "big")
    if kind == 0x0800 and frame[14] >> 4 == 4 and frame[14] & 15 >= 5:
        found.update(present=BITS["eth"] | BITS["ipv4"], l4=14 + 4 * (frame[14] & 15), family=4, upper=frame[23],
                     end=14 + int.from_bytes(frame[16:18], "big"))
    elif kind == 0x86dd and len(frame) >= 54:
        found.update(present=BITS["eth"] | BITS["ipv6"], l4=54, family=6, upper=frame[20],
                     end=54 + int.from_bytes(frame[18:20], "big"))
    found["start"] = found["l4"]
    bits = {6: ("tcp", "l4"), 17: ("udp", "l4"), 1: ("icmp",), 58: ("icmp6",)}.get(found["upper"], ())
    if found["l4"] + (20 if "tcp" in bits else 8) <= min(found["end"], len(frame)):
        found["present"] |= sum(BITS[b] for b in bits)
    whole = min(found["end"], len(frame))
    if bits and "icmp" in bits[0] and found["l4"] + 36 <= whole and frame[found["l4"] + 8] >> 4 == 4:
        quoted = found["l4"] + 8
        found.update(quoted=quoted, quoted_l4=quoted + 4 * (frame[quoted] & 15), quoted_family=4,
                     quoted_upper=frame[quoted + 9])
        found["present"] |= BITS["quoted.ipv4"]
        if found["quoted_l4"] + 8 <= found["end"]:
            name = {6: "tcp", 17: "udp"}.get(found["quoted_upper"])
            found["present"] |= BITS[f"quoted.{name}"] | BITS["quoted.l4"] if name else BITS["quoted.icmp"]
    return found


def values_of(chance: random.Random, values: Sequence[Value]) -> bytes:
    out = b""
    for value in values:
        size = 4 if isinstance(value.type, EntryRef) else bytes_of(value.type)
        low = chance.randrange(3) if chance.random() < 0.6 else chance.getrandbits(8 * size)
        out += low.to_bytes(size, "little")
    return out


def hostile(split: Split, count: int, seed: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Headers as the kernel half could have written them, and such as nothing should have written."""
    chance, part = random.Random(seed), split.parts[1]
    program = int(program_hash(split.program)[:16], 16)
    params = {e.number: next(b.params for b in part.program.blocks if b.label == e.label) for e in part.entries}
    for packet in random_packets(split.program, seed, count):
        frame = packet.frame[:1500]
        h, entry = parsed(frame), chance.choice(part.entries).number
        values = values_of(chance, params[entry])
        head = bytearray(HEAD.pack(
            program, packet.time_ns, 1, len(frame), h["present"], h["l3"], h["l4"], h["end"], h["start"], h["quoted"],
            h["quoted_l4"], h["id"], packet.port, entry, 0, int.from_bytes(frame[12:14], "big"), 0, h["family"],
            h["upper"], h["quoted_family"], h["quoted_upper"], 0, bytes(20), len(values)) + values)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 8))):
            at, size = chance.choice(FIELDS)
            near = chance.random() < 0.7
            old = int.from_bytes(head[at:at + size], "little")
            new = old + chance.randint(-9, 9) if near else chance.getrandbits(8 * size)
            head[at:at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
        if chance.random() < 0.05:
            head = bytearray(chance.randbytes(len(head)))
        yield packet.port, bytes(head[:punt_meta(split)]), frame


@pytest.mark.parametrize(("name", "seeds"), [("nat", (1, 2)), ("firewall", (3,))])
def test_nothing_that_arrives_crashes_it(name: str, seeds: Sequence[int], tmp_path: Path) -> None:
    """Random cuts, so that packets arrive in the middle of the program with values and lent entries."""
    for seed in seeds:
        split = random_split(example(name), RandomChoices(seed), 2)
        found = replay(split, list(hostile(split, 3000, seed)), tmp_path)
        believed = sum(f.believed for f in found)
        assert 150 < believed < 2700
        assert any(f.sent for f in found)


def test_one_bit_of_the_program_or_the_length_is_enough_to_refuse(tmp_path: Path) -> None:
    split = all_in_user_space(example("nat"))
    frame = bytes(60)
    good = plain_head(split, 0, 5, frame)
    changed = [bytes([*good[:at], good[at] ^ 1, *good[at + 1:]]) for at in (0, 7, 16, 20, 56 + 1, 58, 90)]
    found = replay(split, [(0, h, frame) for h in (good, *changed)], tmp_path)
    assert [f.believed for f in found] == [True] + [False] * len(changed)
