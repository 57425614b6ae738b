"""`weft.checkpoint_scan`: long sequences in little memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._capture import modes
from weft._control.eval_frame import without_dynamo
from weft._control.scan_call import C, Call, X, Y, only_steps, run


def checkpoint_scan(
    step: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    dim: int = 0,
    every: int | None = None,
) -> tuple[C, Y]:
    """`weft.scan` whose backward keeps the carry of every `every`-th step only, and computes the steps between again.

    Arguments, results and errors are weft.scan's. Of all that a training step would keep for T steps, T / every
    carries and the values of `every` steps remain; `every` is about the square root of T by default, where both are
    about that many. The price is one forward more. Random numbers are drawn once, before the first step, and kept:
    they are the same when steps are computed again.

    Raises:
        ValueError: `every` is less than 1.
    """
    if every is not None and (not isinstance(every, int) or every < 1):
        raise ValueError(f"weft.checkpoint_scan: every must be a positive integer, but is {every!r}")
    if torch.compiler.is_dynamo_compiling():
        from weft._control import under_dynamo

        return under_dynamo.scan("weft.checkpoint_scan", step, init, xs, length, reverse, dim)
    with without_dynamo():
        call = _Call.of("weft.checkpoint_scan", step, init, xs, length, reverse, dim)
        call.every = every
        return run(call)


@dataclasses.dataclass
class _Call(Call):
    every: int | None = None

    def _compose(self, step: _C.Program, carries: int, xs: int) -> Any:
        return (
            _C.checkpointed_scan_program(step, carries, xs, self.reverse),
            _C.scan_program(step, carries, xs, self.reverse),
        )

    def _results(self, program: Any, carry: list[Tensor], xs: list[Tensor], others: list[Tensor]) -> list[Tensor]:
        """Runs whole chunks by one program and the rest by the other. The rest comes last, or first in reverse."""
        chunked, plain = program
        if modes.is_tracing():  # the trace would hold the number of chunks
            return super()._results(plain, carry, xs, others)
        every = min(self.every or math.isqrt(self.length - 1) + 1, self.length)
        whole = self.length // every * every
        xs = xs or [only_steps(self.length)]
        parts = [(chunked, 0, whole), (plain, whole, self.length)]
        stacks: list[list[Tensor]] = []
        for part, first, last in reversed(parts) if self.reverse else parts:
            if first == last:
                continue
            slices = [x[first:last] for x in xs]
            if part is chunked:
                slices = [x.unflatten(0, (-1, every)) for x in slices]
            results = torch.ops.weft.call(part.text, [*carry, *slices, *others])
            carry, ys = results[: len(carry)], results[len(carry) :]
            stacks.append([y.flatten(0, 1) for y in ys] if part is chunked else ys)
        if self.reverse:
            stacks.reverse()
        return [*carry, *(ys[0] if len(ys) == 1 else torch.cat(ys) for ys in zip(*stacks, strict=True))]
