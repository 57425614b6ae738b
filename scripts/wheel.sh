#!/usr/bin/env bash
# Builds the wheel of .venv's Python and PyTorch into dist/: LLVM is linked into it, and auditwheel checks that it asks for
# no library and no symbol that systems with glibc 2.28 lack, which is what PyTorch's own wheels ask for. PyTorch's
# libraries are left to PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
build=build-wheel
options=(-Cbuild-dir="$build" -Ccmake.define.WEFT_STATIC_LLVM=ON -Ccmake.define.WEFT_OLDER_SYSTEMS=ON)
! command -v ccache >/dev/null || options+=(-Ccmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
# What was configured for another Python or PyTorch is of no use.
for_whom=$(python -c 'import sys, torch; print(sys.version, torch.__version__)')
[ "$(cat "$build/for" 2>/dev/null)" = "$for_whom" ] || rm -rf "$build"
rm -rf "$build/dist" && mkdir -p "$build" dist && echo "$for_whom" >"$build/for"
CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
  python -m build --wheel --no-isolation --outdir "$build/dist" "${options[@]}" >"$build.log" 2>&1 ||
  { tail -40 "$build.log" && echo "wheel: the build failed, see $build.log" && exit 1; }
auditwheel repair --plat manylinux_2_28_x86_64 --only-plat --exclude 'libtorch*.so' --exclude 'libc10*.so' \
  --wheel-dir dist "$build"/dist/*.whl >>"$build.log" 2>&1 ||
  { tail -20 "$build.log" && echo "wheel: auditwheel refused it, see $build.log" && exit 1; }
wheel=$(ls -t dist/*.whl | head -1)
echo "wheel: $wheel, $(($(stat -c %s "$wheel") / 1000000)) MB"
