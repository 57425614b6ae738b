"""What messages to users have in common."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says that there is no such name; nothing where none is close."""
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
