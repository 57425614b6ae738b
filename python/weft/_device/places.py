"""Where in the user's code an operation was called."""

from __future__ import annotations

import os
import sys

from weft._base import users_code


def find_place() -> str:
    """The user's file and line that the calling thread is in, as "train.py:12"; "" if it is in none."""
    frame = users_code.innermost(sys._getframe(1))
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
