#!/usr/bin/env bash
# Runs every linter, reports all that they say, and fails if one of them does.
# Usage: scripts/lint.sh BUILD_FOLDER   (its compile_commands.json tells clang-tidy how files are compiled)
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 failed=()

step() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    echo "lint: $name ok ($((SECONDS - start)) s)"
  else
    echo "lint: $name FAILED"
    failed+=("$name")
  fi
}

format() {
  git ls-files '*.cpp' '*.h' | xargs clang-format-19 --dry-run -Werror
}

tidy() {
  # Without clang's headers clang-tidy says the same and takes longer.
  rm -f "$build/own_code.so"
  if [ -d /usr/lib/llvm-19/include/clang ]; then
    clang++-19 -std=c++17 -shared -fPIC -fno-rtti -isystem /usr/lib/llvm-19/include scripts/own_code.cpp \
      -o "$build/own_code.so" || return 1
  fi
  git ls-files '*.cpp' ':!tests/fuzz' ':!scripts' | xargs .venv/bin/python scripts/tidy.py "$build"
}

step "clang-format" format
step "include directions" .venv/bin/python scripts/check_includes.py
step "import directions" .venv/bin/python scripts/check_imports.py
step "ruff check" .venv/bin/ruff check .
step "ruff format" .venv/bin/ruff format --check -q .
step "clang-tidy" tidy
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: all clean"
