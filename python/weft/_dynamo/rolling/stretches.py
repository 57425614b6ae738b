"""Where in a graph that Dynamo has traced there may be loops that it has unrolled."""

from __future__ import annotations

import operator
import re
from collections import Counter
from typing import Any

import torch
from torch import fx

from weft._base.torch_private import OpOverload, OpOverloadPacket

_FEWEST = 3  #: steps of a loop


def stretches(graph: fx.Graph) -> list[list[fx.Node]]:
    """Runs of nodes without side effects in which something repeats."""
    found, nodes, in_autocast = [], [], 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node.op == "output" or in_autocast or _has_effect(node):
            in_autocast += {"_enter_autocast": 1, "_exit_autocast": -1}.get(_name(node), 0)
            found += repetitive(nodes)
            nodes = []
        else:
            nodes.append(node)
    return found


#: What stands for a change in place of a tensor that nothing else reads.
OUT_OF_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
_EFFECTS = {
    operator.setitem, operator.delitem, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
    operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul, operator.iconcat,
}  # fmt: skip


def _has_effect(node: fx.Node) -> bool:
    """Whether the node may do more than compute its value."""
    if node.op not in ("call_function", "call_method"):
        return True
    if isinstance(node.target, OpOverload):
        return node.target._schema.is_mutable
    if node.op == "call_function" and not _is_of_pytorch(node.target):
        return True
    if node.target in OUT_OF_PLACE:
        return not _changes_own(node)
    if node.target in _EFFECTS or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True:
        return True
    name = _name(node)
    return (name.endswith("_") and not name.endswith("__")) or name.startswith(("_set_grad", "_enter_", "_exit_"))


def _is_of_pytorch(function: Any) -> bool:
    """What else Dynamo leaves in a graph is the user's, and runs once a step."""
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "_operator", "math", "") or isinstance(function, OpOverloadPacket)


def _changes_own(node: fx.Node) -> bool:
    """Whether `a += b` may as well be `a = a + b`: a is a new tensor, which nothing else reads from here on."""
    own = node.args[0]
    if not isinstance(own, fx.Node) or own.op not in ("call_function", "call_method") or is_view(own):
        return False
    return all(user is node or (user < node and not is_view(user)) for user in own.users)


_VIEW_NAMES = {
    "getitem", "unbind", "chunk", "split", "tensor_split", "select", "narrow", "view", "view_as", "reshape", "flatten",
    "unflatten", "transpose", "permute", "t", "movedim", "swapaxes", "unsqueeze", "squeeze", "expand", "expand_as",
    "contiguous", "detach", "to", "float", "type_as", "getattr", "dropout",
}  # fmt: skip


def _name(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, OpOverload):
        return node.target._schema.name.split("::")[-1]
    return getattr(node.target, "__name__", "")


def is_view(node: fx.Node) -> bool:
    """Whether the value may share memory with another node's."""
    return _name(node) in _VIEW_NAMES


def repetitive(nodes: list[fx.Node]) -> list[list[fx.Node]]:
    """The part of the nodes, if any, from the first to the last that does what others do with the same values, with
    what is around it and does what others do."""
    kinds, anchors = _kinds(nodes)
    if not anchors:
        return []
    first, last = anchors[0], anchors[-1]
    counts = Counter(kinds)
    while first > 0 and counts[kinds[first - 1]] >= _FEWEST:
        first -= 1
    while last + 1 < len(nodes) and (counts[kinds[last + 1]] >= _FEWEST or _collects(nodes[last + 1])):
        last += 1
    stretch = nodes[first : last + 1]
    inside = set(stretch)
    for node in nodes[last + 1 :]:
        if _may_draw(node):
            break  # random numbers keep their order
        if _collects(node) and all(n in inside or (n < node and n < nodes[last]) for n in node.all_input_nodes):
            stretch.append(node)
            inside.add(node)
    for node in list(stretch):  # results of one node go together
        if isinstance(node.meta.get("example_value"), list | tuple):
            stretch += [user for user in node.users if user not in inside]
    return [stretch]


def _collects(node: fx.Node) -> bool:
    """Whether it joins values, as torch.stack does the steps' results."""
    return any(isinstance(argument, list | tuple) and len(argument) >= _FEWEST for argument in node.args[:1]) and _name(
        node
    ) in ("stack", "cat", "concat", "concatenate", "hstack", "vstack", "dstack")


_DRAWS = re.compile("drop|rand|bernoulli|normal|multinomial|poisson|exponential|gumbel|uniform")


def _may_draw(node: fx.Node) -> bool:
    """Whether it may draw random numbers."""
    if isinstance(node.target, OpOverload):
        return torch.Tag.nondeterministic_seeded in node.target.tags
    return _DRAWS.search(_name(node)) is not None


def _kinds(nodes: list[fx.Node]) -> tuple[list[Any], list[int]]:
    """What each node does, whatever with; and which nodes do with the same values what others do with them too."""
    shapes = [_shape_of(node) for node in nodes]
    uses = Counter(
        (shape, i, source)
        for node, shape in zip(nodes, shapes, strict=True)
        for i, source in enumerate(node.all_input_nodes)
    )
    anchors = [
        index
        for index, (node, shape) in enumerate(zip(nodes, shapes, strict=True))
        if _is_anchor(node, [uses[shape, i, source] >= _FEWEST for i, source in enumerate(node.all_input_nodes)])
    ]
    return shapes, anchors


def _is_anchor(node: fx.Node, is_shared: list[bool]) -> bool:
    """Whether it reads something that others of its kind read too, and otherwise what was computed: not the same
    tensor with weights of its own, as several heads do."""
    rest = [source for source, shared in zip(node.all_input_nodes, is_shared, strict=True) if not shared]
    return any(is_shared) and all(source.op not in ("placeholder", "get_attr") for source in rest)


def _shape_of(node: fx.Node) -> Any:
    """The node's function and the structure of its arguments."""

    def shape(argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return "value"
        if isinstance(argument, list | tuple):
            return tuple(shape(item) for item in argument) if len(argument) < 8 else len(argument)
        if isinstance(argument, bool) or argument is None or isinstance(argument, str):
            return argument
        return type(argument).__name__

    return (node.op, node.target, shape(node.args), tuple((k, shape(v)) for k, v in node.kwargs.items()))
