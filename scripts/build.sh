#!/usr/bin/env bash
# Compiles Weft in place, and makes `import weft` and the command `weft` work in .venv (VENV: another environment). A build
# folder keeps what it was configured for before: after `make test`, `make run` compiles the package alone, and configures
# nothing. An environment with another release of PyTorch adds its extension module to those that are there.
# Usage: scripts/build.sh BUILD_FOLDER engine|package|tools|all   (what needs no PyTorch, and nothing in .venv then; the
# package; weft-opt, weft-run and the programs of benchmarks too; unit tests too)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 what=$2 venv=${VENV:-.venv}
case $what in
  engine) parts=(-DWEFT_BUILD_TOOLS=OFF -DWEFT_BUILD_TESTS=OFF -DWEFT_BUILD_PYTORCH=OFF) targets=(weft_engine) wanted=() ;;
  package) parts=(-DWEFT_BUILD_TOOLS=OFF -DWEFT_BUILD_TESTS=OFF) targets=(weft_package) wanted=(PYTORCH) ;;
  tools) parts=(-DWEFT_BUILD_TOOLS=ON) targets=(weft_package weft_tools) wanted=(PYTORCH TOOLS) ;;
  all) parts=(-DWEFT_BUILD_TOOLS=ON -DWEFT_BUILD_TESTS=ON) targets=(all) wanted=(PYTORCH TESTS) ;;
  *) echo "build: $what should be engine, package, tools or all" >&2 && exit 1 ;;
esac
torches=
if [ "$what" != engine ]; then
  torch=$("$venv/bin/python" -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("torch").origin))')
  torches=$torch
  while read -r other; do
    [ "$other" = "$torch" ] || [ ! -d "$other" ] || torches+=";$other"
  done < <(sed -n 's/^WEFT_TORCH:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null | tr ';' '\n')
  parts+=(-DWEFT_BUILD_PYTORCH=ON -DPython3_EXECUTABLE="$PWD/$venv/bin/python" -DWEFT_TORCH="$torches")
fi

is_configured() {
  local part
  [ -f "$build/build.ninja" ] || return 1
  [ "$what" = engine ] || grep "^WEFT_TORCH:" "$build/CMakeCache.txt" | tr '=' ';' | tr ';' '\n' | grep -qxF "$torch" || return 1
  for part in "${wanted[@]}"; do
    grep -q "^WEFT_BUILD_$part:BOOL=ON$" "$build/CMakeCache.txt" || return 1
  done
}

# Clang compiles this in two thirds of the time that g++ 12 takes (g++ compiles two of the micro-kernels). CXX names another; a build
# folder keeps its compiler.
compiler=()
if [ -z "${CXX:-}" ] && [ ! -f "$build/CMakeCache.txt" ] && command -v clang++-19 >/dev/null; then
  compiler=(-DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19)
fi
if ! is_configured; then
  [ -f "$build/build.ninja" ] || [ "$what" != tools ] || parts+=(-DWEFT_BUILD_TESTS=OFF)
  ! command -v ccache >/dev/null || parts+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -GNinja -S . -B "$build" "${compiler[@]}" "${parts[@]}" >"$build.log" ||
    { cat "$build.log" && exit 1; }
fi
cmake --build "$build" -j"${JOBS:-$(nproc)}" --target "${targets[@]}"
[ "$what" != engine ] || exit 0

packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$PWD/$build/python')" >"$packages/weft-in-tree.pth"
printf '%s\n' "#!$PWD/$venv/bin/python" 'from weft._command_line import main' 'raise SystemExit(main())' >"$venv/bin/weft"
chmod +x "$venv/bin/weft"
