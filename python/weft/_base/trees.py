"""Pytrees: their leaves, with names that users know, and dataclasses as trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft._base.torch_private import pytree

Leaf = Tensor | None
_LEAF = pytree.treespec_leaf()


def flatten(tree: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """torch's tree_flatten, to which a dataclass is a tree as well."""
    if isinstance(tree, Tensor):
        return [tree], _LEAF
    leaves, spec = pytree.tree_flatten(tree)
    if are_tensors(leaves):
        return leaves, spec
    unknown = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)}
    if not unknown:
        return leaves, spec
    for cls in unknown:
        pytree.register_dataclass(cls)
    return flatten(tree)


def are_tensors(leaves: list[Any]) -> bool:
    for leaf in leaves:  # noqa: SIM110 (a generator takes longer than most lists of leaves)
        if not isinstance(leaf, Tensor):
            return False
    return True


def unflatten(leaves: Sequence[Any], spec: pytree.TreeSpec) -> Any:
    """torch's tree_unflatten, quick for a tree that is a leaf."""
    return leaves[0] if spec is _LEAF else pytree.tree_unflatten(leaves, spec)


def leaves_like(spec: pytree.TreeSpec, tree: Any) -> list[Any] | None:
    """The tree's leaves in the order of a structure whose dicts may have their keys in another order; None if the tree
    has another structure."""
    try:
        leaves = spec.flatten_up_to(tree)
    except (ValueError, TypeError):
        return None
    return leaves if all(pytree.tree_flatten(leaf)[1].is_leaf() for leaf in leaves) else None


def paths(name: str, tree: Any) -> list[str]:
    """The leaves' names: `carry['h']`, `xs[0].mask`."""
    flatten(tree)  # registers dataclasses
    return [name + pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]


def describe(leaf: Any) -> str:
    """A tensor as float32[8,16]."""
    if not isinstance(leaf, Tensor):
        return "None" if leaf is None else f"{type(leaf).__name__} {leaf!r}"
    return f"{str(leaf.dtype).removeprefix('torch.')}[{','.join(map(str, leaf.shape))}]"


def structure(spec: pytree.TreeSpec) -> str:
    """The structure as Python would write it, with * for leaves."""
    return repr(pytree.tree_unflatten([_Star()] * spec.num_leaves, spec))


class _Star:
    def __repr__(self) -> str:
        return "*"


def as_tensor(leaf: Any, path: str) -> Leaf:
    """A number as a tensor of PyTorch's default type for it; None stays.

    Raises:
        TypeError: anything else.
    """
    if leaf is None or isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, bool | int | float | complex):
        return torch.tensor(leaf)
    hint = ": make it one by torch.as_tensor" if type(leaf).__module__ == "numpy" else ""
    raise TypeError(f"{path} must be a tensor, a number or None, but is {type(leaf).__name__}{hint}")
