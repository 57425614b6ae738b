#!/usr/bin/env bash
# Builds the site of the documentation in out/site, where a warning is an error, and looks at it in a browser.
# Installs first what only this needs, and says so (WEFT_SKIP_PACKAGES=1 leaves Doxygen and Chromium to you).
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "docs: $*" >&2
  exit 1
}

install_packages() {
  local package missing=() as_root=()
  for package in doxygen chromium; do command -v "$package" >/dev/null || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "${WEFT_SKIP_PACKAGES:-0}" != 1 ] && command -v apt-get >/dev/null || fail "missing: ${missing[*]}"
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  echo "docs: installing ${missing[*]}"
  { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
    >/dev/null || fail "apt-get could not install: ${missing[*]}"
}

install_python_packages() {
  local list=docs/site/requirements.txt stamp=.venv/.weft-docs
  cmp -s "$list" "$stamp" && return
  echo "docs: installing into .venv:" $(grep -v '^#' "$list")
  .venv/bin/python -m pip install -q --disable-pip-version-check -r "$list" || fail "pip could not install what $list lists"
  cp "$list" "$stamp"
}

install_packages
install_python_packages
rm -rf out/doxygen out/site
mkdir -p out
doxygen docs/site/Doxyfile
.venv/bin/python -m sphinx -q -E -W --keep-going -b html -d out/doctrees -c docs/site . out/site
echo "docs: out/site/index.html"
WEFT_SITE=out/site .venv/bin/python -m pytest tests/python/test_site.py
