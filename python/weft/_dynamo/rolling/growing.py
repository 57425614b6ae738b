"""Results to which a loop appends one value at a time, as `ys = torch.cat([ys, y.unsqueeze(0)])` does: the values are
joined all at once instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from weft._capture.fx_nodes import example_of
from weft._dynamo.rolling.known import Known
from weft._dynamo.rolling.nodes import as_int

_JOINS = (torch.cat, torch.concat, torch.concatenate)


def join_at_once(graph: fx.Graph, known: Known) -> None:
    """Merges joins: where a join is read only by another join along the same dim, the other join takes its parts
    directly."""
    written = {root for node in graph.nodes for root in _written(node, known)} if _has_chain(graph) else set()
    for node in graph.nodes:
        if (dim := _dim(node)) is None:
            continue
        parts: list[fx.Node] = []
        for part in node.args[0]:
            is_chained = _dim(part) == dim and len(part.users) == 1 and example_of(part).dtype == example_of(node).dtype
            inner = list(part.args[0]) if is_chained else [part]
            if len(inner) > 1 and any(known.memory.root(each) in written for each in inner):
                inner = [part]  # a changed part was joined with the value that it had then
            parts += inner
        if len(parts) > len(node.args[0]):
            kept = [part for part in parts if not _is_empty(part, dim, example_of(node))]
            node.args = (kept or parts[:1], *node.args[1:])
    for node in reversed(graph.nodes):
        if _dim(node) is not None and not node.users:
            graph.erase_node(node)


def _has_chain(graph: fx.Graph) -> bool:
    return any(_dim(node) is not None and any(_dim(part) is not None for part in node.args[0]) for node in graph.nodes)


def _written(node: fx.Node, known: Known) -> list[fx.Node]:
    """The roots of tensors that the node may change."""
    if node.op not in ("call_function", "call_method") or not known.may_write(node):
        return []
    return [known.memory.root(source) for source in node.all_input_nodes]


def _dim(node: Any) -> int | None:
    """The dim along which the node joins tensors of equal rank; None if it joins none."""
    if not isinstance(node, fx.Node) or node.target not in _JOINS or not node.args:
        return None
    parts, example = node.args[0], example_of(node)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis", 0))
    if not isinstance(parts, list | tuple) or not isinstance(example, Tensor) or type(dim) is not int:
        return None
    examples = [example_of(part) if isinstance(part, fx.Node) else None for part in parts]
    if not all(isinstance(each, Tensor) and each.dim() == example.dim() for each in examples) or "out" in node.kwargs:
        return None
    return dim % example.dim() if example.dim() else None


def _is_empty(part: fx.Node, dim: int, whole: Tensor) -> bool:
    """Whether the part adds nothing, not even a gradient."""
    example = example_of(part)
    return as_int(example.shape[dim]) == 0 and example.dtype == whole.dtype and not example.requires_grad
