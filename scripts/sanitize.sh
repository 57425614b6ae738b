#!/usr/bin/env bash
# Builds with clang's sanitizers and runs the tests; any finding fails. One build folder a sanitizer below BUILD_FOLDER.
#   address: Address- and UndefinedBehaviourSanitizer over unit and golden tests.
#   thread:  ThreadSanitizer, machine code included, over the unit tests of what threads run.
# Usage: scripts/sanitize.sh BUILD_FOLDER address|thread [TESTS], where TESTS is a filter of GoogleTest's
set -euo pipefail
cd "$(dirname "$0")/.."
what=$2
build=$1/$what
jobs=${JOBS:-$(nproc)}
# Left out: what compiles thousands of ops or tries every float, which takes minutes here and finds nothing that smaller
# tests don't; for threads, what one thread does alone; what provokes faults, where they are for the sanitizer to find.
left_out='LongChains*:FuseBound*:VectorMath*:Roll.Random*'
[ "$what" = address ] || left_out+=':*Vjp*:Interpreter*:*Text*:*Verif*:*TypeRule*:*Pass*:*HalfConversion*:*Guard*'
tests=${3:-*}-$left_out
sanitizers=thread targets=(weft_unit_tests)
[ "$what" = thread ] || { sanitizers=address,undefined && targets+=(weft_verify_unit_tests weft-opt weft-run); }
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
# Not a release build: programs are verified after every pass.
cmake -GNinja -S . -B "$build" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 "${launcher[@]}" \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -gline-tables-only" -DWEFT_BUILD_PYTORCH=OFF \
  -DWEFT_SANITIZE=$sanitizers >/dev/null
cmake --build "$build" -j"$jobs" --target "${targets[@]}"
symbolizer=$(command -v llvm-symbolizer-19 || true)
common="symbolize=1${symbolizer:+:external_symbolizer_path=$symbolizer}"
# Memory beyond all bounds is refused, as without a sanitizer.
export ASAN_OPTIONS="$common:allocator_may_return_null=1:detect_stack_use_after_return=0"
export UBSAN_OPTIONS="$common:print_stacktrace=1"
# Tests that fork do so while other threads run, or have ended and wait to be joined, which a child can't do.
export TSAN_OPTIONS="$common:halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:allocator_may_return_null=1"
TSAN_OPTIONS+=":report_thread_leaks=0"
export WEFT_CACHE=0
run=()
# ThreadSanitizer wants memory where it lies without randomisation; not every container lets it be switched off.
if [ "$what" = thread ] && setarch -R true 2>/dev/null; then run=(setarch -R); fi
pids=()
for ((shard = 0; shard < jobs; ++shard)); do
  GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard timeout 3600 "${run[@]}" "$build/tests/weft_unit_tests" \
    --gtest_brief=1 --gtest_filter="$tests" >"$build/shard$shard.log" 2>&1 &
  pids+=($!)
done
failed=0
for ((shard = 0; shard < jobs; ++shard)); do
  wait "${pids[$shard]}" || failed=1
  tail -60 "$build/shard$shard.log"
done
[ $failed = 0 ] || { echo "sanitize: $what FAILED, see $build/shard*.log" && exit 1; }
if [ "$what" = address ]; then
  "$build/verification/weft_verify_unit_tests" --gtest_brief=1
  lit -sv "$build/tests/golden"
fi
