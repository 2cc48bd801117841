#!/usr/bin/env bash
# Sets everything up and runs all checks: format and lint, types, tests. Extra arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
# The recording script of the shipped capture is tested with the real programs it uses; built plans are compiled and run.
export CORA_EXTRA_PACKAGES="make pkg-config clang libbpf-dev libjansson-dev libdpdk-dev iproute2 tcpdump ethtool curl iputils-ping traceroute dnsutils dnsmasq-base iperf3 chromium"
bash dev/setup.sh test
.venv/bin/ruff check .
.venv/bin/mypy cora tests
exec .venv/bin/python -m pytest -n 2 -q "$@"
