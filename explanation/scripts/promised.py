"""Whether mending a break gains what `weft explain` promised.

Explains a program, applies each change that was tried to a copy of the file, and times the original and the copies in
processes of their own, in turns. The program's last word is a number of steps; it prints the seconds of a step, the
median, in its last line on standard error. Without a program: one whose breaks are Dynamo's, and six whose breaks
are the device's (explanation/tests/python).

Usage: promised.py [--rounds N] [--seconds S] [--output FILE] [PROGRAM WORD...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.explanation import _C
from weft.explanation._report.text import seconds

_TESTS = Path(__file__).resolve().parents[1] / "tests/python"
PROGRAMS = {
    _TESTS / "five_breaks.py": ["inductor", "100"],
    _TESTS / "programs/lazy_training.py": ["2000"],
    _TESTS / "programs/lazy_xla.py": ["2000"],
    _TESTS / "programs/lazy_agent.py": ["2000"],
    _TESTS / "programs/lazy_clipping.py": ["400"],
    _TESTS / "programs/lazy_solver.py": ["400"],
    _TESTS / "programs/lazy_layers.py": ["300"],
}
HEAD = "| program | lines | change | promised | measured | |\n|---|---|---|--:|--:|---|"

Times = tuple[float, float, float]  #: median, low, high


def seconds_of_a_step(program: Path, words: list[str]) -> float:
    """The seconds of a step, which the program prints. Runs the program in a process of its own."""
    done = subprocess.run(
        [sys.executable, program, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        cwd=program.parent,
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


def explained(program: Path, words: list[str], folder: Path, seconds_: float) -> dict[str, Any]:
    """The report on the program's one subject."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "weft", "explain", "--no-hlo", "--seconds", str(seconds_), "--output", report]
    subprocess.run([*command, program, *words], check=True, capture_output=True)
    (subject,) = json.loads(report.read_text())["subjects"]
    return dict(subject)


def is_kept(promised: Times, measured: Times) -> bool:
    """Whether the intervals meet, or the medians are within a fifth of each other."""
    meet = promised[1] <= measured[2] and measured[1] <= promised[2]
    return meet or abs(measured[0] - promised[0]) <= 0.2 * abs(measured[0])


def rows(program: Path, words: list[str], rounds: int, seconds_: float) -> Iterator[tuple[str, bool]]:
    """A line of the table for each change, and whether the promise was kept."""
    with tempfile.TemporaryDirectory() as name:
        subject = explained(program, words, Path(name), seconds_)
        actions = [each for each in subject["actions"] if each["tried"] and each["change"] and each["kind"] != "device"]
        copies = [changed(program, action, Path(name)) for action in actions]
        before: list[float] = []
        after: list[list[float]] = [[] for _ in copies]
        for _ in range(rounds):
            before.append(seconds_of_a_step(program, words))
            for own, copy in zip(after, copies, strict=True):
                own.append(seconds_of_a_step(copy, words))
    for action, own in zip(actions, after, strict=True):
        measured = _C.paired_difference(before, own)
        gain = action["gain"]
        promised = (gain["median"], gain["low"], gain["high"])
        kept = is_kept(promised, measured)
        lines = ", ".join(str(subject["breaks"][number]["line"]) for number in action["breaks"])
        cells = [program.name, lines, action["title"], _cell(promised), _cell(measured), "kept" if kept else "NOT KEPT"]
        yield f"| {' | '.join(cells)} |", kept


def _cell(times: Times) -> str:
    return f"{seconds(times[0])} ({seconds(times[1])} to {seconds(times[2])})"


def main() -> int:
    """The exit status: 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--output", type=Path, help="the table as Markdown, there too")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    programs = {arguments.program.resolve(): arguments.words} if arguments.program else PROGRAMS
    table, all_kept = [HEAD], True
    print(HEAD)
    for program, words in programs.items():
        for line, kept in rows(program, words, arguments.rounds, arguments.seconds):
            print(line, flush=True)
            table.append(line)
            all_kept = all_kept and kept
    if arguments.output:
        arguments.output.write_text("\n".join(table) + "\n", encoding="utf-8")
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
