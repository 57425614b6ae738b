"""`weft.jit`: a whole function as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from weft import _C, _programs, _trace, _trees
from weft._aten import UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")


def jit(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` as one program: its scans, what is before, between and behind them, compiled together.

        @weft.jit
        def loss(x, target):
            _, ys = weft.scan(step, h0, x)
            return ((ys @ w - target) ** 2).mean()

    Arguments and results are any pytrees; leaves that are no tensors are constants, and `fn` is captured anew for other
    ones. So it is for other shapes, but that a tensor's leading dim (of three dims and more, its two leading ones) may
    be any size. What `fn` may do is what a step of weft.scan may. It is differentiable like any function of PyTorch.

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
        try:
            return _run(fn, args, kwargs)
        except UnsupportedError as error:
            _C.report_fallback("weft.jit", str(error))
            return fn(*args, **kwargs)

    return functools.update_wrapper(call, fn) if hasattr(fn, "__name__") else call


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves, spec = _trees.flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    key = (spec, tuple((t.dtype, t.dim()) if isinstance(t, Tensor) else _constant(t) for t in leaves))
    shapes = [tensor.shape for tensor in tensors]

    def capture() -> _programs.Captured:
        results_spec = None
        constants: list[list[Any]] = []  # of each run

        def flat(args: Any, kwargs: Any) -> list[Tensor]:
            nonlocal results_spec
            results, results_spec = _trees.flatten(fn(*args, **kwargs))
            constants.append([None if isinstance(leaf, Tensor) else (leaf,) for leaf in results])
            return [leaf for leaf in results if isinstance(leaf, Tensor)]

        arguments, what = pytree.tree_unflatten(leaves, spec), "weft.jit: the function"
        traced = _trace.trace(flat, arguments, what=what, dynamic=_dynamic_dims)
        if any(other != constants[-1] for other in constants[-2:]):  # results that are sizes, say: those at hand only
            traced = _trace.trace(flat, arguments, what=what, dynamic=lambda *_: ())
        return _programs.Captured.of(traced.program, [traced], len(tensors), (results_spec, constants[-1]))

    program, captured = _programs.find("weft.jit", (fn,), key, shapes, capture)
    noise = _programs.draw(program.noise, shapes, tensors, None, None)
    results_spec, constants = program.extra
    results = iter(torch.ops.weft.call(program.text, [*tensors, *noise, *captured]))
    return pytree.tree_unflatten([next(results) if c is None else c[0] for c in constants], results_spec)


def _dynamic_dims(_: int, tensor: Tensor) -> tuple[int, ...]:
    return (0, 1) if tensor.dim() >= 3 else (0,)


def _constant(leaf: Any) -> Any:
    """A constant argument in the key: by value where it has one, else by identity."""
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return type(leaf), leaf
