"""The commands of `make`, which tests can't run, since they install and compile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("target", "group", "what"),
    [("run", "run", "package"), ("bench", "bench", "tools"), ("test", "test", "all"), ("lint", "lint", "all")],
)
def test_what_is_needed_is_installed_before_it_is_compiled(target: str, group: str, what: str) -> None:
    root = Path(__file__).parents[3]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(["make", "-n", target], cwd=root, env=own, capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    assert "Nothing to be done" not in said
    compiled = lines.index(f"scripts/build.sh build {what}")
    assert lines.index("scripts/setup.sh compile") < compiled
    assert f"scripts/setup.sh {group}" in (lines if target == "lint" else lines[:compiled])
