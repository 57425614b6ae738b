"""How the nodes of an ATen graph take part in regions."""

from __future__ import annotations

import functools
import operator

import torch
from torch import fx

from weft import _C
from weft._base.torch_private import OpOverload
from weft._capture import decompositions
from weft._capture.fx_nodes import example_of, tensor_inputs

CALL = torch.ops.weft.call.default
_aten = torch.ops.aten

PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default}
PERMUTES = {_aten.t.default, _aten.transpose.int, _aten.permute.default}
# Expressible, but ATen was measured to be faster at these, or a program would only copy: they join no region.
LEFT_TO_ATEN = {
    _aten.amax.default,
    _aten.clone.default,
    _aten.flip.default,
    _aten.lift_fresh_copy.default,
    _aten.mean.default,
    _aten.sum.default,
    _aten._softmax.default,
    _aten._log_softmax.default,
}


def is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is CALL


def is_output(node: fx.Node) -> bool:
    """Whether the node takes an output of a weft.call; it belongs where its call is."""
    return node.op == "call_function" and node.target is operator.getitem and is_call(node.args[0])


def is_view(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, OpOverload) and _traits(node.target).is_view


def is_expressible(node: fx.Node, typed: set[fx.Node]) -> bool:
    """Whether the IR has the operation, with tensors that it has types for. It may still refuse the arguments."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload) or not _has_operation(node.target):
        return False
    if node not in typed or not typed.issuperset(tensor_inputs(node)):
        return False
    return is_view(node) or example_of(node).is_contiguous()  # a program's outputs are contiguous


def is_pure(node: fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr", "output")
    if not isinstance(node.target, OpOverload):
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch.sym")
    traits = _traits(node.target)
    return not traits.changes_something and not traits.draws


def is_barrier(impure: fx.Node) -> bool:
    """Whether the node may change a tensor; drawing random numbers is no barrier."""
    if impure.op != "call_function":
        return False
    return not isinstance(impure.target, OpOverload) or _traits(impure.target).changes_something


@functools.lru_cache(maxsize=4096)
def _traits(op: OpOverload) -> _C.Traits:
    return _C.traits_of(op._schema.name, op._overloadname)


@functools.lru_cache(maxsize=4096)
def _has_operation(op: OpOverload) -> bool:
    return op.namespace == "aten" and (_C.knows_aten(str(op)) or decompositions.is_made_of_others(op))
