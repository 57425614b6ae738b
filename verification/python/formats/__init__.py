"""Recurrent layers from the files of other frameworks, and back.

Files are data: nothing in them is executed, and sizes, names and dtypes are checked before anything is allocated.
"""

from __future__ import annotations

from weft.formats._layers import GATES, Activation, Direction, FormatError, Layer, Source, Trace
from weft.formats._live import layers_of_module
from weft.formats._read import layers_of_tensors, read, read_arrays
from weft.formats._write import write

__all__ = [
    "GATES",
    "Activation",
    "Direction",
    "FormatError",
    "Layer",
    "Source",
    "Trace",
    "layers_of_module",
    "layers_of_tensors",
    "read",
    "read_arrays",
    "write",
]
