"""Which values of Dynamo's graph share memory. The graph's example values share memory exactly where its tensors will,
and have the same strides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError
from weft._capture import modes
from weft._capture.fx_nodes import example_of


class Memory:
    """The *root* of each tensor: the node that made its memory, or that brings the memory into the graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self.storages: dict[fx.Node, int] = {}
        self.roots: dict[fx.Node, fx.Node] = {}
        self.views: dict[fx.Node, list[fx.Node]] = {}  #: by root
        self._first: dict[int, list[fx.Node]] = {}  #: roots by storage
        for node in graph.nodes:
            if (storage := _storage(example_of(node))) is not None:
                self.storages[node] = storage
                self._add(node, storage)

    def _add(self, node: fx.Node, storage: int) -> None:
        parent = next((n for n in node.all_input_nodes if self.storages.get(n) == storage), None)
        if parent is None and not isinstance(example_of(node), Tensor):
            del self.storages[node]  # several new tensors: each becomes a root where a node takes it
        elif parent is None:
            self._first.setdefault(storage, []).append(node)
            self.roots[node] = node
            self.views[node] = []
        else:
            self.roots[node] = self.roots[parent]
            self.views[self.roots[node]].append(node)

    def root(self, node: fx.Node) -> fx.Node:
        """The node's root; the node itself if its memory isn't known."""
        return self.roots.get(node, node)

    def is_view_of_several(self, node: fx.Node) -> bool:
        """Whether the node has several views of one tensor as its results, as x.unbind(0) does."""
        return node in self.storages and not isinstance(example_of(node), Tensor)

    def check_written(self, node: fx.Node) -> fx.Node:
        """The root of a tensor that is written to.

        Raises:
            UnsupportedError: it isn't known which other tensors see the write, or autograd would see it differently.
        """
        root = self.root(node)
        if node not in self.storages or len(self._first[self.storages[node]]) > 1:
            raise UnsupportedError("it writes to memory of which several tensors are views")
        if _requires_grad(root) and not _requires_grad(node):
            raise UnsupportedError("it writes to a tensor behind autograd's back")
        return root

    def parent(self, node: fx.Node) -> fx.Node | None:
        """The node that this one is a view of."""
        storage = self.storages[node]
        return next((n for n in node.all_input_nodes if self.storages.get(n) == storage), None)

    def path(self, root: fx.Node, node: fx.Node) -> list[fx.Node]:
        """The views that lead from the root to the node, the node included."""
        found = []
        while node is not root:
            found.append(node)
            parent = self.parent(node)
            assert parent is not None
            node = parent
        return found[::-1]


def is_same_view(a: fx.Node, b: fx.Node) -> bool:
    """Whether two values that share memory are views of the same elements, neither conjugated nor negated."""
    one, other = example_of(a), example_of(b)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    return (
        list(map(str, one.shape)) == list(map(str, other.shape))
        and list(map(str, one.stride())) == list(map(str, other.stride()))
        and str(one.storage_offset()) == str(other.storage_offset())
        and (one.dtype, one.is_conj(), one.is_neg()) == (other.dtype, other.is_conj(), other.is_neg())
    )


def _requires_grad(node: fx.Node) -> bool:
    return any(tensor.requires_grad for tensor in _tensors(example_of(node)))


def _tensors(example: Any) -> Iterator[Tensor]:
    for each in example if isinstance(example, list | tuple) else [example]:
        if isinstance(each, Tensor):
            yield each


def _storage(example: Any) -> int | None:
    for tensor in _tensors(example):
        if tensor.layout == torch.strided:
            return int(modes.unwrapped(tensor).untyped_storage()._cdata)
    return None
