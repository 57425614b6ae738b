"""Damaged and hostile files: one line of FormatError, in time, and within the memory that their size allows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from format_fuzzing import GOOD

import weft

COUNT = int(os.environ.get("WEFT_FUZZ_FILES", "150"))


@pytest.mark.parametrize("name", GOOD)
def test_damaged_files_give_one_line(name):
    package = str(Path(weft.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("format_fuzzing.py")), name, "0", str(COUNT)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
