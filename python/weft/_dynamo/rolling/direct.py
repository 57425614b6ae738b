"""Functions that differ from step to step in a number, as x[t] does: written as ATen operations at once, since tracing
them for each step would cost more than the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError
from weft._dynamo.rolling.nodes import as_int
from weft._dynamo.rolling.values import Values


def _getitem(writer: Values, node: fx.Node) -> Any:
    """x[t], x[:, t], x[2:5] and the like."""
    source, index = node.args
    tensor = source.meta.get("example_value")
    if not isinstance(tensor, Tensor):
        return None
    index = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is Ellipsis or type(item) is int or _is_range(item) for item in index):
        return None
    return _indexed(writer, source, list(index))


def _is_range(item: Any) -> bool:
    return (
        isinstance(item, slice)
        and item.step in (None, 1)
        and all(bound is None or type(bound) is int for bound in (item.start, item.stop))
    )


def _indexed(writer: Values, source: fx.Node, index: list[Any]) -> Any:
    value, tensor = writer.value(source), source.meta["example_value"]
    sizes = list(tensor.shape)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        taken = sum(item is not None and item is not Ellipsis for item in index)
        index[at : at + 1] = [slice(None)] * (len(sizes) - taken)
    dim = 0
    for item in index:
        if item is None:
            sizes.insert(dim, 1)
            value = writer.aten("aten.unsqueeze.default", [value, dim], writer.type(tensor.dtype, sizes))
            dim += 1
        elif type(item) is int:
            del sizes[dim]
            value = writer.aten("aten.select.int", [value, dim, item], writer.type(tensor.dtype, sizes))
        else:
            if item.start is not None or item.stop is not None:
                full = as_int(sizes[dim])
                if not isinstance(full, int):
                    raise UnsupportedError("a range of a symbolic size")
                start, stop, _ = item.indices(full)
                sizes[dim] = max(stop - start, 0)
                if sizes[dim] != full:
                    arguments = [value, dim, start, max(stop, start), 1]
                    value = writer.aten("aten.slice.Tensor", arguments, writer.type(tensor.dtype, sizes))
            dim += 1
    return value


def _select(writer: Values, node: fx.Node) -> Any:
    arguments = [*node.args, *node.kwargs.values()]
    if list(node.kwargs) not in ([], ["index"], ["dim", "index"]) or len(arguments) != 3:
        return None
    source, dim, index = arguments
    if type(dim) is not int or type(index) is not int:
        return None
    rank = source.meta["example_value"].dim()
    return _indexed(writer, source, [slice(None)] * (dim % rank) + [index])


def _slice(writer: Values, node: fx.Node) -> Any:
    """aten.slice.Tensor(x, dim, start, end)"""
    source, *bounds = node.args
    bounds += [0, None, None, 1][len(bounds) :]
    dim, start, end, step = bounds
    if node.kwargs or step != 1 or any(type(each) not in (int, type(None)) for each in bounds):
        return None
    rank = source.meta["example_value"].dim()
    return _indexed(writer, source, [slice(None)] * (dim % rank) + [slice(start, end)])


def _arithmetic(name: str) -> Callable[[Values, fx.Node], Any]:
    """A floating tensor and a number."""

    def write(writer: Values, node: fx.Node) -> Any:
        if node.kwargs or len(node.args) != 2:
            return None
        numbers = [argument for argument in node.args if type(argument) in (int, float)]
        tensors = [argument for argument in node.args if isinstance(argument, fx.Node)]
        if len(numbers) != 1 or len(tensors) != 1:
            return None
        tensor = tensors[0].meta.get("example_value")
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_floating_point:
            return None
        arguments, type_ = [writer.value(tensors[0]), *numbers], writer.type_of(tensor)
        if node.args[1] is tensors[0]:
            arguments = [writer.aten("aten.full_like.default", arguments, type_), arguments[0]]
        return writer.aten(f"aten.{name}.Tensor", arguments + ([1] if name in ("add", "sub") else []), type_)

    return write


def _embedding(writer: Values, node: fx.Node) -> Any:
    """Not run on a table that may be large."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    if given.get("padding_idx") is not None or given.get("max_norm") is not None:
        return None  # a row gets no gradient; the table changes
    if given.get("scale_grad_by_freq") or given.get("sparse"):
        return None
    table, index = writer.value(given["weight"]), writer.value(given["input"])
    type_ = writer.type_of(node.meta["example_value"])
    return writer.aten("aten.embedding.default", [table, index, -1, False, False], type_)


def _constant(writer: Values, node: fx.Node) -> Any:
    """torch.tensor(t)"""
    number, example = node.args[0], node.meta.get("example_value")
    if len(node.args) != 1 or type(number) not in (int, float) or not isinstance(example, Tensor):
        return None
    if node.kwargs.get("requires_grad"):
        return None
    return writer.aten("aten.full.default", [[], number], writer.type_of(example))


#: By a node's target: of the writer and the node to its value, None where it has to be traced after all.
DIRECT: dict[Any, Callable[[Values, fx.Node], Any]] = {
    operator.getitem: _getitem,
    torch.nn.functional.embedding: _embedding,
    torch.select: _select,
    torch.tensor: _constant,
    torch.ops.aten.select.int: _select,
    torch.ops.aten.slice.Tensor: _slice,
    "select": _select,
    operator.add: _arithmetic("add"),
    operator.sub: _arithmetic("sub"),
    operator.mul: _arithmetic("mul"),
    operator.truediv: _arithmetic("div"),
    torch.add: _arithmetic("add"),
    torch.sub: _arithmetic("sub"),
    torch.mul: _arithmetic("mul"),
    torch.div: _arithmetic("div"),
}


def direct(node: fx.Node) -> Callable[[Values, fx.Node], Any] | None:
    return DIRECT.get(node.target if node.op == "call_function" else str(node.target))


def is_direct(node: fx.Node) -> bool:
    """Whether it is likely to be written at once."""
    return direct(node) is not None
