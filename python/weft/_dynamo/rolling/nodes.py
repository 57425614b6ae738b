"""Nodes of Dynamo's graph: the tensors they read, and which nodes are alike."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from weft._base.errors import UnsupportedError
from weft._base.torch_private import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    is_functorch_wrapped_tensor,
    set_grad_enabled,
)
from weft._capture.fx_nodes import example_of


def is_grad_mode(node: fx.Node) -> bool:
    """Whether the node switches autograd on or off."""
    return node.op == "call_function" and node.target is set_grad_enabled


def is_users(node: fx.Node) -> bool:
    """Whether the node calls a function of the user's. Such a function may have effects that no record of operations
    shows, and must run once in each step."""
    if node.op != "call_function":
        return False
    function = node.target
    if isinstance(function, OpOverload | OpOverloadPacket | HigherOrderOperator):
        return False
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] not in ("torch", "_operator", "math", "builtins", "pybind11_builtins", "")


def is_of_transform(node: fx.Node) -> bool:
    """Whether the node begins or ends one of torch.func's transforms, or computes within one."""
    example = example_of(node)
    tensors = example if isinstance(example, list | tuple) else [example]
    if any(isinstance(each, Tensor) and is_functorch_wrapped_tensor(each) for each in tensors):
        return True
    is_operator = isinstance(node.target, OpOverload | OpOverloadPacket | HigherOrderOperator)
    return not is_operator and "_functorch" in (getattr(node.target, "__module__", None) or "")


def name_of(node: fx.Node) -> str:
    """The name of the node's function."""
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, OpOverload):
        return node.target._schema.name.split("::")[-1]
    return str(getattr(node.target, "__name__", node.target))


def as_int(size: Any) -> Any:
    """A size that is known by now, such as the length of a loop that Dynamo has unrolled, as a number; any other size
    unchanged."""
    return int(size) if isinstance(size, torch.SymInt) and size.node.expr.is_number else size


def takes_output(node: fx.Node) -> bool:
    """Whether the node takes one of several results."""
    return (
        node.target is operator.getitem
        and isinstance(node.args[1], int)
        and isinstance(example_of(node.args[0]), list | tuple)
        and not isinstance(example_of(node.args[0]), torch.Size)
    )


def is_number(node: fx.Node) -> bool:
    """Whether the node's value is no tensor, so that readers take the value from its example."""
    return isinstance(example_of(node), int | float | bool | str | torch.SymInt | torch.Size | torch.dtype)


@dataclasses.dataclass(frozen=True)
class Source:
    """A tensor that a node reads: another node's value, or one of its several results."""

    node: fx.Node
    index: int | None = None

    @property
    def example(self) -> Tensor:
        value = example_of(self.node)
        return value if self.index is None else value[self.index]


def sources_of(node: fx.Node) -> list[Source]:
    found: list[Source] = []
    for each in node.all_input_nodes:
        example = example_of(each)
        if isinstance(example, Tensor):
            found.append(Source(each))
        elif isinstance(example, list | tuple) and example and all(isinstance(value, Tensor) for value in example):
            found += [Source(each, i) for i in range(len(example))]
    return found


def key_of(node: fx.Node, sources: Sequence[Source]) -> Any:
    """A key that is equal for nodes that call the same function on tensors of the same types."""
    place = {source.node: i for i, source in reversed(list(enumerate(sources)))}

    def key(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            if argument in place:
                return "tensor", place[argument]
            if argument.op == "get_attr":
                return key_of_module(attribute_of(argument))
            return "number", str(example_of(argument))
        if isinstance(argument, list | tuple):
            return type(argument).__name__, *map(key, argument)
        if isinstance(argument, slice):
            return "slice", key(argument.start), key(argument.stop), key(argument.step)
        return type(argument).__name__, repr(argument)

    types = tuple((source.example.dtype, tuple(map(str, source.example.shape))) for source in sources)
    return node.op, node.target, key(node.args), tuple((k, key(v)) for k, v in node.kwargs.items()), types


def attribute_of(node: fx.Node) -> Any:
    found: Any = node.graph.owning_module
    for part in node.target.split("."):
        found = getattr(found, part)
    return found


def key_of_module(module: Any) -> Any:
    """A key that is equal for graphs that compute the same."""
    if not isinstance(module, fx.GraphModule):
        raise UnsupportedError(f"an argument that is a {type(module).__name__}")
    number = {node: i for i, node in enumerate(module.graph.nodes)}

    def key(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return "node", number[argument]
        if isinstance(argument, list | tuple):
            return type(argument).__name__, *map(key, argument)
        if isinstance(argument, slice):
            return "slice", key(argument.start), key(argument.stop), key(argument.step)
        return type(argument).__name__, repr(argument)

    def what(node: fx.Node) -> Any:
        if node.op != "get_attr":
            return node.target if node.op != "placeholder" else ""
        value = attribute_of(node)
        return id(value) if isinstance(value, Tensor) else key_of_module(value)

    return tuple(
        (node.op, what(node), key(node.args), tuple((k, key(v)) for k, v in node.kwargs.items())) for node in number
    )
