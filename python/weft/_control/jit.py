"""`weft.jit`: a whole function as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C
from weft._base import trees
from weft._capture import programs
from weft._capture.runs import Function
from weft._control.eval_frame import without_dynamo

P = ParamSpec("P")
R = TypeVar("R")


def jit(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` as one program: its scans, what is before, between and behind them, compiled together.

        @weft.jit
        def loss(x, target):
            _, ys = weft.scan(step, h0, x)
            return ((ys @ w - target) ** 2).mean()

    Arguments and results are any pytrees; leaves that are no tensors are constants. `fn` is run once at every call, on
    tensors that hold nothing, and compiled anew where it did something else than before. Other sizes of a tensor's dims
    but the last (of four dims and more, of all) are the same program, and so are sizes that are sums and divisions of
    these: a cache that grows, a convolution's image. Another size of a last dim compiles once more. What `fn` may do is
    what a step of weft.scan may. It is differentiable like any function of PyTorch.

    A function that can't be one program runs as it is, which `weft.stats()` counts and a warning tells once.

    Raises:
        TypeError: `fn` is not callable.
        RuntimeError: when called, if `fn` has a side effect or lets Python decide by a tensor's value.
    """
    if not callable(fn):
        raise TypeError(f"weft.jit: takes a function, but got {type(fn).__name__}")

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_dynamo_compiling() or not _C.active():
            return fn(*args, **kwargs)
        with without_dynamo():
            return programs.or_else("weft.jit", lambda: _run(fn, args, kwargs), lambda: fn(*args, **kwargs))

    return functools.update_wrapper(call, fn) if hasattr(fn, "__name__") else call


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves, spec = trees.flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def flat(args: Any, kwargs: Any) -> tuple[list[Tensor], Any]:
        results, results_spec = trees.flatten(fn(*args, **kwargs))
        constants = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in results]
        return [leaf for leaf in results if isinstance(leaf, Tensor)], (results_spec, constants)

    function = Function(flat, leaves, spec, "weft.jit: the function", (fn,), _dynamic_dims, _more_dynamic_dims)
    found = programs.find("weft.jit", None, [function], lambda traces: traces[0].program)
    shapes = [tensor.shape for tensor in tensors]
    noise = programs.draw(found.program.noise, shapes, tensors, None, None)
    ((results_spec, constants),) = found.extra
    results = iter(torch.ops.weft.call(found.program.text, [*tensors, *noise, *found.inputs]))
    return pytree.tree_unflatten([next(results) if c is None else c[0] for c in constants], results_spec)


def _more_dynamic_dims(_: int, tensor: Tensor) -> tuple[int, ...]:
    """All but the last, features for which code of their number is faster; of images (batch, channels, height, ...)
    all."""
    return tuple(range(tensor.dim() if tensor.dim() > 3 else max(tensor.dim() - 1, 1)))


def _dynamic_dims(_: int, tensor: Tensor) -> tuple[int, ...]:
    return (0, 1) if tensor.dim() >= 3 else (0,)
