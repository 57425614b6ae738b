"""MLX: its RNN, GRU and LSTM by their paths (mlx/nn/layers/recurrent.py). Gates are r, z, n and i, f, g, o, weights lie
as here, and there is one bias; a GRU has beside it `bhn`, inside of the reset. z keeps the state where it is 1."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.formats._arrays.loose_cells import Cell, source_of
from weft.formats._arrays.order import label_of
from weft.formats._beside import by_module
from weft.formats._files.tensors import parameter
from weft.formats._layers import TANH, Direction, FormatError, Layer, Source
from weft.formats._options import Options

OPTIONS = ("module", "activation", "reverse")

#: Options that a GRU's parameters don't tell; for mlx before 0.31.2.
_FIRST_STEP = (
    "a GRU of MLX before 0.31.2 leaves bhn out at step 0 where no hidden state is given; here it is added, as later "
    "releases do"
)


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The layers among the tensors.

    Raises:
        FormatError: a layer's parameters don't fit each other.
    """
    cells = []
    for path, names in by_module(tensors).items():
        if names.keys() >= {"Wxh", "Whh"}:
            cells.append(_cell(path, "RNN", names, ("Wxh", "Whh", "bias")))
        elif names.keys() >= {"Wx", "Wh"}:
            if names.keys() & {"b", "bhn"}:
                cells.append(_cell(path, "GRU", names, ("Wx", "Wh", "b", "bhn")))
            else:
                cells.append(_cell(path, "LSTM" if "bias" in names else "", names, ("Wx", "Wh", "bias")))
    source = source_of("mlx", tensors, cells, options, lambda cell: _layer(tensors, cell, options))
    if source is not None:
        if any(layer.kind == "RNN" for layer in source.layers) and "activation" not in options:
            source.notes.append(
                "a file doesn't say which nonlinearity an RNN has: tanh is assumed; option activation=relu says "
                "otherwise"
            )
        if any(layer.kind == "GRU" and layer.directions[0].bias_h is not None for layer in source.layers):
            source.notes.append(_FIRST_STEP)
    return source


def _cell(path: tuple[str, ...], kind: str, names: dict[str, str], own: tuple[str, ...]) -> Cell:
    return Cell(path, kind, {name: names[name] for name in own if name in names})


def _layer(tensors: dict[str, Tensor], cell: Cell, options: Options) -> Layer:
    label = label_of(cell.path)
    x, h = ("Wxh", "Whh") if cell.kind == "RNN" else ("Wx", "Wh")
    weight_x = parameter(tensors, cell.names[x], (None, None))
    rows = weight_x.shape[0]
    weight_h = parameter(tensors, cell.names[h], (rows, None), weight_x)
    units = weight_h.shape[1]
    kind = {1: "RNN", 3: "GRU", 4: "LSTM"}.get(rows // units) if rows % units == 0 else None
    if kind is None or (cell.kind and kind != cell.kind):
        raise FormatError(
            f"{label}: {h} has shape {list(weight_h.shape)}; an RNN (Wxh, Whh, bias) has as many rows as columns, "
            "a GRU (Wx, Wh, b, bhn) three times as many, an LSTM (Wx, Wh, bias) four times"
        )

    def get(name: str, size: int) -> Tensor | None:
        return parameter(tensors, cell.names[name], (size,), weight_x) if name in cell.names else None

    inner = options.activation("activation", TANH) if kind == "RNN" else TANH
    if kind != "GRU":
        return Layer(label, kind, [Direction(weight_x, weight_h, get("bias", rows))], activation=inner)
    bias, inside = get("b", rows), get("bhn", units)
    if (bias is None) != (inside is None):
        raise FormatError(f"{label}: has one of b and bhn; a GRU has both or none")
    bias_h = None if inside is None else torch.cat([inside.new_zeros(2 * units), inside])
    return Layer(label, kind, [Direction(weight_x, weight_h, bias, bias_h)])
