"""A subject's name and place, and a summary of its runs."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from weft.explanation._report.records import Measured, Subject
from weft.explanation._report.text import seconds as seconds_of
from weft.explanation._watching.watch import Watched


def describe(watched: Watched) -> Subject:
    """The subject's name and place."""
    function = watched.function
    owner: Any = function if not isinstance(function, torch.nn.Module) else type(function).forward
    owner = inspect.unwrap(getattr(owner, "__func__", owner))
    code = getattr(owner, "__code__", None)
    name = type(function).__name__ if isinstance(function, torch.nn.Module) else None
    method_of = getattr(function, "__self__", None)
    if isinstance(method_of, torch.nn.Module):
        name = f"{type(method_of).__name__}.{getattr(function, '__name__', '')}"
    backend = watched.options.get("backend") or "inductor"
    return Subject(
        name=str(name or getattr(function, "__qualname__", repr(function))),
        file=code.co_filename if code else "",
        line=code.co_firstlineno if code else 0,
        backend=backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__),
        train=False,
        calls=watched.calls,
    )


def best_without(subject: Subject) -> list[str]:
    """A note where not compiling is the best there is."""
    eager = subject.run("eager")
    others = [subject.run(name) for name in ("compiled", "mended")]
    timed = [run.seconds for run in others if run and run.seconds]
    gains = [action.gain for action in subject.actions if action.tried and action.gain and action.kind != "device"]
    if not eager or not eager.seconds or not timed:
        return []
    best = min(timed[0].median - gain.median for gain in [*gains, Measured(0.0, 0.0, 0.0)])
    if eager.seconds.high >= min([best, *(each.low for each in timed)]):
        return []
    return [
        f"not compiling is the best there is before the device: eager takes {seconds_of(eager.seconds.median)} a step, "
        f"compiled {seconds_of(timed[0].median)}, with changes {seconds_of(best)} at best"
    ]
