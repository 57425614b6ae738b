"""Hooks on the gradients of values inside a recorded function, which become a part of its derivative."""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from weft import _C
from weft._base.errors import UnsupportedError
from weft._capture.autograd_function import record_backward
from weft._capture.runs import Function, Run

Hook = Callable[[Any], Any]


#: Nodes of operations whose derivative in a program reads the result as autograd does, behind a hook on it.
_READ_BEHIND_HOOKS = (
    "TanhBackward0",
    "SigmoidBackward0",
    "ExpBackward0",
    "Expm1Backward0",
    "SqrtBackward0",
    "RsqrtBackward0",
    "WeftDerived",
)


def _saves(node: Any, output: int | None) -> bool:
    """Whether the node saves its operation's result, or the result with the number `output`. A hook on that result then
    also gets the gradient that a second derivative sends to the saved result."""
    if node is None or type(node).__name__ == "ReluBackward0":  # a second derivative sends nothing to its result
        return False
    if type(node).__name__ == "WeftDerived":
        return True
    names = ["_saved_result", "_saved_result0"] if not output else [f"_saved_result{output}"]
    return any(hasattr(node, name) for name in names)


def record_hooks(record: Callable[[Function], Run], run: Run, outputs: list[Tensor], carries: int | None) -> None:
    """Records the hooks that a gradient of the outputs passes through.

    Raises UnsupportedError for hooks that no program can have: with side effects, on a node's results.
    """
    for node, output, takes_tuple, hooks, dtype, sizes, of in run.recording.take_hooks(outputs):
        if not hooks:
            continue
        what = f"a hook on a gradient ({_place(hooks[0])})"
        if isinstance(of, int):  # of an input; the step before made a carry's value
            made_by = outputs[of].grad_fn if of < (carries or 0) else None
            is_saved = _saves(made_by, None)
        else:
            is_saved = _saves(of, output) and type(of).__name__ not in _READ_BEHIND_HOOKS
        for hook in hooks:
            if (effect := _side_effect(hook)) is not None:
                raise UnsupportedError(f"{what} that {effect}")
        with _C.Suspended():
            value = torch.empty(sizes, dtype=dtype, device="meta")
        try:
            part, reads = record_backward(record, run, what, _as_backward(hooks, takes_tuple), [value], [value])
        except Exception as error:
            raise UnsupportedError(f"{what}: {error}") from error
        run.recording.hooked(node, output, reads, part.recording, len(run.backwards) - 1, not is_saved)


def _as_backward(hooks: list[Hook], takes_tuple: bool) -> Callable[..., list[Tensor]]:
    def backward(_: list[Tensor], __: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
        (gradient,) = cotangents
        for hook in hooks:
            found = hook((gradient,)) if takes_tuple else hook(gradient)
            if found is None:
                raise UnsupportedError("it returns nothing, so it is there for its side effects")
            if takes_tuple and isinstance(found, tuple) and len(found) == 1:
                (found,) = found
            if not isinstance(found, Tensor) or found.dtype != gradient.dtype or found.shape != gradient.shape:
                raise UnsupportedError("it returns something that is not like the gradient")
            gradient = found
        return [gradient]

    return backward


def _place(hook: Hook) -> str:
    code = _code(hook)
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code is not None else repr(hook)


def _function(hook: Any) -> Any:
    while isinstance(hook, functools.partial | types.MethodType):
        hook = hook.func if isinstance(hook, functools.partial) else hook.__func__
    return hook


def _code(hook: Hook) -> types.CodeType | None:
    code = getattr(_function(hook), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def _side_effect(hook: Hook) -> str | None:
    """The effect of the hook besides returning a gradient, as far as its own code shows it.

    A hook is recorded once in each call, and not run at each step, so any side effect would be lost.
    """
    code = _code(hook)
    if code is None:
        module = getattr(_function(hook), "__module__", None) or ""
        is_pytorch = isinstance(_function(hook), types.BuiltinFunctionType | types.MethodDescriptorType)
        return None if is_pytorch or module.startswith("torch") else "isn't a plain function"
    for instruction, following in itertools.pairwise([*_instructions(code), None]):
        if instruction is None:
            continue
        name = instruction.opname
        if name.startswith(
            ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "DELETE_ATTR", "DELETE_SUBSCR")
        ):
            return "changes a variable"
        if name.startswith("CALL") and following is not None and following.opname == "POP_TOP":
            return "calls a function for its side effects"
    return None


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)
