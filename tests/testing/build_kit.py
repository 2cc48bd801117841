"""A small program with its plans, and a backend that builds one C file a place, put in place of a real one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import cora
from cora.build.backend import Job, Launch
from cora.build.request import BuildRequest
from cora.build.tree import SourceTree
from cora.ir.text import print_program
from cora.models import registry

LITTLE = """nf little {
  port a: wire | host; port b: wire;
  map hosts {
    entry { src: ipv4, packets: u16 } key by = (src);
    timeout 60s slack 10s; capacity 1000; full reject;
  }
  counter seen;
  fragments drop; unparsed drop;
  on a(p: eth/ipv4) {
    count seen;
    lookup hosts.by[p.ip.src] {
      hit e { touch e; e.packets = e.packets + 1; forward b; }
      miss { insert hosts { src: p.ip.src, packets: 1 } { ok e { forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth) { forward a; }
}
"""


def planned(folder: Path, text: str, nic: str, **request: object) -> tuple[Path, Path]:
    """Files of a program and of its plan for a NIC, made on synthetic traffic."""
    nf, trace, out = folder / "little.nf", folder / "made.pcap", folder / f"little.{nic}.json"
    nf.write_text(text)
    if not trace.exists():
        cora.traffic({"packets": "2k", "flows": "50"}, trace)
    program = cora.load(nf)
    plan = cora.plan(program, cora.profile(program, trace), nic, **(request or {"cores": 1}))  # type: ignore[arg-type]
    out.write_text(plan.to_json())
    return nf, out


_MAKEFILE = """\
all check: build/part.o

build/part.o: part.c
	mkdir -p build
	$(CC) -c -Wall -Werror -o $@ $<

clean:
	rm -rf build

.PHONY: all check clean
"""


def build(request: BuildRequest) -> SourceTree:
    """A file a place; `broken` in the program's name makes one that does not compile."""
    spoiled = "#error broken on purpose\n" if "broken" in request.program.name else ""
    texts = {}
    for part in request.split.parts:
        texts[f"{part.place}/part.c"] = f"{spoiled}const int blocks = {len(part.program.blocks)};\n"
        texts[f"{part.place}/Makefile"] = _MAKEFILE
        texts[f"{part.place}/README.md"] = f"# {part.place}\n"
    return SourceTree(texts)


def install(monkeypatch: pytest.MonkeyPatch, target: str, **offers: object) -> ModuleType:
    """Let a target's module offer these things besides its own (None: not even that)."""
    module = registry.module(target)
    for name, value in {"build": build, "TOOLS": {"build": ("make", "cc")}, **offers}.items():
        monkeypatch.setattr(module, name, value, raising=False)
    return module


def launch_fake(job: Job) -> Launch:
    """Starts tests/testing/fake_program.py."""
    ir = job.control.with_name(f"{job.name}.ir")
    ir.write_text(print_program(job.request.program))
    return Launch([sys.executable, str(Path(__file__).with_name("fake_program.py")), str(job.control), str(ir),
                   *(f"{port}={interface}" for port, interface in sorted(job.ports.items()))])
