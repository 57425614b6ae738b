"""scripts/test_times.py adds up what the reports of pytest, ctest and lit say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tree_scripts import ROOT

PYTEST = """<testsuites><testsuite>
<testcase classname="tests.python.scan.test_scan.TestScan" name="test_a[1.5-x]" time="100">
<properties><property name="cpu_seconds" value="6"/></properties></testcase>
<testcase classname="tests.python.scan.test_cells" name="test_b" time="1"/>
<testcase classname="tests.python.jit.test_jit_loops" name="test_c" time="0.5"/>
</testsuite></testsuites>"""
CTEST = """<testsuite><testcase name="unit_0" classname="unit_0" time="1.5"/>
<testcase name="unit_1" classname="unit_1" time="1"/><testcase name="isa_symbols" classname="isa_symbols" time="0"/>
</testsuite>"""
LIT = """<testsuites><testsuite><testcase classname="weft.passes/loops" name="hoist.weft" time="2"/>
</testsuite></testsuites>"""


def test_a_table_of_all_reports(tmp_path: Path) -> None:
    files = []
    for name, text in (("pytest", PYTEST), ("ctest", CTEST), ("lit", LIT)):
        files.append(tmp_path / f"{name}.xml")
        files[-1].write_text(text)
    command = [sys.executable, str(ROOT / "scripts/test_times.py"), "--slowest", "2", *map(str, files)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "| suite | tests | seconds | share |",
        "|---|--:|--:|--:|",
        "| tests/python/scan | 2 | 7 | 58% |",
        "| ctest unit | 2 | 2 | 21% |",
        "| tests/golden | 1 | 2 | 17% |",
        "| tests/python/jit | 1 | 0 | 4% |",
        "| ctest isa_symbols | 1 | 0 | 0% |",
        "| all | 7 | 12 | |",
        "     6.0 s  tests/python/scan/TestScan::test_a[1.5-x]",
        "     2.0 s  tests/golden/passes/loops::hoist.weft",
    ]
