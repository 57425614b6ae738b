"""Tensors that a loop writes row by row, as values: `outs[t] = h` for all t becomes a stack of the rows."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from weft._dynamo.rolling.memory import Memory
from weft._dynamo.rolling.nodes import as_int

_FRESH_FUNCTIONS = {
    torch.zeros, torch.ones, torch.empty, torch.full, torch.zeros_like, torch.ones_like, torch.empty_like,
    torch.full_like,
}  # fmt: skip
_CHANGES = {operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv}
_FRESH_METHODS = {"new_zeros", "new_ones", "new_empty", "new_full"}


def replace_buffers(graph: fx.Graph) -> None:
    """Replaces new tensors that are only written and read row by row, and then read as a whole, by stacks of rows."""
    setitems = [node for node in graph.nodes if node.target is operator.setitem]
    memory = Memory(graph) if setitems else None
    for buffer in dict.fromkeys(node.args[0] for node in setitems):
        if memory is not None and isinstance(buffer, fx.Node) and _is_fresh(buffer):
            _replace(graph, buffer, memory)


def _is_fresh(node: fx.Node) -> bool:
    return (node.op == "call_function" and node.target in _FRESH_FUNCTIONS) or (
        node.op == "call_method" and node.target in _FRESH_METHODS
    )


@dataclasses.dataclass(frozen=True)
class _Row:
    """The part of a tensor at one index of one dim."""

    dim: int
    index: int


def _row(index: Any, shape: torch.Size) -> _Row | None:
    """The row that x[index] selects, if it is a row."""
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        if items.count(Ellipsis) > 1:
            return None
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    found = [dim for dim, item in enumerate(items) if type(item) is int]
    if len(found) != 1 or any(item != slice(None) for dim, item in enumerate(items) if dim != found[0]):
        return None
    dim = found[0]
    size = as_int(shape[dim]) if dim < len(shape) else None
    if type(size) is not int or not -size <= items[dim] < size:
        return None
    return _Row(dim, items[dim] % size)


@dataclasses.dataclass
class _Access:
    node: fx.Node
    row: _Row | None  #: None: the whole tensor
    is_write: bool


def _accesses(buffer: fx.Node, shape: torch.Size) -> Iterator[_Access]:
    for user in sorted(buffer.users):
        if user.target is operator.setitem and user.args[0] is buffer and user.args[2] is not buffer:
            yield _Access(user, _row(user.args[1], shape), True)
        elif user.target is operator.getitem and user.args[0] is buffer:
            yield _Access(user, _row(user.args[1], shape), False)
        else:
            yield _Access(user, None, False)


def _replace(graph: fx.Graph, buffer: fx.Node, memory: Memory) -> None:
    example = buffer.meta.get("example_value")
    if not isinstance(example, Tensor) or buffer.kwargs.get("requires_grad"):
        return
    accesses = list(_accesses(buffer, example.shape))
    writes = [access for access in accesses if access.is_write]
    dims = {access.row.dim for access in writes if access.row is not None}
    if len(dims) != 1 or any(access.row is None or not _fits(access, example) for access in writes):
        return
    (dim,) = dims
    last = accesses.index(writes[-1])
    if any(access.row is None or access.row.dim != dim for access in accesses[:last]):
        return  # a later write would change the whole, or the other view, that is read
    if any(_is_changed(access.node) for access in accesses if not access.is_write):
        return
    if any(_row_is_written_later(access, accesses) for access in accesses[:last] if not access.is_write):
        return
    if any(_is_changed(node, access.node) for access in writes for node in _views(access.node.args[2], memory)):
        return  # the row must keep the value that it had when it was written
    _rewrite(graph, buffer, accesses, dim, last)


def _fits(write: _Access, buffer: Tensor) -> bool:
    """Whether the write stores exactly a row, neither broadcast nor cast."""
    value = write.node.args[2]
    example = value.meta.get("example_value") if isinstance(value, fx.Node) else None
    assert write.row is not None
    shape = [*buffer.shape[: write.row.dim], *buffer.shape[write.row.dim + 1 :]]
    return isinstance(example, Tensor) and example.dtype == buffer.dtype and _same(example.shape, shape)


def _same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the sizes are equal for all values of their symbols. Adds no guard."""
    return len(sizes) == len(others) and all(
        str(as_int(size)) == str(as_int(other)) for size, other in zip(sizes, others, strict=True)
    )


def _is_changed(node: fx.Node, since: fx.Node | None = None) -> bool:
    """Whether something writes to the value in place. With `since`, only writes after that node count."""
    return any(
        user.target in _CHANGES
        or (user.op == "call_method" and user.target.endswith("_") and not user.target.endswith("__"))
        for user in node.users
        if user.args and user.args[0] is node and (since is None or since < user)
    )


def _row_is_written_later(read: _Access, accesses: list[_Access]) -> bool:
    """Whether the row is written while a view of it is still read."""
    later = [
        access.node for access in accesses if access.is_write and read.node < access.node and access.row == read.row
    ]
    return any(write < user for write in later for user in read.node.users)


def _views(node: fx.Node, memory: Memory) -> list[fx.Node]:
    """The node, its root, and the other views of the root."""
    root = memory.root(node)
    return [node, root, *memory.views.get(root, ())]


def _rewrite(graph: fx.Graph, buffer: fx.Node, accesses: list[_Access], dim: int, last: int) -> None:
    example = buffer.meta["example_value"]
    rows: dict[int, fx.Node] = {}
    for access in accesses[: last + 1]:
        assert access.row is not None
        if access.is_write:
            rows[access.row.index] = access.node.args[2]
        elif access.row.index in rows:
            access.node.replace_all_uses_with(rows[access.row.index])
            graph.erase_node(access.node)
    at = accesses[last].node
    parts = []
    with graph.inserting_before(at):
        for index in range(as_int(example.shape[dim])):
            if index not in rows:
                rows[index] = graph.call_method("select", (buffer, dim, index))
                rows[index].meta["example_value"] = example.select(dim, index)
            parts.append(rows[index])
        whole = graph.call_function(torch.stack, (parts, dim))
        whole.meta = dict(buffer.meta)
    for access in accesses[last + 1 :]:
        access.node.replace_input_with(buffer, whole)
    for access in accesses:
        if access.is_write:
            graph.erase_node(access.node)
