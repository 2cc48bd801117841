"""How a traffic specification becomes capture bytes: vectorised, one block of packets at a time.

Equal bytes on every machine need more than a seed, so only these are used: the raw 64-bit output of numpy's PCG64
(stable by NEP 19, unlike the distributions), integer arithmetic, and float additions, multiplications and divisions in
a fixed order (IEEE 754 fixes each result; library ``pow`` and pairwise sums it does not). Everything about a flow is a
hash of its number (SplitMix64), so no flow needs memory after it ends.

Order within a block. The packets that must exist (the first packets of every flow, the last ones of a replaced one)
are placed evenly; the others are drawn by popularity, less what the placed ones already contribute. Then the packets
are sorted by (slot, arrival), which makes every flow's packets of the block one contiguous *segment*: positions in the
flow and sequence numbers become running sums within segments, started from the per-slot values of earlier blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cora.frontends.traffic.synthetic import CLIENT_PORTS, TCP_HEADERS, UDP_HEADERS, TrafficSpec, hosts

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
RECORD = 16
INDEX_BYTES = 8
MAC_HIGH, MAC_INSIDE, MAC_OUTSIDE = 0x0200, 0x00000001, 0x00000002
FIN, SYN, PSH, ACK = 0x01, 0x02, 0x08, 0x10
TCP_SERVICES, UDP_SERVICES = np.array([443, 80], np.int64), np.array([443, 53], np.int64)
PARTS_PER_BILLION = 10**9


def splitmix64(numbers: Words) -> Words:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014) at each number, as a hash."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def inverse_power(ranks: npt.NDArray[np.float64], exponent: float) -> npt.NDArray[np.float64]:
    """ranks ** -exponent for ranks >= 1, from additions, multiplications and divisions only; relative error < 1e-12.

    ln by atanh of the mantissa's (m-1)/(m+1), exp by Taylor on a range of ln 2: both series run to double precision.
    """
    ln2 = 0.6931471805599453
    mantissa, power = np.frexp(ranks)
    low = mantissa < 0.7071067811865476
    mantissa, power = np.where(low, mantissa * 2, mantissa), power - low
    t = (mantissa - 1) / (mantissa + 1)
    square, series = t * t, np.zeros_like(t)
    for n in range(25, 0, -2):
        series = series * square + 1.0 / n
    log = power * ln2 + 2 * t * series
    x = log * -exponent
    twos = np.floor(x / ln2 + 0.5)
    rest, series = x - twos * ln2, np.ones_like(x)
    for n in range(18, 0, -1):
        series = series * rest / n + 1
    result: npt.NDArray[np.float64] = np.ldexp(series, twos.astype(np.int32))
    return result


def popularity(spec: TrafficSpec) -> Words:
    """Cumulative drawing weights of the slots, scaled to 2**53: slot i is drawn when a 53-bit number falls below [i].

    A slot's expected packets are packets * p(i); the packets it is sure to get are taken off, so that all together
    follow the Zipf law wherever that gives a flow at least the packets it is sure to have.
    """
    weights = inverse_power(np.arange(1, spec.flows + 1, dtype=np.float64), float(spec.zipf))
    total = np.cumsum(weights)[-1]
    sure = spec.opening + (spec.opening + spec.closing) * spec.new_flows / spec.flows
    weights = np.maximum(weights / total * spec.packets - sure, 0.0)
    cumulative = np.cumsum(weights)
    if cumulative[-1] <= 0:
        cumulative = np.arange(1, spec.flows + 1, dtype=np.float64)
    scaled: npt.NDArray[np.float64] = np.floor(cumulative / cumulative[-1] * 2.0**53)
    return scaled.astype(np.uint64)


@dataclass(frozen=True)
class Affine:
    """A permutation of range(size), at most 2**32: i -> (step * i + shift) mod size."""

    size: int
    step: int
    shift: int

    @classmethod
    def of(cls, size: int, seed: int) -> Affine:
        """Steps of about the golden ratio spread neighbours far apart."""
        step = max(1, int(size * 0.6180339887498949))
        while gcd(step, size) != 1:
            step += 1
        return cls(size, step % size, seed % size)

    def __call__(self, numbers: Ints) -> Ints:
        """Where each number goes."""
        # 32-bit factors and a 32-bit shift: the sum stays below 2**64.
        moved = numbers.astype(np.uint64) * np.uint64(self.step) + np.uint64(self.shift)
        return (moved % np.uint64(self.size)).astype(np.int64)


@dataclass(frozen=True)
class Flows:
    """The attributes of flows, computed from their numbers. Addresses are the low 64 bits."""

    udp: Flags
    client: Words
    server: Words
    sport: Ints
    dport: Ints
    isn_in: Ints
    isn_out: Ints


class FlowMaker:
    """Gives every flow number its own client endpoint, and a server."""

    def __init__(self, spec: TrafficSpec) -> None:
        self.udp_share = int(spec.udp * PARTS_PER_BILLION)
        self.client_base, clients = hosts(spec.inside)
        self.server_base, self.servers = hosts(spec.outside)
        self.endpoints = Affine.of(clients * len(CLIENT_PORTS), spec.seed)
        self.salt = np.uint64(int(splitmix64(np.array([spec.seed], np.uint64))[0]))

    def udp(self, numbers: Ints) -> Flags:
        """Every flow whose number completes another whole UDP flow at the given share."""
        # Products stay below 2**32 * 10**9 < 2**62.
        share, unit = self.udp_share, PARTS_PER_BILLION
        return (numbers + 1) * share // unit > numbers * share // unit

    def make(self, numbers: Ints) -> Flows:
        """The flows with these numbers."""
        mixed = splitmix64(numbers.astype(np.uint64) ^ self.salt)
        initial = splitmix64(mixed)
        endpoint, udp = self.endpoints(numbers), self.udp(numbers)
        host, port = np.divmod(endpoint, len(CLIENT_PORTS))
        service = (mixed >> np.uint64(63)).astype(np.int64)
        low = (1 << 64) - 1
        return Flows(
            udp=udp,
            client=host.astype(np.uint64) + np.uint64(self.client_base & low),
            server=(mixed & np.uint64(0xFFFFFFFF)) % np.uint64(self.servers) + np.uint64(self.server_base & low),
            sport=port + CLIENT_PORTS.start,
            dport=np.where(udp, UDP_SERVICES[service], TCP_SERVICES[service]),
            isn_in=(initial >> np.uint64(32)).astype(np.int64),
            isn_out=(initial & np.uint64(0xFFFFFFFF)).astype(np.int64),
        )


@dataclass(frozen=True)
class Arrivals:
    """One block in arrival order: per packet its slot, the flow number it starts or -1, its place in a closing or 0."""

    first: int
    slot: Ints
    starts: Ints
    closing: Ints


@dataclass(frozen=True)
class Segments:
    """One block sorted by (slot, arrival).

    Per packet: its place in the block, its segment, its position in its flow, its place in a closing or 0. Per segment:
    its first packet, slot, flow number, and the flow's bytes sent before this block.
    """

    order: Ints
    segment: Ints
    nth: Ints
    closing: Ints
    head: Ints
    slot: Ints
    number: Ints
    sent_in: Ints
    sent_out: Ints


@dataclass(frozen=True)
class Packets:
    """What is in the packets of a block, in the order of its `Segments`; flows are per segment."""

    order: Ints
    segment: Ints
    flows: Flows
    reverse: Flags
    flags: Ints
    frame: Ints
    seq: Ints
    ack: Ints


class Generator:
    """Holds what one block hands to the next: per slot the flow, its packets and bytes; the clock."""

    def __init__(self, spec: TrafficSpec) -> None:
        self.spec = spec
        self.cumulative = popularity(spec)
        self.flow_maker = FlowMaker(spec)
        self.opening_order = Affine.of(spec.flows, spec.seed)
        self.random = np.random.PCG64(spec.seed)
        self.flow_of = np.arange(spec.flows, dtype=np.int64)
        self.seen, self.sent_in, self.sent_out = (np.zeros(spec.flows, np.int64) for _ in range(3))
        self.clock_ns, self.clock_rest = spec.start_ns, 0
        both = bool(spec.replies)
        self.open_flags = np.array([SYN, SYN | ACK, ACK] if both else [SYN, ACK], np.int64)
        self.close_flags = np.array([FIN | ACK, FIN | ACK, ACK] if both else [FIN | ACK, ACK], np.int64)
        self.sizes = np.array([size for size, _ in spec.sizes], np.int64)
        weights = np.cumsum([weight for _, weight in spec.sizes], dtype=np.int64)
        # 32 random bits pick the first size whose bound is above them.
        self.size_bounds = (weights << 32) // weights[-1]
        self.reply_bound = int(spec.replies * 2**32)

    def raw(self, count: int) -> Words:
        """The next 64-bit outputs of the random generator."""
        return self.random.random_raw(count)

    def arrivals(self, block: int) -> Arrivals:
        """Which slot each packet of a block belongs to, with the beginnings and ends of flows placed evenly."""
        spec, blocks = self.spec, self.spec.blocks
        first, end = (spec.packets * b // blocks for b in (block, block + 1))
        size = end - first
        opened, opened_at = _due(spec.flows, 0, block, blocks)
        replaced, replaced_at = _due(spec.new_flows, 1, block, blocks)
        change = spec.opening + spec.closing
        free = size - len(opened) * spec.opening - len(replaced) * change
        slots = np.concatenate([self.opening_order(opened), self._replaced_slot(replaced)])
        costs = np.concatenate([np.full(len(opened), spec.opening), np.full(len(replaced), change)]).astype(np.int64)
        number = np.concatenate([np.full(len(opened), -1, np.int64), spec.flows + replaced])
        # Both lists hold numerators over 2 * count, so that the places are exact.
        at = np.concatenate([opened_at * free // (2 * spec.flows), replaced_at * free // (2 * max(1, spec.new_flows))])
        order = np.argsort(at, kind="stable")
        slots, costs, number, at = slots[order], costs[order], number[order], at[order]
        begin = at + np.cumsum(costs) - costs
        within = np.arange(int(costs.sum()), dtype=np.int64) - np.repeat(np.cumsum(costs) - costs, costs)
        place = np.repeat(begin, costs) + within
        slot, starts, closing = np.full(size, -1, np.int64), np.full(size, -1, np.int64), np.zeros(size, np.int64)
        slot[place] = np.repeat(slots, costs)
        number = np.repeat(number, costs)
        starts[place] = np.where((number >= 0) & (within == spec.closing), number, -1)
        closing[place] = np.where((number >= 0) & (within < spec.closing), within + 1, 0)
        drawn = np.searchsorted(self.cumulative, self.raw(free) >> np.uint64(11), side="right")
        slot[slot < 0] = drawn
        return Arrivals(first, slot, starts, closing)

    def _replaced_slot(self, changes: Ints) -> Ints:
        """The slots whose flows are replaced: any of those whose first flow has begun by then."""
        spec = self.spec
        begun = (2 * changes + 1) * spec.flows // (2 * max(1, spec.new_flows)) + 1
        mixed = splitmix64(~(changes.astype(np.uint64) ^ self.flow_maker.salt)) >> np.uint64(32)
        return self.opening_order(mixed.astype(np.int64) % begun)

    def segments(self, block: Arrivals) -> Segments:
        """Sort a block by flow and find where each packet stands in its flow."""
        size = len(block.slot)
        bits = max(1, (size - 1).bit_length())
        # Distinct keys make any sorting algorithm give the same order.
        key = np.sort((block.slot << bits) | np.arange(size, dtype=np.int64))
        order, slot = key & ((1 << bits) - 1), key >> bits
        starts = block.starts[order]
        begins = starts >= 0
        begins[0] = True
        begins[1:] |= slot[1:] != slot[:-1]
        head = np.flatnonzero(begins)
        segment = np.cumsum(begins) - 1
        slot, fresh = slot[head], starts[head] >= 0
        seen, sent_in, sent_out = (
            np.where(fresh, 0, state[slot]) for state in (self.seen, self.sent_in, self.sent_out))
        return Segments(
            order=order, segment=segment, nth=np.arange(size, dtype=np.int64) + (seen - head)[segment],
            closing=block.closing[order], head=head, slot=slot,
            number=np.where(fresh, starts[head], self.flow_of[slot]), sent_in=sent_in, sent_out=sent_out)

    def packets(self, block: Segments) -> Packets:
        """What is in each packet; advances the per-slot state."""
        spec, segment, nth, closing = self.spec, block.segment, block.nth, block.closing
        flows = self.flow_maker.make(block.number)
        udp = flows.udp[segment]
        opens = ~udp & (nth < len(self.open_flags))
        closes = ~udp & ~opens & (closing > 0)
        data = ~opens & ~closes
        random = self.raw(len(nth))[block.order]
        reverse = data & (nth > 0) & ((random & np.uint64(0xFFFFFFFF)).astype(np.int64) < self.reply_bound)
        if spec.replies:
            reverse |= (opens & (nth == 1)) | (closes & (closing == 2))
        drawn = np.searchsorted(self.size_bounds, (random >> np.uint64(32)).astype(np.int64), side="right")
        frame = np.where(data, self.sizes[drawn], spec.control_size)
        payload = np.where(data, frame - TCP_HEADERS[spec.family], 0)
        flags = np.where(payload > 0, ACK | PSH, ACK)
        flags[opens] = self.open_flags[nth[opens]]
        flags[closes] = self.close_flags[closing[closes] - 1]

        advance = payload + ((flags & (SYN | FIN)) != 0)
        from_in, from_out = np.where(reverse, 0, advance), np.where(reverse, advance, 0)
        before_in = _running(from_in, block.head, segment, block.sent_in)
        before_out = _running(from_out, block.head, segment, block.sent_out)
        self._remember(block, before_in + from_in, before_out + from_out)
        # With only one half seen, the other side's SYN has been acknowledged all the same.
        unseen = 0 if spec.replies else 1
        point_in, point_out = flows.isn_in[segment] + before_in, flows.isn_out[segment] + before_out + unseen
        seq, ack = np.where(reverse, point_out, point_in), np.where(reverse, point_in, point_out)
        ack[(flags & ACK) == 0] = 0
        return Packets(block.order, segment, flows, reverse, flags, frame, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF)

    def _remember(self, block: Segments, sent_in: Ints, sent_out: Ints) -> None:
        """Hand the last segment of every slot to the next block."""
        last = np.append(block.head[1:], len(block.nth)) - 1
        stays = np.append(block.slot[1:] != block.slot[:-1], True)
        last, slot = last[stays], block.slot[stays]
        self.flow_of[slot], self.seen[slot] = block.number[stays], block.nth[last] + 1
        self.sent_in[slot], self.sent_out[slot] = sent_in[last], sent_out[last]

    def times(self, frame: Ints) -> Ints:
        """Time stamps of frames in arrival order, exact over any length: the remainder is carried."""
        rate = self.spec.rate
        work = frame * 8 if rate.unit == "bps" else np.ones_like(frame)
        # At most 65536 * 9216 * 8 bits a block, times 10**9, plus a remainder: below 2**63.
        ahead = (np.cumsum(work) - work) * 10**9 + self.clock_rest
        times = self.clock_ns + ahead // rate.amount
        after = int(work.sum()) * 10**9 + self.clock_rest
        self.clock_ns += after // rate.amount
        self.clock_rest = after % rate.amount
        return times

    def block(self, index: int) -> bytes:
        """The bytes of one block's records."""
        arrivals = self.arrivals(index)
        packets = self.packets(self.segments(arrivals))
        frame = np.empty_like(packets.frame)
        frame[packets.order] = packets.frame
        end = np.cumsum(frame + RECORD)
        offset = (end - frame - RECORD)[packets.order]
        times = self.times(frame)[packets.order]
        out = np.zeros(int(end[-1]), np.uint8)
        ids = arrivals.first + packets.order
        udp = packets.flows.udp[packets.segment]
        for chosen, is_udp in ((np.flatnonzero(~udp), False), (np.flatnonzero(udp), True)):
            if len(chosen):
                rows = self._rows(packets, chosen, ids[chosen], times[chosen], is_udp)
                _scatter(out, offset[chosen], rows)
        self._write_indices(out, packets, udp, offset, ids)
        return out.tobytes()

    def _header_bytes(self, udp: Flags) -> Ints:
        family = self.spec.family
        return np.where(udp, UDP_HEADERS[family], TCP_HEADERS[family])

    def _carries_index(self, packets: Packets, udp: Flags) -> Flags:
        room: Flags = packets.frame - self._header_bytes(udp) >= INDEX_BYTES
        data: Flags = udp | ((packets.flags & PSH) != 0)
        return room & data

    def _write_indices(self, out: Bytes, packets: Packets, udp: Flags, offset: Ints, ids: Ints) -> None:
        chosen = np.flatnonzero(self._carries_index(packets, udp))
        if len(chosen):
            at = offset[chosen] + RECORD + self._header_bytes(udp[chosen])
            _scatter(out, at, ids[chosen].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES))

    def _rows(self, packets: Packets, chosen: Ints, ids: Ints, times: Ints, udp: bool) -> Bytes:
        """Record header and all protocol headers of the chosen packets, one row each."""
        family, segment = self.spec.family, packets.segment[chosen]
        row = np.zeros(len(chosen), _layout(family, udp))
        frame, reverse, flows = packets.frame[chosen], packets.reverse[chosen], packets.flows
        row["seconds"], row["nanos"] = times // 10**9, times % 10**9
        row["kept"] = row["length"] = frame
        row["dst_high"] = row["src_high"] = MAC_HIGH
        row["dst_low"] = np.where(reverse, MAC_INSIDE, MAC_OUTSIDE)
        row["src_low"] = np.where(reverse, MAC_OUTSIDE, MAC_INSIDE)
        client, server = flows.client[segment], flows.server[segment]
        sport, dport = flows.sport[segment], flows.dport[segment]
        headers = (UDP_HEADERS if udp else TCP_HEADERS)[family]
        # A control packet may be padded beyond its headers; a data packet has a payload of what is left.
        flags = packets.flags[chosen]
        payload = frame - headers
        if not udp:
            payload[(flags & PSH) == 0] = 0
        length = payload + headers - (34 if family == 4 else 54)
        addresses = self._network_header(row, reverse, client, server, length, ids, 17 if udp else 6)
        row["sport"], row["dport"] = np.where(reverse, dport, sport), np.where(reverse, sport, dport)
        total = addresses + (17 if udp else 6) + length + sport + dport
        carried = payload >= INDEX_BYTES
        total += np.where(carried, _words(ids.astype(np.uint64)), 0)
        if udp:
            row["udp_length"] = length
            checksum = _complement(total + length)
            row["checksum"] = np.where(checksum == 0, 0xFFFF, checksum)
        else:
            seq, ack = packets.seq[chosen], packets.ack[chosen]
            row["seq"], row["ack"], row["offset_flags"], row["window"] = seq, ack, 0x5000 | flags, 0xFFFF
            total += (seq >> 16) + (seq & 0xFFFF) + (ack >> 16) + (ack & 0xFFFF) + (0x5000 | flags) + 0xFFFF
            row["checksum"] = _complement(total)
        return row.view(np.uint8).reshape(len(chosen), -1)

    def _network_header(self, row: npt.NDArray[np.void], reverse: Flags, client: Words, server: Words, length: Ints,
                        ids: Ints, protocol: int) -> Ints:
        """Fill the IP header; returns the sum of the address words, for the checksums above."""
        source, destination = np.where(reverse, server, client), np.where(reverse, client, server)
        addresses = _words(client) + _words(server)
        if self.spec.family == 4:
            row["ethertype"], row["version"], row["dont_fragment"] = 0x0800, 0x4500, 0x4000
            row["total_length"], row["id"], row["ttl_protocol"] = length + 20, ids & 0xFFFF, 0x4000 | protocol
            total = 0x4500 + 0x4000 + (0x4000 | protocol) + length + 20 + (ids & 0xFFFF) + addresses
            row["ip_checksum"] = _complement(total)
            row["source"], row["destination"] = source, destination
            return addresses
        inside, outside = self.flow_maker.client_base >> 64, self.flow_maker.server_base >> 64
        row["ethertype"], row["version"], row["payload_length"] = 0x86DD, 0x60000000, length
        row["next_hop_limit"] = protocol << 8 | 64
        row["source_high"], row["destination_high"] = (
            np.where(reverse, np.uint64(a), np.uint64(b)) for a, b in ((outside, inside), (inside, outside)))
        row["source"], row["destination"] = source, destination
        return addresses + int(_words(np.array([inside, outside], np.uint64)).sum())


def _due(count: int, shift: int, block: int, blocks: int) -> tuple[Ints, Ints]:
    """The events j of ``count`` evenly spread ones, at (2j + shift)/(2 count) of the capture, that fall into a block.

    Returns their numbers and their places within the block as numerators over 2 * count.
    """
    low, high = (-((shift * blocks - 2 * count * b) // (2 * blocks)) for b in (block, block + 1))
    numbers = np.arange(low, high, dtype=np.int64)
    return numbers, (2 * (numbers - low) + shift) * blocks + (2 * low * blocks - 2 * count * block)


def _running(values: Ints, head: Ints, segment: Ints, start: Ints) -> Ints:
    """Per segment, ``start`` plus the sum of the values before each element."""
    before = np.cumsum(values) - values
    return before + (start - before[head])[segment]


def _words(values: Words) -> Ints:
    """The sum of the four 16-bit words of each value."""
    low = np.uint64(0xFFFF)
    total = (values & low) + (values >> np.uint64(48))
    total += (values >> np.uint64(16)) & low
    total += (values >> np.uint64(32)) & low
    return total.astype(np.int64)


def _complement(total: Ints) -> Ints:
    """The Internet checksum (RFC 1071) of a sum of 16-bit words."""
    folded = (total & 0xFFFF) + (total >> 16)
    folded = (folded & 0xFFFF) + (folded >> 16)
    return ~folded & 0xFFFF


def _scatter(out: Bytes, offsets: Ints, rows: Bytes) -> None:
    """Copy each row to its offset; every row must fit."""
    width = rows.shape[1]
    windows = np.lib.stride_tricks.as_strided(out, (len(out) - width + 1, width), (1, 1))
    windows[offsets] = rows


def _layout(family: int, udp: bool) -> np.dtype[np.void]:
    """The record and headers of a packet, in wire order."""
    record = [("seconds", "<u4"), ("nanos", "<u4"), ("kept", "<u4"), ("length", "<u4")]
    ethernet = [("dst_high", ">u2"), ("dst_low", ">u4"), ("src_high", ">u2"), ("src_low", ">u4"), ("ethertype", ">u2")]
    ipv4 = [("version", ">u2"), ("total_length", ">u2"), ("id", ">u2"), ("dont_fragment", ">u2"),
            ("ttl_protocol", ">u2"), ("ip_checksum", ">u2"), ("source", ">u4"), ("destination", ">u4")]
    ipv6 = [("version", ">u4"), ("payload_length", ">u2"), ("next_hop_limit", ">u2"), ("source_high", ">u8"),
            ("source", ">u8"), ("destination_high", ">u8"), ("destination", ">u8")]
    ports = [("sport", ">u2"), ("dport", ">u2")]
    tcp = [("seq", ">u4"), ("ack", ">u4"), ("offset_flags", ">u2"), ("window", ">u2"), ("checksum", ">u2"),
           ("urgent", ">u2")]
    return np.dtype(record + ethernet + (ipv4 if family == 4 else ipv6) + ports
                    + ([("udp_length", ">u2"), ("checksum", ">u2")] if udp else tcp))


def chunks(spec: TrafficSpec) -> Iterator[bytes]:
    """The capture's file header, then one chunk a block."""
    yield PCAP_HEADER
    generator = Generator(spec)
    for index in range(spec.blocks):
        yield generator.block(index)
