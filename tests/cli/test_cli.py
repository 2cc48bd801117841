"""The command line as a user meets it: outputs, exit codes, one clear message for everything wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cora.cli import COMMANDS
from cora.models import calibration

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testing"))

from command_kit import Run, runner

ROOT = Path(__file__).resolve().parents[2]
NAT = str(ROOT / "examples" / "nat.nf")
OFFICE = str(ROOT / "examples" / "captures" / "office.pcap")
PLANNED = ("--trace", OFFICE, "--nic", "agilio-cx", "--rate", "1Mpps")
MAP = ["--port-map", "inside=10.0.0.0/24,2001:db8:1::/64", "--captured-at", "inside"]


@pytest.fixture
def cora(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process and returns what it printed and its exit code."""
    return runner(capsys)


def test_help_lists_every_command_and_each_has_a_help(cora: Run) -> None:
    ran = cora("--help")
    assert ran.code == 0
    for name, text in COMMANDS.items():
        assert name in ran.out and text.split(";")[0].split(",")[0] in " ".join(ran.out.split())
        helped = cora(name, "--help")
        assert helped.code == 0 and f"cora {name}" in helped.out


def test_help_imports_nothing_heavy() -> None:
    probe = ("import sys; from cora.cli import main\n"
             "try: main(['--help'])\nexcept SystemExit: pass\n"
             "heavy = {'numpy', 'lark', 'networkx', 'pulp', 'highspy', 'rich', 'scapy'} & set(sys.modules)\n"
             "assert not heavy, heavy")
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_bare_top_level_module_is_imported() -> None:
    probe = ("import sys, cora, cora.api, cora.frontends.nf, cora.runtime.replay, cora.models.registry as r\n"
             "[r.get(n) for n in r.names()]\n"
             "assert not {'frontends', 'backends', 'runtime'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("gcc")
def test_the_main_job_from_capture_to_saved_plans(cora: Run, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    ran = cora("profile", NAT, OFFICE, *MAP, "-o", str(profile))
    assert ran.code == 0 and profile.is_file(), ran.err
    for nic in ("agilio-cx", "bluefield2"):
        plan = tmp_path / f"{nic}.json"
        ran = cora("plan", NAT, "--profile", str(profile), "--nic", nic, "--rate", "10Mpps", "-o", str(plan))
        assert ran.code == 0, ran.err
        assert "gap" in ran.out and "predicted" in ran.out and "optimal" in ran.out
        document = json.loads(plan.read_text())
        assert document["format"] == "cora-plan" and document["target"] == nic
        assert {s["name"] for s in document["states"]} >= {"conns", "ext"}


@pytest.mark.needs("gcc")
def test_a_plan_for_the_screen_is_printed_once(cora: Run) -> None:
    command = ("plan", NAT, "--trace", OFFICE, "--nic", "bluefield2", "--cores", "1", "-o", "-")
    once = cora(*command).out
    both = cora(*command, "--json").out
    for text in (once, both):
        assert text.count('"format": "cora-plan"') == 1


def test_planning_from_a_trace_equals_planning_from_its_profile(cora: Run, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    assert cora("profile", NAT, OFFICE, *MAP, "-o", str(profile)).code == 0
    common = [NAT, "--nic", "bluefield2", "--cores", "1", "--json"]
    direct = json.loads(cora("plan", *common, "--trace", OFFICE, *MAP).out)
    stored = json.loads(cora("plan", *common, "--profile", str(profile)).out)
    for document in (direct, stored):
        document["evidence"] = document["digest"] = None  # solving times differ
    assert direct == stored


@pytest.mark.needs("gcc")
def test_replay_writes_packets_and_state_and_both_engines_agree(cora: Run, tmp_path: Path) -> None:
    files = {}
    for engine in ("native", "reference"):
        out, state = tmp_path / f"{engine}.pcap", tmp_path / f"{engine}.json"
        ran = cora("replay", NAT, OFFICE, *MAP, "--engine", engine, "--write", str(out), "--state", str(state),
                   "--json")
        assert ran.code == 0, ran.err
        files[engine] = (out.read_bytes(), state.read_text(), json.loads(ran.out))
    assert files["native"] == files["reference"]
    assert len(files["native"][0]) > 100_000


def test_trace_shows_lines_look_ups_and_the_verdict(cora: Run) -> None:
    ran = cora("trace", NAT, OFFICE, *MAP, "--packet", "300")
    assert ran.code == 0
    assert "lookup conns" in ran.out and "=> packet 300" in ran.out
    data = json.loads(cora("trace", NAT, OFFICE, *MAP, "--packet", "300", "--json").out)
    assert data["packet"] == 300 and data["steps"] and data["events"]


def test_check_tells_how_state_may_be_split(cora: Run) -> None:
    shown = cora("check", NAT, "--sharding").out
    assert "conns, ext: entries can be lent" in shown
    assert "line 143" in shown
    assert "fragments: cannot be split" in shown
    facts = json.loads(cora("check", NAT, "--sharding", "--json").out)
    assert facts["copies"]["translated_out"] == "partial"
    (conns,) = [c for c in facts["components"] if c["splittable"]]
    assert {a["place"].rpartition(":")[0] for a in conns["anchors"]} >= {f"{NAT}:143", f"{NAT}:215"}
    assert conns["ways"]["aligned"] + conns["ways"]["unused"] + sum(r["ways"] for r in conns["ways"]["owner"]) \
        == json.loads(cora("check", NAT, "--json").out)["paths"]
    assert conns["cores"]["meeting"] == "pool value"


def test_check_leaves_uncounted_what_has_too_many_ways(cora: Run) -> None:
    assert "not counted" in cora("check", NAT, "--sharding", "--max-paths", "100").out
    facts = json.loads(cora("check", NAT, "--sharding", "--max-paths", "100", "--json").out)
    assert [c["ways"] for c in facts["components"]] == [None] * len(facts["components"])


def test_check_prints_summary_ir_passes_and_paths(cora: Run) -> None:
    assert "no errors" in cora("check", NAT).out
    facts = json.loads(cora("check", NAT, "--json").out)
    assert facts["name"] == "nat" and any(s["name"] == "conns" and s["kind"] == "pair map" for s in facts["states"])
    from cora.ir.text import parse_program

    assert parse_program(cora("check", NAT, "--emit-ir").out).name == "nat"
    raw = parse_program(cora("check", NAT, "--emit-ir", "--stop-after", "lower").out)
    assert len(raw.blocks) > facts["blocks"]
    assert cora("check", NAT, "--list-passes").out.strip()
    paths = cora("check", str(ROOT / "examples" / "policer.ref.nf"), "--paths").out.splitlines()
    assert len(paths) == json.loads(cora("check", str(ROOT / "examples" / "policer.ref.nf"), "--json").out)["paths"]
    assert any(line.endswith("forward lan") for line in paths)


def test_set_changes_a_config(cora: Run) -> None:
    facts = json.loads(cora("check", NAT, "--set", "capacity=77", "--json").out)
    assert next(s for s in facts["states"] if s["name"] == "conns")["capacity"] == 77


def test_nics_lists_shows_and_validates(cora: Run) -> None:
    assert {"agilio-cx", "bluefield2", "host"} <= set(cora("nics").out.split())
    one = json.loads(cora("nics", "agilio-cx", "--json").out)
    assert all(p["source"] and p["unit"] and p["kind"] for p in one["parameters"])
    assert "median error" in cora("nics", "--validate").out
    assert "  xdp: the stock NIC firmware" in cora("nics", "agilio-cx").out
    prices = json.loads(cora("nics", "agilio-cx", "--operations", "--json").out)
    assert prices["nic"]["rule"] == {"micro-engines": 47.0, "imem-engine": 1.57}
    assert "lookup_30" in cora("nics", "bluefield2", "--operations").out
    reserved = json.loads(cora("nics", "bluefield2", "--reserve", "rules=1M", "--json").out)
    assert reserved["places"][0]["tiers"][0]["capacity"] == 3_000_000


def test_rows_of_the_user_are_validated_and_plotted(cora: Run, tmp_path: Path) -> None:
    rows, plot = tmp_path / "rows.toml", tmp_path / "rows.svg"
    rows.write_text('''[[row]]
nic = "host"
name = "receive"
group = "mine"
published = 40.0
unit = "Mpps"
source = "a test"
place = "host"
base = false
operations = { rx = 1 }
values = { clock_ratio = 1 }
''')
    found = json.loads(cora("nics", "--validate", "--rows", str(rows), "--plot", str(plot), "--json").out)
    assert [r["name"] for r in found["rows"]] == ["receive"] and found["summary"]["host"]["rows"] == 1
    assert found["rows"][0]["error"] > 0.05 and found["rows"][0]["covered"] is False
    assert plot.read_text().startswith("<svg ") and "receive: published 40" in plot.read_text()
    kept = rows.read_text()
    assert cora("nics", "--validate", "--rows", str(rows), "--plot", str(rows)).code == 2
    assert rows.read_text() == kept


def test_traffic_is_the_same_every_time(cora: Run, tmp_path: Path) -> None:
    names = [str(tmp_path / n) for n in ("a.pcap", "b.pcap")]
    for name in names:
        assert cora("traffic", "--packets", "2000", "--flows", "50", "-o", name).code == 0
    assert Path(names[0]).read_bytes() == Path(names[1]).read_bytes()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(cora: Run, shell: str) -> None:
    ran = cora("completion", shell)
    assert ran.code == 0 and "_CORA_COMPLETE" in ran.out


# Every case: the arguments, and words its message must have; the whole text is in the golden file.
BAD_INPUT: list[tuple[list[str], list[str]]] = [
    (["chekc", NAT], ["no command 'chekc'", "check"]),
    (["check"], ["NF"]),
    (["check", "missing.nf"], ["E201", "missing.nf"]),
    (["check", NAT, "--bogus"], ["--bogus"]),
    (["check", NAT, "--set", "capacity"], ["E701", "--set"]),
    (["check", NAT, "--set", "nothing=1"], ["E117", "nothing"]),
    (["check", NAT, "--set", "capacity=many"], ["E117", "capacity", "u32"]),
    (["check", NAT, "--set", "capacity=1", "--set", "capacity=2"], ["E701", "twice"]),
    (["check", NAT, "--stop-after", "nosuch"], ["E123", "nosuch"]),
    (["check", NAT, "--passes", "nosuch"], ["E123", "nosuch"]),
    (["check", NAT, "--paths", "--max-paths", "3"], ["E122", "paths"]),
    (["check", str(ROOT)], ["E201"]),
    (["replay", NAT, "missing.pcap"], ["E201", "missing.pcap"]),
    (["replay", NAT, NAT], ["E202"]),
    (["replay", NAT, OFFICE, "--port-map", "north=10.0.0.0/8"], ["E204", "north"]),
    (["replay", NAT, OFFICE, "--port-map", "inside=10.0.0.0/99"], ["E204"]),
    (["replay", NAT, OFFICE, "--captured-at", "insid"], ["E204", "inside"]),
    (["replay", NAT, OFFICE, "--engine", "fpga"], ["fpga"]),
    (["replay", NAT, OFFICE, *MAP, "--write", "/nonexistent/out.pcap"], ["E702", "/nonexistent/out.pcap"]),
    (["trace", NAT, OFFICE, *MAP, "--packet", "999999"], ["E703", "999999"]),
    (["trace", NAT, OFFICE, "--packet", "-1"], ["-1"]),
    (["profile", NAT, OFFICE, "--window", "fast"], ["--window"]),
    (["profile", NAT, OFFICE, "--window", "1ns"], ["E701", "window"]),
    (["plan", NAT, "--nic", "agilio-cx", "--rate", "1Mpps"], ["E701", "--trace"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx"], ["E701", "--rate"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilo-cx", "--rate", "1Mpps"], ["E402", "agilio-cx"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx", "--rate", "fast"], ["E701", "--rate"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx", "--rate", "0pps"], ["E701", "--rate"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx", "--rate", "900Mpps"], ["E403"]),
    (["plan", NAT, "--profile", NAT, "--nic", "agilio-cx", "--rate", "1Mpps"], ["E301"]),
    (["plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx", "--rate", "1Mpps", "--solver", "abacus"], ["abacus"]),
    (["plan", NAT, NAT, *PLANNED], ["E701", "2 programs need as many captures"]),
    (["plan", NAT, NAT, *PLANNED, "--trace", OFFICE], ["E701", "2 programs need as many rates"]),
    (["plan", NAT, NAT, *PLANNED, "--search", "fast"], ["E701", "--search", "said of one program", "(at most"]),
    (["plan", NAT, NAT, *PLANNED, "--all"], ["E701", "--all", "`cora show PLAN --all`"]),
    (["plan", NAT, NAT, *PLANNED, "--pin", "conns=nic"], ["E701", "--pin", "said of one program"]),
    (["plan", NAT, NAT, *PLANNED, "--trace", OFFICE, "--rate", "1Mpps", "-o", "no/folder"], ["E702", "mkdir"]),
    (["plan", NAT, *PLANNED, "--rate", "2Mpps"], ["E701", "2 values for one program"]),
    (["plan", NAT, *PLANNED, "--pin", "conns"], ["E701", "--pin", "STATE=PLACE"]),
    (["plan", NAT, *PLANNED, "--pin", "table=nic"], ["E701", "table", "conns"]),
    (["plan", NAT, *PLANNED, "--forbid", "conns=arm"], ["E701", "no place 'arm'", "nic, host"]),
    (["plan", NAT, *PLANNED, "--pin", "conns=nic/dram"], ["E701", "no memory 'dram'", "emem"]),
    (["plan", NAT, *PLANNED, "--pin", "conns=nic", "--pin", "conns=host"], ["E701", "conns=nic", "conns=host"]),
    (["plan", NAT, *PLANNED, "--pin", "conns=nic", "--forbid", "conns=nic"], ["E701", "--pin conns=nic", "--forbid"]),
    (["plan", NAT, *PLANNED, "--pin", "conns=nic/cls"], ["E403", "cannot be pinned to nic/cls", "needs 3.785 MB"]),
    (["plan", NAT, *PLANNED, "--max-latency", "soon"], ["E701", "--max-latency"]),
    (["plan", NAT, *PLANNED, "--max-latency", "0us"], ["E701", "no time at all"]),
    (["plan", NAT, *PLANNED, "--max-latency", "1us"], ["E403", "the least for the mean packet is", "--max-latency"]),
    (["plan", NAT, *PLANNED, "--max-nic-memory", "much"], ["E701", "--max-nic-memory"]),
    (["plan", NAT, *PLANNED, "--headroom", "100%"], ["E701", "--headroom"]),
    (["plan", NAT, *PLANNED, "--window", "99"], ["E701", "P99"]),
    (["plan", NAT, *PLANNED, "--window", "P42"], ["E701", "P99"]),
    (["plan", NAT, *PLANNED, "--search", "slow"], ["E701", "exact or fast"]),
    (["plan", NAT, *PLANNED, "--warm", "missing.json"], ["E501", "missing.json"]),
    (["traffic", "--flows", "-3", "-o", "x.pcap"], ["E205", "flows"]),
    (["traffic", "--rate", "fast", "-o", "x.pcap"], ["E205", "rate"]),
    (["nics", "agilio"], ["E402", "agilio-cx"]),
    (["nics", "--rows", "rows.toml"], ["E701", "--validate"]),
    (["nics", "--validate", "--rows", "no.toml"], ["E401", "no.toml"]),
    (["nics", "--operations"], ["E701", "about one NIC"]),
    (["nics", "agilio-cx", "--validate", "--instance", "xdp"], ["E701", "name their instance"]),
    (["nics", "agilio-cx", "--reserve", "rules=1"], ["E701", "reserves nothing"]),
    (["completion", "tcsh"], ["tcsh"]),
]


def shown(text: str, tmp_path: Path) -> str:
    """A message without the machine's paths."""
    return text.replace(str(tmp_path), "TMP").replace(str(ROOT), "ROOT")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("args", "words"), BAD_INPUT, ids=lambda v: " ".join(v)[-60:].replace(str(ROOT), ""))
def test_bad_input_gives_one_message_and_code_2(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                args: list[str], words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cora(*args)
    assert ran.code == 2, ran.err
    for word in words:
        assert word in ran.err, ran.err
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


@pytest.mark.needs("gcc")
def test_bad_input_messages_are_as_reviewed(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            golden: Callable[[str, str], None]) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []
    for args, _ in BAD_INPUT:
        ran = cora(*args)
        command = shown(" ".join(args), tmp_path)
        texts.append(f"$ cora {command}\n{shown(ran.err, tmp_path)}")
    golden("bad_input.txt", "\n".join(texts))


def test_a_program_with_errors_gives_them_all_in_order(cora: Run, tmp_path: Path) -> None:
    source = tmp_path / "bad.nf"
    source.write_text("nf bad {\n  port a: wire;\n  on a(p: eth) {\n    let x: u8 = 300;\n    let y = q;\n"
                      "    forward b;\n  }\n}\n")
    ran = cora("check", str(source))
    assert ran.code == 2
    places = [line.split(" error")[0] for line in ran.err.splitlines() if " error[" in line]
    assert places == [f"{source}:4:17:", f"{source}:5:13:", f"{source}:6:5:"]


@pytest.mark.needs("gcc")
def test_a_failed_replay_leaves_no_output_file(cora: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(b"")
    ran = cora("replay", NAT, str(cut), "--write", str(tmp_path / "out.pcap"))
    assert ran.code == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.pcap"]


@pytest.mark.needs("gcc")
def test_a_damaged_capture_is_read_up_to_the_damage(cora: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(OFFICE).read_bytes()[:20_003])
    ran = cora("replay", NAT, str(cut), *MAP, "--json")
    assert ran.code == 0
    assert "warning" in ran.err
    data = json.loads(ran.out)
    assert data["capture"]["errors"] == 1 and data["packets"] > 10


def test_without_a_compiler_the_message_says_what_to_install(cora: Run, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    done = subprocess.run([sys.executable, "-m", "cora", "replay", NAT, OFFICE], capture_output=True, text=True,
                          env=os.environ, check=False)
    assert done.returncode == 2
    assert "E601" in done.stderr and "gcc" in done.stderr


def test_the_reader_of_a_pipe_may_leave() -> None:
    command = f"{sys.executable} -m cora check {NAT} --emit-ir | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("program nat") and "Traceback" not in done.stderr and "Error" not in done.stderr


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, cora: Run) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cora.frontends.nf.load", interrupted)
    assert cora("check", NAT).code == 130


def test_a_defect_is_told_as_one_and_ends_with_70(monkeypatch: pytest.MonkeyPatch, cora: Run) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("cora.frontends.nf.load", broken)
    ran = cora("check", NAT)
    assert ran.code == 70 and "defect of Cora" in ran.err and "boom" in ran.err


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("command", ["replay", "profile"])
def test_a_capture_without_packets_is_refused(cora: Run, tmp_path: Path, command: str) -> None:
    from cora.frontends.traffic.writer import write_pcap

    empty = tmp_path / "empty.pcap"
    write_pcap(empty, [])
    ran = cora(command, NAT, str(empty))
    assert ran.code == 2 and "E206" in ran.err and str(empty) in ran.err


@pytest.mark.needs("gcc")
def test_a_bit_rate_is_one_of_the_line(cora: Run) -> None:
    ran = cora("plan", NAT, "--trace", OFFICE, *MAP, "--nic", "bluefield2", "--rate", "20Gbps", "--json")
    document = json.loads(ran.out)
    on_line = document["request"]["rate_pps"] * 8 * (document["mean_frame"] + 24)
    assert on_line == pytest.approx(20e9, rel=1e-5) and document["request"]["line_bps"] == 20 * 10**9
    text = cora("plan", NAT, "--trace", OFFICE, *MAP, "--nic", "bluefield2", "--rate", "20Gbps").out
    assert "asked: 20 Gbps = " in text and "(24 more on the line)" in text


@pytest.mark.needs("gcc")
def test_show_explains_and_compares(cora: Run, tmp_path: Path) -> None:
    files = []
    for nic in ("agilio-cx", "bluefield2"):
        files.append(str(tmp_path / f"{nic}.json"))
        assert cora("plan", NAT, "--trace", OFFICE, *MAP, "--nic", nic, "--cores", "1", "-o", files[-1]).code == 0
    assert "conns" in cora("explain", files[0], "conns").out
    assert "target: agilio-cx -> bluefield2" in cora("diff", files[0], files[1]).out
    assert cora("show", files[0], "--json").out == Path(files[0]).read_text()
    assert "alike" in cora("diff", files[0], files[0]).out
    assert json.loads(cora("explain", files[0], "conns", "--json").out)["state"]["name"] == "conns"
    assert json.loads(cora("diff", files[0], files[1], "--json").out)["target"] == ["agilio-cx", "bluefield2"]
    assert "--all" not in cora("show", files[1], "--all").out
    changed = tmp_path / "changed.json"
    changed.write_text(Path(files[0]).read_text().replace('"place": "nic"', '"place": "host"', 1))
    refused = cora("show", str(changed))
    assert refused.code == 2 and "E501" in refused.err and "changed after it was made" in refused.err
    wrong = cora("explain", files[0], "cons")
    assert wrong.code == 2 and "conns" in wrong.err


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("args", "words"), [case for case in BAD_INPUT if case[0][0] != "completion"],
                         ids=lambda v: " ".join(v)[-60:].replace(str(ROOT), ""))
def test_with_json_bad_input_is_told_as_json(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             args: list[str], words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cora(*args, "--json")
    assert ran.code == 2 and ran.out == ""
    (found, *_) = json.loads(ran.err[ran.err.index('{\n "errors"'):])["errors"]
    assert set(found) == {"code", "name", "file", "line", "column", "end_line", "end_column", "message", "help",
                          "notes"}
    told = " ".join(str(v) for v in found.values())
    for word in words:
        assert word.removeprefix("E") in told or word == "NF"


def test_json_errors_have_places(cora: Run, tmp_path: Path) -> None:
    source = tmp_path / "bad.nf"
    source.write_text("nf bad {\n  port a: wire;\n  on a(p: eth) {\n    let x: u8 = 300;\n    forward b;\n  }\n}\n")
    errors = json.loads(cora("check", str(source), "--json").err)["errors"]
    assert [(e["file"], e["line"], e["column"]) for e in errors] == [(str(source), 4, 17), (str(source), 5, 5)]
    assert errors[0]["end_column"] == 20 and errors[0]["name"] == "value-out-of-range"


# What is read or cannot be written: arguments with the folder's files, and words of the message.
OUTPUTS: list[tuple[list[str], str]] = [
    (["profile", "p.nf", "t.pcap", "-o", "a" * 300], "too long"),
    (["profile", "p.nf", "t.pcap", "-o", "p.nf/x"], "Not a directory"),
    (["profile", "p.nf", "t.pcap", "-o", ""], "E702"),
    (["profile", "p.nf", "t.pcap", "-o", "./p.nf"], "E702"),
    (["replay", "p.nf", "t.pcap", "--write", "t.pcap"], "E702"),
    (["replay", "p.nf", "t.pcap", "--state", "p.nf"], "E702"),
    (["replay", "p.nf", "t.pcap", "--write", "x", "--state", "./x"], "written twice"),
    (["replay", "p.nf", "t.pcap", "--write", "-"], "--write -"),
    (["profile", "p.nf", "t.pcap", "--window", "0s"], "--window"),
    (["profile", "p.nf", "t.pcap", "--window", "100000000h"], "--window"),
    (["profile", "t.pcap", "p.nf"], "capture, not a program"),
    (["replay", "p.nf", "prof.json"], "profile, not a capture"),
    (["plan", "p.nf", "--profile", "t.pcap", "--nic", "agilio-cx", "--cores", "1"], "use --trace"),
    (["traffic", "-o", "bad.txt"], ".pcap"),
    (["traffic", "--zipf", "-1", "-o", "x.pcap"], "below zero"),
    (["trace", "p.nf", "t.pcap"], "--dropped"),
    (["trace", "p.nf", "t.pcap", "--dropped", "over the rte"], "over the rate"),
]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("args", "words"), OUTPUTS, ids=lambda v: " ".join(v)[-40:])
def test_outputs_never_replace_inputs_and_bad_ones_are_told(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                            args: list[str], words: str) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"p.nf": (ROOT / "examples" / "policer.nf").read_bytes(), "t.pcap": Path(OFFICE).read_bytes(),
             "prof.json": b'{\n "format": "cora-profile"}'}
    for name, content in files.items():
        Path(name).write_bytes(content)
    ran = cora(*args)
    assert ran.code == 2 and words in ran.err, ran.err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files


@pytest.mark.parametrize("command", ["--help", f"check --emit-ir {NAT}"])
def test_a_full_device_is_no_defect(command: str) -> None:
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m cora {command} > /dev/full"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and "E702" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    command = f"set -o pipefail; {sys.executable} -m cora check --paths {NAT} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs("gcc")
def test_termination_leaves_no_half_written_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cora", "traffic", "--packets", "500M", "-o", str(tmp_path / "big.pcap")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


def test_values_complete_in_shells() -> None:
    environment = {**os.environ, "_CORA_COMPLETE": "bash_complete", "COMP_WORDS": "cora nics agi", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", "from cora.cli import app; app(prog_name='cora')"], env=environment,
                          capture_output=True, text=True, check=False)
    assert done.stdout.split(",")[-1].strip() == "agilio-cx", done.stderr


def test_closed_streams_are_borne(tmp_path: Path) -> None:
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m cora check {tmp_path}/no.nf >&- 2>&-"], check=False)
    assert done.returncode == 2


@pytest.mark.needs("gcc")
def test_replay_prints_counters_first_drops_and_hints(cora: Run, tmp_path: Path) -> None:
    policer = str(ROOT / "examples" / "policer.nf")
    out = cora("replay", policer, OFFICE)
    data = json.loads(cora("replay", policer, OFFICE, "--json").out)
    first = data["first_dropped"]["over the rate"]
    assert f"dropped: over the rate (first: packet {first['packet']}, frame {first['frame_number']})" in out.out
    assert "limits4: 1 entry at the end" in out.out and "conforming: 2,443 packets" in out.out
    assert "assumed: initiators on lan, answers on wan (to say so: --port-map initiator)" in out.out
    silent = cora("replay", policer, OFFICE, "--port-map", "lan=192.0.2.77", "--port-map", "wan=*")
    assert "no packet arrives on lan" in silent.err


@pytest.mark.needs("gcc")
def test_many_wrong_checksums_suggest_the_flag(cora: Run, tmp_path: Path) -> None:
    from cora.frontends.traffic.writer import write_pcap

    bad = tmp_path / "bad.pcap"
    header = bytes.fromhex("4500002e0000400040110000") + bytes((10, 0, 0, 1, 10, 0, 0, 2))
    write_pcap(bad, [(10**18 + i, bytes(12) + b"\x08\x00" + header + bytes(26), None) for i in range(5)])
    assert "--ignore-checksums" in cora("replay", NAT, str(bad)).err
    assert "--ignore-checksums" not in cora("replay", NAT, str(bad), "--ignore-checksums").err


@pytest.mark.needs("gcc")
def test_profile_prints_meters_and_paths_by_state_outcomes(cora: Run) -> None:
    out = cora("profile", str(ROOT / "examples" / "policer.nf"), OFFICE).out
    assert "green  yellow" in out and 'limits4 red, drop "over the rate"' in out and "nothing saved" in out
    assert "conns.rev hit, forward inside" in cora("profile", NAT, OFFICE, *MAP).out


def test_few_packets_of_synthetic_traffic_need_no_flows(cora: Run, tmp_path: Path) -> None:
    assert "100 flows" in cora("traffic", "--packets", "1000", "-o", str(tmp_path / "few.pcap")).out


def test_one_nic_is_printed_with_its_sources(cora: Run) -> None:
    out = cora("nics", "agilio-cx").out
    assert "\nsources:\n" in out and "  KRU: " in out
    shown = cora("nics", "--validate").out
    assert "held-out rows" in shown and "(not fitted):" in shown and "-0.0% under" not in shown


def test_the_python_api_shows_itself(tmp_path: Path) -> None:
    import cora as api

    assert set(dir(api)) == set(api.__all__)
    program = api.load(NAT)
    assert repr(program).startswith("<Program nat: ") and len(repr(program)) < 200
    with pytest.raises(api.CoraError) as caught:
        api.load(tmp_path / "no.nf")
    assert str(caught.value) == caught.value.render()


@pytest.mark.needs("gcc")
def test_a_rate_never_takes_more_cores_than_a_larger_one(cora: Run, tmp_path: Path) -> None:
    profile = str(tmp_path / "p.json")
    policer = str(ROOT / "examples" / "policer.nf")
    assert cora("profile", policer, OFFICE, "--port-map", "lan=10.0.0.0/24", "-o", profile).code == 0
    for nic in ("agilio-cx", "bluefield2"):
        plans = [cora("plan", policer, "--profile", profile, "--nic", nic, "--rate", rate, "--json")
                 for rate in ("1pps", "10pps", "1kpps", "10kpps", "100kpps", "1Mpps")]
        cores = [json.loads(ran.out)["cores"] for ran in plans]
        assert cores == sorted(cores), cores


@pytest.mark.needs("gcc")
def test_questions_about_a_plan(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    policer = "examples/policer.nf"
    assert cora("profile", policer, OFFICE, "-o", "p.json").code == 0
    for name, rate in (("a.json", "20Mpps"), ("b.json", "35Mpps")):
        assert cora("plan", policer, "--profile", "p.json", "--nic", "bluefield2", "--rate", rate, "-o", name).code == 0
    plain = cora("explain", "a.json")
    assert "the binding resource" in plain.out and "limits4: " in plain.out and "--profile FILE" in plain.err
    whole = cora("explain", "a.json", "--profile", "p.json")
    assert whole.out.startswith(plain.out) and "1 host core more" in whole.out and "tried)" in whole.out
    data = json.loads(cora("explain", "a.json", "--profile", "p.json", "--json").out)
    assert len(data["more"]) > 2 and data["changes"]["tried"] > 5 and data["resources"][0]["users"]
    assert json.loads(cora("explain", "a.json", "--json").out)["more"] is None
    compared = cora("compare", "a.json", "b.json")
    assert compared.out.count("best simple placement") == 2
    again = cora("compare", policer, "--profile", "p.json", "--nic", "bluefield2", "--rate", "20Mpps")
    assert compared.out.startswith(again.out)
    assert [p["target"] for p in json.loads(cora("compare", "a.json", "b.json", "--json").out)] == 2 * ["bluefield2"]
    sized = cora("size", policer, "--profile", "p.json", "--rate", "1Mpps")
    assert "1.00 Mpps planned" in sized.out and "limits4" in sized.out and "entries over time" in sized.out
    rows = json.loads(cora("size", policer, "--profile", "p.json", "--json").out)["states"]
    assert [r["name"] for r in rows] == ["limits4", "limits6"] and rows[0]["recommended"] >= 16
    assert "written: r.html" in cora("report", "a.json", "-o", "r.html").out
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert cora("report", "a.json", "--profile", "p.json", "-o", "-").out.count("<section") == 12


@pytest.mark.needs("gcc")
def test_a_budget_is_checked_and_an_overrun_is_exit_code_1(cora: Run, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "examples" / "policer.nf").read_text()
    (tmp_path / "old.nf").write_text(text)
    (tmp_path / "new.nf").write_text(text.replace("green { count", "green { count exceeding; count"))
    for name in ("old", "new"):
        assert cora("plan", f"{name}.nf", "--trace", OFFICE, "--nic", "host", "--cores", "1", "-o",
                    f"{name}.json").code == 0
    assert "written: b.json" in cora("budget", "old.json", "-o", "b.json").out
    assert cora("budget", "old.json", "--check", "b.json").code == 0
    over = cora("budget", "new.json", "--check", "b.json", "--tolerance", "0.1%")
    assert over.code == 1 and "this change adds" in over.out and "of host-cores at host" in over.out
    assert "new.nf:" in over.out and "green { count exceeding; count conforming; forward lan; }" in over.out
    told = cora("budget", "new.json", "--check", "b.json", "--tolerance", "0.1%", "--json")
    assert told.code == 1 and json.loads(told.out)["over"] is True
    assert cora("budget", "new.json", "--check", "b.json", "--tolerance", "50%").code == 0
    assert json.loads(cora("budget", "old.json", "--json").out)["format"] == "cora-budget"


QUESTIONS = [
    (["explain", "plan.json", "conns", "--profile", "p.json"], ["E701", "from the plan alone"]),
    (["explain", "plan.json", "--program", NAT], ["E701", "--profile FILE"]),
    (["explain", "plan.json", "--profile", "other.json"], ["E503", "another profile"]),
    (["explain", "plan.json", "--profile", "plan.json"], ["E301", "this is a plan"]),
    (["explain", "plan.json", "--profile", "p.json", "--set", "capacity=1000"], ["E503", "another program"]),
    (["explain", "p.json"], ["E501", "this is no plan"]),
    (["diff", "plan.json", "none.json"], ["E501", "none.json"]),
    (["compare", "plan.json", "--cores", "1"], ["E701", "a saved plan has its traffic"]),
    (["compare", NAT, "--profile", "p.json"], ["E701", "--rate, --cores"]),
    (["report", "plan.json", "-o", "plan.json"], ["E702", "a file that the command reads"]),
    (["report", "plan.json", "-o", "r.html", "--program", NAT], ["E701", "--profile FILE"]),
    (["size", NAT], ["E701", "--trace, --profile"]),
    (["budget", "plan.json", "--tolerance", "1%"], ["E701", "--check FILE"]),
    (["budget", "plan.json", "--check", "plan.json"], ["E504", "this is no budget"]),
    (["budget", "plan.json", "--check", "none.json"], ["E504", "cannot read"]),
    (["budget", "plan.json", "-o", "plan.json"], ["E702", "a file that the command reads"]),
]


@pytest.mark.needs("gcc")
def test_questions_that_make_no_sense_are_refused(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, more in (("p.json", MAP), ("other.json", MAP[:2])):
        assert cora("profile", NAT, OFFICE, *more, "-o", name).code == 0
    assert cora("plan", NAT, "--profile", "p.json", "--nic", "host", "--cores", "1", "-o", "plan.json").code == 0
    for args, words in QUESTIONS:
        ran = cora(*args)
        assert ran.code == 2 and all(w in ran.err for w in words), (args, ran)
        assert ran.out == ""


@pytest.mark.needs("gcc")
def test_plans_say_which_host_model_they_used(cora: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORA_DATA_DIR", str(tmp_path / "data"))
    assert "E407" in cora("calibrate", "--show").err
    machine = {"identity": calibration.machine().identity, "cpu": "Test CPU", "cores": 1, "llc_bytes": 0,
               "memory_bytes": 1 << 30, "system": "s"}
    figure = {"name": "hash_ns", "value": 40.0, "low": 40.0, "high": 40.0, "unit": "ns", "samples": [40.0]}
    made = {"format": "cora-host-calibration", "version": 1, "machine": machine, "made": "2026-01-02T03:04:05Z",
            "command": "cora calibrate", "seconds": 1.0, "repeats": 9, "load": 0.0, "clock_ghz": 3.0,
            "figures": [figure], "checks": [], "not_measured": ["ports"]}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(made))
    policer = str(ROOT / "examples" / "policer.nf")
    asked = ("plan", policer, "--trace", OFFICE, "--nic", "host", "--cores", "1", "-o", str(tmp_path / "plan.json"))
    assert "host model: published figures" in cora(*asked).out
    assert "host model: measured on Test CPU by `cora calibrate`, 2026-01-02" in cora(*asked, "--host-model",
                                                                                      str(file)).out
    kept = calibration.stored_path(calibration.machine().identity)
    kept.parent.mkdir(parents=True)
    kept.write_text(file.read_text())
    shown = cora("calibrate", "--show").out
    assert "Test CPU: 1 cores at 3 GHz" in shown and "hash_ns" in shown and "not measured: ports" in shown
    # What is kept is the default, and the plan is explained with the same figures.
    cora(*asked)
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["host_model"]["kind"] == "measured" and document["host_model"]["made"] == made["made"]
    assert document["card"] == {"instance": None, "reserved": []}
    assert "E407" in cora(*asked, "--host-model", str(tmp_path / "none.json")).err
    assert "published" in cora(*asked, "--host-model", "published").out


@pytest.mark.needs("gcc")
def test_plans_know_what_others_on_the_card_use(cora: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ran = cora("plan", NAT, "--trace", OFFICE, "--nic", "agilio-cx", "--cores", "1", "--reserve", "emem=1.5GiB", "-o",
               str(file))
    assert ran.code == 0, ran.err
    document = json.loads(file.read_text())
    assert document["card"] == {"instance": None, "reserved": ["emem=1.5GiB"]}


def test_an_interrupt_while_modules_are_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run([sys.executable, "-m", "cora", "--version"], capture_output=True, check=False,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).resolve().parents[2]}"})
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
