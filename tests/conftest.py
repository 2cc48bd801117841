"""Shared fixtures: what the machine can do, where the public captures are, and golden files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT.parent / "shared" / "traces"
GOLDEN = Path(__file__).resolve().parent / "golden"
# A calibration of this machine must not change what tests expect of plans.
os.environ["CORA_DATA_DIR"] = str(Path(tempfile.gettempdir(), f"cora-tests-no-data-{os.getpid()}"))


@lru_cache(maxsize=1)
def _has_sanitizers() -> bool:
    if not shutil.which("gcc"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("int main(void) { return 0; }\n")
        command = ["gcc", "-fsanitize=address,undefined", str(source), "-o", str(Path(folder, "probe"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@lru_cache(maxsize=1)
def _has_netns() -> bool:
    if not shutil.which("ip") or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


@lru_cache(maxsize=1)
def _has_xdp_libraries() -> bool:
    if not shutil.which("gcc") or not shutil.which("pkg-config"):
        return False
    command = ["pkg-config", "--exists", "libbpf >= 1.0", "jansson"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@lru_cache(maxsize=1)
def _has_bpf() -> bool:
    if not shutil.which("clang") or not Path("/usr/include/bpf/libbpf.h").is_file():
        return False
    # BPF_MAP_CREATE is refused to those who may not load programs either.
    libc = ctypes.CDLL(None, use_errno=True)
    array = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    number = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    fd = libc.syscall(number, 0, array, ctypes.sizeof(array)) if number is not None else -1
    if fd >= 0:
        os.close(fd)
    return fd >= 0 and os.geteuid() == 0


@lru_cache(maxsize=1)
def _has_live_xdp() -> bool:
    if not _has_netns() or not _has_bpf() or not _has_xdp_libraries():
        return False
    with contextlib.suppress(OSError):
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
        return all(shutil.which(tool) for tool in ("nsenter", "ethtool", "ping", "curl", "iperf3"))
    return False


@lru_cache(maxsize=1)
def _has_dpdk() -> bool:
    if not shutil.which("gcc") or not shutil.which("pkg-config"):
        return False
    command = ["pkg-config", "--exists", "libdpdk >= 22.11", "jansson"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


CAPABILITIES: dict[str, tuple[Callable[[], bool], str]] = {
    "gcc": (lambda: shutil.which("gcc") is not None, "no gcc on this machine"),
    "sanitizers": (_has_sanitizers, "gcc here cannot link the address and undefined-behaviour sanitizers"),
    "traces": (lambda: (TRACES / "MANIFEST.tsv").is_file(), f"the public captures are not at {TRACES}"),
    "chromium": (lambda: shutil.which("chromium") is not None, "no chromium on this machine"),
    "xdp-libraries": (_has_xdp_libraries, "pkg-config finds no libbpf 1.0 and jansson here"),
    "dpdk": (_has_dpdk, "pkg-config finds no libdpdk 22.11 and jansson here"),
    "bpf": (_has_bpf, "BPF programs cannot be built and loaded here (needs root, clang and libbpf-dev)"),
    "live-xdp": (_has_live_xdp, "no XDP between namespaces here (needs root, AF_XDP, ethtool, ping, curl, iperf3)"),
    "netns": (_has_netns, "network namespaces cannot be made here (needs root and iproute2)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with today's output")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("needs"):
            present, reason = CAPABILITIES[mark.args[0]]
            if not present():
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public captures; use together with ``@pytest.mark.needs("traces")``."""
    return TRACES


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)`` compares text with tests/golden/<module>/<name>; a missing file fails."""
    module = Path(str(request.node.fspath)).stem

    def check(name: str, text: str) -> None:
        path = GOLDEN / module / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.is_file(), f"golden file {path} is missing: run pytest --update-golden and review the diff"
        assert text == path.read_text()

    return check


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled engines of a test run are shared within the run, and never with the user's own cache."""
    os.environ.setdefault("CORA_CACHE_DIR", str(tmp_path_factory.getbasetemp().parent / "cora-test-cache"))
