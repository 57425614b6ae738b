"""scripts/check_folders.py finds folders with too many files, and numbers that are too high."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tree_scripts import ROOT, run_script

sys.path.insert(0, str(ROOT / "scripts"))

import check_folders


def make(root: Path, files: dict[str, int]) -> None:
    """A repository with so many files in each folder."""
    for folder, count in files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (root / folder / f"file_{number}").touch()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "."], check=True)


def test_this_tree_is_clean() -> None:
    done = run_script("check_folders.py", ROOT)
    if "not a git repository" in done.stderr:
        pytest.skip("not a git checkout")
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_are_found(tmp_path: Path) -> None:
    make(tmp_path, {"full": 30, "full/crowded": 31, "fewer": 33, "few": 29, "more": 36})
    (tmp_path / "full/untracked").touch()
    found = check_folders.faults(check_folders.tracked(tmp_path), {"fewer": 34, "few": 34, "more": 35})
    assert found == [
        "few: 29 files, no longer 34; take it out of ABOVE (scripts/check_folders.py)",
        "fewer: 33 files, no longer 34; write 33 into ABOVE (scripts/check_folders.py)",
        "full/crowded: 31 files, at most 30; part it, as its files belong together",
        "more: 36 files, at most 35; part it, as its files belong together",
    ]


def test_a_fault_is_printed_and_ends_with_1(tmp_path: Path) -> None:
    make(tmp_path, {"crowded": 31})
    done = run_script("check_folders.py", tmp_path)
    assert done.returncode == 1
    assert "crowded: 31 files, at most 30; part it, as its files belong together" in done.stdout.splitlines()
