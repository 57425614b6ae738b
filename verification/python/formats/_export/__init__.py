"""torch.export programs."""

from __future__ import annotations

from weft.formats._export.reader import OPTIONS, read
from weft.formats._export.writer import write

__all__ = ["OPTIONS", "read", "write"]
