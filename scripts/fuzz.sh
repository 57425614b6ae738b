#!/usr/bin/env bash
# Builds the libFuzzer targets with clang and its sanitizers and runs each on its corpus for a fixed time.
# Usage: scripts/fuzz.sh BUILD_FOLDER SECONDS TARGET..., with FUZZ_SEED=N for the same inputs again (0: others each time)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2
shift 2
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -GNinja -S . -B "$build" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 "${launcher[@]}" \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -gline-tables-only" -DWEFT_BUILD_FUZZERS=ON -DWEFT_BUILD_TESTS=OFF -DWEFT_BUILD_TOOLS=OFF \
  -DWEFT_BUILD_PYTORCH=OFF -DWEFT_SANITIZE=address,undefined >/dev/null
cmake --build "$build" --target "$@"
# Memory beyond all bounds is refused, as without a sanitizer.
export ASAN_OPTIONS=allocator_may_return_null=1
for name; do
  corpus="$build/corpus/$name"
  mkdir -p "$corpus"
  echo "fuzz: $name for $seconds s"
  seeds=tests/fuzz/corpus
  log="$build/$name.log"
  "$build/tests/fuzz/$name" -seed="${FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/" "$corpus" \
    $([ -d "$seeds" ] && echo "$seeds") >"$log" 2>&1 || { tail -40 "$log"; echo "fuzz: $name FAILED"; exit 1; }
  tail -1 "$log"
done
