"""Ends of sessions for the tests between namespaces; run as a program.

server ADDRESS PORT: answers every datagram with the sender's address, a space, and the datagram.
client ADDRESS PORT COUNT SIZE: sends datagrams one by one, waits for each answer, prints what came as JSON.
sink ADDRESS PORT: takes TCP connections one by one, and answers each with its bytes in reverse once all have come.
pour ADDRESS PORT SIZE: sends so many bytes to a sink, and ends well when the answer is right.
order ADDRESS PORT: takes numbered datagrams of any flows; prints per flow how many came and how many came too late.
stream ADDRESS PORT FLOWS COUNT: sends so many numbered datagrams of each of several flows.
quote ADDRESS PORT: sends a datagram and prints what the ICMP error about it quotes, as hexadecimal digits.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections.abc import Callable


def server(address: str, port: int) -> None:
    """Runs until it is killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind((address, port))
        while True:
            data, sender = end.recvfrom(65535)
            end.sendto(sender[0].encode() + b" " + data, sender)


def client(address: str, port: int, count: int, size: int) -> None:
    """A datagram without an answer in two seconds is one that is missing."""
    seen: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(2)
        for number in range(count):
            sent = number.to_bytes(4, "big") * (size // 4)
            end.sendto(sent, (address, port))
            try:
                data, _ = end.recvfrom(65535)
            except TimeoutError:
                continue
            sender, _, rest = data.partition(b" ")
            if rest == sent:
                seen.append(sender.decode())
    print(json.dumps(seen))


def sink(address: str, port: int) -> None:
    """Runs until it is killed."""
    with socket.create_server((address, port)) as listening:
        while True:
            end, _ = listening.accept()
            with end:
                end.sendall(_all_of(end)[::-1])


def pour(address: str, port: int, size: int) -> None:
    """Exit code 1: the answer is another one."""
    data = random.Random(size).randbytes(size)
    with socket.create_connection((address, port), 20) as end:
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
        sys.exit(_all_of(end) != data[::-1])


def order(address: str, port: int) -> None:
    """Ends one second after the last datagram."""
    latest: dict[tuple[str, int], int] = {}
    counts: dict[tuple[str, int], list[int]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        end.bind((address, port))
        while True:
            try:
                data, sender = end.recvfrom(65535)
            except TimeoutError:
                break
            end.settimeout(1)
            number = int.from_bytes(data[:4], "big")
            came = counts.setdefault(sender, [0, 0])
            came[0] += 1
            came[1] += number < latest.get(sender, 0)
            latest[sender] = max(number, latest.get(sender, 0))
    print(json.dumps(list(counts.values())))


def stream(address: str, port: int, flows: int, count: int) -> None:
    """Four flows at a time begin all at once, then go on with a pause after each datagram, and others follow them."""
    for _ in range(flows // 4):
        ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
        for number in range(count):
            for end in ends:
                end.sendto(number.to_bytes(4, "big") + bytes(60), (address, port))
            if number > count // 2:
                time.sleep(0.0001)
        for end in ends:
            end.close()


def quote(address: str, port: int) -> None:
    """Fails when no error comes within two seconds."""
    errors = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with errors, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        errors.settimeout(2)
        end.sendto(b"a datagram", (address, port))
        print(errors.recv(65535)[28:].hex())


def _all_of(end: socket.socket) -> bytes:
    parts = []
    while part := end.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    ends: dict[str, Callable[..., None]] = {"server": server, "client": client, "sink": sink, "pour": pour,
                                            "quote": quote, "order": order, "stream": stream}
    ends[what](where, *(int(n) for n in numbers))
