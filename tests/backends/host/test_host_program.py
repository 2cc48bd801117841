"""The host program gives what the reference and the native engine give, on one core and on several."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from host_cases import EXAMPLES, addresses, read_capture, running, udp, write_capture

import cora
from cora.backends.host.execute import PortFiles, compiled, run_captures, run_program
from cora.backends.host.random_runs import run_host
from cora.engine.native import NativeEngine
from cora.engine.results import Output, first_difference
from cora.engine.rows import dump_of_rows, rows_of_dump
from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.ir.nodes import Program
from cora.runtime.verify import packets_in, random_traffic
from cora.testing import Packet, difference, exercising_packets, generate, run_native, run_reference
from cora.testing.choices import RandomChoices
from cora.testing.compare import Outcome
from cora.testing.coverage import covering_packets
from cora.testing.frames import internet_checksum
from cora.testing.splits import by_packet

pytestmark = pytest.mark.needs("dpdk")

NAMES = ("firewall", "nat", "policer", "firewall.ref", "nat.ref", "policer.ref")


def ordered(found: Outcome) -> Outcome:
    return Outcome(by_packet(found.events), found.summary, found.state)


@pytest.mark.parametrize("name", NAMES)
def test_examples_on_packets_for_every_path(name: str) -> None:
    program = cora.load(EXAMPLES / f"{name}.nf")
    packets = list(covering_packets(program, budget=100).packets)
    wanted = ordered(run_reference(program, packets))
    for cores in (1, 2):
        assert difference(wanted, run_host(program, packets, cores=cores).outcome) is None


@pytest.mark.parametrize("name", NAMES)
def test_examples_on_bursts_with_pauses_around_time_outs(name: str) -> None:
    program = cora.load(EXAMPLES / f"{name}.nf")
    known = list(covering_packets(program, budget=100).packets)
    packets = list(packets_in(random_traffic(program, 5, 2500, known)))
    wanted = ordered(run_native(program, packets))
    for cores in (1, 2, 3):
        run = run_host(program, packets, cores=cores)
        assert difference(wanted, run.outcome) is None
        assert (sum(c.handed_over for c in run.cores) > 0) == (cores > 1)
    alone = sum(c.alone for c in run.cores)
    # Fragments and hairpins have no core of their own.
    assert (alone > 0) == (name in ("firewall", "nat"))


TIGHT = """nf tight { port a: wire; port b: host;
  pool q: u16 in 1000 .. 1011;
  pair map m {
    entry { k: ipv4, x: u16 = alloc q, n: u32 } key fwd = k; key rev = x;
    timeout { long 9s, short 2s }; capacity 10; full reject;
  }
  fragments drop; unparsed drop; verify none;
  on a(p: eth/ipv4/udp) {
    lookup m.fwd[p.ip.src] {
      hit e {
        e.n = e.n + 1;
        if e.n % 4 == 3 { touch e as short; } else { touch e as long; }
        p.udp.sport = e.x; forward b;
      }
      miss { insert m { k: p.ip.src, n: 0 } as long { ok e { p.udp.sport = e.x; forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth/ipv4/udp) {
    lookup m.rev[p.udp.dport] {
      hit e { p.ip.dst = e.k; forward a; }
      miss { drop "unknown"; }
    }
  }
  on b(p: eth/ipv4/tcp) {
    lookup m.rev[p.tcp.dport] {
      hit e { lookup m.fwd[p.ip.src] { hit f { delete e; f.n = 0; drop "swapped"; } miss { delete e; drop "gone"; } } }
      miss { drop "unknown"; }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}"""

# A core whose table is full has to wait until the others have removed what is due.
NARROW = """nf narrow { port a: wire; port b: host;
  meter rates { key src: ipv4; rate 100; burst 900; capacity 6; full reject; }
  map m { entry { k: ipv4 } key by = k; timeout 3s; capacity 5; full reject; }
  fragments drop; unparsed drop; verify none;
  on a(p: eth/ipv4/tcp) { police rates[p.ip.src] { green { forward b; } red { drop "red"; } full { drop "no room"; } } }
  on a(p: eth/ipv4/udp) {
    lookup m.by[p.ip.src] {
      hit e { touch e; forward b; }
      miss { insert m { k: p.ip.src } { ok e { forward b; } full { drop "full"; } } }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { forward a; }
}"""




def tight_traffic(count: int) -> list[Packet]:
    choices, now = RandomChoices(4), 10**9
    out: list[Packet] = []
    while len(out) < count:
        now += choices.pick((0, 1000, 10**6, 5 * 10**7, 5 * 10**8, 2_000_000_001))
        source = 0x0A000000 + choices.integer(0, 24) * 0x10101
        for _ in range(choices.integer(1, 12)):
            port = choices.integer(0, 3) // 3
            frame = udp(source, 7, 4000, choices.integer(999, 1012))
            if choices.chance(30):
                head = frame[:14] + bytes((*frame[14:23], 6)) + frame[24:34]
                frame = head + frame[34:38] + bytes(8) + b"\x50\x02" + bytes(20)
            out.append(Packet(port, now, frame, len(frame)))
            now += choices.pick((0, 0, 1, 1000))
    return out[:count]


@pytest.mark.parametrize(("text", "exercised"), [(TIGHT, ("full", "swapped")), (NARROW, ("full", "no room"))])
def test_room_and_values_are_one_for_all_cores(text: str, exercised: tuple[str, ...]) -> None:
    program, packets = nf.loads(text), tight_traffic(4000)
    wanted = ordered(run_native(program, packets))
    assert all(wanted.summary.dropped.get(reason, 0) > 5 for reason in exercised), wanted.summary
    for cores in (2, 3):
        run = run_host(program, packets, cores=cores)
        assert difference(wanted, run.outcome) is None
        assert sum(c.handed_over for c in run.cores) > 300


@pytest.mark.parametrize("seed", [1, 3, 9])
def test_random_programs(seed: int) -> None:
    program = generate(seed).program
    packets = exercising_packets(program, seed, 300)
    wanted = ordered(run_reference(program, packets))
    for cores in (1, 2):
        try:
            run = run_host(program, packets, cores=cores)
        except CoraError as error:
            assert cores > 1 and "runs on one core" in error.diagnostics[0].message
            continue
        assert difference(wanted, run.outcome) is None


def test_a_program_that_computes_with_the_time_first_runs_on_one_core() -> None:
    program = nf.loads("""nf early { port a: wire; port b: wire;
      map m { entry { k: u64 } key by = k; timeout 1s; capacity 10; full reject; }
      fragments ignore; unparsed drop;
      on a(p: eth) { lookup m.by[u64(now) / 1_000] { hit e { forward b; } miss { drop "late"; } } }
      on b(p: eth) { forward a; }
    }""")
    packets = [Packet(0, 5000, bytes(60), 60)]
    assert run_host(program, packets).outcome.summary.dropped == {"late": 1}
    with pytest.raises(CoraError) as caught:
        run_host(program, packets, cores=2)
    assert caught.value.diagnostics[0].kind == Kind.RUN_FAILED
    assert "runs on one core: it computes with the time" in caught.value.diagnostics[0].message


# Capture to capture: the real way in and out, by the machine's clock.


def through(program: Program, folder: Path, frames: dict[str, list[bytes]], cores: int = 1
            ) -> tuple[dict[str, list[bytes]], dict[str, object]]:
    """What leaves each port, and the totals."""
    files = {name: PortFiles(write_capture(folder / f"{name}.in.pcap", frames[name]), folder / f"{name}.out.pcap")
             for name in (p.name for p in program.ports)}
    totals = run_captures(program, compiled(program, {}), files, cores=cores)
    return {name: read_capture(f.leaves) for name, f in files.items()}, totals


def in_bursts(program: Program, frames: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """What the native engine sends when the ports are polled in turn, 32 packets at a time, at one moment."""
    names, out = [p.name for p in program.ports], {p.name: list[bytes]() for p in program.ports}
    with NativeEngine(program) as engine:
        for first in range(0, max(map(len, frames.values())), 32):
            for port, name in enumerate(names):
                for frame in frames[name][first:first + 32]:
                    for event in engine.process(port, 10**9, frame):
                        if isinstance(event, Output):
                            out[names[event.port]].append(event.frame)
    return out


@pytest.mark.parametrize("name", ["nat.ref", "firewall"])
def test_captures_in_and_out(name: str, tmp_path: Path) -> None:
    program = cora.load(EXAMPLES / f"{name}.nf")
    inside = [udp(0x0A000001 + i % 50, 0xC6336401 + i % 7, 5000 + i, 53) for i in range(300)]
    answers = []
    with NativeEngine(program) as engine:
        for frame in inside:
            (sent,) = [e for e in engine.process(0, 10**9, frame) if isinstance(e, Output)]
            source, destination, sport, dport = addresses(sent.frame)
            answers.append(udp(destination, source, dport, sport))
    frames = {"inside": inside, "outside": answers}
    wanted = in_bursts(program, frames)
    assert len(wanted["inside"]) == 300
    found, totals = through(program, tmp_path, frames)
    assert found == wanted
    counters = totals["counters"]
    assert isinstance(counters, dict)
    assert counters["arrived"] == 600 and counters["forwarded"] == {"inside": 300, "outside": 300}


@pytest.mark.needs("gcc")
def test_two_cores_keep_flows_in_order_and_give_each_value_once(tmp_path: Path) -> None:
    program = cora.load(EXAMPLES / "nat.ref.nf")
    flows = [(0x0A000001 + i, 0xC6336401 + i % 5, 6000 + i, 80) for i in range(200)]
    inside = [udp(*flow, payload=bytes([n]) + bytes(17)) for n in range(20) for flow in flows]
    found, totals = through(program, tmp_path, {"inside": inside, "outside": []}, cores=2)
    sent = found["outside"]
    assert len(sent) == len(inside) == 4000
    values: dict[int, tuple[int, int]] = {}
    turns: dict[int, list[int]] = {}
    for frame in sent:
        source, destination, sport, dport = addresses(frame)
        assert source == 0xCB007101
        assert values.setdefault(sport, (destination, dport)) == (destination, dport)
        turns.setdefault(sport, []).append(frame[42])
    assert len(turns) == 200 and all(t == list(range(20)) for t in turns.values())
    workers = totals["workers"]
    assert isinstance(workers, dict) and sum(w["handed_over"] for w in workers.values()) > 500


# A running program and its control socket.

IDLE = ("--vdev=net_null0,no-rx=1", "--vdev=net_null1,no-rx=1")
PORTS = ("--port", "inside=net_null0", "--port", "outside=net_null1")


def test_states_are_loaded_whole_or_not_at_all(tmp_path: Path) -> None:
    program = cora.load(EXAMPLES / "nat.ref.nf")
    with NativeEngine(program) as engine:
        for i in range(40):
            engine.process(0, 10**9, udp(0x0A000001 + i, 0xC6336401, 5000 + 7 * i, 53))
        dumped = engine.state()
    with running(compiled(program, {}), 2, IDLE, PORTS, tmp_path) as (process, control):
        now = control.status()["now_ns"]
        entries = dumped["conns"]["entries"]
        assert isinstance(entries, list)
        for entry in entries:
            entry["last"] = now
        rows = rows_of_dump(program, dumped)
        names = [s.name for s in program.states]
        with control.transaction():
            for name, data in zip(names, rows, strict=True):
                control.load(name, data)
        back = dump_of_rows(program, [control.dump(n)[0] for n in names])
        assert first_difference(back, dumped) is None
        status = control.status()
        assert status["epoch"] == 2 and status["tables"]["conns"]["entries"] == 40
        assert status["tables"]["ports"]["free"] == 64512 - 40
        # The same key twice does not fit: nothing changes, in either state.
        conns = dict(zip(names, rows, strict=True))["conns"]
        size = len(conns) // 40
        with pytest.raises(CoraError) as caught, control.transaction():
            control.load("conns", conns[:size] * 2)
        assert "rows of 'conns' do not fit" in caught.value.diagnostics[0].message
        assert first_difference(dump_of_rows(program, [control.dump(n)[0] for n in names]), dumped) is None
        # Values without an entry do not fit either.
        with pytest.raises(CoraError), control.transaction():
            control.load("conns", conns[:size])
            control.load("ports", rows[names.index("ports")])
        assert first_difference(dump_of_rows(program, [control.dump(n)[0] for n in names]), dumped) is None
        with pytest.raises(CoraError, match="no such state"):
            control.dump("nothing")
        control.stop()
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and json.loads(out)["tables"]["conns"]["entries"] == 40


def test_a_signal_ends_it_and_no_packet_is_lost_from_the_totals(tmp_path: Path) -> None:
    program = cora.load(EXAMPLES / "firewall.nf")
    frames = [udp(0x0A000001 + i, 0xC6336401, 5000 + i, 53) for i in range(200)]
    fragment = bytearray(udp(0x0A000001, 0xC6336401, 5000, 53, payload=bytes(24)))
    fragment[20:22], fragment[24:26] = b"\x20\x00", b"\0\0"  # more fragments follow
    fragment[24:26] = internet_checksum(bytes(fragment[14:34])).to_bytes(2, "big")
    path = write_capture(tmp_path / "in.pcap", [*frames, bytes(fragment)])
    devices = (f"--vdev=net_pcap0,rx_pcap={path},infinite_rx=1", "--vdev=net_null1,no-rx=1")
    ports = ("--port", "inside=net_pcap0", "--port", "outside=net_null1")
    with running(compiled(program, {}), 2, devices, ports, tmp_path) as (process, control):
        while control.status()["counters"]["arrived"] < 20_000:
            time.sleep(0.05)
        events = control.trace(3)
        assert {e["what"] for e in events} >= {"arrived", "forwarded"}
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    totals = json.loads(out)
    counters, workers = totals["counters"], totals["workers"].values()
    assert sum(w["received"] for w in workers) == counters["arrived"]
    gone = sum(counters["forwarded"].values()) + sum(counters["dropped"].values()) + counters["held"]
    assert gone == counters["arrived"]
    assert all(w["transmit_queue_full"] == w["no_buffer"] == 0 for w in workers)
    assert sum(w["ran_alone"] for w in workers) > 0 and sum(w["handed_over"] for w in workers) > 0


@pytest.mark.parametrize(("arguments", "message"), [
    (("--port", "inside=net_null0"), "the port 'outside' has no device: --port outside=DEVICE"),
    (("--port", "middle=0"), "the program has no such port"),
    (("--port", "inside=7"), "there is no device 7"),
    ((*PORTS, "--port", "inside=1"), "the port has a device already"),
    (("--port", "inside=0", "--port", "outside=0"), "the device is already that of port 'inside'"),
    ((*PORTS, "--buffers", "many"), "--buffers many: give a number from 255"),
    (("--records", "/nowhere", "--output", "/dev/null"), "/nowhere cannot be opened: No such file or directory"),
])
def test_a_wrong_command_line_is_told(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    program = cora.load(EXAMPLES / "nat.ref.nf")
    with pytest.raises(CoraError) as caught:
        run_program(compiled(program, {}), 1, IDLE, arguments, tmp_path)
    said = caught.value.diagnostics[0].message
    assert "ended with code 2" in said and message in said
