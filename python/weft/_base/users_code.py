"""Which code is the user's: not PyTorch's, not Weft's, not code that torch.compile generated."""

from __future__ import annotations

import importlib
import os
import sys
import types

import torch

from weft._base.torch_private import ENGINE_FRAME

#: How the names of files begin that aren't the user's.
_OTHERS = (
    *(f"{path}/" for path in (*torch.__path__, os.path.dirname(os.path.dirname(__file__)))),
    f"{os.path.dirname(importlib.__file__)}/",
    "<eval_with_key>",
    "<frozen ",
)


_counted: set[str] = set()  #: files in those folders that are the user's all the same


def count_as_users(file: str) -> None:
    """From now on counts the file's code as the user's, although it lies in a folder of Weft's: it is being studied
    itself."""
    _counted.add(file)


def is_counted(file: str) -> bool:
    """Whether `count_as_users` was called for this file."""
    return file in _counted


def is_users(file: str) -> bool:
    """Whether a file of this name has code of the user's."""
    return not file.startswith(_OTHERS) or file in _counted


def innermost(frame: types.FrameType | None) -> types.FrameType | None:
    """The frame, or the first of its callers', that is the user's; None if there is none."""
    while frame is not None:
        # Inductor's modules lie in a folder of their own, but have names like torch._inductor's.
        name = str(frame.f_globals.get("__name__"))
        if is_users(frame.f_code.co_filename) and not name.startswith(("torch.", "_weft_run")):
            return frame
        frame = frame.f_back
    return None


def calling() -> types.FrameType | None:
    """The innermost frame of the user's code in this thread. A thread of autograd's has none; then the frame of the
    thread that waits in `backward()`, if there is exactly one such thread. Else None."""
    found = innermost(sys._getframe(1))
    if found is not None:
        return found
    waiting = [
        frame
        for frame in sys._current_frames().values()
        if (frame.f_code.co_filename, frame.f_code.co_name) == ENGINE_FRAME
    ]
    return innermost(waiting[0]) if len(waiting) == 1 else None
