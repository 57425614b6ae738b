#!/usr/bin/env bash
# Makes this machine able to do what is asked for: Debian packages, then packages of Python in the virtual environment
# .venv. Says what it is about to install before it does. Safe to run again: what is there stays, and the environment is
# only looked at when pyproject.toml or this file has changed.
# Usage: scripts/setup.sh compile|run|test|emulators|lint|bench|docs|wheel...
#   WEFT_SKIP_PACKAGES=1  leaves Debian's packages to you
#   PYTHON=python3.12     makes .venv with that Python
#   VENV=.venv-2.14       another folder than .venv, and
#   TORCH=2.14.1          another release of PyTorch than 2.13.0 in it
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} venv=${VENV:-.venv}
export TORCH=${TORCH:-2.13.0}

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Debian's packages that something needs, and after a colon the groups of pyproject.toml that pip installs for it.
needs_of() {
  local build="g++ clang-19 llvm-19-dev libfmt-dev libzstd-dev zlib1g-dev"
  local test="libgtest-dev libcli11-dev llvm-19-tools libclang-rt-19-dev chromium lv2-dev qemu-user"
  test+=" gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
  case $1 in
    compile) echo "$build : compile" ;;
    run) echo "$build : compile run" ;;
    test) echo "$build $test : compile run test" ;;
    emulators) echo "$build $test gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm lld-19 nodejs : compile run test" ;;
    lint) echo "$build $test clang-format-19 clang-tidy-19 libclang-19-dev libomp-19-dev libbenchmark-dev : compile run test lint" ;;
    bench) echo "$build libcli11-dev libbenchmark-dev : compile run bench" ;;
    docs) echo "$build $test doxygen : compile run test docs" ;;
    wheel) echo "$build bubblewrap : compile run build wheel" ;;
    *) fail "nothing is known of '$1': compile, run, test, emulators, lint, bench, docs or wheel" ;;
  esac
}

# Of the packages named, those that this machine lacks, one a line.
missing_packages() {
  local package
  for package; do
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
    fail "this is no Debian: install what these packages have yourself, then set WEFT_SKIP_PACKAGES=1: $*"
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "missing packages, and neither root nor sudo to install them: $missing"
    as_root=(sudo)
  fi
  echo "setup: apt-get is about to install $missing"
  # shellcheck disable=SC2086
  { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
    fail "apt-get could not install: $missing"
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -z "$missing" ] || fail "still missing after apt-get: $missing"
}

make_environment() {
  local key stamp missing
  stamp=$venv/.weft-$(echo "$*" | tr ' ' -)
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    fail "Python 3.10 to 3.13 is needed, $("$python" -V) was found"
  "$python" -c 'import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' ||
    fail "a Python with the GIL is needed, and $("$python" -V) was built without it"
  # A half-made environment is made anew, and one whose Python is gone, or that was made in another folder: its programs
  # name the Python that they run by its path.
  if [ "$(cat "$venv/.weft-made-in" 2>/dev/null)" != "$PWD" ] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    echo "$PWD" >"$venv/.weft-made-in"
  fi
  key=$(echo "$TORCH" | cat - pyproject.toml scripts/requirements.py scripts/setup.sh | sha256sum | cut -d' ' -f1)
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
  missing=$("$venv/bin/python" scripts/requirements.py "$@")
  if [ -n "$missing" ]; then
    echo "setup: pip is about to install into $venv, with what they need:" $missing
    case $missing in *torch*) echo "setup: PyTorch is large, this takes a while" ;; esac
    echo "$missing" >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install -q --no-compile --disable-pip-version-check -r "$venv/requirements.txt" ||
      fail "pip could not install:" $missing
  fi
  echo "$key" >"$stamp"
}

packages=() groups=()
for what; do
  needs=$(needs_of "$what")
  # shellcheck disable=SC2206
  packages+=(${needs%:*}) groups+=(${needs#*:})
done
[ "${WEFT_SKIP_PACKAGES:-0}" = 1 ] || install_packages "${packages[@]}"
make_environment "${groups[@]}"
