"""Carries: trees of tensors that must keep their structure, shapes and dtypes from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import trees
from weft._base.errors import SideEffectError
from weft._base.torch_private import pytree


def checked_carry(what: str, spec: pytree.TreeSpec, before: Any, after: Any) -> list[Tensor | None]:
    """The leaves of the next carry, which must be like the leaves before; under autocast they are cast back to their
    dtype. The keys of a dict may come in another order."""
    leaves, new_spec = trees.flatten(after)
    if new_spec is not spec and new_spec != spec:
        ordered = trees.leaves_like(spec, after)
        if ordered is None:
            raise ValueError(
                f"{what} must return a carry of the structure that it got: "
                f"{trees.structure(spec)} in, {trees.structure(new_spec)} out{_difference(before, after)}"
            )
        leaves, after = ordered, trees.unflatten(ordered, spec)
    given = trees.flatten(before)[0]
    if _are_alike(given, leaves):
        return leaves
    pairs = list(zip(given, leaves, strict=True))
    names = trees.paths("carry", after)
    return [_next(what, name, *pair) for name, pair in zip(names, pairs, strict=True)]


def _difference(before: Any, after: Any) -> str:
    """The leaves that only one of two carries has, if these can be told by their names."""
    given, returned = trees.paths("carry", before), trees.paths("carry", after)
    missing = [name for name in given if name not in returned]
    new = [name for name in returned if name not in given]
    said = [f"{', '.join(missing)} missing"] if missing else []
    said += [f"{', '.join(new)} new"] if new else []
    return f" ({'; '.join(said)})" if said else ""


def _are_alike(before: list[Any], after: list[Any]) -> bool:
    """Whether all leaves are tensors, of the shapes and dtypes before."""
    if not torch.compiler.is_dynamo_compiling():
        return _C.are_alike(before, after)
    pairs = zip(before, after, strict=True)
    return all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype for a, b in pairs
    )


def _next(what: str, name: str, before: Tensor | None, after: Any) -> Tensor | None:
    after = trees.as_tensor(after, f"{what}: {name}")
    if before is None and after is None:
        return None
    if before is not None and after is not None:
        if torch.is_autocast_enabled("cpu") and before.is_floating_point() and after.is_floating_point():
            after = after.to(before.dtype)
        if before.shape == after.shape and before.dtype == after.dtype:
            return after
    raise ValueError(
        f"{what} must keep the carry's shapes and dtypes: "
        f"{name}: {trees.describe(before)} in, {trees.describe(after)} out"
    )


def tensors(what: str, name: str, tree: Any) -> tuple[list[Tensor | None], pytree.TreeSpec]:
    leaves, spec = trees.flatten(tree)
    if trees.are_tensors(leaves):
        return leaves, spec
    names = trees.paths(name, tree)
    return [trees.as_tensor(leaf, f"{what}: {path}") for path, leaf in zip(names, leaves, strict=True)], spec


def condition(what: str, cond: Callable[[Any], Any], carry: Any) -> Tensor:
    """A loop's condition on a carry. The condition must leave the carry as it is, since a program would not have the
    change."""
    versions = _versions(carry)
    result = trees.as_tensor(cond(carry), f"{what}: the condition")
    if versions != _versions(carry):
        raise SideEffectError(f"{what}: the condition changes its carry in place: do that in the body")
    if result is None or result.dtype != torch.bool or result.numel() != 1:
        raise TypeError(f"{what}: cond must return one bool, but returned {trees.describe(result)}")
    return result.reshape(())


def _versions(carry: Any) -> list[int]:
    """How often each leaf was changed in place; leaves without such a counter are left out."""
    if torch.compiler.is_dynamo_compiling():
        return []
    leaves = trees.flatten(carry)[0]
    return [leaf._version for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_inference()]
