"""Wording that messages to users share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause that suggests the closest known name, for the end of a message about an unknown one; empty where none is
    close."""
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
