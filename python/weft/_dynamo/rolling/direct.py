"""Functions that differ from step to step in a number, such as x[t], written as ATen operations at once: tracing them
for each step would cost more than all the rest."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError
from weft._base.torch_private import OpOverload
from weft._capture.fx_nodes import Importer, example_of, tensor_inputs
from weft._dynamo.rolling.nodes import as_int

_aten = torch.ops.aten


def _getitem(writer: Importer, node: fx.Node) -> Any:
    """x[t], x[:, t], x[2:5] and the like."""
    source, index = node.args
    tensor = example_of(source)
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


def _indexed(writer: Importer, source: fx.Node, index: list[Any]) -> Any:
    value, tensor = writer.value(source), example_of(source)
    sizes = list(tensor.shape)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        taken = sum(item is not None and item is not Ellipsis for item in index)
        index[at : at + 1] = [slice(None)] * (len(sizes) - taken)
    dim = 0
    for item in index:
        if item is None:
            sizes.insert(dim, 1)
            value = writer.aten("aten.unsqueeze.default", [value, dim], writer.types.type(tensor.dtype, sizes))
            dim += 1
        elif type(item) is int:
            del sizes[dim]
            value = writer.aten("aten.select.int", [value, dim, item], writer.types.type(tensor.dtype, sizes))
        else:
            if item.start is not None or item.stop is not None:
                full = as_int(sizes[dim])
                if not isinstance(full, int):
                    raise UnsupportedError("a slice of a dim whose size isn't known as a number")
                start, stop, _ = item.indices(full)
                sizes[dim] = max(stop - start, 0)
                if sizes[dim] != full:
                    arguments = [value, dim, start, max(stop, start), 1]
                    value = writer.aten("aten.slice.Tensor", arguments, writer.types.type(tensor.dtype, sizes))
            dim += 1
    return value


def _as(op: OpOverload) -> Callable[[Importer, fx.Node], Any]:
    """Writes a function of one tensor and of numbers, with the arguments of the operation `op`."""
    names = {parameter.name for parameter in op._schema.arguments}

    def write(writer: Importer, node: fx.Node) -> Any:
        numbers = [*node.args[1:], *node.kwargs.values()]
        if not names.issuperset(node.kwargs) or any(type(each) not in (int, float, type(None)) for each in numbers):
            return None
        return writer.operation(op, node) if node.args and tensor_inputs(node) == [node.args[0]] else None

    return write


def _along(op: OpOverload) -> Callable[[Importer, fx.Node], Any]:
    """Writes a function of a tensor, one of its dims and numbers. The dim is counted from the front, since pairs have a
    further dim."""
    in_order = _as(op)

    def write(writer: Importer, node: fx.Node) -> Any:
        tensor = example_of(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if not isinstance(tensor, Tensor) or not tensor.is_complex():
            return in_order(writer, node)
        values = [writer.value(node.args[0]), *node.args[1:]]
        if node.kwargs or len(values) != len(op._schema.arguments) or any(type(each) is not int for each in values[1:]):
            return None
        values[1] %= tensor.dim()
        return writer.aten(str(op), values, writer.types.of(example_of(node)))

    return write


def _arithmetic(op: OpOverload) -> Callable[[Importer, fx.Node], Any]:
    """Writes arithmetic of a floating tensor and a number, in either order."""
    in_order = _as(op)

    def write(writer: Importer, node: fx.Node) -> Any:
        if not all(example_of(n).dtype.is_floating_point for n in tensor_inputs(node)):
            return None
        if node.kwargs or len(node.args) != 2 or type(number := node.args[0]) not in (int, float):
            return in_order(writer, node)
        if tensor_inputs(node) != [node.args[1]]:
            return None
        value, type_ = writer.value(node.args[1]), writer.types.of(example_of(node.args[1]))
        first = writer.aten("aten.full_like.default", [value, number], type_)
        return writer.aten(str(op), [first, value, 1][: len(op._schema.arguments)], type_)

    return write


def _embedding(writer: Importer, node: fx.Node) -> Any:
    """Writes an embedding without running it, since its table may be large."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    if given.get("padding_idx") is not None or given.get("max_norm") is not None:
        return None  # with these a row gets no gradient, or the table changes
    if given.get("scale_grad_by_freq") or given.get("sparse"):
        return None
    table, index = writer.value(given["weight"]), writer.value(given["input"])
    type_ = writer.types.of(example_of(node))
    return writer.aten("aten.embedding.default", [table, index, -1, False, False], type_)


def _constant(writer: Importer, node: fx.Node) -> Any:
    """torch.tensor(t)"""
    number, example = node.args[0], example_of(node)
    if len(node.args) != 1 or type(number) not in (int, float, complex) or not isinstance(example, Tensor):
        return None
    if node.kwargs.get("requires_grad"):
        return None
    if not example.is_complex():
        return writer.aten("aten.full.default", [[], number], writer.types.of(example))
    part = writer.types.type(example.dtype.to_real(), [1])
    parts = [writer.aten("aten.full.default", [[1], each], part) for each in (number.real, number.imag)]
    return writer.aten("aten.cat.default", [parts, 0], writer.types.of(example))


#: By a node's target: a function that writes the node and returns its value, or None if the node has to be traced.
DIRECT: dict[Any, Callable[[Importer, fx.Node], Any]] = {
    operator.getitem: _getitem,
    torch.nn.functional.embedding: _embedding,
    torch.tensor: _constant,
    **dict.fromkeys((torch.select, "select", _aten.select.int), _along(_aten.select.int)),
    _aten.slice.Tensor: _along(_aten.slice.Tensor),
    **dict.fromkeys((torch.add, operator.add), _arithmetic(_aten.add.Tensor)),
    **dict.fromkeys((torch.sub, operator.sub), _arithmetic(_aten.sub.Tensor)),
    **dict.fromkeys((torch.mul, operator.mul), _arithmetic(_aten.mul.Tensor)),
    **dict.fromkeys((torch.div, operator.truediv), _arithmetic(_aten.div.Tensor)),
}


#: Those of DIRECT that are right for complex tensors as pairs [..., 2].
TAKE_PAIRS = {_constant, _getitem, DIRECT[_aten.select.int], DIRECT[_aten.slice.Tensor]}


def direct(node: fx.Node) -> Callable[[Importer, fx.Node], Any] | None:
    return DIRECT.get(node.target if node.op == "call_function" else str(node.target))


def is_direct(node: fx.Node) -> bool:
    """Whether the node is likely to be written at once."""
    return direct(node) is not None
