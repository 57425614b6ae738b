"""Trials of changes of a program that uses the lazy device: copies of it run in processes of their own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from weft._base import users_code
from weft.explanation import _C
from weft.explanation._lazy.changes import LazyChange
from weft.explanation._lazy.cuts import Cut
from weft.explanation._lazy.loops import Loop
from weft.explanation._lazy.snapshot import CHANGED, UNCHANGED
from weft.explanation._lazy.trial_worker import Plan

_MOST_LOOKED_AT = 60  #: steps of one process
_TURN = 4  #: steps of a variant's turn in which it is looked at


@dataclasses.dataclass
class Looked:
    """A step that was looked at."""

    variant: int
    begin: float
    end: float
    cuts: list[Cut]
    names: dict[str, list[float]]
    printed: tuple[str, list[float]]
    bytes: int


class TrialError(Exception):
    """A copy of the program ended before it reached its loop."""


class Trials:
    """Runs copies of a program; one of its loops is studied."""

    def __init__(self, words: list[str], loop: Loop, seconds: float, limit: float) -> None:
        self.words, self.loop, self.seconds, self.limit = words, loop, seconds, limit
        self.failed = ""  #: what the copy that ran last raised
        self._reference: list[Looked] = []

    def reference(self) -> list[Looked]:
        """The program's own steps.

        Raises:
            TrialError: there are none.
        """
        self._reference = self._look([], [[]], _MOST_LOOKED_AT)
        if not self._reference:
            raise TrialError(self.failed or "run again, it did not come to the same line")
        return self._reference

    def look(self, changes: list[LazyChange], variants: list[list[int]]) -> list[Looked]:
        """Steps of all variants, a few of each in turn; the first variant has no changes."""
        return self._look(changes, [[], *variants], _TURN)

    def most_variants(self) -> int:
        """The largest number of variants for one process."""
        return max(1, min(len(self._reference), _MOST_LOOKED_AT) // _TURN - 1)

    def _look(self, changes: list[LazyChange], variants: list[list[int]], steps: int) -> list[Looked]:
        found = self._run("look", changes, variants, steps, 1, self.seconds)
        looked = []
        for each in found.get("steps", []):
            cuts = [Cut(**cut) for cut in each.pop("cuts")]
            text, numbers = each.pop("printed")
            looked.append(Looked(cuts=cuts, printed=(text, numbers), **each))
        return looked

    def misfit(self, looked: list[Looked], variant: int) -> str:
        """How the variant's steps differ from the program's own; "" if they don't. Leaves out names and printed numbers
        that also differ from run to run of the unchanged program."""
        own = self._reference
        unchanged = [(looked[i], own[i]) for i in self._steps(looked, 0)]
        loose: set[str] = set().union(*(UNCHANGED.differing(one.names, other.names) for one, other in unchanged))
        has_words = all(one.printed[0] == other.printed[0] for one, other in unchanged)
        has_numbers = all(UNCHANGED.close(one.printed[1], other.printed[1]) for one, other in unchanged)

        def prints_the_same(one: Looked, other: Looked) -> bool:
            numbers = not has_numbers or CHANGED.close(one.printed[1], other.printed[1])
            return numbers and one.printed[0] == other.printed[0]

        for i in self._steps(looked, variant):
            if names := CHANGED.differing(looked[i].names, own[i].names) - loose:
                return f"{', '.join(sorted(names)[:3])}: other values at the end of the step"
            # Output after the end of a step belongs to the next one.
            if has_words and not any(prints_the_same(looked[i], own[j]) for j in (i, i - 1)):
                return "it prints something else"
        return ""

    def _steps(self, looked: list[Looked], variant: int) -> list[int]:
        """The variant's steps except the first, which still runs what the variant before has left pending."""
        count = min(len(looked), len(self._reference))
        return [i for i in range(count) if looked[i].variant == variant and i % _TURN > 0]

    def measure(self, changes: list[LazyChange], variants: list[list[int]], rounds: int) -> list[list[float]]:
        """By variant: seconds of a step, one number for each round in which all had a turn."""
        step = _C.quantile([each.end - each.begin for each in self._reference], 0.5)
        room = len(self.loop.steps) // (3 * len(variants))
        turn = max(3, min(50, round(0.01 / max(step, 1e-6)), max(3, room)))
        found: list[list[float]] = [[] for _ in variants]
        begin = time.monotonic()
        while len(found[0]) < rounds and time.monotonic() - begin < 2 * self.seconds:
            left = max(self.seconds - (time.monotonic() - begin), self.seconds / 4)
            fresh = _rounds(self._run("measure", changes, variants, turn, rounds - len(found[0]), left))
            if not fresh:
                break
            for times in fresh:
                for own, value in zip(found, times, strict=True):
                    own.append(value)
        return found

    def _run(
        self, kind: str, changes: list[LazyChange], variants: list[list[int]], steps: int, rounds: int, seconds: float
    ) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="weft-explain-") as folder:
            results, plan_file = Path(folder, "results.json"), Path(folder, "plan.json")
            plan = Plan(
                kind, self.words, self.loop.place, self.loop.is_sync, [dataclasses.asdict(each) for each in changes],
                variants, steps, rounds, seconds, str(results),
            )  # fmt: skip
            plan_file.write_text(plan.to_json(), encoding="utf-8")
            self.failed = start(["--trial", str(plan_file)], self.limit)
            if not results.exists():
                return {}
            found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        self.failed = found["failed"]
        return found


def start(words: list[str], limit: float) -> str:
    """Runs `weft explain` in a process of its own; returns why it failed."""
    root = str(Path(users_code.__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "weft", "explain", *words]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {limit:.0f} s"
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"it ended with status {done.returncode}") if done.returncode else ""


def _rounds(found: dict[str, Any]) -> list[list[float]]:
    """Rounds with a time for each variant. The times are those of steps in which nothing was new, if most turns have
    such steps."""
    settled, every = found.get("times", []), found.get("all", [])
    cells = [cell for times in settled for cell in times]
    chosen = settled if 2 * sum(map(bool, cells)) >= len(cells) else every
    # The last round was cut off.
    return [[_C.quantile(cell, 0.25) for cell in times] for times in chosen if all(times)]
