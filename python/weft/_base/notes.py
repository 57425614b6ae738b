"""Notes on errors of the user's own functions: the arguments that these were called with."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from weft._base import trees


def add(error: BaseException, note: str) -> None:
    """Adds a note, which a traceback shows below the error. Before Python 3.11, which has such notes, it becomes the
    end of the message."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


def shapes(name: str, tree: Any) -> str:
    """The leaves' names and types, as carry['h'] float32[8,16], carry['c'] float32[8,16]."""
    try:
        leaves = trees.flatten(tree)[0]
        return ", ".join(
            f"{path} {trees.describe(leaf)}" for path, leaf in zip(trees.paths(name, tree), leaves, strict=True)
        )
    except Exception:  # the tree is one that PyTorch can't take apart: the error that is under way says more
        return f"{name} {type(tree).__name__}"


class on_errors:  # noqa: N801
    """Adds a note to errors raised within: the place, and the shapes of the arguments. A plain class, which takes a
    third of a generator's time."""

    def __init__(self, where: str, **arguments: Any) -> None:
        self.where, self.arguments = where, arguments

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if not isinstance(error, Exception) or getattr(error, "_weft_noted", False):
            return
        if torch.compiler.is_dynamo_compiling():
            return
        described = ", ".join(shapes(name, tree) for name, tree in self.arguments.items() if tree is not None)
        add(error, f"in {self.where}, with {described}")
        with contextlib.suppress(AttributeError):
            error._weft_noted = True  # type: ignore[attr-defined]
