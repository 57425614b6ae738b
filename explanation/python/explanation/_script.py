"""A whole program: it runs once while it is watched, then each function that it compiled is studied."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from weft.explanation._about import describe
from weft.explanation._explain import investigate, report, without_hlo
from weft.explanation._lazy.cuts import Cut, Cuts
from weft.explanation._lazy.investigation import BACKEND, LazyInvestigation
from weft.explanation._lazy.loops import loops
from weft.explanation._report.records import Subject
from weft.explanation._report.report import Report
from weft.explanation._subject import Effort
from weft.explanation._watching.collect import collect
from weft.explanation._watching.watch import Watch, Watched

_MOST_SUBJECTS = 12  #: measured ones; of the rest the report has no costs
_MOST_LOOPS = 3  #: on the lazy device

Run = Callable[[list[str]], None]


class Failed(Exception):
    """No report can be made; `status` is the command's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def explain_program(words: list[str], run: Run, train: bool, effort: Effort) -> Report:
    """The report of a program; Ctrl-C ends what is going on and gives what is there.

    Raises:
        Failed: the program failed, or compiled nothing here.
    """
    notes: list[str] = without_hlo(effort.hlo)
    subjects: list[Subject] = []
    forks = _Forks()
    interrupted = False
    with Watch() as watch:
        effort.progress("running the program", 0.0)
        lazily = _Lazily()
        try:
            with lazily:
                interrupted = _run(words, run)
        except Failed:  # there will be no report for them to stand in
            for each in watch.said.warned:
                print(f"{each.source}: {each.text}", file=sys.stderr)
            raise
        called = [each for each in watch.watched if each.calls]
        compiled = {event.subject for event in watch.events if event.name == "dynamo_start"}
        if not compiled and not lazily.cuts and not interrupted:
            _nothing(words, bool(watch.watched), forks.count)
        if forks.count:
            notes.append(f"the program forked {forks.count} time{'s'[: forks.count != 1]}; its children are not seen")
        if -1 in compiled:
            notes.append("something was compiled outside of a call of torch.compile's functions; it is not measured")
        try:
            for each in called[:_MOST_SUBJECTS] if not interrupted else []:
                _look_at(watch, each, train or each.grad, effort, subjects)
            lazily.look_at(words, train, effort, subjects, notes, not interrupted)
        except KeyboardInterrupt:
            interrupted = True
        looked_at = sum(subject.backend != BACKEND for subject in subjects)
        for each in called[looked_at:]:
            subjects.append(_unmeasured(watch, each))
    return report(f"weft explain {' '.join(words)}", subjects, notes, interrupted, watch.said.warned)


def _run(words: list[str], run: Run) -> bool:
    """Runs the program with its output on standard error, since standard output is for the report. Returns whether
    Ctrl-C ended it."""
    argv, path = list(sys.argv), list(sys.path)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            run(list(words))
    except KeyboardInterrupt:
        return True
    except SystemExit as exit:
        if exit.code not in (None, 0):
            raise Failed(3, f"the program ended with status {exit.code}") from None
    except Exception as error:
        line = str(error).splitlines()[0] if str(error) else ""
        raise Failed(3, f"the program failed: {type(error).__name__}: {line}") from error
    finally:
        sys.argv[:], sys.path[:] = argv, path
    return False


def _nothing(words: list[str], uses_compile: bool, forks: int) -> None:
    if forks:
        raise Failed(5, "the program compiled nothing in its own process, and forked: explain what its children run")
    if uses_compile:
        raise Failed(4, "the program compiled nothing: no function that it gave to torch.compile was called")
    raise Failed(4, "the program compiled nothing: it does not call torch.compile")


def _look_at(watch: Watch, each: Watched, train: bool, effort: Effort, subjects: list[Subject]) -> None:
    try:
        investigate(watch, each, train, effort, subjects)
    except KeyboardInterrupt:
        raise
    except Exception as error:  # of a step that can't be run again
        line = str(error).splitlines()[0] if str(error) else ""
        subjects[-1].notes.append(f"not measured: a step run again raised {type(error).__name__}: {line[:160]}")


def _unmeasured(watch: Watch, each: Watched) -> Subject:
    """The report's subject for what the program itself compiled."""
    subject = describe(each)
    found = collect(event for event in watch.events if event.subject == each.number)
    subject.graphs, subject.breaks, subject.recompiles = found.graphs, found.breaks, found.recompiles
    subject.compile_seconds = found.compile_seconds
    subject.notes.append("not measured")
    return subject


class _Lazily:
    """Watches the program on the lazy device, without torch.compile."""

    def __init__(self) -> None:
        self.cuts: list[Cut] = []
        self._cuts = Cuts(operations=True)
        self._backwards: list[float] = []
        self._updates: list[float] = []
        self._seconds = 0.0

    def __enter__(self) -> None:
        self._begin = time.monotonic()
        self._backward = torch.autograd.backward

        @functools.wraps(self._backward)
        def backward(*args: Any, **kwargs: Any) -> None:
            self._backward(*args, **kwargs)
            self._backwards.append(time.perf_counter())

        torch.autograd.backward = backward
        self._hook = register_optimizer_step_post_hook(lambda *_: self._updates.append(time.perf_counter()))
        self._cuts.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._cuts.__exit__(*error)
        torch.autograd.backward = self._backward
        self._hook.remove()
        self._seconds = time.monotonic() - self._begin
        self.cuts = self._cuts.found

    def look_at(
        self, words: list[str], train: bool, effort: Effort, subjects: list[Subject], notes: list[str], measures: bool
    ) -> None:
        """Adds a subject for each loop."""
        found = loops(self.cuts, self._cuts.callers, self._updates or self._backwards)
        if self.cuts and not found:
            notes.append("the device was used, but in no loop: no line ended three steps")
        for loop in found[:_MOST_LOOPS]:
            has_closures = any(name.startswith("weft.compat.torch_xla") for name in sys.modules)
            limit = max(120.0, 5 * self._seconds) + 3 * effort.seconds
            work = LazyInvestigation(words, loop, train or bool(self._backwards), has_closures, effort, limit)
            subjects.append(work.subject)
            if measures:
                work.run()


class _Forks:
    """Counts forks of this process by os.fork, including multiprocessing's."""

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_parent=self._one)

    def _one(self) -> None:
        self.count += 1
