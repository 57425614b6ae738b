"""The scripts that check the tree, run on this tree and on small ones with faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_script(name: str, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs scripts/<name> with words on the tree at `root`."""
    command = [sys.executable, str(ROOT / "scripts" / name), *words, str(root)]
    return subprocess.run(command, capture_output=True, text=True)
