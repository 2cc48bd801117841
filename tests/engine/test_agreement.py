"""Native engine and reference interpreter agree, packet for packet and entry for entry, on every public capture and on
the shipped one, for every example as the commands compile it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cora
from cora.engine.results import Options
from cora.frontends.traffic.capture import Capture
from cora.testing import Packet, difference, run_native, run_reference, run_sanitized

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.nf"))
CAPTURES = sorted((ROOT / "examples" / "captures").glob("*.pcap*"))


def both_sides(path: Path) -> Iterator[Packet]:
    """The packets of a capture; of two stations, the one that was heard first is on port 0."""
    first: dict[frozenset[bytes], bytes] = {}
    with Capture.open(path) as capture:
        for packet in capture.packets():
            source = packet.frame[6:12]
            side = first.setdefault(frozenset((source, packet.frame[:6])), source)
            yield Packet(int(source != side), packet.time_ns, packet.frame, packet.wirelen)


def assert_agree(example: Path, path: Path, options: Options) -> None:
    program, packets = cora.load(example), list(both_sides(path))
    found = difference(run_reference(program, packets, options), run_native(program, packets, options))
    assert found is None, f"{path.name}: {found}"


@pytest.mark.needs("gcc")
@pytest.mark.needs("traces")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_public_captures(example: Path, traces: Path) -> None:
    captures = sorted(p for p in traces.iterdir() if ".pcap" in p.name)
    assert len(captures) > 40
    for number, path in enumerate(captures):
        # Captures from before the checksum offload, and of headers only, get past the first checks this way.
        assert_agree(example, path, Options() if number % 2 else Options(ignore_checksums=True, headers_only=True))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: p.name)
def test_shipped_captures(example: Path, path: Path) -> None:
    assert_agree(example, path, Options())


@pytest.mark.needs("sanitizers")
@pytest.mark.needs("traces")
@pytest.mark.parametrize("example", [e for e in EXAMPLES if "." not in e.stem], ids=lambda p: p.stem)
def test_public_captures_under_sanitizers(example: Path, traces: Path) -> None:
    """All captures after one another in one run; the clock only moves on."""
    program = cora.load(example)
    packets = [p for path in sorted(traces.iterdir()) if ".pcap" in path.name for p in both_sides(path)]
    options = Options(ignore_checksums=True, headers_only=True)
    assert difference(run_reference(program, packets, options), run_sanitized(program, packets, options)) is None
