"""The values of a program's names at the end of a step, to be compared with those in a changed copy."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import math
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from weft._base.torch_private import pytree

_MOST = 64  #: values of a tensor that are compared one by one; of the others their sums
_GRAPH = re.compile(r",? grad_fn=<\w+>")  #: which operation made a tensor is no value
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Snapshot = dict[str, list[float]]


def of_frame(frame: types.FrameType | None) -> Snapshot:
    """The names of the frame and of its module whose values are numbers, tensors or modules."""
    if frame is None:
        return {}
    names = dict(frame.f_globals)
    local = frame.f_locals
    if local is not frame.f_globals:
        names |= local
        if isinstance(local, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            local.clear()  # or it would keep this step's tensors alive in the next one
    found = {name: _numbers(value) for name, value in names.items() if not name.startswith("_")}
    return {name: numbers for name, numbers in found.items() if numbers}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, nn.Module):
        return [n for tensor in (*value.parameters(), *value.buffers()) for n in _of_tensor(tensor)]
    if isinstance(value, (types.ModuleType, type, types.FunctionType)):
        return []
    if isinstance(value, (bool, int, float, torch.Tensor)):
        return _of_leaf(value)
    if isinstance(value, (list, tuple, dict)) and len(value) <= _MOST:
        return [n for leaf in pytree.tree_leaves(value)[:_MOST] for n in _of_leaf(leaf)]
    return []


def _of_leaf(leaf: Any) -> list[float]:
    if isinstance(leaf, torch.Tensor):
        return _of_tensor(leaf)
    return [float(leaf)] if isinstance(leaf, (bool, int, float)) else []


def _of_tensor(tensor: torch.Tensor) -> list[float]:
    if tensor.is_complex() or tensor.layout != torch.strided:
        return []
    values = tensor.detach().cpu().double().reshape(-1)
    if values.numel() == 1:
        return [float(values)]
    return [*values[:_MOST].tolist(), float(values.sum()), float(values.abs().sum())]


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far two values may be apart."""

    absolute: float
    relative: float

    def close(self, a: list[float], b: list[float]) -> bool:
        """Whether numbers are equal up to the tolerance."""
        return len(a) == len(b) and all(self._is_close(x, y) for x, y in zip(a, b, strict=True))

    def differing(self, one: Snapshot, other: Snapshot) -> set[str]:
        """Names that both have, with different values."""
        return {name for name in one.keys() & other.keys() if not self.close(one[name], other[name])}

    def _is_close(self, a: float, b: float) -> bool:
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= self.absolute + self.relative * abs(b)


CHANGED = Tolerance(1e-4, 1e-3)  #: for a change, after which sums are rounded in another order
#: For the program as it is, run again: values that differ by more are no results, but times, or numbers drawn without a
#: seed. Times may be as near as CHANGED on one day and not on another.
UNCHANGED = Tolerance(1e-8, 1e-5)


class Printed:
    """The program's console output, by step; it is still printed."""

    def __init__(self) -> None:
        self._text = io.StringIO()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        with contextlib.redirect_stdout(_Both(self._text, sys.stdout)):  # type: ignore[type-var]
            yield

    def take(self) -> tuple[str, list[float]]:
        """The output since the last call: words in alphabetical order, and numbers by size."""
        text = _GRAPH.sub("", self._text.getvalue())
        self._text.seek(0)
        self._text.truncate()
        words = _NUMBER.sub(" ", text).split()
        return " ".join(sorted(words)), sorted(map(float, _NUMBER.findall(text)))


class _Both(io.TextIOBase):
    def __init__(self, kept: io.StringIO, stream: Any) -> None:
        self._kept, self._stream = kept, stream

    def write(self, text: str) -> int:
        if self._kept.tell() < 1 << 20:
            self._kept.write(text)
        self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
