#!/usr/bin/env bash
# Runs every linter, reports all that they say, and fails if one of them does.
# Usage: scripts/lint.sh BUILD_FOLDER [--alone]   (BUILD_FOLDER/each is configured to tell clang-tidy how files are
# compiled; --alone has it read each by itself)
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 alone=${2:-} failed=()

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

# What git is told to ignore is of one machine: build folders, environments, links to them.
committed() {
  local wrong
  wrong=$(git ls-files --cached --ignored --exclude-standard)
  [ -z "$wrong" ] || { echo "committed, but ignored by .gitignore: $wrong" && return 1; }
}

format() {
  git ls-files '*.cpp' '*.h' | xargs clang-format-19 --dry-run -Werror
}

tidy() {
  # Each file has its own options there, and can be read alone: what one forgets to include, others of its group or a
  # precompiled header have in the build.
  local each=$build/each
  cmake -GNinja -S . -B "$each" -DPython3_EXECUTABLE="$PWD/.venv/bin/python" -DWEFT_UNITY=OFF \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >"$build/each.log" || { cat "$build/each.log" && return 1; }
  # Without clang's headers clang-tidy says the same and takes longer.
  rm -f "$each/own_code.so"
  if [ -d /usr/lib/llvm-19/include/clang ]; then
    clang++-19 -std=c++20 -shared -fPIC -fno-rtti -isystem /usr/lib/llvm-19/include scripts/own_code.cpp \
      -o "$each/own_code.so" || return 1
  fi
  # Programs around packages include headers that weft.package writes; tests compile them with all warnings as errors.
  git ls-files '*.cpp' ':!tests/fuzz' ':!scripts' ':!examples' | xargs .venv/bin/python scripts/tidy.py $alone "$each"
}

step "committed files" committed
step "clang-format" format
step "include directions" .venv/bin/python scripts/check_includes.py
step "op codes" .venv/bin/python scripts/check_op_codes.py
step "import directions" .venv/bin/python scripts/check_imports.py
step "folder sizes" .venv/bin/python scripts/check_folders.py
step "private names" .venv/bin/python scripts/check_private_names.py
step "ruff check" .venv/bin/ruff check .
step "ruff format" .venv/bin/ruff format --check -q .
step "clang-tidy" tidy
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: all clean"
