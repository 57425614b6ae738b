"""PyTorch's own control flow operators as programs: `torch._higher_order_ops.scan`, `while_loop`, `cond`,
`associative_scan` and `map`.

Each function takes the operator's arguments, traces the steps and makes one program of them. It raises
UnsupportedError, or the tracer's errors, if there is no such program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base import torch_private
from weft._base.errors import UnsupportedError
from weft._base.torch_private import pytree
from weft._capture import modes
from weft._capture.complex_numbers import Kind, as_pairs, kind_of, next_leaf
from weft._capture.trace import trace
from weft._capture.traced import Traced

Function = Callable[..., Any]


class _State(threading.local):
    in_backend = False  #: whether the backend `weft` has a graph traced


_state = _State()


@contextlib.contextmanager
def in_backend() -> Iterator[None]:
    """Within, the backend `weft` has a graph traced in this thread: all the operators become programs."""
    before, _state.in_backend = _state.in_backend, True
    try:
        yield
    finally:
        _state.in_backend = before


def is_in_backend() -> bool:
    return _state.in_backend


@dataclasses.dataclass
class Call:
    """A call of a program, and how the operator's results are made of its outputs and None."""

    program: _C.Program
    inputs: list[Tensor]
    step: _Step

    def run(self) -> Any:
        return self.step.results(torch.ops.weft.call(self.program.text, as_pairs(self.inputs)))


def scan(
    combine: Function,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",  # since 2.14
) -> Call:
    """combine(*carries, *slices, *additional_inputs) -> (*carries, *ys)"""
    if mutated_arg_indices:
        raise UnsupportedError("a step that changes tensors in place")
    step = _trace(combine, [*map(_like, init), *map(_like_slice, xs), *map(_like, additional_inputs)])
    noise = step.noise(xs[0].shape[0])
    same = _tensors(additional_inputs)
    program = _C.scan_program(step.traced.program, len(init), len(xs), False, len(same), len(noise))
    return Call(program, [*init, *xs, *noise, *same, *step.captured()], step)


def has_complex_gradients(
    combine: Function,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> bool:
    """Whether a scan has gradients and complex numbers, for which PyTorch's operator has no derivative: it fails.
    `loop` can do it, unless the step changes tensors in place."""
    from weft._capture.fx_nodes import example_of  # imports SymPy, which `import weft` must not wait for

    given = _tensors([*init, *xs, *additional_inputs])
    if mutated_arg_indices or not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in given):
        return False
    nodes = list(combine.graph.nodes) if isinstance(combine, torch.fx.GraphModule) else []
    values = [*given, *map(example_of, nodes)]
    return any(isinstance(value, Tensor) and value.is_complex() for value in values)


def loop(
    combine: Function,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Any:
    """`scan`'s steps, one after the other."""
    carry, columns = list(init), []
    for slices in zip(*xs, strict=True):
        results = list(combine(*carry, *slices, *additional_inputs))
        carry = results[: len(init)]
        columns.append(results[len(init) :])
    ys = [None if column[0] is None else torch.stack(column) for column in zip(*columns, strict=True)]
    return *carry, *ys


def map_impl(f: Function, xs: Sequence[Any], pos_args: Sequence[Any], mutated_arg_indices: str = "") -> Call:
    """f(*slices, *pos_args) -> ys"""
    return scan(f, [], xs, pos_args, mutated_arg_indices)


def associative_scan(combine: Function, xs: Sequence[Any], additional_inputs: Sequence[Any]) -> _Prefixes:
    """combine(*elements, *elements, *additional_inputs) -> elements"""

    def both(*arguments: Any) -> Any:
        results = pytree.tree_leaves(combine(*arguments))
        return [*results, *results]

    if xs[0].shape[0] < 2:
        raise UnsupportedError("a single element, with nothing to combine")
    first, rest = [x[0] for x in xs], [x[1:] for x in xs]
    return _Prefixes(scan(both, first, rest, additional_inputs), list(xs))


@dataclasses.dataclass
class _Prefixes:
    call: Call
    xs: list[Tensor]

    def run(self) -> Any:
        ys = self.call.run()[len(self.xs) :]
        return tuple(torch.cat([x[:1], y]) for x, y in zip(self.xs, ys, strict=True))


def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Call:
    """true_fn(*operands) or false_fn(*operands)"""
    if not isinstance(pred, Tensor):
        raise UnsupportedError("a condition that is no tensor")
    yes, no = (_trace(branch, [*map(_like, operands)]) for branch in (true_fn, false_fn))
    if yes.spec != no.spec or yes.kinds != no.kinds:
        raise UnsupportedError("branches whose results differ in structure")
    tensors, ours, theirs = _tensors(operands), yes.extra(), no.extra()
    programs = yes.traced.program, no.traced.program
    program = _C.cond_program(*programs, len(tensors), len(ours), len(theirs))
    return Call(program, [pred.reshape(()).to(torch.bool), *tensors, *ours, *theirs], yes)


def while_loop(
    cond_fn: Function,
    body_fn: Function,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any],
    mutated_arg_indices: str = "",
) -> Call:
    """body_fn(*carries, *additional_inputs) -> carries, while cond_fn(*carries, *additional_inputs)"""
    if mutated_arg_indices:
        raise UnsupportedError("a body that changes tensors in place")
    if len(_tensors(carried_inputs)) < len(carried_inputs):
        raise UnsupportedError("a number among the carries")
    if torch.is_grad_enabled() and any(t.requires_grad for t in _tensors([*carried_inputs, *additional_inputs])):
        raise UnsupportedError("gradients of a loop of any number of steps")
    arguments = [*map(_like, carried_inputs), *map(_like, additional_inputs)]
    condition, body = _trace(cond_fn, arguments, leaf=True), _trace(body_fn, arguments)
    if condition.traced.noise or body.traced.noise:
        raise UnsupportedError("random numbers in a loop of any number of steps")
    additional = _tensors(additional_inputs)
    ours, theirs = [*additional, *condition.captured()], [*additional, *body.captured()]
    programs = condition.traced.program, body.traced.program
    program = _C.while_program(*programs, len(carried_inputs), len(ours), len(theirs))
    return Call(program, [*carried_inputs, *ours, *theirs], body)


def with_gradients(cond_fn: Function, body_fn: Function, carried_inputs: Any, additional_inputs: Any) -> Any:
    """Makes all carries need a gradient if anything does: PyTorch's derivative of a loop loses gradients that reach
    parameters through a carry that needs none at first."""
    needing = [t for t in _tensors([*carried_inputs, *additional_inputs]) if t.requires_grad]
    if not torch.is_grad_enabled() or not needing:
        return cond_fn, body_fn, carried_inputs, additional_inputs
    nothing = needing[0].reshape(-1)[:0].sum().abs()  # zero, whatever the tensor holds

    def needs_gradient(carry: Any) -> Any:
        if not isinstance(carry, Tensor) or carry.requires_grad:
            return carry
        can_require = carry.is_floating_point() or carry.is_complex()
        return carry + nothing.to(carry.dtype) if can_require else carry

    return cond_fn, body_fn, tuple(map(needs_gradient, carried_inputs)), additional_inputs


# ---- tracing


@dataclasses.dataclass
class _Step:
    traced: Traced
    spec: pytree.TreeSpec  #: the structure of the results
    kinds: list[Kind]  #: of the results
    arguments: list[Tensor]  #: what it was traced with

    def results(self, outputs: Sequence[Tensor]) -> Any:
        remaining = iter(outputs)
        return pytree.tree_unflatten([next_leaf(remaining, kind) for kind in self.kinds], self.spec)

    def captured(self) -> list[Tensor]:
        """The captured tensors, as tensors of the trace that is being written, if any."""
        return [torch.ops.aten.lift_fresh_copy(t) if modes.is_plain(t) else t for t in self.traced.captured]

    def noise(self, *length: Any) -> list[Tensor]:
        shapes, drawn = [argument.shape for argument in self.arguments], []
        for noise in self.traced.noise:
            empty = torch.empty([*length, *noise.shape(shapes)], dtype=noise.dtype, device="cpu")
            drawn.append(noise.draw(empty))
        return drawn

    def extra(self) -> list[Tensor]:
        return [*self.noise(), *self.captured()]


#: Steps by graph module, then by the arguments' types: Dynamo and AOTAutograd each ask for the same step.
_steps: weakref.WeakKeyDictionary[torch.fx.GraphModule, dict[Any, _Step]] = weakref.WeakKeyDictionary()


def _trace(fn: Function, arguments: list[Any], *, leaf: bool = False) -> _Step:
    """`leaf`: the result is a tensor of one element, of any shape."""
    if not isinstance(fn, torch.fx.GraphModule):
        return _trace_anew(fn, arguments, leaf)
    key = (
        tuple(_key(argument) for argument in arguments),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
    )
    known = _steps.setdefault(fn, {})
    if key not in known:
        known[key] = _trace_anew(fn, arguments, leaf)
    return known[key]


def _key(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.dtype, tuple(map(str, argument.shape)), type(argument)
    return str(argument)


def _trace_anew(fn: Function, arguments: list[Any], leaf: bool) -> _Step:
    kinds: list[Kind] = []
    spec = pytree.treespec_leaf()

    def flat(*flat_arguments: Any) -> list[Tensor]:
        nonlocal spec
        results, spec = pytree.tree_flatten(fn(*flat_arguments))
        if any(result is not None and not isinstance(result, Tensor) for result in results):
            raise UnsupportedError("a result that is no tensor")
        kinds[:] = map(kind_of, results)
        return [result.reshape(()) if leaf else result for result in results if isinstance(result, Tensor)]

    name = getattr(fn, "__name__", type(fn).__name__)
    traced = trace(flat, arguments, what=name, dynamic=_dynamic, has_pairs=True)
    return _Step(traced, spec, list(kinds), _tensors(arguments))


def _dynamic(_: int, tensor: Tensor) -> tuple[int, ...]:
    return () if isinstance(tensor, torch.nn.Parameter) else (0,)


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [argument for argument in arguments if isinstance(argument, Tensor)]


def _like(argument: Any) -> Any:
    """The tracer's argument for a value: a plain tensor itself, for any other value a tensor of the same type."""
    if not isinstance(argument, Tensor) or modes.is_plain(argument):
        return argument
    return _fake(argument, argument.shape)


def _like_slice(x: Tensor) -> Tensor:
    if not modes.is_plain(x):
        return _fake(x, x.shape[1:])
    with modes.alone():
        return x.detach()[0]


def _fake(tensor: Tensor, shape: Sequence[Any]) -> Tensor:
    mode = torch_private.detect_fake_mode(tensor) or torch_private.FakeTensorMode()
    with modes.alone(), mode:
        return torch.empty(tuple(shape), dtype=tensor.dtype, device=tensor.device)
