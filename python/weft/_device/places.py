"""Where in the user's code an operation was called."""

from __future__ import annotations

import os
import sys

import torch

#: Folders whose code isn't the user's, and the code that torch.compile makes.
_OWN = (*(f"{path}/" for path in (*torch.__path__, os.path.dirname(os.path.dirname(__file__)))), "<eval_with_key>")


def find_place() -> str:
    """The user's file and line that the calling thread is in, as "train.py:12"; "" if it is in none."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
