"""Errors of capturing: functions that a program can't express, and functions with forbidden effects."""

from __future__ import annotations

from torch import Tensor


class UnsupportedError(Exception):
    """A program can't express something that the function does; the message says what.

    `operation`: the index of the recorded operation at or near the cause, where it is known.
    """

    operation: int | None = None


class UnprovenGradientError(UnsupportedError):
    """The derivative of a program isn't shown to be the function's."""


class UnrecordableError(Exception):
    """The function does something that a recording can't hold."""


class FailedError(Exception):
    """The function raised an error of its own, perhaps because it was being recorded. __cause__ is that error."""


class ReadsValueError(RuntimeError):
    """Python asks for a value that only the program will compute."""


class SideEffectError(RuntimeError):
    """A function has an effect besides its results."""


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
