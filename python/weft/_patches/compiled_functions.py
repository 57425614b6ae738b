"""What torch.compile made runs as it is written while a function is recorded.

Dynamo would ask for the values of tensors that hold none. As it is written, a compiled function's operations become a
part of the record like any others. So do those of torch.cond and PyTorch's other control flow, which call torch.compile
themselves in eager mode, and then the kernels that ask Weft first (higher_order_kernels).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from weft import _C
from weft._base import torch_private
from weft._base.import_hooks import when_imported

_undo: list[Callable[[], None]] = []
_wanted = False


def enable() -> None:
    """Takes effect once Dynamo is imported."""
    global _wanted
    if not _wanted:
        _wanted = True
        when_imported(torch_private.EVAL_FRAME, _install)


def disable() -> None:
    global _wanted
    _wanted = False
    while _undo:
        _undo.pop()()


def _install(eval_frame: ModuleType) -> None:
    if not _wanted or _undo:
        return
    original = eval_frame._callback_from_stance
    count_frames = getattr(eval_frame, "set_fullgraph_compiled_frame_count", None)

    @functools.wraps(original)
    def callback(given: Any) -> Any:
        if not _C.recording():
            return original(given)
        if count_frames is not None and (compiled := count_frames(-1)) > 0:
            count_frames(compiled)  # of a function around this one; 0 would be an error of fullgraph=True
        return None  # no frame is compiled

    eval_frame._callback_from_stance = callback  # type: ignore[attr-defined]
    _undo.append(lambda: setattr(eval_frame, "_callback_from_stance", original))
