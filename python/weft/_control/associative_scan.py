"""`weft.associative_scan`: all prefixes of an associative operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft._base import trees
from weft._control.scan import scan


def associative_scan(combine: Callable[[Any, Any], Any], xs: Any, *, reverse: bool = False) -> Any:
    """Every y[t] = combine(y[t - 1], x[t]), y[0] being x[0]; with `reverse`, y[t] = combine(y[t + 1], x[t]).

    As jax.lax.associative_scan along the leading dim. On one processor the steps one after the other, each over all
    channels at once, are less work than a tree of them: combine is called T - 1 times, whatever it is.

    Args:
        combine: from two elements to one of the same structure, shapes and dtypes. Its arguments keep the leading dim,
            of size 1, since it may be written for many elements at once. Needn't be commutative; that it is associative
            is not used.
        xs: tensors [T, ...] in any pytree.

    Returns:
        The structure of xs, every leaf [T, ...].

    Raises:
        ValueError: xs are empty or of different lengths; combine changes structure, shape or dtype.
    """
    leaves, spec = trees.flatten(xs)
    names = trees.paths("xs", xs)
    if not leaves:
        raise ValueError("weft.associative_scan: there are no xs")
    for name, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"weft.associative_scan: {name} must be a tensor, but is {type(leaf).__name__}")
        if leaf.dim() == 0 or leaf.shape[0] != leaves[0].shape[0]:
            raise ValueError(
                f"weft.associative_scan: {name}: {trees.describe(leaf)} must have the leading dim of "
                f"{names[0]}: {trees.describe(leaves[0])}"
            )
    length = leaves[0].shape[0]
    if length == 0:
        raise ValueError("weft.associative_scan: there must be at least one element, but the length is 0")
    first = [leaf[-1:] if reverse else leaf[:1] for leaf in leaves]
    if length == 1:
        return spec.unflatten([leaf.clone() for leaf in first])

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        one = spec.unflatten([leaf.unsqueeze(0) for leaf in trees.flatten(x)[0]])
        carry = combine(carry, one)
        return carry, spec.unflatten([leaf.squeeze(0) for leaf in trees.flatten(carry)[0]])

    rest = spec.unflatten([leaf[:-1] if reverse else leaf[1:] for leaf in leaves])
    _, ys = scan(step, spec.unflatten(first), rest, reverse=reverse)
    ends = zip(first, trees.flatten(ys)[0], strict=True)
    return spec.unflatten([torch.cat([y, end] if reverse else [end, y]) for end, y in ends])
