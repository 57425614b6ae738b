"""`weft.explain` of a function."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.explanation._changes.code import excerpts
from weft.explanation._changes.mending import as_advice
from weft.explanation._measuring import hlo as _hlo
from weft.explanation._measuring.steps import Step
from weft.explanation._report.records import Action, Results, Subject, Warned
from weft.explanation._report.report import Report
from weft.explanation._subject import Effort, Investigation
from weft.explanation._watching.collect import collect
from weft.explanation._watching.watch import Watch, Watched


def explain(
    function: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "inductor",
    train: bool = False,
    seconds: float = 20.0,
    rounds: int = 40,
    dynamic: bool | None = None,
    hlo: bool = True,
    **kwargs: Any,
) -> Report:
    """What each graph break of `function(*args, **kwargs)` costs under `torch.compile`, and which to mend first.

    The function, a module or any callable, is run many times with the same arguments. Parameters, buffers and random
    numbers are afterwards what they were.

    backend: torch.compile's. train: a step is the call and the backward of the sum of its results. seconds: how long
    variants are measured; rounds: how often at most each has its turn. dynamic: torch.compile's. hlo: count what XLA
    makes of the graphs, where the package jax is installed.

    Raises:
        ValueError: seconds or rounds are not positive.
        Exception: what the function raises.
    """
    if seconds <= 0 or rounds < 1:
        raise ValueError(f"seconds and rounds should be positive, got {seconds} and {rounds}")
    options: dict[str, Any] = {"backend": backend}
    if dynamic is not None:
        options["dynamic"] = dynamic
    with Watch() as watch:
        watched = watch.add(uncompiled(function), options)
        watched.arguments, watched.calls = (args, kwargs), 0
        subjects: list[Subject] = []
        interrupted = False
        try:
            investigate(watch, watched, train, Effort(seconds, rounds, hlo), subjects)
        except KeyboardInterrupt:
            interrupted = True
    return report("weft.explain", subjects, without_hlo(hlo), interrupted, watch.said.warned)


def without_hlo(hlo: bool) -> list[str]:
    """A note if what XLA makes of graphs should be counted and can't be."""
    return [_hlo.NOT_INSTALLED] if hlo and not _hlo.is_installed() else []


def uncompiled(function: Any) -> Any:
    """The function that was passed to torch.compile, given what torch.compile returned; any other function
    unchanged."""
    return getattr(function, "_orig_mod", None) or getattr(function, "_torchdynamo_orig_callable", function)


def investigate(watch: Watch, watched: Watched, train: bool, effort: Effort, subjects: list[Subject]) -> None:
    """Adds the subject to the list at once, and fills it in as things are found."""
    work = Investigation(watch, watched, effort)
    work.subject.train = train
    subjects.append(work.subject)
    work.take(collect(event for event in watch.events if event.subject == watched.number))
    work.subject.recompiles = list(work.subject.recompiles)
    assert watched.arguments is not None
    args, kwargs = watched.arguments
    work.run(Step(watched.function, args, kwargs, train, train or watched.grad))


def report(
    command: str, subjects: list[Subject], notes: list[str], interrupted: bool, warnings: Sequence[Warned] = ()
) -> Report:
    """The report of these subjects."""
    for subject in subjects:
        _advise(subject, "interrupted" if interrupted else "nothing was run")
        subject.sources = excerpts([(found.file, found.line) for found in subject.breaks])
    return Report(
        Results(
            command=command,
            torch=torch.__version__,
            machine=f"{platform.machine()}, {torch.get_num_threads()} threads, Python {sys.version.split()[0]}",
            interrupted=interrupted,
            subjects=subjects,
            notes=notes,
            warnings=list(warnings),
        )
    )


def _advise(subject: Subject, why: str) -> None:
    """Advice for breaks for which no change was tried, those that Dynamo met most often first."""
    known = {number for action in subject.actions for number in action.breaks}
    for found in sorted(subject.breaks, key=lambda each: -each.met):
        if found.id not in known:
            words = as_advice(found)
            reason = "it came to light when another break was mended" if found.hidden else why
            subject.actions.append(Action(len(subject.actions), [found.id], words, "", "advice", False, reason))
