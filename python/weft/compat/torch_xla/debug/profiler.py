"""`torch_xla.debug.profiler`: names for stretches of a program, in torch.profiler's traces."""

from __future__ import annotations

from typing import Any

import torch

from weft.compat.torch_xla._missing import missing

Trace = torch.profiler.record_function


class StepTrace(torch.profiler.record_function):
    """A step under a name."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, args=str(kwargs) if kwargs else None)


_PROFILER = "use torch.profiler.profile around the steps"
start_server = missing("profiler server", _PROFILER)
trace = missing("profiler service", _PROFILER)
trace_detached = missing("profiler service", _PROFILER)
start_trace = missing("start_trace", _PROFILER)
stop_trace = missing("stop_trace", _PROFILER)
