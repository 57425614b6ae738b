"""The other end of process.py: pickled requests on stdin, pickled answers on stdout."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any


def serve(handler: Any, missing: str | None = None) -> None:
    """Answers each request `(name, *arguments)` with `handler.name(*arguments)`, until stdin ends; with `missing`, what
    isn't installed, in place of all answers."""
    # Libraries print to stdout; the answers go where only this function writes.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if missing is not None:
            answer = ("missing", missing)
        else:
            try:
                answer = ("ok", getattr(handler, name)(*arguments))
            except Exception as error:  # goes to the other side, which says it
                answer = ("error", f"{type(error).__name__}: {str(error)[:200]}")
        pickle.dump(answer, answers)
        answers.flush()
