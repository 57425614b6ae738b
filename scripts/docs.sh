#!/usr/bin/env bash
# Builds the site of the documentation in out/site, where a warning is an error, and looks at it in a browser.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf out/doxygen out/site
mkdir -p out
doxygen docs/site/Doxyfile
python -m sphinx -q -E -W --keep-going -b html -d out/doctrees -c docs/site . out/site
echo "docs: out/site/index.html"
WEFT_SITE=out/site python -m pytest tests/python/docs/test_site.py
