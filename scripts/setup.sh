#!/usr/bin/env bash
# Makes this machine able to build Weft: Debian packages, then the virtual environment .venv. Safe to run again: what is
# there stays, and the environment is only touched when pyproject.toml or this file has changed.
# Usage: scripts/setup.sh [dev|bench]
set -euo pipefail
cd "$(dirname "$0")/.."
extra=${1:-dev}
python=${PYTHON:-python3}

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Package names that this machine lacks, one a line.
missing_packages() {
  local package
  for package in g++ llvm-19-dev llvm-19-tools clang-19 libclang-19-dev libclang-rt-19-dev clang-format-19 clang-tidy-19 \
    libomp-19-dev libgtest-dev libbenchmark-dev libfmt-dev libcli11-dev libzstd-dev chromium; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
  # Any Python will do that has its headers and can make an environment; Debian's own keeps both in packages.
  if ! command -v "$python" >/dev/null; then
    echo python3 && echo python3-dev && echo python3-venv
    return
  fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  "$python" -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    echo python3-dev
}

install_packages() {
  local missing as_root=()
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian: install g++ 12, LLVM 19 (with clang, clang-format, clang-tidy, FileCheck), GoogleTest, Google Benchmark, fmt, CLI11, zstd and Chromium (for one test) yourself, then set WEFT_SKIP_PACKAGES=1"
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "missing packages, and neither root nor sudo to install them: $missing"
    as_root=(sudo)
  fi
  echo "setup: installing $missing"
  # shellcheck disable=SC2086
  { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
    fail "apt-get could not install: $missing"
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || fail "still missing after apt-get: $missing"
}

# One line a requirement: what the build needs, the package, and the group.
requirements() {
  .venv/bin/python scripts/requirements.py "$extra"
}

make_environment() {
  local key stamp=.venv/.weft-$extra
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or newer is needed, $("$python" -V) was found"
  # A half-made environment, or one whose Python is gone, is made anew.
  .venv/bin/python -c 'import pip' 2>/dev/null || { rm -rf .venv && "$python" -m venv .venv; }
  key=$(cat pyproject.toml scripts/requirements.py scripts/setup.sh | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
  echo "setup: installing the Python packages of '$extra' (PyTorch is large, this takes a while the first time)"
  .venv/bin/python -m pip install -q --disable-pip-version-check --upgrade pip || fail "pip could not be upgraded"
  requirements >.venv/requirements-$extra.txt
  .venv/bin/python -m pip install -q --disable-pip-version-check -r .venv/requirements-$extra.txt ||
    fail "pip could not install: $(requirements | tr '\n' ' ')"
  echo "$key" >"$stamp"
}

[ "${WEFT_SKIP_PACKAGES:-0}" = 1 ] || install_packages
make_environment
