"""`cora verify --on`: executions of a plan's own programs are compared like the parts in one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from build_kit import install
from command_kit import Run
from numpy.typing import NDArray

from cora.build.backend import Executed
from cora.build.request import BuildRequest
from cora.engine.native import NativeEngine, Records
from cora.engine.results import Dropped, Event, Options, Output
from cora.engine.split import SplitEngine, Statistics
from cora.plan.document import load_plan
from cora.runtime.executed import flow_of

pytestmark = pytest.mark.needs("gcc")


def executed(request: BuildRequest, batches: Sequence[Records], options: Options, _seed: int) -> Executed:
    """A run of the native engine that is what the programs do."""
    with NativeEngine(request.program, options) as engine:
        events = list(engine.run_events(batches))
        return Executed(events, engine.summary(), engine.state(), True, Statistics(punted=3))


def spoiled(change: Callable[[list[Event]], list[Event]] = list, *, attributed: bool = True,
            **parts: object) -> Callable[..., Executed]:
    def run(request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
        found = executed(request, batches, options, seed)
        return replace(found, events=change(list(found.events)), attributed=attributed, **parts)  # type: ignore[arg-type]
    return run


def sent_only(events: list[Event]) -> list[Event]:
    """What a capture of the ports tells: frames, without the packets that caused them."""
    return [replace(e, index=0) for e in events if isinstance(e, Output)]


def swapped(events: list[Event]) -> list[Event]:
    """The first two frames of one flow that differ change places."""
    out = sent_only(events)
    for i, one in enumerate(out):
        for j in range(i + 1, len(out)):
            other = out[j]
            assert isinstance(one, Output) and isinstance(other, Output)
            if one.port == other.port and one.frame != other.frame and flow_of(one.frame) == flow_of(other.frame):
                out[i], out[j] = other, one
                return out
    raise AssertionError("no flow has two frames that differ")


def other_frame(events: list[Event]) -> list[Event]:
    at = next(i for i, e in enumerate(events) if isinstance(e, Output))
    event = events[at]
    assert isinstance(event, Output)
    events[at] = replace(event, frame=event.frame[:-1] + bytes([event.frame[-1] ^ 1]))
    return events


@pytest.mark.parametrize("attributed", [True, False])
def test_programs_that_do_the_same_are_equal_and_that_is_written_down(
        little: tuple[Path, Path], cora: Run, monkeypatch: pytest.MonkeyPatch, attributed: bool) -> None:
    run = executed if attributed else spoiled(sent_only, attributed=False)
    install(monkeypatch, "host", EXECUTORS={"mine": run})
    nf, plan = little
    out = plan.with_name("verified.json")
    trace = str(nf.with_name("made.pcap"))
    done = cora("verify", str(plan), trace, "--on", "mine", "--packets", "300", "--seeds", "2", "-o", str(out))
    assert done.code == 0 and "equal: what leaves" in done.out, done.out + done.err
    assert "made.pcap: 2,000 packets, 2 schedules" in done.out and "6  handed over between places" in done.out
    done = cora("verify", str(out), trace, "--packets", "300", "--seeds", "1", "-o", str(out))
    assert done.code == 0
    assert [v.on for v in load_plan(out).evidence.verified] == ["mine", "split"]
    shown = cora("show", str(out)).out
    assert "the programs on mine equal to" in shown and "the parts in one process equal to" in shown


@pytest.mark.parametrize(("run", "says"), [
    (spoiled(other_frame), "what became of a packet"),
    (spoiled(lambda events: events[:-1]), "what became of a packet"),
    (spoiled(lambda events: [Dropped(e.index, "made up") if i == 9 else e for i, e in enumerate(events)]), "made up"),
    (spoiled(swapped, attributed=False), "order within a flow that leaves port"),
    (spoiled(lambda events: sent_only(events)[1:], attributed=False), "what leaves port"),
    (spoiled(state={}), "state (programs against unsplit)"),
])
def test_programs_that_do_something_else_are_found(little: tuple[Path, Path], cora: Run, says: str,
                                                   run: Callable[..., Executed],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host", EXECUTORS={"mine": run})
    nf, plan = little
    done = cora("verify", str(plan), str(nf.with_name("made.pcap")), "--on", "mine", "--packets", "0")
    assert done.code == 1 and "DIFFERENT" in done.out and says in done.out


def test_wrong_totals_are_found(little: tuple[Path, Path], cora: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def miscounts(request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
        found = executed(request, batches, options, seed)
        found.summary.octets += 1
        return found

    install(monkeypatch, "host", EXECUTORS={"mine": miscounts})
    nf, plan = little
    done = cora("verify", str(plan), str(nf.with_name("made.pcap")), "--on", "mine", "--packets", "0")
    assert done.code == 1 and "DIFFERENT: totals" in done.out


class ShortOnly(SplitEngine):
    """Runs packets of at most 100 bytes."""

    TAKEN: ClassVar[str] = "packets of at most 100 bytes"

    @classmethod
    def takes(cls, records: Records) -> NDArray[np.bool_]:
        captured: NDArray[np.bool_] = records.view("=u4").reshape(len(records), -1)[:, 4] <= 100
        return captured


def test_packets_that_an_execution_does_not_take_are_left_out_and_said_so(
        little: tuple[Path, Path], cora: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host", ENGINES={"short": lambda: ShortOnly})
    nf, plan = little
    done = cora("verify", str(plan), str(nf.with_name("made.pcap")), "--on", "short", "--packets", "100", "--json")
    told = json.loads(done.out)
    assert done.code == 0 and told["on"] == "short" and told["equal"]
    assert "packets of at most 100 bytes can be run here" in done.err
    assert 0 < told["compared"][0]["packets"] < 2000


def test_an_execution_that_is_not_there_is_told(little: tuple[Path, Path], cora: Run, monkeypatch: pytest.MonkeyPatch,
                                                tmp_path: Path) -> None:
    install(monkeypatch, "host", EXECUTORS={"mine": executed}, TOOLS={"mine": ("make",)})
    done = cora("verify", str(little[1]), "--on", "moon")
    assert done.code == 2 and "does not run on moon" in done.err and "split, mine" in done.err
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cora("verify", str(little[1]), "--on", "mine")
    assert done.code == 2 and "E606" in done.err


def test_flows_are_told_apart_by_addresses_protocol_and_ports() -> None:
    head = bytes(12)
    udp = head + bytes.fromhex("0800" "4500001c00000000401100000a0000010a000002") + bytes.fromhex("0001000200080000")
    assert flow_of(udp) == bytes.fromhex("0a0000010a000002" "11" "00010002")
    tagged = udp[:12] + bytes.fromhex("81000005") + udp[12:]
    assert flow_of(tagged) == flow_of(udp)
    later = bytearray(udp)
    later[20:22] = b"\x00\x10"  # a later fragment has no ports
    assert flow_of(bytes(later)) == flow_of(udp)[:-4]
    six = head + bytes.fromhex("86dd" "60000000" "0008" "11" "40") + bytes(range(32)) + udp[-8:]
    assert flow_of(six) == bytes(range(32)) + bytes.fromhex("11" "00010002")
    assert flow_of(head + b"\x08\x06" + bytes(28)) == b"" == flow_of(udp[:20])
