"""Small programs and packets for the tests of the native engine."""

from __future__ import annotations

import struct

from cora.testing import Packet

SECOND = 10**9

# A flow table with two time-out classes: the shorter one is chosen by the destination port.
FLOWS = """
nf flows {
  port a: wire;
  port b: wire;
  map seen {
    entry { src: ipv4, sport: u16, packets: u32 }
    key k = (src, sport);
    timeout { short 2s, long 10s };
    capacity CAPACITY;
    full FULL;
    exact;
    order strict;
  }
  counter known [4];
  fragments ignore;
  unparsed drop;
  verify none;
  on a(p: eth/ipv4/udp) {
    lookup seen.k[(p.ip.src, p.udp.sport)] {
      hit e {
        e.packets = e.packets + 1;
        count known[p.udp.dport & 3];
        if p.udp.dport == 1 { touch e as short; } else { if p.udp.dport == 2 { touch e as long; } }
        forward b;
      }
      miss {
        insert seen { src: p.ip.src, sport: p.udp.sport, packets: 1 } as long {
          ok e { forward b; }
          full { drop "full"; }
        }
      }
    }
  }
  on b(p: eth) { drop "wrong side"; }
}
"""


def flows(capacity: int = 100, full: str = "reject") -> str:
    """The text of the flow table program."""
    return FLOWS.replace("CAPACITY", str(capacity)).replace("FULL", full)


def udp(source: int, sport: int, dport: int, payload: bytes = b"") -> bytes:
    """An Ethernet frame with IPv4 and UDP; checksums are zero (programs here verify none)."""
    body = struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0, source, 0xC0000201)
    return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + head + body


def packet(time_ns: int, frame: bytes, port: int = 0) -> Packet:
    return Packet(port, time_ns, frame, len(frame))

