"""What the nodes of an ATen graph are to a region."""

from __future__ import annotations

import operator

import torch
from torch import fx

from weft import _C
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._base.torch_private import OpOverload
from weft._capture.aten_nodes import Types, import_node, tensor_inputs

CALL = torch.ops.weft.call.default
_aten = torch.ops.aten

PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default}
PERMUTES = {_aten.t.default, _aten.transpose.int, _aten.permute.default}
VIEWS = PERMUTES | {
    _aten.view.default,
    _aten.unsqueeze.default,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.expand.default,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.detach.default,
    _aten.alias.default,
}
# Expressible, but ATen was measured to be faster at them, or they would only be copied: they join no region.
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
    """Whether the node takes an output of a weft.call; it goes where its call goes."""
    return node.op == "call_function" and node.target is operator.getitem and is_call(node.args[0])


def is_expressible(node: fx.Node) -> bool:
    """Whether the IR has it: asked by importing the node alone."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    value = node.meta.get("val")
    if node.target.namespace != "aten" or not isinstance(value, torch.Tensor) or torch.is_complex(value):
        return False
    if node.target not in VIEWS and not value.is_contiguous():
        return False  # a program's outputs are
    types, region = Types(), _C.Region()
    try:
        values = {n: region.input(types.of(n)) for n in tensor_inputs(node)}
        import_node(region, node, values, types)
    except (UnsupportedError, RuntimeError) as error:
        raise_if_internal(error)
        return False
    return True


def is_pure(node: fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr", "output")
    if not isinstance(node.target, OpOverload):
        return getattr(node.target, "__module__", "") in ("_operator", "math", "torch.sym")
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def is_barrier(impure: fx.Node) -> bool:
    """Whether it may change a tensor, as opposed to drawing random numbers only."""
    return impure.op == "call_function" and getattr(getattr(impure.target, "_schema", None), "is_mutable", True)
