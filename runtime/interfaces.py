"""The network interfaces of this machine, as the caller's network namespace has them."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping, Sequence

from cora.errors import CoraError, Kind, fail

# Linux: include/uapi/linux/sockios.h, if.h.
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 1
_REQUEST = struct.Struct("16sH22x")
_LOOPBACK = "lo"


def interfaces() -> tuple[str, ...]:
    """Names of all interfaces, loopback aside, sorted."""
    return tuple(sorted(name for _, name in socket.if_nameindex() if name != _LOOPBACK))


def is_up(name: str) -> bool:
    """Whether an interface is set up; false where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            said = fcntl.ioctl(probe, _SIOCGIFFLAGS, _REQUEST.pack(name.encode()[:15], 0))
        except OSError:
            return False
    return bool(_REQUEST.unpack(said)[1] & _IFF_UP)


def parse_ports(texts: Sequence[str], ports: Sequence[str]) -> dict[str, str]:
    """The interface of every port, from ``inside=eth1,outside=eth2``; such texts add up.

    Raises:
        CoraError: `Kind.BAD_FLAG` where a port is unknown, missing or told twice, or an interface is used twice.
    """
    known = ", ".join(ports)
    found: dict[str, str] = {}
    for pair in (p.strip() for text in texts for p in text.split(",") if p.strip()):
        port, equals, interface = (part.strip() for part in pair.partition("="))
        if not equals or not interface:
            raise _bad(f"'{pair}' gives no port an interface", f"write PORT=INTERFACE; the program's ports: {known}")
        if port not in ports:
            raise _bad(f"the program has no port {port}", f"its ports: {known}")
        if port in found:
            raise _bad(f"port {port} is given twice", "every port has one interface")
        if interface in found.values():
            raise _bad(f"{interface} is given to two ports", "every port needs an interface of its own")
        found[port] = interface
    missing = [p for p in ports if p not in found]
    if missing:
        raise _bad(f"port {missing[0]} has no interface",
                   "for example --ports " + ",".join(f"{p}={found.get(p, f'eth{i}')}" for i, p in enumerate(ports)))
    return {p: found[p] for p in ports}


def _bad(message: str, hint: str) -> CoraError:
    return fail(Kind.BAD_FLAG, message, where="--ports", hint=hint)


def require_interfaces(ports: Mapping[str, str]) -> None:
    """Refuse interfaces that are not there or not up.

    Raises:
        CoraError: `Kind.BAD_INTERFACE`.
    """
    there = interfaces()
    for port, name in ports.items():
        if name not in there:
            raise fail(Kind.BAD_INTERFACE, f"there is no interface {name} for port {port}", where="--ports",
                       hint=f"these are here: {', '.join(there)}" if there else "this machine has none besides lo")
        if not is_up(name):
            raise fail(Kind.BAD_INTERFACE, f"the interface {name} of port {port} is down", where="--ports",
                       hint=f"ip link set dev {name} up")
