"""Functions of PyTorch/XLA without a counterpart on one CPU device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def missing(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function that stands for the missing `name` and says what to use instead.

    Raises:
        NotImplementedError: when it is called.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"weft.compat.torch_xla: there is no {name} on one CPU device; {instead}")

    refuse.__name__ = refuse.__qualname__ = name.rsplit(".", 1)[-1]
    refuse.__doc__ = f"There is none: {instead}."
    return refuse
