"""Verification finds every fault of a split within its normal budget, and finds nothing where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from split_cases import telling, traffic

import cora
from cora.cli.verify import command
from cora.engine.split import FAULTS, run_sanitized
from cora.plan.document import load_plan, save
from cora.runtime.verify import Verification, packets_in, random_traffic, verify
from cora.testing import difference, run_native
from cora.testing.compare import Outcome
from cora.testing.splits import by_packet

ROOT = Path(__file__).resolve().parents[2]
POLICER, OFFICE = ROOT / "examples" / "policer.nf", ROOT / "examples" / "captures" / "office.pcap"

pytestmark = pytest.mark.needs("gcc")


def test_a_sound_split_is_equal_under_many_schedules() -> None:
    found = verify(telling(), [traffic()], seeds=12, packets=3000)
    assert found.equal, found.difference
    assert len(found.compared) > 3 and {c.seeds for c in found.compared} == {12}
    total = found.statistics
    # Everything that lending has is exercised.
    assert min(total.fast, total.waited, total.recalled, total.asked, total.used) > 100


@pytest.mark.parametrize("fault", [f for f in FAULTS if f != "sound"])
def test_a_fault_is_found(fault: str) -> None:
    found = verify(telling(), [traffic()], packets=3000, fault=fault)
    assert found.difference is not None, found.statistics


def test_the_first_difference_names_packet_outcomes_and_lines() -> None:
    found = verify(telling(), [traffic()], packets=0, fault="stale value").difference
    assert found is not None and found.packet is not None
    assert found.source == "made traffic" and found.split != found.unsplit
    assert any("forward b" in line for line in found.lines)


def test_the_same_seed_gives_the_same_traffic() -> None:
    program = telling().program
    known = list(packets_in(traffic(50)))
    first, second = (list(packets_in(random_traffic(program, 5, 400, known))) for _ in range(2))
    assert first == second and len(first) == 400
    assert first != list(packets_in(random_traffic(program, 6, 400, known)))


def test_no_run_begins_after_the_time_limit() -> None:
    found = verify(telling(), [traffic()], packets=10, time_limit=1e-9)
    assert found.stopped and found.packets == 0 and found.equal


@pytest.mark.needs("sanitizers")
def test_the_split_runtime_is_clean_under_sanitizers() -> None:
    split, packets = telling(), list(packets_in(traffic(2500)))
    plain = run_native(split.program, packets)
    for chance in range(2):
        found = run_sanitized(split, [(p.port, p.time_ns, p.frame, p.wirelen) for p in packets], chance=chance)
        assert difference(Outcome(by_packet(plain.events), plain.summary, plain.state),
                          Outcome(by_packet(found.events), found.summary, found.state)) is None
        assert found.statistics.fast > 0 and found.statistics.recalled > 0


# The command.


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = cora.load(POLICER)
    plan = cora.plan(program, cora.profile(program, OFFICE), "bluefield2", cores=4)
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    save(plan, path)
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_the_command_compares_and_writes_evidence(plan_file: Path) -> None:
    out = plan_file.with_name("verified.json")
    code, said = run(plan_file, OFFICE, "--packets", 500, "--seeds", 2, "-o", out)
    assert code == 0 and "equal: what leaves" in said
    assert "office.pcap: 6,630 packets, 2 schedules" in said
    (verified,) = load_plan(out).evidence.verified
    assert verified.on == "split" and verified.traffic[0] == "office.pcap" and verified.packets > 2 * 6630
    assert replace(load_plan(out).evidence, verified=()) == load_plan(plan_file).evidence
    from cora.plan.render import render

    assert f"verified: {verified.packets:,} packets of office.pcap" in render(load_plan(out))


def test_the_command_prints_json(plan_file: Path) -> None:
    code, said = run(plan_file, "--packets", 0, "--seeds", 1, "--json")
    facts = json.loads(said)
    assert code == 0 and facts["equal"] and facts["difference"] is None
    assert len(facts["digest"]) == 64 and 0 < facts["coverage"] <= 1
    # Without a capture it is that of the examples, as taken at the first port.
    assert (facts["compared"][0]["source"], facts["compared"][0]["packets"]) == ("office.pcap", 6630)


def test_a_program_that_moved_is_asked_for(plan_file: Path, tmp_path: Path) -> None:
    plan = load_plan(plan_file)
    gone = tmp_path / "gone.json"
    save(replace(plan, states=tuple(replace(s, source=replace(s.source, file="gone.nf")) for s in plan.states)), gone)
    with pytest.raises(cora.CoraError, match=r"the program that the plan names is not there") as caught:
        run(gone)
    assert caught.value.diagnostics[0].hint == "say where it is now: --program NF"
    code, _ = run(gone, "--program", POLICER, "--packets", 0, "--seeds", 1)
    assert code == 0


def test_a_difference_has_exit_code_1(plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verify(telling(), [traffic()], packets=0, seeds=1, fault="stale value")

    def unequal(*_arguments: object, **_options: object) -> Verification:
        return found

    monkeypatch.setattr(cora, "verify", unequal, raising=False)
    out = plan_file.with_name("never.json")
    code, said = run(plan_file, "-o", out)
    assert code == 1 and not out.exists()
    assert "DIFFERENT: what became of a packet (made traffic, packet " in said and "  unsplit: sent out of" in said


def test_a_plan_of_another_program_is_refused(plan_file: Path) -> None:
    with pytest.raises(cora.CoraError, match="the plan is of another program"):
        run(plan_file, "--program", ROOT / "examples" / "nat.nf")
    with pytest.raises(cora.CoraError, match="the plan is of another program"):
        run(plan_file, "--set", "rate=1000000")


def test_a_plan_that_says_not_where_everything_runs_is_refused(plan_file: Path) -> None:
    plan, program = load_plan(plan_file), cora.load(POLICER)
    with pytest.raises(cora.CoraError, match=r"cannot be run"):
        cora.verify(replace(plan, blocks=plan.blocks[1:]), program)
    with pytest.raises(cora.CoraError, match="stands twice"):
        cora.verify(replace(plan, blocks=(*plan.blocks, plan.blocks[0])), program)
    first, last = plan.places[0], plan.places[-1]
    back = tuple(replace(b, place=last if b.place == first else first) for b in plan.blocks)
    with pytest.raises(cora.CoraError, match="packets would go back"):
        cora.verify(replace(plan, blocks=back), program)
    returning = tuple(replace(b, leg=1) for b in plan.blocks)
    with pytest.raises(cora.CoraError, match="packets come back to"):
        cora.verify(replace(plan, blocks=returning), program)
