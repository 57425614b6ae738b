"""The flop formula of `torch.ops.weft.call`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from weft import _C


def register(flop_counter: ModuleType) -> None:
    """Adds the formula to torch.utils.flop_counter, `flop_counter`."""

    @flop_counter.register_flop_formula(torch.ops.weft.call)
    def flops(program: str, sizes: list[Any], *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        return _C.flops(program, [list(size) for size in sizes])
