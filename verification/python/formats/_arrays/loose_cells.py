"""Cells of frameworks whose files are nothing but named arrays: Equinox, MLX, Haiku. One direction each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from weft.formats._arrays.order import label_of
from weft.formats._beside import Path, beside
from weft.formats._layers import FormatError, Layer, Source
from weft.formats._options import Options

_NUMBERED = re.compile(r"(.*?)_?(\d{1,9})", re.DOTALL)


class Cell(NamedTuple):
    """A cell in a file: its module's path, and the file's names of its parameters by the cell's own names."""

    path: Path
    kind: str
    names: dict[str, str]


def source_of(
    format: str, tensors: dict[str, Tensor], cells: list[Cell], options: Options, layer_of: Callable[[Cell], Layer]
) -> Source | None:
    """The layers of the cells, in the order of the file; None if there are none."""
    if not cells:
        return None
    wanted = options.text("module")
    if wanted is not None:
        asked = wanted.replace(".", "/")
        chosen = [cell for cell in cells if f"{label_of(cell.path)}/".startswith(f"{asked}/")]
        if not chosen:
            raise FormatError(f"has no cell {wanted!r}; it has {', '.join(label_of(cell.path) for cell in cells)}")
        cells = chosen
    source = Source("", format, [])
    for index, cell in enumerate(cells):
        layer = layer_of(cell)
        layer.directions[0].reverse = options.flag("reverse", False)
        behind = index > 0 and _counts_up(cells[index - 1].path, cell.path)
        layer.continues = behind and source.layers[-1].output_size == layer.input_size
        source.layers.append(layer)
    if any(layer.continues for layer in source.layers):
        source.notes.append("cells whose names count up and whose sizes fit are taken to feed each other")
    used = {name for cell in cells for name in cell.names.values()}
    source.ignored = [name for name in tensors if name not in used]
    source.unused = beside(source.ignored, [cell.path for cell in cells])
    return source


def _counts_up(before: Path, after: Path) -> bool:
    """Whether the paths differ only in the number of one part: lstm and lstm_1, or layers.0 and layers.1."""
    if len(before) != len(after):
        return False
    apart = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    if len(apart) != 1:
        return False
    first, second = apart[0]
    numbers = [_NUMBERED.fullmatch(part) for part in (first, second)]
    heads = [first if numbers[0] is None else numbers[0][1], second if numbers[1] is None else numbers[1][1]]
    counts = [-1 if match is None else int(match[2]) for match in numbers]
    return heads[0] == heads[1] and counts[0] < counts[1]
