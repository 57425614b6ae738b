"""Whether mending a break gains what `weft explain` promised.

Explains a program, applies each change that was tried to a copy of the file, and times the original and the copy in
processes of their own, in turns. The program takes a backend and a number of steps, and prints the seconds of a step
to standard error (explanation/tests/python/five_breaks.py).

Usage: promised.py [--backend NAME] [--pairs N] [--steps N] [--seconds S] [PROGRAM]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from weft.explanation import _C

PROGRAM = Path(__file__).resolve().parents[1] / "tests/python/five_breaks.py"


def seconds_of_a_step(program: Path, backend: str, steps: int) -> float:
    """In a process of its own."""
    done = subprocess.run(
        [sys.executable, program, backend, str(steps)], capture_output=True, text=True, check=True, cwd=program.parent
    )
    return float(done.stderr.splitlines()[-1])


def changed(program: Path, action: dict[str, Any], folder: Path) -> Path:
    """A copy of the program with the action's change."""
    copy = folder / f"action{action['id']}.py"
    patch = folder / "change.diff"
    settings = [line for line in action["change"].splitlines() if line.startswith("torch._dynamo.config.")]
    text = "\n".join(line for line in action["change"].splitlines() if line not in settings)
    copy.write_text(program.read_text())
    if text:
        patch.write_text(text + "\n")
        subprocess.run(["patch", "-s", copy, patch], check=True)
    if settings:
        lines = copy.read_text().replace("def main()", "\n".join(settings) + "\n\n\ndef main()")
        copy.write_text(lines)
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=Path, default=PROGRAM)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        command = [sys.executable, "-m", "weft", "explain", "--seconds", str(arguments.seconds), "--format", "json"]
        subprocess.run([*command, "--output", report, program, arguments.backend], check=True, capture_output=True)
        (subject,) = json.loads(report.read_text())["subjects"]
        kept = True
        print(f"{'line':>12} {'promised':>30} {'measured':>30}  in milliseconds a step")
        for action in subject["actions"]:
            if action["tried"] and action["change"] and action["kind"] != "device":
                kept = compare(program, subject, action, folder, arguments) and kept
    return 0 if kept else 1


def compare(
    program: Path, subject: dict[str, Any], action: dict[str, Any], folder: Path, arguments: argparse.Namespace
) -> bool:
    """Prints a row. Kept if the intervals meet, or the medians are within a fifth of each other."""
    copy = changed(program, action, folder)
    before, after = [], []
    for _ in range(arguments.pairs):
        before.append(seconds_of_a_step(program, arguments.backend, arguments.steps))
        after.append(seconds_of_a_step(copy, arguments.backend, arguments.steps))
    median, low, high = _C.paired_difference(before, after)
    gain = action["gain"]
    meet = gain["low"] <= high and low <= gain["high"]
    kept = meet or abs(median - gain["median"]) <= 0.2 * abs(median)
    lines = ",".join(str(subject["breaks"][number]["line"]) for number in action["breaks"])
    promised = f"{1e3 * gain['median']:.3f} ({1e3 * gain['low']:.3f} to {1e3 * gain['high']:.3f})"
    measured = f"{1e3 * median:.3f} ({1e3 * low:.3f} to {1e3 * high:.3f})"
    print(f"{lines:>12} {promised:>30} {measured:>30}  {'kept' if kept else 'NOT KEPT'}", flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main())
