"""Frames, captures and running programs for the tests of the host program."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cora.backends.host.execute import environment_options
from cora.frontends.traffic.writer import PcapWriter
from cora.runtime.control import Control
from cora.testing.frames import internet_checksum

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


def udp(source: int, destination: int, sport: int, dport: int, payload: bytes = bytes(18)) -> bytes:
    """A frame of at least 60 bytes; the UDP checksum is absent."""
    body = struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0, source, destination)
    head = head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]
    return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + head + body


def addresses(frame: bytes) -> tuple[int, int, int, int]:
    """Source, destination, source port and destination port of a frame of `udp`."""
    return (*struct.unpack(">II", frame[26:34]), *struct.unpack(">HH", frame[34:38]))


def write_capture(path: Path, frames: Iterable[bytes]) -> Path:
    with PcapWriter(path, nanoseconds=False) as writer:
        for i, frame in enumerate(frames):
            writer.write(1_000_000_000 + 1000 * i, frame)
    return path


def read_capture(path: Path) -> list[bytes]:
    """The frames of a little-endian pcap file, in their order."""
    data, at, frames = path.read_bytes(), 24, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return frames


@contextmanager
def running(binary: Path, cores: int, devices: Sequence[str], arguments: Sequence[str],
            folder: Path) -> Iterator[tuple[subprocess.Popen[str], Control]]:
    """The program as a process, and a connection to its control socket once it answers."""
    socket = folder / "control.sock"
    command = [str(binary), *environment_options(cores, f"{binary.name[:20]}-{folder.name}"), *devices, "--",
               *arguments, "--socket", str(socket)]
    environment = {**os.environ, "RTE_EAL_RUNTIME_DIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        with Control(_answering(socket, process)) as control:
            yield process, control
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _answering(socket: Path, process: subprocess.Popen[str]) -> Path:
    for _ in range(600):
        if socket.exists():
            return socket
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("the program does not listen on its control socket")
