"""Errors of capturing: what a program can't express, and what a captured function mustn't do."""

from __future__ import annotations

from torch import Tensor


class UnsupportedError(Exception):
    """A program can't express it; the message says what.

    `operation`: the index of the recorded operation at or near the cause, where it is known.
    """

    operation: int | None = None


class UnprovenGradientError(UnsupportedError):
    """The derivative of a program isn't shown to be the function's."""


class UnrecordableError(Exception):
    """The function does what a recording can't hold."""


class FailedError(Exception):
    """The function raised an error of its own, which may be the recording's fault; __cause__ has it."""


class ReadsValueError(RuntimeError):
    """Python asks for a value that only the program will compute."""


class SideEffectError(RuntimeError):
    """A function does more than return its results."""


class LeakError(SideEffectError):
    """A tensor of a recorded run is kept after it."""


class MutatesCapturedError(SideEffectError):
    """A function changes a tensor that it doesn't own."""

    def __init__(self, message: str, tensor: Tensor | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


def raise_if_internal(error: Exception) -> None:
    """Raises the error again if it is Weft's own bug; what the IR can't express is a normal answer."""
    if "weft internal error" in str(error):
        raise error
