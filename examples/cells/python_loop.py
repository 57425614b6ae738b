"""The loop that weft.scan computes, as one would write it without weft.scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def python_loop(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    length: int | None = None,
) -> tuple[Any, Any]:
    """(the last carry, the stacked ys) of `step(carry, x) -> (carry, y)` over the leading axis of the leaves of `xs`.

    With `reverse` the steps run from the last x to the first, and ys stand in the order of xs. `length` is needed only
    where `xs` has no leaves. A y of None stays None.
    """
    leaves, structure = pytree.tree_flatten(xs)
    # unbind, not leaf[t]: the gradient of an index is as large as what was indexed, in every step.
    slices = [leaf.unbind(0) for leaf in leaves]
    steps = range(len(slices[0]) if leaves else length or 0)
    carry, ys = init, []
    for t in reversed(steps) if reverse else steps:
        carry, y = step(carry, pytree.tree_unflatten([parts[t] for parts in slices], structure))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, pytree.tree_map(lambda *parts: None if parts[0] is None else torch.stack(parts), *ys)
