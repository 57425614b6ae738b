"""ONNX models."""

from __future__ import annotations

from weft.formats._onnx.reader import OPTIONS, read
from weft.formats._onnx.writer import write

__all__ = ["OPTIONS", "read", "write"]
