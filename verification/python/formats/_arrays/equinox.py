"""Equinox: its GRUCell and LSTMCell by their paths (equinox/nn/_rnn.py). The layout is PyTorch's, with one bias for x's
products. A GRUCell also has `bias_n`, the bias of the new gate's product with h. Where z is 1, the state is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.formats._arrays.loose_cells import Cell, source_of
from weft.formats._arrays.order import label_of
from weft.formats._beside import by_module
from weft.formats._files.tensors import parameter
from weft.formats._layers import Direction, FormatError, Layer, Source
from weft.formats._options import Options

OPTIONS = ("module", "reverse")

_WEIGHTS = {"weight_ih", "weight_hh"}


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The cells among the tensors, if one of them has a bias named as Equinox does; without one they are PyTorch's.

    Raises:
        FormatError: a cell's parameters don't fit each other.
    """
    cells = []
    for path, names in by_module(tensors).items():
        biases = {"bias", "bias_n"} & names.keys()
        if names.keys() >= _WEIGHTS and not names.keys() & {"bias_ih", "bias_hh"}:
            cells.append(Cell(path, "GRU" if "bias_n" in biases else "", {n: names[n] for n in (*_WEIGHTS, *biases)}))
    if not any({"bias", "bias_n"} & cell.names.keys() for cell in cells) or any(
        _is_none(tensors, cell) for cell in cells
    ):
        return None
    return source_of("equinox", tensors, cells, options, lambda cell: _layer(tensors, cell))


def _is_none(tensors: dict[str, Tensor], cell: Cell) -> bool:
    """Whether this is a GRU whose parameter `bias` isn't Equinox's: Equinox's GRU has a bias_n too."""
    weight_h = tensors[cell.names["weight_hh"]]
    is_gru = weight_h.dim() == 2 and weight_h.shape[0] == 3 * weight_h.shape[1]
    return is_gru and cell.names.keys() & {"bias", "bias_n"} == {"bias"}


def _layer(tensors: dict[str, Tensor], cell: Cell) -> Layer:
    label = label_of(cell.path)
    weight_x = parameter(tensors, cell.names["weight_ih"], (None, None))
    rows = weight_x.shape[0]
    weight_h = parameter(tensors, cell.names["weight_hh"], (rows, None), weight_x)
    units = weight_h.shape[1]
    kind = {3: "GRU", 4: "LSTM"}.get(rows // units) if rows % units == 0 else None
    if kind is None or (cell.kind and kind != cell.kind):
        raise FormatError(
            f"{label}: weight_hh has shape {list(weight_h.shape)}; a GRUCell (with bias_n) has three times as many "
            "rows as columns, an LSTMCell four times"
        )
    bias = parameter(tensors, cell.names["bias"], (rows,), weight_x) if "bias" in cell.names else None
    if bias is None and "bias_n" in cell.names:
        raise FormatError(f"{label}: has bias_n without bias; a GRUCell has both or none")
    if kind == "LSTM" or bias is None:
        return Layer(label, kind, [Direction(weight_x, weight_h, bias)])
    bias_n = parameter(tensors, cell.names["bias_n"], (units,), weight_x)
    return Layer(label, kind, [Direction(weight_x, weight_h, bias, torch.cat([bias.new_zeros(2 * units), bias_n]))])
