"""The kernels of PyTorch's control flow operators ask Weft first.

`torch._higher_order_ops.scan` is what `weft.scan` becomes under Dynamo, and what users write themselves. Its kernels
here trace the step, make a program of it and call that: under every backend, and under torch.export, one `weft.call`
with derivatives of its own is what stands in the graph. While the backend `weft` compiles a graph, `while_loop`,
`torch.cond`, `associative_scan` and `map` go the same way; other backends have their own ideas of these. What a
program can't express is left to PyTorch's kernels, and counted.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from weft import _C
from weft._base import torch_private
from weft._base.errors import UnsupportedError, raise_if_internal
from weft._base.torch_private import DispatchKey, TransformType
from weft._control import higher_order

Function = Callable[..., Any]

# The errors that mean that there is no program. They leave the call to PyTorch's own kernels, which report themselves
# what is wrong with a step.
_REFUSALS = (UnsupportedError, RuntimeError, TypeError, ValueError, IndexError)


class _State(threading.local):
    in_pytorch = False  #: whether one of PyTorch's kernels runs, after Weft has refused


_state = _State()


def enable() -> None:
    """Puts Weft's kernels before PyTorch's."""
    operators = torch.ops.higher_order
    without_pytorch = (higher_order.has_complex_gradients, higher_order.loop)
    _replace_kernels(operators.scan, higher_order.scan, everywhere=True, instead=without_pytorch)
    _replace_kernels(operators.while_loop, higher_order.while_loop, mend=higher_order.with_gradients)
    _replace_kernels(operators.cond, higher_order.cond)
    _replace_kernels(operators.associative_scan, higher_order.associative_scan)
    _replace_kernels(operators.map_impl, higher_order.map_impl)


def disable() -> None:
    """Takes them away again."""
    while _undo:
        _undo.pop()()


_undo: list[Callable[[], None]] = []


def _replace_kernels(
    op: Any,
    prepare: Callable[..., Any],
    *,
    everywhere: bool = False,
    mend: Callable[..., Any] | None = None,
    instead: tuple[Callable[..., bool], Callable[..., Any]] | None = None,
) -> None:
    """Asks `prepare` before the operator's kernels: under autograd and in traces that look inside the operator. Only
    while the backend `weft` is at work, unless `everywhere`.

    `mend` makes the arguments such that PyTorch's kernel is right, where a call is left to it. `instead`: for which
    arguments it fails, and what runs then.
    """

    def asking_weft_first(original: Function, skipped: int, autograd: bool) -> Function:
        """`skipped`: the number of arguments before the operator's own."""

        @functools.wraps(original)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            wanted = everywhere or higher_order.is_in_backend() or _C.recording()
            if wanted and _C.active() and (autograd or not _state.in_pytorch):
                try:
                    call = prepare(*args[skipped:], **kwargs)
                except _REFUSALS as error:
                    raise_if_internal(error)
                    _C.report_fallback(op.name(), str(error).split("\n")[0])
                    if mend is not None:
                        args = (*args[:skipped], *mend(*args[skipped:]))
                    if instead is not None and instead[0](*args[skipped:], **kwargs):
                        return instead[1](*args[skipped:], **kwargs)
                else:
                    return call.run()
            before, _state.in_pytorch = _state.in_pytorch, True
            try:
                return original(*args, **kwargs)
            finally:
                _state.in_pytorch = before

        return kernel

    def replace(table: dict[Any, Any], key: Any, *, skipped: int = 0, autograd: bool = True) -> None:
        original = table.get(key)
        table[key] = asking_weft_first(original or _no_rule(op, key), skipped, autograd)
        _undo.append(lambda: table.update({key: original}) if original else table.pop(key))

    if (key := torch_private.parse_dispatch_key("TESTING_ONLY_GenericMode")) is not None:
        op.fallthrough(key)  # the key by which a recording sees operations without tensors
    replace(op.py_kernels, DispatchKey.Autograd)
    replace(op.py_kernels, DispatchKey.CompositeExplicitAutograd, autograd=False)
    replace(op.python_key_table, torch_private.FunctionalTensorMode, skipped=1, autograd=False)
    for transform in (TransformType.Grad, TransformType.Jvp):  # PyTorch has no rules for these
        replace(op.functorch_table, transform, skipped=1)
    op._dispatch_cache.clear()
    _undo.append(op._dispatch_cache.clear)


def _no_rule(op: Any, key: Any) -> Function:
    def kernel(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{op.name()} has no rule for {key}")

    return kernel
