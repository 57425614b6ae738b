"""`torch_xla.experimental.assume_pure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compat.torch_xla._missing import missing


def assume_pure(fn: Callable[..., Any], *, add_rng_seed_argument: bool = False) -> Callable[..., Any]:
    """`fn`. Recording an operation takes a microsecond, and functions are recorded at each call; `torch_xla.compile`
    and `weft.jit` compile a function as one program.

    Raises:
        NotImplementedError: with `add_rng_seed_argument`.
    """
    if add_rng_seed_argument:
        missing("assume_pure with a seed", "seed with torch.manual_seed before the call")()
    return fn
