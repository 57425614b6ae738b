"""Nodes of FX graphs as values of one program: AOTAutograd's nodes, and the ATen operations that Dynamo's nodes call.
pytorch/importer says what an ATen operation means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import Tensor, fx

from weft import _C
from weft._base.dtypes import DTYPES
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._base.torch_private import FakeTensor, OpOverload, pytree
from weft._capture import decompositions
from weft._capture.trace import trace

_HALVES = (torch.float16, torch.bfloat16)


class Types:
    """IR types of a graph's tensors. Symbols are renamed in order of appearance, so that equal graphs print alike.

    `halves`: whether there are types of 16 bits. `pairs`: whether complex tensors have one, that of their pairs
    [..., 2] (complex_numbers.py).
    """

    def __init__(self, *, halves: bool, pairs: bool = False) -> None:
        self.halves, self.pairs = halves, pairs
        self.names: dict[sympy.Symbol, str] = {}

    def has(self, tensor: object) -> bool:
        """Whether the IR has a type for the value."""
        try:
            self.of(tensor)
        except UnsupportedError:
            return False
        return True

    def of(self, tensor: object) -> _C.Type:
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UnsupportedError("not a dense CPU tensor")
        if not isinstance(tensor, FakeTensor) and type(tensor) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise UnsupportedError(f"a {type(tensor).__name__}")
        return self.type(tensor.dtype, tensor.shape)

    def type(self, dtype: torch.dtype, sizes: Sequence[Any]) -> _C.Type:
        if dtype.is_complex and self.pairs:
            return self.type(dtype.to_real(), [*sizes, 2])
        if dtype not in DTYPES or (dtype in _HALVES and not self.halves):
            raise UnsupportedError(f"{dtype}")
        return _C.Type(DTYPES[dtype], [self.size(size) for size in sizes])

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
                raise UnsupportedError(f"the size {size}, which is no product of sizes")
        return factor, names


class Importer:
    """The program so far: the values written, and the inputs that it reads from outside."""

    def __init__(self, types: Types) -> None:
        self.region, self.types = _C.Region(), types
        self.values: dict[fx.Node, Any] = {}  #: a value, or several in a tuple
        self.inputs: list[Any] = []

    def value(self, node: fx.Node) -> Any:
        if node not in self.values:
            self.values[node] = self.read(node)
        return self.values[node]

    def read(self, node: fx.Node) -> Any:
        """The value of a node that hasn't been written: an input from outside."""
        value = self.region.input(self.types.of(example_of(node)))
        self.inputs.append(node)
        return value

    def aten(self, name: str, arguments: Sequence[Any], type_: _C.Type) -> Any:
        """Writes an operation of ATen's, given all its arguments in the schema's order."""
        try:
            return self.region.aten(name, list(arguments), type_)
        except RuntimeError as error:
            raise_if_internal(error)
            raise UnsupportedError(str(error)) from None

    def operation(self, op: OpOverload, node: fx.Node) -> Any:
        """The node as this operation, which takes the node's arguments. An elementwise operation that the IR lacks is
        decomposed, as in a step.

        Raises:
            UnsupportedError: the IR can't express it.
        """
        for each in tensor_inputs(node):
            self.value(each)
        type_ = self.types.of(example_of(node))
        try:
            return self.aten(str(op), [self._argument(given) for given in arguments(op, node)], type_)
        except UnsupportedError:
            if (program := _made_of_others(op, node)) is None:
                raise
        leaves = pytree.tree_leaves((node.args, node.kwargs))
        (result,) = self.inline(
            program, [self.values[n] for n in leaves if isinstance(n, fx.Node) and n in self.values]
        )
        return result

    def inline(self, program: _C.Program, inputs: Sequence[Any]) -> Any:
        try:
            return self.region.inline_program(program, inputs)
        except RuntimeError as error:  # the program was traced for sizes that happen to be those of now
            raise_if_internal(error)
            raise UnsupportedError(str(error)) from None

    def _argument(self, given: object) -> object:
        """The argument as importer::Argument takes it."""
        if isinstance(given, fx.Node):
            return self.values.get(given, _C.Unknown())
        if given is None or isinstance(given, bool | int | float | str):
            return given
        if isinstance(given, list | tuple):
            items = [self._argument(item) for item in given]
            if all(type(item) is int for item in items) or all(
                item is None or isinstance(item, _C.Value) for item in items
            ):
                return items
        return _C.Unknown()


def example_of(node: fx.Node) -> Any:
    """The example value that the graph's maker, AOTAutograd or Dynamo, has computed for the node."""
    found = node.meta.get("val")
    return node.meta.get("example_value") if found is None else found


def tensor_inputs(node: fx.Node) -> list[fx.Node]:
    return [n for n in node.all_input_nodes if isinstance(example_of(n), Tensor)]


def arguments(op: OpOverload, node: fx.Node) -> list[object]:
    """All arguments in the schema's order, defaults filled in."""
    given = len(node.args)
    return [
        node.args[i] if i < given else node.kwargs.get(name, default)
        for i, (name, default) in enumerate(_parameters(op))
    ]


@functools.lru_cache(maxsize=4096)
def _parameters(op: OpOverload) -> list[tuple[str, Any]]:
    return [(parameter.name, parameter.default_value) for parameter in op._schema.arguments]


#: Programs of operations that are decomposed, by operation and its arguments' types; None where there is none.
_made: dict[Any, _C.Program | None] = {}
_MOST_MADE = 4096


def _made_of_others(op: OpOverload, node: fx.Node) -> _C.Program | None:
    if not decompositions.is_made_of_others(op):
        return None
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    values = [example_of(leaf) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
    key = (str(op), str(spec), tuple(map(_described, values)), torch.get_default_dtype())
    if key not in _made:
        if len(_made) >= _MOST_MADE:
            _made.clear()
        _made[key] = _trace_alone(op, values, spec)
    return _made[key]


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
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
