#!/bin/sh
# lazy_statics.sh LIBRARY...: function-local statics of Weft's that code initialises at their first use. Their guards are
# locks that no fork can hold (src/base/fork.h), so such objects are made at namespace scope. Those named here are used
# while the library is loaded.
set -eu
made_at_load='weft::(\(anonymous namespace\)::registry|mutable_settings|runtime::process_arena)\(\)'
made_at_load="$made_at_load|weft::importer::\(anonymous namespace\)::table\(\)"
symbols=$(readelf -sW "$@" | awk '$8 ~ /4weft/ { print $4, $8 }')
if [ -z "$symbols" ]; then
  echo "no symbols of Weft's in $*"
  exit 1
fi
# A thread's own static (TLS) waits for nobody.
guards=$(printf '%s\n' "$symbols" | awk '$1 == "OBJECT" && $2 ~ /^_ZGVZNK?4weft/ { print $2 }' | sort -u | c++filt)
late=$(printf '%s\n' "$guards" | grep -vE "^(guard variable for ($made_at_load)::.*)?$") || true
if [ -n "$late" ]; then
  echo "initialised at their first use:"
  echo "$late"
  exit 1
fi
