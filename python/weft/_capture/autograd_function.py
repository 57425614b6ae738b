"""torch.autograd.Function within a traced function: its forward is traced as it is, its backward as a program."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base.errors import UnsupportedError
from weft._base.torch_private import (
    BackwardHookFunction,
    FrameAction,
    FrameExecStrategy,
    SingleLevelFunction,
    are_functorch_transforms_active,
    is_setup_context_defined,
    pytree,
    set_code_exec_strategy,
)
from weft._capture import modes
from weft._capture.runs import Backward, Function, Run, under_way

Record = Callable[[Function], Run]


def install(record: Record) -> None:
    """Records calls of such Functions within a recording from now on; `record` records their backward."""
    if "apply" in SingleLevelFunction.__dict__:
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if _C.recording():
            return _recorded(record, cls, args, kwargs)
        return super(SingleLevelFunction, cls).apply(*args, **kwargs)

    # Where Dynamo leaves a call to Python, it would compile this frame separately, and can't compile its `super`.
    skip = FrameExecStrategy(FrameAction.SKIP, FrameAction.DEFAULT)
    set_code_exec_strategy(apply.__code__, skip)
    SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
    native = torch.autograd.Function.__dict__["apply"]
    if not isinstance(native, classmethod):  # up to 2.13 `Function.apply` is Python's, and calls the one above
        _install_over(native, record, skip)


def _install_over(native: Any, record: Record, skip: FrameExecStrategy) -> None:
    """Since 2.14 `Function.apply` is C, and calls no Python but the Function's own methods."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if _C.recording() and not are_functorch_transforms_active():
            if is_setup_context_defined(cls.setup_context):
                bound = inspect.signature(cls.forward).bind(*args, **kwargs)
                bound.apply_defaults()
                args, kwargs = bound.args, bound.kwargs
            return _recorded(record, cls, args, kwargs)
        return native.__get__(None, cls)(*args, **kwargs)

    set_code_exec_strategy(apply.__code__, skip)
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]

    def refuse_kept(self: Any) -> None:
        """Called where an `apply` that was kept before Weft was imported makes its context, right before the Function's
        own forward."""
        if _C.recording():
            name = type(self).__name__.removesuffix("Backward")
            raise UnsupportedError(f"the torch.autograd.Function {name}, whose apply was kept before weft was imported")

    torch.autograd.function.BackwardCFunction.__init__ = refuse_kept  # type: ignore[method-assign]


def _recorded(record: Record, cls: Any, args: Any, kwargs: Any) -> Any:
    """Records the operations of its forward as they come, then its backward as one operation that changes only the
    derivative."""
    run = under_way.run
    if cls is BackwardHookFunction:
        raise UnsupportedError("a hook on the backward of a module (register_full_backward_hook)")
    context, results = _forward(cls, args, kwargs)
    outputs = results if isinstance(results, tuple) else (results,)
    differentiable = _differentiable(context, outputs)
    inputs = [x for x in args if isinstance(x, Tensor)]
    if any(isinstance(x, Tensor) and x.is_complex() for x in (*inputs, *outputs)):
        raise UnsupportedError(f"{cls.__name__}, a torch.autograd.Function of complex numbers")
    if not torch.is_grad_enabled() or not differentiable or not any(x.is_floating_point() for x in inputs):
        return results
    backward = _backward(cls, args, kwargs, outputs, differentiable)
    what = f"the backward of {cls.__name__}"
    part, reads = record_backward(record, run, what, backward, inputs, differentiable)
    are_floating = [x.is_floating_point() for x in inputs] + [False] * len(reads)
    count = len(inputs)

    def again(inputs: list[Tensor], ys: list[Tensor], cotangents: list[Tensor]) -> list[Tensor | None]:
        found = iter(backward(inputs[:count], ys, cotangents))
        return [next(found) if is_floating else None for is_floating in are_floating]

    given = [*inputs, *reads]
    fresh = run.recording.derived(given, differentiable, part.recording, len(run.backwards) - 1, again)
    replaced = dict(zip(map(id, differentiable), fresh, strict=True))
    outputs = tuple(replaced.get(id(y), y) for y in outputs)
    return outputs if isinstance(results, tuple) else outputs[0]


def record_backward(
    record: Record,
    run: Run,
    what: str,
    backward: Callable[[list[Tensor], list[Tensor], list[Tensor]], list[Tensor]],
    inputs: Sequence[Tensor],
    values: Sequence[Tensor],
) -> tuple[Run, list[Tensor]]:
    """Records a derivative beside the function: `backward`, from inputs, values and cotangents. Other tensors that
    `backward` reads become inputs too, without a gradient; these are returned."""

    first = len(inputs)

    # the closure must keep none of this call's tensors
    def function(like: Sequence[Tensor], reads: Sequence[Tensor] = ()) -> Function:
        last = first + len(reads)

        def flat(*given: Tensor) -> tuple[list[Tensor], None]:
            count = (len(given) - last) // 2
            ys, cotangents = list(given[last : last + count]), list(given[last + count :])
            with _in_place_of(reads, given[first:last]) if reads else contextlib.nullcontext():
                found = backward(list(given[:first]), ys, cotangents)
            return [*found, *(torch.zeros_like(x) for x in given[first:last] if x.is_floating_point())], None

        leaves = [*like, *like[last:]]
        return Function(flat, leaves, pytree.tree_structure(tuple(leaves)), what)

    part = record(function([*inputs, *values]))
    reads = list(part.recording.outside)
    if reads:
        part = record(function([*inputs, *reads, *values], reads))
        if part.recording.outside:
            raise UnsupportedError(f"{what}, which reads a tensor that is hidden in an object")
    run.backwards.append(Backward(what, functools.partial(function, reads=reads), part))
    return part, reads


def _in_place_of(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> modes.Substitution:
    shown = {id(tensor): other for tensor, other in zip(tensors, others, strict=True)}
    return modes.Substitution(lambda tensor: shown.get(id(tensor), tensor))


def _differentiable(context: _Context, outputs: tuple[Any, ...]) -> list[Tensor]:
    return [
        y
        for y in outputs
        if isinstance(y, Tensor) and y.is_floating_point() and id(y) not in context.not_differentiable
    ]


def _forward(cls: Any, args: Any, kwargs: Any) -> tuple[_Context, Any]:
    context = _Context(tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args))
    with torch.no_grad():
        if is_setup_context_defined(cls.setup_context):
            results = cls.forward(*args, **kwargs)
            cls.setup_context(context, args, results)
        else:
            results = cls.forward(context, *args, **kwargs)
    return context, results


def _backward(cls: Any, args: Any, kwargs: Any, outputs: tuple[Any, ...], differentiable: list[Tensor]) -> Any:
    """(inputs, differentiable outputs, their cotangents) -> cotangents of the floating inputs."""
    are_tensors = [isinstance(a, Tensor) for a in args]
    others = [None if isinstance(a, Tensor) else a for a in args]  # the closure outlives the tensors
    wanted = {id(y) for y in differentiable}
    places = [i for i, y in enumerate(outputs) if id(y) in wanted]

    def backward(inputs: list[Tensor], ys: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
        given = iter(inputs)
        again = tuple(next(given) if is_tensor else a for a, is_tensor in zip(others, are_tensors, strict=True))
        context, results = _forward(cls, again, kwargs)
        results = results if isinstance(results, tuple) else (results,)
        # A saved output is the output itself, so that it has a derivative too.
        own = {id(results[place]): y for place, y in zip(places, ys, strict=True)}
        context.saved_tensors = tuple(own.get(id(tensor), tensor) for tensor in context.saved_tensors)
        gradients: list[Any] = [
            torch.zeros_like(y) if isinstance(y, Tensor) and context.materialise else None for y in results
        ]
        for place, cotangent in zip(places, cotangents, strict=True):
            gradients[place] = cotangent
        found = cls.backward(context, *gradients)
        found = found if isinstance(found, tuple) else (found,)
        pairs = [(x, g) for x, g in zip(again, found, strict=False) if isinstance(x, Tensor) and x.is_floating_point()]
        return [torch.zeros_like(x) if g is None else g.to(x.dtype).expand(x.shape) for x, g in pairs]

    return backward


class _Context:
    """`ctx` in a Function's forward and backward."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.not_differentiable: set[int] = set()
        self.materialise = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.not_differentiable.update(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        raise UnsupportedError("a torch.autograd.Function that changes its inputs in place")

    def set_materialize_grads(self, value: bool) -> None:
        self.materialise = value

    def __getattr__(self, name: str) -> Any:
        """Other attributes of PyTorch's own context, such as `set_output_grad_dtype` (2.14) and `input_grad_buffers`
        (2.15)."""
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            raise UnsupportedError(f"ctx.{name} of a torch.autograd.Function")
        raise AttributeError(f"{name!r}: nothing of this name was kept in the context of the torch.autograd.Function")
