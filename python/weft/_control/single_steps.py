"""Scans of one step that PyTorch has run before a program of it is found.

To find its program a step is run on tensors that hold nothing, which takes what it takes on tensors of a few numbers.
A step of little work, taken once, is therefore run as it is. It is still recorded once for each kind of call: so a step
that keeps a tensor, or changes one from outside, is refused as in a scan of many steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from weft import _C
from weft._capture import record
from weft._capture.runs import Function

#: By kind of call, whether its step is little work. Calls of one kind may differ in that; then they only take longer.
_known: dict[Any, bool] = {}
_MOST = 4096


def are_little(step: Any, given: list[Tensor], recorded: Callable[[Callable[[Function], bool]], bool]) -> bool:
    """Whether PyTorch is to run the only step of a call. `recorded` calls its argument with what is to be recorded."""
    if not _C.are_seen_by_none(given):
        return False
    kind = (code_of(step), *[leaf.shape for leaf in given])
    known = _known.get(kind)
    if known is not None:
        return known
    try:
        known = recorded(_is_little)
    except Exception:  # which the program's way will have to say
        return False
    if len(_known) >= _MOST:
        _known.clear()
    _known[kind] = known
    return known


def code_of(step: Any) -> Any:
    """What tells steps apart where a mistake only costs time."""
    while isinstance(step, functools.partial):
        step = step.func
    return getattr(step, "__code__", type(step))


def _is_little(function: Function) -> bool:
    run = record.record(function)
    record.refuse_leaks(function, run)
    return run.recording.is_little_work
