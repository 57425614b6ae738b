"""Loops that Dynamo gives up. If it would have to end its graph within a step, Dynamo leaves the whole function to
Python, and the backend never sees the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._base import users_code
from weft._base.torch_private import (
    InstructionTranslator,
    InstructionTranslatorBase,
    ListIteratorVariable,
    RangeIteratorVariable,
)
from weft._dynamo.rolling.not_rolled import NotRolled, Place

#: How Dynamo's message begins if Python asks for the value of a tensor.
_VALUES = ("Data-dependent", "Unsupported Tensor.item()", "Unsupported Tensor.tolist()", "Dynamic slicing")


def install(tell: Callable[[NotRolled], None], compiler: str) -> None:
    """Calls `tell` for each loop that Dynamo gives up in a function that this compiler was asked to compile."""
    translator = InstructionTranslatorBase
    give_up: Any = translator.raise_loop_graph_break

    def watched(code: Any, error: Exception) -> Any:
        output = InstructionTranslator.current_tx().output
        if getattr(output.compiler_fn, "compiler_name", "") == compiler:
            tell(_loop(error, _step(output.root_tx)))
        return give_up(code, error)

    translator.raise_loop_graph_break = staticmethod(watched)


def _step(frame: Any) -> str:
    """The step of the innermost `for` in which Dynamo is, in the function that it compiles. An iterator on the stack
    counts its steps; an iterator of a range knows only its next number."""
    for value in reversed(frame.stack):
        if isinstance(value, ListIteratorVariable):
            return f"step {value.index}"
        if isinstance(value, RangeIteratorVariable):
            return f"the step at {value.start - value.step} of its range"
    return "a step"


def _loop(error: Exception, step: str) -> NotRolled:
    stack = [frame for frame in getattr(error, "real_stack", None) or () if users_code.is_users(frame.filename)]
    place = Place(stack[-1].filename, stack[-1].lineno or 0, (stack[-1].line or "").strip()) if stack else Place()
    what = str(error).split("\n")[0]
    if what.startswith(_VALUES):
        reason = (
            f"{step} asks Python for the value of a tensor (`{place.code}`), where Dynamo gives the loop up; "
            "torch.where chooses between two results, torch.cond in a step of weft.scan between two computations"
        )
    else:
        reason = f"{step} does what Dynamo can't trace (`{place.code}`: {what}), and so it gives the loop up"
    return NotRolled(place, 1, reason)
