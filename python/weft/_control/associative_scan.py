"""`weft.associative_scan`: all prefixes of an associative operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from weft._base import trees
from weft._capture import modes
from weft._control.scan import scan_as
from weft._control.scan_call import front_dim

E = TypeVar("E")


_WHAT = "weft.associative_scan"


def associative_scan(combine: Callable[[E, E], E], xs: E, *, reverse: bool = False, dim: int = 0) -> E:
    """Every y[t] = combine(y[t - 1], x[t]), y[0] being x[0]; with `reverse`, y[t] = combine(y[t + 1], x[t]).

    As jax.lax.associative_scan along `dim`. On one processor the steps one after the other, each over all channels at
    once, are less work than a tree of them: combine is called T - 1 times, whatever it is.

    Args:
        combine: from two elements to one of the same structure, shapes and dtypes. Its arguments have the time as their
            leading dim, of size 1, since it may be written for many elements at once. It must be associative,
            combine(combine(a, b), c) = combine(a, combine(b, c)), and needn't be commutative. That is the caller's
            promise, which nothing checks: elements are combined in order here, while jax and PyTorch, which combine
            them in a tree, give other results without it. h[t] = d[t] h[t - 1] + x[t] is associative as pairs:
            `lambda a, b: (b[0] * a[0], b[0] * a[1] + b[1])` over `(d, x)`.
        xs: tensors [T, ...] in any pytree; [B, T, ...] with `dim=1`.
        reverse: combine from the last element to the first.
        dim: the time's dim in every x and in the results. Negative ones count from the end of the first x.

    Returns:
        The structure of xs, every leaf of the shape that it has in xs.

    Raises:
        ValueError: xs are empty, of different lengths or have no such dim; combine changes structure, shape or dtype.
        TypeError: combine is not callable; a leaf that is no tensor.
        RuntimeError: what weft.scan raises it for.
    """
    if not callable(combine):
        raise TypeError(f"{_WHAT}: combine must be callable, but is {type(combine).__name__}")
    if not isinstance(reverse, bool):
        raise TypeError(f"{_WHAT}: reverse must be True or False, but is {reverse!r}")
    leaves, spec = trees.flatten(xs)
    names = trees.paths("xs", xs)
    dim = _checked_dim(xs, names, leaves, dim)
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    first = [leaf[-1:] if reverse else leaf[:1] for leaf in leaves]
    if len(leaves[0]) == 1:
        if modes.is_tracing():
            raise ValueError(f"{_WHAT}: a trace of one element can't be used for more; trace it with two or more")
        return spec.unflatten([leaf.clone().movedim(0, dim) for leaf in first])

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        one = spec.unflatten([leaf.unsqueeze(0) for leaf in trees.flatten(x)[0]])
        results = _checked_result(names, spec, trees.flatten(carry)[0], combine(carry, one))
        return spec.unflatten(results), spec.unflatten([leaf.squeeze(0) for leaf in results])

    rest = spec.unflatten([leaf[:-1] if reverse else leaf[1:] for leaf in leaves])
    start = spec.unflatten(first)
    _, ys = scan_as(_WHAT, step, start, rest, None, reverse, 0, body="combine", user=combine)
    ends = zip(first, trees.flatten(ys)[0], strict=True)
    return spec.unflatten([torch.cat([y, end] if reverse else [end, y]).movedim(0, dim) for end, y in ends])


def _checked_dim(xs: Any, names: list[str], leaves: list[Any], dim: int) -> int:
    """Time's dim, counted from the front. Raises if xs have other forms than allowed."""
    if not leaves:
        raise ValueError(f"{_WHAT}: there are no xs")
    for name, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{_WHAT}: {name} must be a tensor, but is {type(leaf).__name__}")
    dim = front_dim(_WHAT, xs, leaves, dim)
    for name, leaf in zip(names, leaves, strict=True):
        if leaf.shape[dim] != leaves[0].shape[dim]:
            kind = "the leading dim" if dim == 0 else f"the dim {dim}"
            raise ValueError(
                f"{_WHAT}: {name}: {trees.describe(leaf)} must have {kind} of {names[0]}: {trees.describe(leaves[0])}"
            )
    if leaves[0].shape[dim] == 0:
        raise ValueError(f"{_WHAT}: there must be at least one element, but the length is 0")
    return dim


def _checked_result(names: list[str], spec: Any, before: list[Tensor], after: Any) -> list[Tensor]:
    """The leaves of combine's result, which must be like its arguments."""
    results, new_spec = trees.flatten(after)
    if new_spec != spec:
        raise ValueError(
            f"{_WHAT}: combine must return an element of the structure of its arguments: "
            f"{trees.structure(spec)} in, {trees.structure(new_spec)} out"
        )
    for name, old, new in zip(names, before, results, strict=True):
        if not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"{_WHAT}: combine must keep shapes and dtypes: "
                f"{name}: {trees.describe(old)} in, {trees.describe(new)} out"
            )
    return results
