"""scripts/check_folders.py finds folders with too many files, and numbers that are too high."""

from __future__ import annotations

import runpy

import pytest
from tree_scripts import ROOT, run_script


def test_this_tree_is_clean() -> None:
    done = run_script("check_folders.py", ROOT)
    if "not a git repository" in done.stderr:
        pytest.skip("not a git checkout")
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_are_found() -> None:
    faults = runpy.run_path(str(ROOT / "scripts/check_folders.py"))["faults"]
    counts = {"full": 30, "full/crowded": 31, "lower": 33, "parted": 29, "higher": 36, "as_listed": 32}
    above = {"lower": 34, "parted": 34, "higher": 35, "as_listed": 32, "gone": 40}
    assert faults(counts, above) == [
        "full/crowded: 31 files, at most 30; part it, as its files belong together",
        "gone: 0 files, no longer 40; take it out of ABOVE (scripts/check_folders.py)",
        "higher: 36 files, at most 35; part it, as its files belong together",
        "lower: 33 files, no longer 34; write 33 into ABOVE (scripts/check_folders.py)",
        "parted: 29 files, no longer 34; take it out of ABOVE (scripts/check_folders.py)",
    ]
