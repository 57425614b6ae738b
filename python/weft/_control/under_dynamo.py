"""`weft.scan`, `while_loop` and `associative_scan` as Dynamo traces them: in terms of PyTorch's own operators.

Dynamo follows all of this code, except `install`. PyTorch's operators ask for things that most steps don't have:
results that share no memory with an argument or with each other, carries with the initial ones' strides, nothing but
tensors. The functions below see to these. `higher_order` decides how the operators then run, under any backend.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import torch_private
from weft._base.torch_private import HigherOrderOperator, pytree
from weft._capture import modes
from weft._control.carries import checked_carry, condition, tensors
from weft._control.scan_call import Call


class _FlatScan(HigherOrderOperator):
    """An operator that stands for a scan in code that Dynamo traces: `install` makes Dynamo write
    `torch.ops.higher_order.scan` for it.

    The operator itself is called only where Dynamo couldn't trace the step and has broken its graph here.
    """

    def __init__(self) -> None:
        super().__init__("weft_flat_scan")

    def __call__(self, step: Callable[..., Any], init: list[Tensor], xs: list[Tensor]) -> Any:
        _C.report_fallback("weft.scan", "Dynamo can't trace its step")
        return torch.compiler.disable(_loop)(step, init, xs)


_flat_scan = _FlatScan()


def _loop(step: Callable[..., Any], carry: list[Tensor], xs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    columns = []
    for slices in zip(*xs, strict=True):
        carry, ys = step(*carry, *slices)
        columns.append(ys)
    return carry, [torch.stack(column) for column in zip(*columns, strict=True)]


def scan(
    what: str,
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    dim: int = 0,
    *,
    body: str = "the step",
) -> tuple[Any, Any]:
    """`weft.scan` under Dynamo. Same arguments, results and errors; messages begin with `what`."""
    register_dataclasses((init, xs))
    call = Call.of(what, step, init, xs, length, reverse, dim, body=body)
    carries = [leaf.contiguous() for leaf in call.carry if leaf is not None]
    sources = [leaf for leaf in call.xs if leaf is not None]
    operands = carries if carries else [torch.zeros((), device="cpu")]  # PyTorch's operator wants one of each
    stacks = sources if sources else [torch.zeros(call.length, 0, device="cpu")]
    if reverse:
        stacks = [stack.flip(0) for stack in stacks]

    key = _new_key()

    def flat_step(*flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        carry = pytree.tree_unflatten(_filled(flat[: len(carries)], call.carry), call.carry_spec)
        x = pytree.tree_unflatten(_filled(flat[len(operands) :], call.xs), call.xs_spec)
        leaves, ys, ys_spec = call.checked_step(carry, x, register_dataclasses)
        after = [_own(leaf) for leaf in leaves if leaf is not None] if carries else [flat[0].clone()]
        _remember(key, _described(ys_spec), "".join(["-" if y is None else "*" for y in ys]))
        return after, [_own(y) for y in ys if y is not None]

    last, ys = _flat_scan(flat_step, operands, stacks)
    if reverse:
        ys = [y.flip(0) for y in ys]
    number = _recall(key)
    leaves = [None if leaf == "-" else leaf for leaf in getattr(_structures, f"leaves{number}")]
    ys = call.placed(_filled(ys, leaves), getattr(_structures, f"spec{number}"))
    return pytree.tree_unflatten(_filled(last, call.carry), call.carry_spec), ys


# The structure of a step's y comes to light within the operator, out of which Dynamo lets only tensors. Functions that
# Dynamo calls instead of tracing keep the structure in the meantime, as an attribute of a module: Dynamo can find such
# an attribute again whenever it checks its guards.

_structures = ModuleType("weft._control.under_dynamo._structures")
_numbers: dict[Any, int] = {}  #: each structure's number
_at: dict[int, int] = {}  #: the structure's number, by the call's key
_keys = itertools.count()


def _new_key() -> int:
    return next(_keys)


def _remember(key: int, described: Any, leaves: str) -> None:
    """`leaves` has - for None and * for a tensor."""
    number = _numbers.setdefault((_hashable(described), leaves), len(_numbers))
    setattr(_structures, f"spec{number}", _made(described))
    setattr(_structures, f"leaves{number}", leaves)
    _at[key] = number


def _hashable(part: Any) -> Any:
    return tuple(map(_hashable, part)) if isinstance(part, list | tuple) else part


def _recall(key: int) -> int:
    return _at[key]


def _described(spec: pytree.TreeSpec) -> Any:
    """The structure as tuples and constants, which Dynamo can hand over."""
    if spec.type is None:
        return None
    return spec.type, spec.context, tuple([_described(child) for child in spec.children()])


def _made(described: Any) -> pytree.TreeSpec:
    if described is None:
        return pytree.treespec_leaf()
    kind, context, children = described
    return pytree.TreeSpec(kind, context, [_made(child) for child in children])


def register_dataclasses(tree: Any) -> None:
    """Registers the dataclasses in a tree, so that Dynamo too treats them as pytrees."""
    if dataclasses.is_dataclass(tree):
        _register(type(tree))
        for field in dataclasses.fields(tree):
            register_dataclasses(getattr(tree, field.name))
    elif isinstance(tree, dict):
        for item in tree.values():
            register_dataclasses(item)
    elif isinstance(tree, list | tuple):
        for item in tree:
            register_dataclasses(item)


def _register(cls: type) -> None:
    """Registers the dataclass with PyTorch, and makes Dynamo forget its earlier look at PyTorch's table."""
    if cls in pytree.SUPPORTED_NODES:
        return
    pytree.register_dataclass(cls)
    output = torch_private.InstructionTranslator.current_tx().output
    output.side_effects.id_to_variable.pop(id(pytree.SUPPORTED_NODES), None)
    for source in [source for source in output.variable_tracker_cache if "SUPPORTED_NODES" in str(source.name)]:
        del output.variable_tracker_cache[source]


for _function in (_new_key, _remember, _recall, _register):
    _function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, *, max_steps: int | None = None
) -> Any:
    """`weft.while_loop` under Dynamo, its arguments checked. With a bound it is a scan of conditions."""
    register_dataclasses(carry)
    leaves, spec = tensors("weft.while_loop", "carry", carry)
    operands = [leaf.contiguous() for leaf in leaves if leaf is not None]

    def holds(*flat: Tensor) -> Tensor:
        return condition("weft.while_loop", cond, pytree.tree_unflatten(_filled(flat, leaves), spec)).clone()

    def flat_body(*flat: Tensor) -> tuple[Tensor, ...]:
        before = pytree.tree_unflatten(_filled(flat, leaves), spec)
        after = body(before)
        register_dataclasses(after)
        after = checked_carry("weft.while_loop: the body", spec, before, after)
        return tuple([_own(leaf) for leaf in after if leaf is not None])

    def same(*flat: Tensor) -> tuple[Tensor, ...]:
        return tuple([leaf.clone() for leaf in flat])

    def bounded_step(flat: list[Tensor], _: None) -> tuple[list[Tensor], None]:
        return list(torch.cond(holds(*flat), flat_body, same, tuple(flat))), None

    if max_steps is None:
        last = torch.ops.higher_order.while_loop(holds, flat_body, tuple(operands), ())
    elif max_steps == 0:
        last = same(*operands)
    else:
        last, _ = scan("weft.while_loop", bounded_step, operands, None, max_steps)
    return pytree.tree_unflatten(_filled(last, leaves), spec)


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _first_slice(x: Tensor) -> Tensor:
    """A tensor like the slices of x. torch.select_copy has no derivative for complex tensors."""
    return x.select(0, 0).clone() if x.is_complex() else torch_private.first_slice_copy(x)


def _filled(tensors: Sequence[Tensor], leaves: Sequence[Any]) -> list[Any]:
    """`leaves` with `tensors` in the place of all leaves that aren't None."""
    remaining = list(tensors)
    return [None if leaf is None else remaining.pop(0) for leaf in leaves]


def install() -> None:
    """Once torch._dynamo.variables.higher_order_ops is imported: tells Dynamo of `_flat_scan`."""

    class FlatScanVariable(torch_private.TorchHigherOrderOperatorVariable):  # type: ignore[misc]
        """Unlike Dynamo's own for scan: the step's results may be of any structure and hold None and numbers, and
        tensors from outside may share memory."""

        _HOP_NAME = "weft.scan"
        _ALLOW_FALLBACK_TO_EAGER = True

        def _call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
            args, _ = torch_private.LazyVariableTracker.realize_all((args, kwargs))
            step, init, xs = (
                args[0],
                torch_private.unpack_iterable(tx, args[1]),
                torch_private.unpack_iterable(tx, args[2]),
            )
            with torch_private.discard_graph_changes(tx):
                carries = [tensor.call_method(tx, "clone", args=[], kwargs={}) for tensor in init]
                slices = [torch_private.make_inlined(tx, _first_slice)(tensor) for tensor in xs]
            (_, spec), graph, captured = torch_private.speculate_subgraph(
                tx,
                step,
                carries + slices,
                {},
                self._HOP_NAME,
                source_target=torch.ops.higher_order.scan,
                set_subgraph_inputs="flatten_manual",
                should_flatten_outputs=True,
                supports_input_mutation=False,
                supports_aliasing=True,
            )
            body = torch.fx.GraphModule(dict(tx.output.nn_modules), graph)
            name = tx.output.install_subgraph("scan_combine_fn", body)
            operands = (
                torch_private.make_attr(tx, name),
                [tensor.as_proxy() for tensor in init],
                [tensor.as_proxy() for tensor in xs],
                list(captured.keys()),
            )
            return torch_private.call_function_and_unflatten_output(
                tx, torch.ops.higher_order.scan, operands, {}, None, spec, None
            )

    known = torch_private.hop_name_to_variable_class
    known["weft_flat_scan"] = FlatScanVariable
    # Dynamo refuses a step whose y is its carry; a program's results share no memory.
    known["scan"].supports_aliasing = property(lambda _: _C.active())
    # Dynamo asks tensors of torch.vmap for their memory, which belongs to the tensors inside them.
    storages = torch_private.dynamo_higher_order.get_tensor_storages
    torch_private.dynamo_higher_order.get_tensor_storages = lambda tensor: storages(modes.unwrapped(tensor))
