#!/bin/sh
# isa_symbols.sh LIBRARY: the objects compiled with an instruction set's flags must define nothing that the linker merges
# with other objects' copies: it might keep the one with instructions that the CPU lacks.
set -eu
objects=$(nm "$1" | grep -c '^kernels_.*\.o:') || true
if [ "$objects" -lt 1 ]; then
  echo "no micro-kernels in $1"
  exit 1
fi
shared=$(nm -C "$1" | awk '/^[^ ]*\.o:$/ { object = $1 } object ~ /^kernels_/ && $2 ~ /^[WVuwv]$/ { print object, $0 }')
if [ -n "$shared" ]; then
  echo "merged by the linker:"
  echo "$shared"
  exit 1
fi
