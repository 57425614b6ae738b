"""`weft.scan`: a recurrence from one step in plain PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from weft._control.eval_frame import without_dynamo
from weft._control.scan_call import Call, Step, run


def scan(step: Step, init: Any, xs: Any = None, *, reverse: bool = False, length: int | None = None) -> tuple[Any, Any]:
    """Runs `carry, y = step(carry, x)` for each x of a sequence, as one compiled program.

    As jax.lax.scan: the plain meaning is

        carry, ys = init, []
        for t in range(T):               # from T - 1 down to 0 with reverse=True; ys[t] is then step t's y all the same
            carry, y = step(carry, xs[t])
            ys.append(y)
        return carry, torch.stack(ys)

    Args:
        step: from a carry and one x to the next carry and a y. It may use any tensor, module or number from outside;
            gradients reach parameters that it uses. It is run once at every call, on tensors that hold
            nothing: what it does then is what the program does for all steps.
        init: the first carry: tensors (or numbers) in any pytree, dataclasses and named tuples included. Each step
            must give back the same structure, shapes and dtypes.
        xs: tensors [T, ...] in any pytree; None, with `length`, if the step needs no x, which it then gets as None.
        reverse: go through xs from the last to the first.
        length: T; needed only without xs.

    Returns:
        The last carry, and the ys stacked: every leaf [T, ...].

    Random numbers that the step draws (dropout, torch.rand_like, ...) follow torch.manual_seed: in eager mode they are
    the very numbers that the loop above draws.

    What Weft can't compile runs as that loop, which `weft.stats()` counts and a warning tells once.

    Raises:
        ValueError: T is 0, xs have different lengths, there are neither xs nor a length; the carry changes its
            structure, shape or dtype in the step.
        TypeError: a leaf that is no tensor; a step that doesn't return a pair.
        RuntimeError: the step has a side effect (it keeps a tensor, changes a captured one in place), or lets Python
            decide by a tensor's value.
    """
    if torch.compiler.is_dynamo_compiling():
        from weft._control import under_dynamo

        return under_dynamo.scan(step, init, xs, reverse=reverse, length=length)
    with without_dynamo():
        return run(Call.of("weft.scan", step, init, xs, reverse, length))
