"""`torch_xla.experimental.assume_pure`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from weft.compat.torch_xla.core import xla_model


def assume_pure(fn: Callable[..., Any], *, add_rng_seed_argument: bool = False) -> Callable[..., Any]:
    """`fn`. Recording an operation takes a microsecond, and functions are recorded at each call; `torch_xla.compile`
    and `weft.jit` compile a function as one program.

    With `add_rng_seed_argument` the function takes a keyword `rng_seed`, an int: what it draws is what the device draws
    after `torch.manual_seed(rng_seed)`, and the generator is as before when it returns.

    Raises:
        AssertionError: when called, with `add_rng_seed_argument` and without a seed.
    """
    if not add_rng_seed_argument:
        return fn

    @functools.wraps(fn)
    def seeded(*args: Any, rng_seed: int | None = None, **kwargs: Any) -> Any:
        if rng_seed is None:
            raise AssertionError("Missing keyword argument rng_seed.")
        with xla_model.fork_rng():
            xla_model.set_rng_state(int(rng_seed))
            return fn(*args, **kwargs)

    return seeded


def assume_pure_torch(func: Callable[..., Any], use_cache: bool = False) -> Callable[..., Any]:
    """`func`, which is recorded at each call, whatever `use_cache` is.

    Raises:
        AssertionError: gradients are enabled, which PyTorch/XLA's function doesn't support.
    """
    if torch.is_grad_enabled():
        raise AssertionError("weft.compat.torch_xla: assume_pure_torch is for torch.no_grad() alone")
    return func


class PureModule(nn.Module):
    """Calls `module`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)
