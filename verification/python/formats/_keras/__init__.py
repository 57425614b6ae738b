"""Keras: `.keras` archives and HDF5 files of weights."""

from __future__ import annotations

from weft.formats._keras.reader import OPTIONS, read
from weft.formats._keras.writer import write

__all__ = ["OPTIONS", "read", "write"]
