"""`weft.scan`: a recurrence from one step in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weft import _C
from weft._control.eval_frame import without_dynamo
from weft._control.scan_call import C, Call, X, Y, run


def scan(
    step: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    dim: int = 0,
) -> tuple[C, Y]:
    """Runs `carry, y = step(carry, x)` for each x of a sequence, as one compiled program.

    As jax.lax.scan: the plain meaning is ::

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
        length: T; needed only without xs.
        reverse: go through xs from the last to the first.
        dim: the time's dim in every x, and in the ys (as in torch's scan, a y that has too few dims for it has the time
            first): 1 for xs [B, T, ...], of which each step gets [B, ...]. Negative ones count from the end of the
            first x.

    Returns:
        The last carry, and the ys stacked: every leaf [T, ...], with the time at `dim`.

    Random numbers that the step draws (dropout, torch.rand_like, ...) follow torch.manual_seed: in eager mode they are
    the very numbers that the loop above draws.

    What Weft can't compile runs as that loop, which `weft.stats()` counts and a warning tells once.

    Raises:
        ValueError: T is 0, xs have different lengths or no such dim, there are neither xs nor a length; the carry
            changes its structure, shape or dtype in the step.
        TypeError: a leaf that is no tensor; a step that doesn't return a pair.
        RuntimeError: the step has a side effect (it keeps a tensor, changes a captured one in place), or lets Python
            decide by a tensor's value.
    """
    return scan_as("weft.scan", step, init, xs, length, reverse, dim)


def scan_as(
    what: str,
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    dim: int,
    *,
    body: str = "the step",
    user: Callable[..., Any] | None = None,
) -> tuple[Any, Any]:
    """`scan`, with messages that begin with `what` and call the step `body`. `user`: the functions that the step
    consists of."""
    if torch.compiler.is_dynamo_compiling():
        from weft._control import under_dynamo

        return under_dynamo.scan(what, step, init, xs, length, reverse, dim, body=body)
    with without_dynamo():
        found = _C.scan_again(what, step, init, xs, length, reverse, dim) if user is None else None
        if type(found) is tuple:
            return found
        call = Call.of(what, step, init, xs, length, reverse, dim, body=body, user=user)
        call.run_before = found
        return run(call)
