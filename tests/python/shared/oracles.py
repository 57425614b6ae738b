"""What results are compared with, and how: each written once, for all tests.

Nothing here imports Weft by itself, so that a script may import this before Weft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def loop(
    step: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, reverse: bool = False, length: int | None = None
) -> tuple[Any, Any]:
    """The loop that weft.scan stands for: the last carry, and the stacked ys.

    Leaves that are None stay None, and numbers become tensors. Steps work on copies of `init` and `xs`, which they may
    change in place. `length` is needed where `xs` has no tensors.
    """
    leaves, structure = pytree.tree_flatten(pytree.tree_map(_copied, xs))
    count = length if length is not None else next(leaf.shape[0] for leaf in leaves if leaf is not None)
    carry, ys = pytree.tree_map(_copied, init), []
    for t in reversed(range(count)) if reverse else range(count):
        x = [None if leaf is None else leaf[t] for leaf in leaves]
        carry, y = step(carry, pytree.tree_unflatten(x, structure))
        ys.append(y)
    if reverse:
        ys.reverse()
    columns = zip(*[pytree.tree_leaves(y) for y in ys], strict=True)
    return carry, pytree.tree_unflatten([_stacked(column) for column in columns], pytree.tree_structure(ys[0]))


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _stacked(column: tuple[Any, ...]) -> Tensor | None:
    return None if column[0] is None else torch.stack([torch.as_tensor(value) for value in column])


def assert_leaves_close(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Both trees have the same leaves, tensors up to float32's rounding; their structure may differ."""
    ours, theirs = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
        else:
            assert a == b


def assert_trees_close(ours: Any, theirs: Any) -> None:
    """Both trees have the same structure and the same leaves, up to the rounding of their type."""
    (leaves, structure), (wanted, wanted_structure) = pytree.tree_flatten(ours), pytree.tree_flatten(theirs)
    assert structure == wanted_structure
    for a, b in zip(leaves, wanted, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            torch.testing.assert_close(a, b)


def assert_close_on_cpu(actual: Tensor, expected: Tensor) -> None:
    """The same values up to float32's rounding, wherever the tensors are."""
    torch.testing.assert_close(actual.detach().cpu(), expected.detach().cpu(), atol=1e-5, rtol=1e-5)


def fallen_back() -> list[str]:
    """Why something ran on PyTorch that Weft was asked for. What the interpreter ran is not among the reasons."""
    import weft

    return [reason for reason in weft.stats()["fallbacks"] if not reason.startswith("interpreted ")]
