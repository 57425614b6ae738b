"""Burn's records."""

from __future__ import annotations

from weft.formats._burn.reader import OPTIONS, layers_of
from weft.formats._burn.writer import write

__all__ = ["OPTIONS", "layers_of", "write"]
