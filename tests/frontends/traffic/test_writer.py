"""pcap files written: round trips through independent readers, atomicity, and what a record cannot hold."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import dpkt
import pytest
from capture_files import frame
from slow_reader import read, read_file

from cora.errors import CoraError, Kind
from cora.frontends.traffic.writer import PcapWriter, write_pcap

T = 1_700_000_000 * 10**9
PACKETS = [(T, frame(0), None), (T + 100, frame(1), 1500), (T + 200, b"", None)]


def test_nanoseconds_and_original_lengths_are_kept(tmp_path: Path) -> None:
    assert write_pcap(tmp_path / "a.pcap", PACKETS) == 3
    raws = read_file(tmp_path / "a.pcap")
    assert [(r.time_ns, r.data, r.origlen, r.link) for r in raws] == [
        (T, frame(0), 60, 1), (T + 100, frame(1), 1500, 1), (T + 200, b"", 0, 1)]
    assert list(tmp_path.iterdir()) == [tmp_path / "a.pcap"]


def test_microseconds_and_link_type(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [(T + 1999, b"\x45", None)], nanoseconds=False, linktype=101)
    (raw,) = read_file(tmp_path / "a.pcap")
    assert (raw.time_ns, raw.link) == (T + 1000, 101)


def test_dpkt_reads_it(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", PACKETS)
    with (tmp_path / "a.pcap").open("rb") as file:
        assert [data for _, data in dpkt.pcap.Reader(file)] == [data for _, data, _ in PACKETS]


def test_no_packets_is_a_valid_file(tmp_path: Path) -> None:
    assert write_pcap(tmp_path / "a.pcap", []) == 0
    assert read_file(tmp_path / "a.pcap") == []


def test_failure_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[int, bytes, None]]:
        yield T, frame(0), None
        raise RuntimeError("no more")

    path = tmp_path / "a.pcap"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        write_pcap(path, broken())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_appears_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    with PcapWriter(path) as writer:
        writer.write(T, frame(0))
        assert not path.exists()
    assert len(read_file(path)) == 1


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_pcap(tmp_path / "a.pcap", [])
    finally:
        os.umask(old)
    assert (tmp_path / "a.pcap").stat().st_mode & 0o777 == 0o640


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.pcap", tmp_path / "link.pcap", tmp_path / "pipe"
    real.touch()
    link.symlink_to(real)
    write_pcap(link, PACKETS)
    assert link.is_symlink()
    assert len(read_file(real)) == 3
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_pcap(pipe, PACKETS)
    reader.join()
    assert pipe.is_fifo()
    assert len(list(read(got[0]))) == 3


@pytest.mark.parametrize(("packet", "words"), [
    ((-1, b"", None), "1970 to 2106"),
    ((2**32 * 10**9, b"", None), "1970 to 2106"),
    ((T, bytes(262145), None), "longer than a pcap record may be"),
    ((T, bytes(60), 59), "original length of 59"),
    ((T, bytes(60), 2**32), "original length of 4294967296"),
])
def test_what_a_record_cannot_hold(tmp_path: Path, packet: tuple[int, bytes, int | None], words: str) -> None:
    with pytest.raises(CoraError, match=words) as caught:
        write_pcap(tmp_path / "a.pcap", [packet])
    assert caught.value.diagnostics[0].kind is Kind.CANNOT_WRITE
    assert not list(tmp_path.iterdir())


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CoraError, match="cannot be written") as caught:
        write_pcap(tmp_path / "missing" / "a.pcap", [])
    assert "missing/a.pcap" in caught.value.render()


def test_full_disk_is_told_and_nothing_is_left() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this machine")
    with pytest.raises(CoraError, match="No space left"):
        write_pcap("/dev/full", ((T, bytes(60_000), None) for _ in range(100)))


def test_header_is_the_documented_one(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [])
    assert (tmp_path / "a.pcap").read_bytes() == struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
