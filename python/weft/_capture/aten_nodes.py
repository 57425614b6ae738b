"""Nodes of a graph of ATen operations as the IR's: types, arguments, values. pytorch/importer says what an op means."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from weft import _C
from weft._base.dtypes import DTYPES
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._base.torch_private import pytree
from weft._capture import decompositions
from weft._capture.trace import trace

# Regions leave these to ATen, which rounds after each op where a region would after several.
_HALVES = (torch.float16, torch.bfloat16)


class Types:
    """IR types of a region's values. Symbols are renamed in order of appearance, so that equal regions print alike."""

    def __init__(self) -> None:
        self.names: dict[sympy.Symbol, str] = {}

    def of(self, node: fx.Node) -> _C.Type:
        return self.of_tensor(node.meta.get("val"))

    def of_tensor(self, value: object) -> _C.Type:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
            raise UnsupportedError("not a dense CPU tensor")
        if value.dtype not in DTYPES or value.dtype in _HALVES:
            raise UnsupportedError(f"{value.dtype}")
        return _C.Type(DTYPES[value.dtype], [self.size(size) for size in value.shape])

    def size(self, size: int | torch.SymInt) -> tuple[int, list[str]]:
        if isinstance(size, int):
            return size, []
        factor, names = 1, []
        for base, power in size.node.expr.as_powers_dict().items():
            if base.is_Integer and power == 1:
                factor *= int(base)
            elif base.is_Symbol and power.is_Integer and power > 0:
                names += [self.names.setdefault(base, f"N{len(self.names)}")] * int(power)
            else:
                raise UnsupportedError(f"the size {size}")
        return factor, names


def argument(given: object, values: dict[fx.Node, _C.Value]) -> object:
    """An argument of a node as importer::Argument."""
    if isinstance(given, fx.Node):
        return values.get(given, _C.Unknown())
    if given is None or isinstance(given, bool | int | float | str):
        return given
    if isinstance(given, list | tuple):
        items = [argument(item, values) for item in given]
        if all(type(item) is int for item in items) or all(
            item is None or isinstance(item, _C.Value) for item in items
        ):
            return items
    return _C.Unknown()


def arguments(node: fx.Node) -> list[object]:
    """All arguments in the schema's order, defaults filled in."""
    filled = []
    for i, parameter in enumerate(node.target._schema.arguments):
        if i < len(node.args):
            filled.append(node.args[i])
        else:
            filled.append(node.kwargs.get(parameter.name, parameter.default_value))
    return filled


def tensor_inputs(node: fx.Node) -> list[fx.Node]:
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]


def import_node(region: _C.Region, node: fx.Node, values: dict[fx.Node, _C.Value], types: Types) -> _C.Value:
    """The node's value. An elementwise operation that the IR doesn't have is made of others, as in a step.

    Raises UnsupportedError or RuntimeError for what the IR can't express.
    """
    type_ = types.of(node)
    try:
        return region.aten(str(node.target), [argument(a, values) for a in arguments(node)], type_)
    except (UnsupportedError, RuntimeError) as error:
        raise_if_internal(error)
        if not decompositions.is_made_of_others(node.target):
            raise
    program, inputs = _made_of_others(node)
    (result,) = region.inline_program(program, [values[n] for n in inputs])
    return result


#: By operation and its arguments' types: programs of operations that are made of others; None where there is none.
_made: dict[Any, _C.Program | None] = {}
_MOST_MADE = 4096


def _made_of_others(node: fx.Node) -> tuple[_C.Program, list[fx.Node]]:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    values = [leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
    inputs = [leaf for leaf in leaves if isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], torch.Tensor)]
    key = (str(node.target), str(spec), tuple(map(_described, values)))
    if key not in _made:
        if len(_made) >= _MOST_MADE:
            _made.clear()
        _made[key] = _trace_alone(node.target, values, spec)
    program = _made[key]
    if program is None:
        raise UnsupportedError(f"{node.target}")
    return program, inputs


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(map(str, value.shape))
    return type(value), str(value)


def _trace_alone(op: Any, values: list[Any], spec: pytree.TreeSpec) -> _C.Program | None:
    def run(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), spec)
        return op(*args, **kwargs)

    try:
        traced = trace(run, values, what=str(op), dynamic=lambda *_: ())
    except (UnsupportedError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise_if_internal(error)
        return None
    is_whole = not traced.captured and not traced.noise and _C.is_elementwise(traced.program)
    return traced.program if is_whole else None
