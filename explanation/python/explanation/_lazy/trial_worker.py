"""A copy of a program on the lazy device, in a process of its own: runs its steps with and without changes."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import importlib.machinery
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from weft import _C, device
from weft._base import users_code
from weft.explanation._changes.code import Source
from weft.explanation._lazy import snapshot
from weft.explanation._lazy.changes import LATER, SWITCH, TOTAL, LazyChange, switched
from weft.explanation._lazy.cuts import Cuts

Run = Callable[[list[str]], None]


@dataclasses.dataclass
class Plan:
    """The process's orders, sent as JSON."""

    kind: str  #: "look" at cuts and values, or "measure" times
    words: list[str]  #: the program
    end: tuple[str, int]  #: the line at which a step ends
    is_sync: bool
    changes: list[dict[str, Any]]
    variants: list[list[int]]  #: switches that are on
    steps: int  #: of a variant's turn
    rounds: int
    seconds: float
    results: str  #: a file

    def to_json(self) -> str:
        """For `main`."""
        return json.dumps(dataclasses.asdict(self))


def main(plan_file: str, run: Run) -> int:
    """Runs the program until all is measured, or to its end."""
    plan = Plan(**json.loads(Path(plan_file).read_text(encoding="utf-8")))
    changes = [LazyChange(**each) for each in plan.changes]
    trial = _Measuring(plan) if plan.kind == "measure" else _Looking(plan)
    setattr(builtins, SWITCH, trial.is_on)
    setattr(builtins, LATER, trial.later.append)
    setattr(builtins, TOTAL, trial.own_total)
    load_changed({file: [each for each in changes if each.file == file] for file in {each.file for each in changes}})
    try:
        with trial.watching():
            run(list(plan.words))
    except BaseException as error:
        trial.failed = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if isinstance(error, SystemExit) and error.code in (None, 0):
            trial.failed = ""
    trial.finish()
    return 0


def load_changed(changes: dict[str, list[LazyChange]]) -> None:
    """Has the files be compiled from their changed copies when the program loads them."""
    trees = {file: switched(Source(file), own) for file, own in changes.items()}
    compile_source = builtins.compile
    get_code = importlib.machinery.SourceFileLoader.get_code

    def compile(source: Any, filename: Any, *rest: Any, **named: Any) -> Any:
        tree = trees.get(os.fspath(filename)) if isinstance(source, (str, bytes)) else None
        return compile_source(tree if tree is not None else source, filename, *rest, **named)

    def get_changed_code(loader: Any, name: str) -> Any:
        tree = trees.get(loader.get_filename(name))
        return get_code(loader, name) if tree is None else compile_source(tree, loader.path, "exec", dont_inherit=True)

    builtins.compile = compile  # type: ignore[assignment]
    importlib.machinery.SourceFileLoader.get_code = get_changed_code  # type: ignore[method-assign]


class _Trial:
    """Turns of variants: each has some steps in a row."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.later: list[Callable[[], Any]] = []
        self.failed = ""
        self.step = -1  #: in the loop; -1 before the first step's begin
        self.on: frozenset[int] = frozenset(plan.variants[0])
        self.totals: dict[int, bool] = {}  #: by change: whether the program's own sum is a tensor
        self.results: dict[str, Any] = {}
        self._end = tuple(plan.end)

    def is_on(self, number: int) -> bool:
        """Whether the change with this number is on, which its switch in the program asks."""
        return number in self.on

    def own_total(self, number: int, value: Any) -> Any:
        """A sum that the change makes a tensor: as the program has it, where the change is off."""
        is_tensor = isinstance(value, torch.Tensor)
        if not self.totals.setdefault(number, is_tensor) and is_tensor and not self.is_on(number):
            return value.item()
        return value

    def watching(self) -> Any:
        """Calls `ended` when a step is over."""
        raise NotImplementedError

    def ended(self) -> None:
        """A step is over."""
        raise NotImplementedError

    def turn(self) -> tuple[int, int]:
        """The variant's number, and the number of the step in its turn."""
        turn, step = divmod(max(self.step, 0), self.plan.steps)
        return turn % len(self.plan.variants), step

    def call_later(self) -> None:
        """Makes calls that the step has postponed to its end."""
        for call in self.later:
            call()
        self.later.clear()

    def advance(self) -> None:
        """To the next step."""
        self.step += 1
        self.on = frozenset(self.plan.variants[self.turn()[0]])

    def finish(self) -> None:
        """Writes what was found, and ends the process where it stands: the rest of the program is not asked for."""
        self.results["failed"] = self.failed
        Path(self.plan.results).write_text(json.dumps(self.results), encoding="utf-8")
        os._exit(0)


class _Looking(_Trial):
    """Keeps cuts, values and memory of each step."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.steps: list[dict[str, Any]] = []
        self.results["steps"] = self.steps
        self._printed = snapshot.Printed()
        self._cuts = Cuts(ended=self._run_ended)
        self._begin = 0.0

    def watching(self) -> Any:
        stack = contextlib.ExitStack()
        stack.enter_context(self._printed.kept())
        stack.enter_context(self._cuts)
        return stack

    def _run_ended(self, file: str, line: int, operations: int) -> None:
        if (file, line) == self._end and (operations or self._pending):
            self._pending = False
            self.ended()
        elif operations:
            self._pending = True

    _pending = False

    def ended(self) -> None:
        end = time.perf_counter()
        variant, _ = self.turn()
        frame = users_code.calling()
        self.call_later()
        cuts = [dataclasses.asdict(cut) for cut in self._cuts.take()]
        if self.step >= 0:
            self.steps.append(
                {
                    "variant": variant,
                    "begin": self._begin,
                    "end": end,
                    "cuts": cuts,
                    "names": snapshot.of_frame(frame),
                    "printed": self._printed.take(),
                    "bytes": device.memory_stats()["most_bytes"],
                }
            )
        else:
            self._printed.take()
        del frame
        self._cuts.take()  # what looking at values has run
        self.advance()
        if self.step >= self.plan.steps * len(self.plan.variants) * self.plan.rounds:
            self.finish()
        device.reset_peak_memory_stats()
        self._begin = time.perf_counter()


class _Measuring(_Trial):
    """Times steps. The first step of a turn, in which records may be new, doesn't count, nor does a step that
    compiles."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.times: list[list[list[float]]] = []  #: by round and variant
        self.all_times: list[list[list[float]]] = []  #: those too in which something was new
        self.results |= {"times": self.times, "all": self.all_times}
        self._began = time.perf_counter()
        self._begin, self._counts, self._batches_before = 0.0, self._new(), self._batches()

    def watching(self) -> Any:
        if not self.plan.is_sync:
            return Cuts(ended=self._run_ended)
        sync = _C.device_sync

        def syncing() -> None:
            sync()
            if self._place() == self._end and self._batches() != self._batches_before:
                self._batches_before = self._batches()
                self.ended()

        _C.device_sync = syncing
        return contextlib.nullcontext()

    def _run_ended(self, file: str, line: int, operations: int) -> None:
        if (file, line) == self._end and operations:
            self.ended()

    @staticmethod
    def _place() -> tuple[str, int]:
        frame = users_code.calling()
        return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)

    @staticmethod
    def _batches() -> int:
        counts = _C.device_stats()
        return int(counts["compiled_batches"] + counts["plain_batches"])

    @staticmethod
    def _new() -> tuple[int, ...]:
        counts = _C.device_stats()
        return counts["records"], counts["programs"]

    def ended(self) -> None:
        self.call_later()
        seconds = time.perf_counter() - self._begin
        counts = self._new()
        if self.step >= 0:
            variant, place = self.turn()
            number = self.step // (self.plan.steps * len(self.plan.variants))
            while len(self.times) <= number:
                self.times.append([[] for _ in self.plan.variants])
                self.all_times.append([[] for _ in self.plan.variants])
            if place > 0:
                self.all_times[number][variant].append(seconds)
                if counts == self._counts:
                    self.times[number][variant].append(seconds)
        self.advance()
        rounds = len(self.times) - 1
        if rounds >= self.plan.rounds or (rounds > 2 and time.perf_counter() - self._began > self.plan.seconds):
            self.finish()
        self._counts = counts
        self._begin = time.perf_counter()
