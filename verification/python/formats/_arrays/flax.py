"""Flax: the parameters of linen's and nnx's cells by their paths, in MessagePack, safetensors or .npz.

The equations are those here: z keeps the state where it is 1, and the reset gate is applied after the product. Kernels
lie as [inputs, outputs]. linen's cells have a Dense for each gate and side, nnx's GRUCell, OptimizedLSTMCell and
SimpleCell one for each side, with the gates r, z, n and i, f, g, o in its columns. A GRUCell has biases of x, and
linen's one in the new gate's product of h; an LSTMCell has those of h, a SimpleCell those of x.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from weft.formats._arrays.order import Found, Unit, arranged, follows, label_of
from weft.formats._beside import beside
from weft.formats._files.tensors import parameter
from weft.formats._layers import SIGMOID, TANH, Direction, FormatError, Layer, Source
from weft.formats._options import Options

OPTIONS = ("module", "gate_activation", "activation", "bidirectional", "merge", "residual", "reverse")

#: By kind: linen's names of the products of x and of h, gate by gate. nnx can't name an attribute `if`.
LINEN = {
    "GRU": (("ir", "iz", "in"), ("hr", "hz", "hn")),
    "LSTM": (("ii", "if", "ig", "io"), ("hi", "hf", "hg", "ho")),
    "RNN": (("i",), ("h",)),
}
_MERGES = ("concat", "sum", "mul", "ave")
_WIDTHS = {1: "RNN", 3: "GRU", 4: "LSTM"}
#: Parts of a training state with the same names as the parameters.
_COPIES = {"opt_state", "mu", "nu", "trace", "ema", "ema_params", "batch_stats"}


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The cells among the parameters, in the order of their names, or of the file where only that fits.

    Raises:
        FormatError: a cell's parameters don't fit each other.
    """
    groups = _groups(tensors)
    source = Source("", "flax", [])
    cells: dict[tuple[str, ...], tuple[Found, str]] = {}
    for path, found in groups.items():
        products = {product for product, _ in found}
        kind = _kind(tensors, found)
        if kind:
            cells[path] = found, kind
        elif products == {"if", "in", "hf", "hn"} or products == {"if_", "in_", "hf", "hn"}:
            source.notes.append(f"{label_of(path)} is an MGUCell, which isn't read")
    kept = {path: cell for path, cell in cells.items() if not _COPIES & set(path)}
    cells = kept or cells
    if not cells:
        return None
    units = _paired(tensors, cells)
    wanted = options.text("module")
    if wanted is not None:
        chosen = [unit for unit in units if f"{label_of(unit.path)}/".startswith(wanted.replace(".", "/") + "/")]
        if not chosen:
            raise FormatError(f"has no cell {wanted!r}; it has {', '.join(label_of(unit.path) for unit in units)}")
        units = chosen
    merge = options.word("merge", _MERGES, "concat")
    units = arranged(units, options.flag("bidirectional"), merge, source.notes)
    used: set[str] = set()
    for i, unit in enumerate(units):
        layer = _layer(tensors, unit, options)
        fits = i > 0 and source.layers[-1].output_size == layer.input_size
        layer.continues = fits and follows(units[i - 1], unit)
        source.layers.append(layer)
        used |= {name for found in unit.cells for name in found.values()}
    _assumptions(source, options)
    source.ignored = [name for name in tensors if name not in used]
    source.unused = beside(source.ignored, [path for path, cell in cells.items() if set(cell[0].values()) <= used])
    return source


def _groups(tensors: dict[str, Tensor]) -> dict[tuple[str, ...], Found]:
    """Kernels and biases by the module two levels above them."""
    groups: dict[tuple[str, ...], Found] = {}
    for name in tensors:
        parts = re.split(r"[./]", name)
        if parts[-1] in ("value", "raw_value"):  # the parts of an nnx.Variable
            parts.pop()
        if len(parts) > 1 and parts[-1] in ("kernel", "bias"):
            groups.setdefault(tuple(parts[:-2]), {})[parts[-2], parts[-1]] = name
    return groups


def _kind(tensors: dict[str, Tensor], found: Found) -> str:
    """The kind of a cell, "" if it is none, by its products' names, and for nnx by their widths."""
    products = {product for product, _ in found}
    kernels = {product for product, part in found if part == "kernel"}
    if products == {"dense_i", "dense_h"} == kernels:
        shape = tensors[found["dense_h", "kernel"]].shape
        if len(shape) == 2 and shape[0] and shape[1] % shape[0] == 0:
            return _WIDTHS.get(shape[1] // shape[0], "")
        return ""
    plain = {product.removesuffix("_") for product in products}
    for kind, sides in LINEN.items():
        if plain == {name for side in sides for name in side} and products == kernels:
            return kind
    return ""


def _paired(tensors: dict[str, Tensor], cells: dict[tuple[str, ...], tuple[Found, str]]) -> list[Unit]:
    """Layers of cells: the forward_rnn and backward_rnn of a Bidirectional are one."""
    units: list[Unit] = []
    for path, (found, kind) in cells.items():
        words = [i for i, word in enumerate(path) if word in ("forward_rnn", "backward_rnn")]
        base, rest = (path[: words[-1]], path[words[-1] + 1 :]) if words else (path, ())
        both = [(*base, word, *rest) for word in ("forward_rnn", "backward_rnn")]
        if words and all(other in cells for other in both):
            if path == both[1]:
                continue
            other, kind_of_other = cells[both[1]]
            unit = _unit(tensors, base, [found, other], kind)
            if kind != kind_of_other or _unit(tensors, base, [other], kind).units != unit.units:
                raise FormatError(f"{label_of(base)}: its two directions are of different kinds or sizes")
            units.append(unit)
        else:
            units.append(_unit(tensors, path, [found], kind))
    return units


def _unit(tensors: dict[str, Tensor], path: tuple[str, ...], cells: list[Found], kind: str) -> Unit:
    def first(found: Found, side: int) -> str:
        name = LINEN[kind][side][0]
        return found.get((("dense_i", "dense_h")[side], "kernel")) or found[name, "kernel"]

    kernel = parameter(tensors, first(cells[0], 0), (None, None))
    recurrent = parameter(tensors, first(cells[0], 1), (None, None))
    return Unit(path, cells, kind, kernel.shape[0], recurrent.shape[0])


def _layer(tensors: dict[str, Tensor], unit: Unit, options: Options) -> Layer:
    directions = [_direction(tensors, found, unit, options) for found in unit.cells]
    if len(directions) == 2:
        directions[1].reverse = True
        if directions[0].weight_x.dtype != directions[1].weight_x.dtype:
            raise FormatError(f"{label_of(unit.path)}: its two directions are of different dtypes")
    else:
        directions[0].reverse = options.flag("reverse", False)
    inner = options.activation("activation", TANH)
    return Layer(
        label_of(unit.path),
        unit.kind,
        directions,
        gate_activation=options.activation("gate_activation", SIGMOID),
        activation=inner,
        output_activation=inner if unit.kind == "LSTM" else TANH,
        merge=options.word("merge", _MERGES, "concat") if len(directions) == 2 else "concat",
    )


def _direction(tensors: dict[str, Tensor], found: Found, unit: Unit, options: Options) -> Direction:
    kind, units = unit.kind, unit.units
    is_nnx = ("dense_i", "kernel") in found
    gates = len(LINEN[kind][0])
    names = [("dense_i",), ("dense_h",)] if is_nnx else LINEN[kind]
    width = units * gates if is_nnx else units
    like = tensors[_named(found, names[1][0], "kernel")]

    def rows(side: int, columns: int) -> Tensor:
        parts = [parameter(tensors, _named(found, name, "kernel"), (columns, width), like).T for name in names[side]]
        return torch.cat(parts).contiguous()

    def bias(side: int) -> Tensor | None:
        own = [found.get((name, "bias")) or found.get((f"{name}_", "bias")) for name in names[side]]
        if not any(own):
            return None
        parts = [like.new_zeros(width) if name is None else parameter(tensors, name, (width,), like) for name in own]
        return torch.cat(parts)

    direction = Direction(rows(0, unit.inputs), rows(1, units), bias(0), bias(1))
    if options.flag("residual", False) and kind == "RNN":
        # h' = g(W x + U h + h)
        direction.weight_h = direction.weight_h + torch.eye(units, dtype=like.dtype)
    if direction.bias_x is None and direction.bias_h is not None:
        if kind == "GRU":
            direction.bias_x = torch.zeros_like(direction.bias_h)
        else:
            direction.bias_x, direction.bias_h = direction.bias_h, None
    return direction


def _named(found: Found, product: str, part: str) -> str:
    return found.get((product, part)) or found[f"{product}_", part]


def _assumptions(source: Source, options: Options) -> None:
    kinds = {layer.kind for layer in source.layers}
    lone = any(len(layer.directions) == 1 for layer in source.layers)
    said = {
        "gate_activation": ("sigmoid", bool(kinds & {"GRU", "LSTM"})),
        "activation": ("tanh", True),
        "residual": ("false", "RNN" in kinds),
        "reverse": ("false", lone),
        "merge": ("concat", any(len(layer.directions) == 2 for layer in source.layers)),
    }
    assumed = [f"{name} {value}" for name, (value, applies) in said.items() if applies and name not in options]
    if assumed:
        source.notes.append(
            f"parameters don't say how their modules are configured; Flax's defaults are assumed: {', '.join(assumed)}"
            "; options say otherwise"
        )
    if any(layer.continues for layer in source.layers):
        source.notes.append("cells whose names count up and whose sizes fit are taken to feed each other")
