"""Packets of running programs, as `cora trace --live` follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from itertools import groupby
from typing import Any

from cora.runtime.control import Control

# Packets asked for at once, and how long a program waits for them.
_AT_ONCE, _WAIT_MS = 64, 500
# After so many waits without a packet it is worth a word.
_PATIENCE = 6
_ETHERNET, _VLAN = 14, (0x8100, 0x88A8)
_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
_FLAGS = "FSRPAU"


def followed(control: Control, packets: int, tell: Callable[[list[dict[str, Any]]], None],
             quiet: Callable[[], None] = lambda: None) -> None:
    """Follow the next packets of a program, and tell the events of each as soon as they are known.

    Args:
        quiet: called once, when no packet has come for a while.
    """
    done, waits = 0, 0
    while done < packets:
        events = control.trace(min(packets - done, _AT_ONCE), _WAIT_MS)
        waits = 0 if events else waits + 1
        if waits == _PATIENCE:
            quiet()
        for _, of_one in groupby(events, lambda e: e.get("packet")):
            if done == packets:
                break
            tell(list(of_one))
            done += 1


def event_lines(events: list[dict[str, Any]]) -> Iterator[str]:
    """The events of one packet as text."""
    for event in events:
        frame = frame_text(bytes.fromhex(str(event.get("bytes", ""))))
        what, port = event.get("what"), event.get("port", "")
        if what == "arrived":
            seconds, rest = divmod(int(event.get("time_ns", 0)), 10**9)
            yield f"packet {event.get('packet')}: {event.get('length')} octets arrive on {port} at {seconds}.{rest:09d}"
            yield f"  {frame}"
            if event.get("entry"):
                yield f"  {event.get('place')} goes on at {event['entry']}"
        elif what == "left":
            yield f"  {frame}"
            yield f"=> out of {port}, {event.get('length')} octets"
        elif what == "forwarded":
            yield f"  {event.get('place')} decides: forward {port}"
        else:
            yield f"=> {_end(event)}"


def _end(event: Mapping[str, Any]) -> str:
    if event.get("what") == "dropped":
        return f"dropped: {event.get('reason', 'for no reason of the program')}"
    return "held until the first fragment of its datagram arrives" if event.get("what") == "held" else str(event)


def frame_text(frame: bytes) -> str:
    """Addresses, protocol and ports of a frame, as far as its bytes go."""
    at, kind, tags = _ETHERNET, int.from_bytes(frame[12:14], "big"), ""
    while kind in _VLAN and len(frame) >= at + 4:
        tags += f"vlan {int.from_bytes(frame[at:at + 2], 'big') & 0xFFF} "
        kind, at = int.from_bytes(frame[at + 2:at + 4], "big"), at + 4
    if kind == 0x0800 and len(frame) >= at + 20:
        source, target = ip_address(frame[at + 12:at + 16]), ip_address(frame[at + 16:at + 20])
        offset = int.from_bytes(frame[at + 6:at + 8], "big")
        last = "" if offset & 0x2000 else ", the last"
        part = f" fragment at {(offset & 0x1FFF) * 8}{last}" if offset & 0x3FFF else ""
        upper = "" if offset & 0x1FFF else _upper(frame[at + 9], frame[at + (frame[at] & 15) * 4:])
        return f"{tags}{source} > {target} {_NAMES.get(frame[at + 9], f'protocol {frame[at + 9]}')}{upper}{part}"
    if kind == 0x86DD and len(frame) >= at + 40:
        source6, target6 = ip_address(frame[at + 8:at + 24]), ip_address(frame[at + 24:at + 40])
        name = _NAMES.get(frame[at + 6], f"next header {frame[at + 6]}")
        return f"{tags}{source6} > {target6} {name}{_upper(frame[at + 6], frame[at + 40:])}"
    return f"{tags}{'arp' if kind == 0x0806 else f'type 0x{kind:04x}'}"


def _upper(protocol: int, data: bytes) -> str:
    if protocol in (6, 17) and len(data) >= 4:
        ports = f" {int.from_bytes(data[:2], 'big')} > {int.from_bytes(data[2:4], 'big')}"
        said = data[13] if protocol == 6 and len(data) > 13 else 0
        return f"{ports} {''.join(f for i, f in enumerate(_FLAGS) if said >> i & 1)}".rstrip()
    return f" type {data[0]} code {data[1]}" if protocol in (1, 58) and len(data) >= 2 else ""
