"""Notes on errors of the user's own functions: what they were called with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from weft._base import trees


def add(error: BaseException, note: str) -> None:
    """What a traceback shows below the error; before Python 3.11, which has such notes, the end of its message."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


def shapes(name: str, tree: Any) -> str:
    """carry['h'] float32[8,16], carry['c'] float32[8,16]"""
    try:
        leaves = trees.flatten(tree)[0]
        return ", ".join(
            f"{path} {trees.describe(leaf)}" for path, leaf in zip(trees.paths(name, tree), leaves, strict=True)
        )
    except Exception:  # of a tree that PyTorch can't take apart: the error that is under way says more
        return f"{name} {type(tree).__name__}"


@contextlib.contextmanager
def on_errors(where: str, **arguments: Any) -> Iterator[None]:
    """Errors within get a note: where they came up, and the shapes of the arguments."""
    try:
        yield
    except Exception as error:
        if not getattr(error, "_weft_noted", False) and not torch.compiler.is_dynamo_compiling():
            described = ", ".join(shapes(name, tree) for name, tree in arguments.items() if tree is not None)
            add(error, f"in {where}, with {described}")
            with contextlib.suppress(AttributeError):
                error._weft_noted = True  # type: ignore[attr-defined]
        raise
