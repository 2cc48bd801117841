#!/usr/bin/env bash
# Sets everything up on a Debian or Ubuntu machine: system packages (when missing), a virtual environment, Cora itself.
# Usage: dev/setup.sh [extra ...], for example dev/setup.sh test
set -eu
cd "$(dirname "$0")/.."

# A C compiler for the native engine, and a Python that can make virtual environments.
missing=()
for need in "python3 python3" "gcc gcc" "git git"; do
  read -r command package <<<"$need"
  command -v "$command" >/dev/null || missing+=("$package")
done
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
for package in ${CORA_EXTRA_PACKAGES:-}; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "dev/setup.sh: please install: ${missing[*]}" >&2
    exit 2
  fi
  run=(env)
  [ "$(id -u)" -eq 0 ] || run=(sudo)
  "${run[@]}" apt-get -o DPkg::Lock::Timeout=300 update -qq
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[ -x .venv/bin/python ] || python3 -m venv .venv
extras=""
[ $# -gt 0 ] && extras="[$(IFS=,; echo "$*")]"
# Installing again is skipped while the project file has not changed.
stamp=".venv/.cora-$(sha256sum pyproject.toml | cut -c1-16)${extras}"
if [ ! -e "$stamp" ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".$extras"
  touch "$stamp"
fi
