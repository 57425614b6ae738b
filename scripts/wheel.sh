#!/usr/bin/env bash
# Builds the wheel of .venv's Python into dist/, with an extension module for each release of PyTorch in WEFT_RELEASES, and
# the engine once: LLVM is linked into it, and auditwheel checks that it asks for no library and no symbol that systems with
# glibc 2.28 lack, which is what PyTorch's own wheels ask for. PyTorch's libraries are left to PyTorch.
#   WEFT_RELEASES="2.13.0 2.14.1"   for these alone
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
export PATH=$PWD/$venv/bin:$PATH
build=build-wheel
releases=${WEFT_RELEASES:-2.13.0 2.14.1 2.15.0}

# The headers and libraries of a release, which is not installed: a folder for each Python and release.
unpacked() {
  local folder=$build/torch/$python-$1 wheels=$build/torch/$python-$1.wheel
  if [ ! -f "$folder/torch/version.py" ]; then
    echo "wheel: pip is about to download torch $1" >&2
    mkdir -p "$wheels"
    python -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$wheels" "torch==$1" >&2 ||
      { echo "wheel: pip could not download torch $1 (WEFT_RELEASES names the releases to build for)" >&2 && return 1; }
    rm -rf "$folder" && mkdir -p "$folder"
    python - "$wheels" "$folder" <<'PYTHON'
import pathlib, re, sys, zipfile

wanted = re.compile(r"torch/(include/|lib/lib(torch|torch_cpu|torch_python|c10|gomp\S*)\.so|version\.py)")
for file in pathlib.Path(sys.argv[1]).glob("torch-*.whl"):
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if wanted.match(name)])
PYTHON
    rm -rf "$wheels"
  fi
  echo "$PWD/$folder/torch"
}

python=$(python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
folders=
for release in $releases; do
  folder=$(unpacked "$release")
  folders+=${folders:+;}$folder
done
options=(-Cbuild-dir="$build/$python" -Ccmake.define.WEFT_STATIC_LLVM=ON -Ccmake.define.WEFT_OLDER_SYSTEMS=ON
  "-Ccmake.define.WEFT_TORCH=$folders")
! command -v ccache >/dev/null || options+=(-Ccmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
# What was configured for another Python is of no use.
for_whom=$(python -c 'import sys; print(sys.version)')
[ "$(cat "$build/$python/for" 2>/dev/null)" = "$for_whom" ] || rm -rf "${build:?}/$python"
rm -rf "$build/dist" && mkdir -p "$build/$python" dist && echo "$for_whom" >"$build/$python/for"
CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
  python -m build --wheel --no-isolation --outdir "$build/dist" "${options[@]}" >"$build.log" 2>&1 ||
  { tail -40 "$build.log" && echo "wheel: the build failed, see $build.log" && exit 1; }
auditwheel repair --plat manylinux_2_28_x86_64 --only-plat --exclude 'libtorch*.so' --exclude 'libc10*.so' \
  --wheel-dir dist "$build"/dist/*.whl >>"$build.log" 2>&1 ||
  { tail -20 "$build.log" && echo "wheel: auditwheel refused it, see $build.log" && exit 1; }
wheel=$(ls -t dist/*.whl | head -1)
echo "wheel: $wheel, $(($(stat -c %s "$wheel") / 1000000)) MB, for PyTorch $releases"
