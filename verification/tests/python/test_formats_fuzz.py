"""Damaged and hostile files: one line of FormatError, in time, and within the memory that their size allows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import warm_python
from format_fuzzing import GOOD

import weft

COUNT = int(os.environ.get("WEFT_FUZZ_FILES", "60"))


def run(script, *arguments, cwd=None):
    package = str(Path(weft.__file__).parent.parent)
    done = subprocess.run(
        [warm_python.command(), str(Path(__file__).with_name(script)), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", GOOD)
def test_damaged_files_give_one_line(name):
    # HDF5 is read by a process of its own for each file.
    run("format_fuzzing.py", name, "0", str(COUNT // 2 if name == "keras-weights" else COUNT))


def test_hostile_files_give_one_line(tmp_path):
    run("hostile_files.py", str(tmp_path), cwd=tmp_path)
