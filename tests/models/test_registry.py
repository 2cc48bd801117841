"""The registry: what is installed, what is said of unknown names, and that nothing is loaded early."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import cora
from cora.errors import CoraError
from cora.models import registry
from cora.models.target import Target


def test_the_targets_register() -> None:
    assert registry.names() == ("agilio-cx", "bluefield2", "host", "xdp")
    for name in registry.names():
        target = registry.get(name)
        assert isinstance(target, Target)
        assert target.name == name
        assert target.places[-1].name == ("user" if name == "xdp" else "host")
        assert "\n" not in registry.description(name)


def test_places_and_tiers() -> None:
    shape = {n: [(p.name, [t.name for t in p.tiers]) for p in registry.get(n).places] for n in registry.names()}
    assert shape == {
        "agilio-cx": [("nic", ["lmem", "cls", "ctm", "imem", "emem"]), ("host", ["dram"])],
        "bluefield2": [("switch", ["rules", "counters", "meters"]), ("arm", ["dram"]), ("host", ["dram"])],
        "host": [("host", ["dram"])],
        "xdp": [("kernel", ["maps"]), ("user", ["dram"])],
    }


def test_an_unknown_name_lists_the_known_ones_and_suggests_one() -> None:
    with pytest.raises(CoraError) as caught:
        registry.get("agillio-cx")
    assert caught.value.render() == ("error[E402 unknown-nic]: unknown NIC 'agillio-cx'; known: agilio-cx, bluefield2, "
                                     "host, xdp\nhelp: did you mean 'agilio-cx'?")


def test_an_unknown_instance_names_the_card() -> None:
    with pytest.raises(CoraError, match="unknown card instance '3x9'; known: 1x40, all-engines, driver-messages, xdp"):
        registry.get("agilio-cx", "3x9")


def test_a_backend_that_does_not_load_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"broken": metadata.EntryPoint("broken", "cora_no_such_backend", registry.GROUP),
              "odd": metadata.EntryPoint("odd", "json", registry.GROUP)}
    monkeypatch.setattr(registry, "_entry_points", lambda: broken)
    with pytest.raises(CoraError) as caught:
        registry.get("broken")
    assert caught.value.render() == ("cora_no_such_backend: error[E405 bad-target]: the backend 'broken' does not "
                                     "load: No module named 'cora_no_such_backend'\n"
                                     "help: reinstall the package that provides it")
    with pytest.raises(CoraError, match="the backend 'odd' is no module with target\\(\\) and DESCRIPTION"):
        registry.get("odd")


def test_looking_for_names_loads_no_backend() -> None:
    code = ("import sys; from cora.models import registry; registry.names(); "
            "print([m for m in sys.modules if m.startswith('cora.backends')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_imports_no_named_backend() -> None:
    core = Path(cora.__file__).parent if cora.__file__ else Path("cora")
    files = [p for d in core.iterdir() if d.is_dir() and not d.is_symlink() for p in d.rglob("*.py")]
    assert len(files) > 20
    named = [f"{p}:{n.lineno}" for p in files for n in ast.walk(ast.parse(p.read_text()))
             if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("cora.backends")]
    assert named == []
