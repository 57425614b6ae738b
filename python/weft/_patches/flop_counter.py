"""torch.utils.flop_counter: a module's flops are those of PyTorch's kernels; `torch.ops.weft.call` has a formula."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from weft import _C


def install(flop_counter: ModuleType) -> None:
    """To be called once torch.utils.flop_counter is imported, with this module."""

    @flop_counter.register_flop_formula(torch.ops.weft.call)
    def flops(program: str, sizes: list[Any], *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        return _C.flops(program, [list(size) for size in sizes])

    _count_modules_on_pytorch(flop_counter.FlopCounterMode)


def _count_modules_on_pytorch(mode: Any) -> None:
    """Within the mode, eager modules run on PyTorch's kernels, so that the mode counts their operators one by one.

    Totals, and the names they are listed under, are then the same as without Weft. Code that was compiled before still
    calls `weft.call`, which has a formula of its own.
    """
    enter, exit = mode.__enter__, mode.__exit__

    def enter_disabled(self: Any) -> Any:
        result = enter(self)
        _C.enter_disabled()
        return result

    def exit_disabled(self: Any, *error: Any) -> Any:
        if self.mode is not None:  # the mode was entered
            _C.exit_disabled()
        return exit(self, *error)

    mode.__enter__, mode.__exit__ = enter_disabled, exit_disabled
