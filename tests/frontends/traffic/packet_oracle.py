"""Independent reading of captures for the tests: a plain pcap walk, and checksums by dpkt's adder over raw bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import dpkt

ETHERNET, IPV4, IPV6 = 14, 0x0800, 0x86DD
TCP, UDP, ICMP, ICMPV6, FRAGMENT = 6, 17, 1, 58, 44
CHECKSUM_AT = {TCP: 16, UDP: 6}


@dataclass(frozen=True)
class Record:
    """One packet: time in nanoseconds, the captured bytes, the length on the wire."""

    time: int
    frame: bytes
    length: int

    @property
    def whole(self) -> bool:
        return len(self.frame) == self.length

    @property
    def ethertype(self) -> int:
        return int.from_bytes(self.frame[12:14])

    @property
    def protocol(self) -> int:
        """The IPv4 protocol or the IPv6 next header; -1 for anything else."""
        return {IPV4: self.frame[23], IPV6: self.frame[20]}.get(self.ethertype, -1)

    @property
    def ip_fragment(self) -> bool:
        if self.ethertype == IPV4:
            return bool(int.from_bytes(self.frame[20:22]) & 0x3FFF)
        return self.ethertype == IPV6 and self.protocol == FRAGMENT

    @property
    def addresses(self) -> tuple[bytes, bytes]:
        if self.ethertype == IPV4:
            return self.frame[26:30], self.frame[30:34]
        return self.frame[22:38], self.frame[38:54]

    @property
    def segment(self) -> bytes:
        """What the IP header carries, without Ethernet padding."""
        if self.ethertype == IPV4:
            start = ETHERNET + 4 * (self.frame[14] & 15)
            return self.frame[start:ETHERNET + int.from_bytes(self.frame[16:18])]
        return self.frame[54:54 + int.from_bytes(self.frame[18:20])]

    @property
    def flow(self) -> tuple[int, bytes, int, bytes, int]:
        """Protocol, then source and destination endpoints."""
        source, destination = self.addresses
        sport, dport = struct.unpack_from(">HH", self.segment)
        return self.protocol, source, sport, destination, dport


def records(data: bytes) -> Iterator[Record]:
    """Every record of a little-endian nanosecond Ethernet capture; anything left over fails the test."""
    assert struct.unpack_from("<IHHiIII", data) == (0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    at = 24
    while at < len(data):
        seconds, nanos, kept, length = struct.unpack_from("<IIII", data, at)
        assert nanos < 10**9 and kept <= length
        at += 16 + kept
        assert at <= len(data)
        yield Record(seconds * 10**9 + nanos, data[at - kept:at], length)


def both_ways(flow: tuple[int, bytes, int, bytes, int]) -> tuple[object, ...]:
    """The same key for both directions of a flow."""
    protocol, a, sport, b, dport = flow
    return (protocol, *sorted([(a, sport), (b, dport)]))


def header_sum_ok(record: Record) -> bool:
    """Whether an IPv4 header's checksum is right."""
    return bool(dpkt.in_cksum(record.frame[14:14 + 4 * (record.frame[14] & 15)]) == 0)


def transport_sum_ok(record: Record) -> bool:
    """Whether the TCP, UDP, ICMP or ICMPv6 checksum of an unfragmented whole packet is right."""
    protocol, segment = record.protocol, record.segment
    if protocol == ICMP:
        return bool(dpkt.in_cksum(segment) == 0)
    if protocol == UDP and segment[6:8] == b"\0\0":
        return record.ethertype == IPV4
    pseudo = b"".join(record.addresses) + struct.pack(">II", len(segment), protocol)
    return bool(dpkt.in_cksum(pseudo + segment) == 0)
