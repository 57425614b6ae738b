"""What the tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import weft


@pytest.fixture(autouse=True)
def _fresh_state():
    """The same random numbers for every test, and statistics that start at zero."""
    torch.manual_seed(0)
    weft.reset_stats()
    yield
    assert weft._C.enabled(), "a test left weft disabled"


@pytest.fixture
def run_python(tmp_path):
    """Runs a script in a process of its own, with this process's weft; returns what it printed."""

    def run(script: str, **environment: str) -> str:
        package = str(Path(weft.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        result = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": path, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run
