"""Parts of the host program by themselves: the steering hash, pools that several cores share, the built tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cora
from cora.build.compose import build
from cora.build.request import request_of
from cora.build.tree import write_tree
from cora.emit.c import RUNTIME
from cora.plan.document import load_plan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))

from build_kit import LITTLE, planned

pytestmark = pytest.mark.needs("dpdk")


def test_steering_is_dpdks_hash_and_shared_pools_give_each_value_once(tmp_path: Path) -> None:
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libdpdk"], capture_output=True, text=True, check=True)
    source, binary = Path(__file__).with_name("steering.c"), tmp_path / "steering"
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-w", f"-I{RUNTIME}", str(source), "-o", str(binary), "-pthread",
                    *flags.stdout.split()], check=True)
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_plan_becomes_a_tree_that_compiles_without_a_warning(tmp_path: Path) -> None:
    program, plan = planned(tmp_path, LITTLE, "host")
    request = request_of(load_plan(plan), cora.load(program))
    tree = build(request)
    assert tree.files == build(request).files
    write_tree(tree, tmp_path / "out")
    done = subprocess.run(["make", "-C", str(tmp_path / "out"), "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "host" / "build" / "little-host").is_file()
    readme = (tmp_path / "out" / "host" / "README.md").read_text()
    assert "| 11 | lookup `hosts` | a core by a hash of the key |" in readme
    text = (tmp_path / "out" / "host" / "little.c").read_text()
    assert max(map(len, text.splitlines())) <= 160 and "/* line 11" in text
