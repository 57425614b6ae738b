"""`torch_xla.debug.profiler`: names for stretches of a program, in torch.profiler's traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from weft.compat.torch_xla import _steps
from weft.compat.torch_xla._missing import missing

Trace = torch.profiler.record_function


class StepTrace(torch.profiler.record_function):
    """A step under a name, at the end of which the step ends (`mark_step`)."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, args=str(kwargs) if kwargs else None)

    def __exit__(self, *error: Any) -> None:
        try:
            _steps.end_step()
        finally:
            super().__exit__(*error)


def trace_me(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that shows calls of the function under that name."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced

    return decorate


_PROFILER = "use torch.profiler.profile around the steps"
start_server = missing("profiler server", _PROFILER)
trace = missing("profiler service", _PROFILER)
trace_detached = missing("profiler service", _PROFILER)
start_trace = missing("start_trace", _PROFILER)
stop_trace = missing("stop_trace", _PROFILER)
