"""`weft.while_loop`: steps until a condition fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from weft import _C
from weft._base import notes
from weft._base.errors import UnsupportedError
from weft._base.torch_private import pytree
from weft._capture import modes, programs
from weft._capture.complex_numbers import as_pairs, kind_of, next_leaf
from weft._capture.runs import Function
from weft._capture.traced import Traced
from weft._control.carries import checked_carry, condition, tensors
from weft._control.eval_frame import without_dynamo
from weft._control.scan_call import only_steps

C = TypeVar("C")

_WHAT = "weft.while_loop"


def while_loop(
    cond: Callable[[C], Tensor | bool], body: Callable[[C], C], carry: C, *, max_steps: int | None = None
) -> C:
    """Runs `carry = body(carry)` as long as `cond(carry)` holds, as one compiled program.

    As jax.lax.while_loop. Which values a loop will need for its gradients is known only if the number of its steps is
    bounded: with `max_steps` the loop ends after that many at the latest, and is differentiable.

    Args:
        cond: from a carry to a bool, a tensor of one element.
        body: from a carry to the next, of the same structure, shapes and dtypes.
        carry: tensors (or numbers) in any pytree.
        max_steps: the most steps to take.

    Returns:
        The carry at the end.

    Raises:
        ValueError: the carry changes structure, shape or dtype in the body; max_steps is negative.
        TypeError: a leaf that is no tensor, a condition that is no bool, a function of more than one argument.
        RuntimeError: a side effect in cond or body; in a backward through a loop without max_steps.
    """
    for name, fn in (("cond", cond), ("body", body)):
        if not callable(fn):
            raise TypeError(f"{_WHAT}: {name} must be callable, but is {type(fn).__name__}")
        if (count := _required(fn)) > 1:
            raise TypeError(
                f"{_WHAT}: cond and body take the whole carry as one argument, but {name} takes {count}: "
                "take it apart inside, as in `a, b = carry`"
            )
    if max_steps is not None and (not isinstance(max_steps, int) or max_steps < 0):
        raise ValueError(f"{_WHAT}: max_steps must be an integer that is not negative, but is {max_steps!r}")
    if torch.compiler.is_dynamo_compiling():
        from weft._control import under_dynamo

        return under_dynamo.while_loop(cond, body, carry, max_steps=max_steps)
    if max_steps == 0:
        return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, carry)
    if not _C.active():
        return _loop(cond, body, carry, max_steps)
    with without_dynamo():
        return programs.or_else(
            _WHAT, lambda: _run(cond, body, carry, max_steps), lambda: _loop(cond, body, carry, max_steps)
        )


def _required(fn: Callable[..., Any]) -> int:
    """The number of arguments that a function requires; 1 if that isn't known."""
    fn = fn.forward if isinstance(fn, torch.nn.Module) else fn
    code = getattr(fn, "__code__", None)
    if code is None:
        return 1
    return code.co_argcount - len(fn.__defaults__ or ()) - (getattr(fn, "__self__", None) is not None)


def _loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, max_steps: int | None) -> Any:
    """The loop in plain PyTorch. As in a program, the body may change its carry in place."""
    leaves, spec = tensors(_WHAT, "carry", carry)
    carry = pytree.tree_unflatten([None if leaf is None else leaf.clone() for leaf in leaves], spec)
    steps = 0
    while max_steps is None or steps < max_steps:
        with notes.on_errors(f"step {steps} of {_WHAT}", carry=carry):
            if not bool(condition(_WHAT, cond, carry)):
                break
            carry = spec.unflatten(checked_carry(f"{_WHAT}: the body", spec, carry, body(carry)))
        steps += 1
    return carry


def _run(cond: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, max_steps: int | None) -> Any:
    leaves, spec = tensors(_WHAT, "carry", carry)
    given = as_pairs([leaf for leaf in leaves if leaf is not None])

    def tested(carry: Any) -> tuple[list[Tensor], None]:
        return [condition(_WHAT, cond, carry)], None

    def step(carry: Any) -> tuple[list[Tensor], None]:
        return [
            leaf for leaf in checked_carry(f"{_WHAT}: the body", spec, carry, body(carry)) if leaf is not None
        ], None

    def compose(traces: list[Traced]) -> _C.Program:
        if any(traced.noise for traced in traces):
            raise UnsupportedError("random numbers in a loop whose number of steps isn't known")
        test, following = traces
        if test.sizes[: len(given)] != following.sizes[: len(given)]:
            raise UnsupportedError("a condition and a body that are programs for different sizes")
        make = _C.while_program if max_steps is None else _C.bounded_while_program
        return make(test.program, following.program, len(given), len(test.captured), len(following.captured))

    arguments, has_pairs = pytree.TreeSpec(tuple, None, [spec]), not modes.is_tracing()
    functions = [
        Function(tested, leaves, arguments, f"{_WHAT}: the condition", (cond,), has_pairs=has_pairs, carries=0),
        Function(step, leaves, arguments, f"{_WHAT}: the body", (body,), has_pairs=has_pairs, carries=len(leaves)),
    ]
    found = programs.find(_WHAT, max_steps is None, functions, compose)
    if max_steps is None:
        results = torch.ops.weft.call(found.captured.program.text, [*given, *found.inputs])
    else:
        results = torch.ops.weft.call(found.captured.program.text, [*given, only_steps(max_steps), *found.inputs])
    following = iter(results)
    return pytree.tree_unflatten([next_leaf(following, kind_of(leaf)) for leaf in leaves], spec)
