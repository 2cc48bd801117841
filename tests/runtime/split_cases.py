"""A small program in which every fault of a split shows, and traffic for it."""

from __future__ import annotations

from functools import lru_cache

from cora.frontends import nf
from cora.ir.nodes import Forward, Program, StoreEntry
from cora.ir.parts import Split
from cora.runtime.verify import Traffic, traffic_of
from cora.testing import Packet
from cora.testing.choices import RandomChoices
from cora.testing.frames import internet_checksum
from cora.testing.placements import random_split

# Entries with a pool value and a field that changes, two time-outs, a counter on the fast path, and an end that only
# the owner can bring about.
TEXT = """nf x { port a: wire; port b: host;
  pool q: u16 in 1000 .. 1007;
  pair map m {
    entry { k: ipv4, x: u16 = alloc q, n: u32 } key fwd = k; key rev = x;
    timeout { long 9s, short 2s }; capacity 8; full reject;
  }
  counter c;
  fragments drop; unparsed drop;
  on a(p: eth/ipv4/udp) {
    let size = p.ip.ttl;
    lookup m.fwd[p.ip.src] {
      hit e {
        count c; e.n = e.n + 1;
        if e.n % 4 == 3 { touch e as short; } else { touch e as long; }
        p.udp.sport = e.x; p.ip.ttl = size - 1; forward b;
      }
      miss {
        insert m { k: p.ip.src, n: 0 } as long {
          ok e { p.udp.sport = e.x; p.ip.ttl = size - 1; forward b; }
          full { drop "full"; }
        }
      }
    }
  }
  on b(p: eth/ipv4/udp) {
    lookup m.rev[p.udp.dport] {
      hit e {
        if e.n % 16 == 15 { delete e; drop "over"; }
        if e.n % 8 == 7 { lookup m.fwd[e.k] { hit f { f.n = f.n + 2; drop "twice"; } } }
        p.ip.dst = e.k; forward a;
      }
      miss { drop "unknown"; }
    }
  }
}"""


def frame(source: int, destination: int, sport: int, dport: int) -> bytes:
    """A UDP packet without a checksum of its own."""
    head = bytes.fromhex("4500001c0000000040110000") + source.to_bytes(4, "big") + destination.to_bytes(4, "big")
    head = head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]
    return bytes(12) + b"\x08\x00" + head + sport.to_bytes(2, "big") + dport.to_bytes(2, "big") + b"\x00\x08\x00\x00"


def traffic(count: int = 4000, seed: int = 3) -> Traffic:
    """Ten sources take turns in bursts; answers come to all ports; now and then time passes."""
    choices, now = RandomChoices(seed), 1_000_000_000
    out: list[Packet] = []
    while len(out) < count:
        source = choices.integer(0, 9)
        now += choices.pick((0, 1000, 1_000_000, 50_000_000, 2_000_000_001, 9_000_000_001)[:4 + 2 * choices.chance(2)])
        for _ in range(choices.integer(1, 30)):
            if choices.chance(25):
                out.append(Packet(1, now, frame(99, 7, 53, choices.integer(1000, 1007)), 42))
            else:
                out.append(Packet(0, now, frame(100 + source, 7, 4000, 53), 42))
            now += choices.pick((0, 0, 1, 1000))
    return traffic_of("made traffic", out[:count])


def is_telling(split: Split) -> bool:
    """Whether entries are lent to the first place, which finishes packets that changed one."""
    if not split.lendings or split.lendings[0].near != 0 or split.lendings[0].entries < 4:
        return False
    blocks = split.parts[0].program.blocks
    return any(isinstance(i, StoreEntry) for b in blocks for i in b.instructions) and any(
        isinstance(b.terminator, Forward) for b in blocks) and split.parts[0].roles.get("c") == "copy"


@lru_cache(maxsize=1)
def telling() -> Split:
    """The first random split in which faults can show."""
    program: Program = nf.loads(TEXT)
    return next(s for s in (random_split(program, RandomChoices(i), 2) for i in range(500)) if is_telling(s) and
                any(e.anchored for e in s.parts[1].entries))
