"""Haiku: the parameters of hk.GRU, hk.LSTM and hk.VanillaRNN by their paths (haiku/_src/recurrent.py).

Weights lie as [inputs, outputs]. A GRU has `w_i`, `w_h` and `b` with its gates in the order z, r, a, its reset gate
before the product, and z in the other sense, h' = (1 - z) h + z a, so that rows of z are negated here. An LSTM has one
Linear for x and h together, in the order i, g, f, o, and adds 1 to what goes into the forget gate; here that is the
bias of h. A VanillaRNN has a Linear each for x and h, and relu.
"""

from __future__ import annotations

import torch
from torch import Tensor

from weft.formats._arrays.loose_cells import Cell, source_of
from weft.formats._arrays.order import label_of
from weft.formats._beside import Path, by_module
from weft.formats._files.tensors import parameter
from weft.formats._layers import Activation, Direction, FormatError, Layer, Source
from weft.formats._options import Options

OPTIONS = ("module", "reverse")


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The cores among the tensors; an LSTM and a VanillaRNN, which are nothing but Linears, by their modules' names.

    Raises:
        FormatError: a core's parameters don't fit each other.
    """
    modules = by_module(tensors)
    cells = []
    for path, names in modules.items():
        if names.keys() >= {"w_i", "w_h", "b"}:
            cells.append(Cell(path, "GRU", {name: names[name] for name in ("w_i", "w_h", "b")}))
    for path, names in modules.items():
        if path[-1:] == ("linear",) and "w" in names and len(path) > 1:
            cells += _of_linears(path[:-1], names, modules)
    cells.sort(key=lambda cell: list(modules).index(_first_module(cell)))
    return source_of("haiku", tensors, cells, options, lambda cell: _layer(tensors, cell))


def _first_module(cell: Cell) -> Path:
    return cell.path if cell.kind == "GRU" else (*cell.path, "linear")


def _of_linears(path: Path, names: dict[str, str], modules: dict[Path, dict[str, str]]) -> list[Cell]:
    name = path[-1].lower()
    if "lstm" in name and "b" in names:
        return [Cell(path, "LSTM", {"w": names["w"], "b": names["b"]})]
    second = modules.get((*path, "linear_1"), {})
    if "rnn" in name and "b" in names and "w" in second:
        both = {"w": names["w"], "b": names["b"], "w_h": second["w"]}
        return [Cell(path, "RNN", both | ({"b_h": second["b"]} if "b" in second else {}))]
    return []


def _layer(tensors: dict[str, Tensor], cell: Cell) -> Layer:
    return {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}[cell.kind](tensors, cell)


def _gru(tensors: dict[str, Tensor], cell: Cell) -> Layer:
    w_h = parameter(tensors, cell.names["w_h"], (None, None))
    units = w_h.shape[0]
    w_h = parameter(tensors, cell.names["w_h"], (units, 3 * units))
    w_i = parameter(tensors, cell.names["w_i"], (None, 3 * units), w_h)
    b = parameter(tensors, cell.names["b"], (3 * units,), w_h)

    def rows(values: Tensor) -> Tensor:
        z, r, a = values.chunk(3)
        return torch.cat([r, -z, a]).contiguous()

    return Layer(label_of(cell.path), "GRU", [Direction(rows(w_i.T), rows(w_h.T), rows(b))], reset_after=False)


def _lstm(tensors: dict[str, Tensor], cell: Cell) -> Layer:
    w = parameter(tensors, cell.names["w"], (None, None))
    units, inputs = w.shape[1] // 4, w.shape[0] - w.shape[1] // 4
    if w.shape[1] % 4 or inputs < 1:
        raise FormatError(f"{cell.names['w']} has shape {list(w.shape)}; an LSTM of Haiku has [inputs + H, 4 H]")
    b = parameter(tensors, cell.names["b"], (4 * units,), w)

    def rows(values: Tensor) -> Tensor:
        i, g, f, o = values.chunk(4)
        return torch.cat([i, f, g, o]).contiguous()

    whole = rows(w.T)
    forget = torch.zeros_like(b)
    forget[units : 2 * units] = 1
    parts = whole[:, :inputs].contiguous(), whole[:, inputs:].contiguous()
    return Layer(label_of(cell.path), "LSTM", [Direction(*parts, rows(b), forget)])


def _rnn(tensors: dict[str, Tensor], cell: Cell) -> Layer:
    w_h = parameter(tensors, cell.names["w_h"], (None, None))
    units = w_h.shape[0]
    w_h = parameter(tensors, cell.names["w_h"], (units, units))
    w = parameter(tensors, cell.names["w"], (None, units), w_h)
    b = parameter(tensors, cell.names["b"], (units,), w_h)
    b_h = parameter(tensors, cell.names["b_h"], (units,), w_h) if "b_h" in cell.names else None
    direction = Direction(w.T.contiguous(), w_h.T.contiguous(), b, b_h)
    return Layer(label_of(cell.path), "RNN", [direction], activation=Activation("relu"))
