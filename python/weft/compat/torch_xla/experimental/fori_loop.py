"""`torch_xla.experimental.fori_loop`. PyTorch's own `while_loop` takes tensors of the device without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from weft._control.while_loop import while_loop


def fori_loop(
    lower: Tensor | int, upper: Tensor | int, body_fun: Callable[..., Any], *input_value: Any
) -> tuple[Any, ...]:
    """`value = body_fun(value)`, `upper - lower` times, as one program; not at all if that is below 0. Several values
    are several arguments, and a tuple of as many comes back.

    Returns:
        How many times are left, an int64 tensor unless the bounds are tensors of another dtype, then the values.

    Raises:
        ValueError: there is no value.
        and what weft.while_loop raises.
    """
    if not input_value:
        raise ValueError("weft.compat.torch_xla: fori_loop needs a value that body_fun takes")
    several = len(input_value) > 1

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        after = body_fun(*carry[1:])
        return (carry[0] - 1, *after) if several else (carry[0] - 1, after)

    return while_loop(lambda carry: carry[0] > 0, body, (upper - lower, *input_value))
