"""The cells in a Keras file, by the names and shapes of their weights, and their directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.formats._files.hdf5 import Hdf5
from weft.formats._files.tensors import parameter
from weft.formats._layers import GATES, Direction, FormatError

#: A cell's group, and the names of its kernel, recurrent kernel and, if there is one, bias.
Group = tuple[str, list[str]]

_RZN = (1, 0, 2)  # the places of r, z, n among Keras' gates of a GRU


def legacy_cells(file: Hdf5) -> dict[str, list[list[str]]]:
    """Cells in Keras 2's files, by layer of the outermost model: [kernel, recurrent kernel, bias]."""
    cells: dict[str, list[list[str]]] = {}
    root = "model_weights" if "model_weights" in file.attributes else ""
    for top in _chunked(file.attributes.get(root, {}), "layer_names"):
        group = f"{root}/{top}".lstrip("/")
        parents: dict[str, dict[str, str]] = {}
        for name in _chunked(file.attributes.get(group, {}), "weight_names"):
            parent, _, leaf = f"{group}/{name}".rpartition("/")
            parents.setdefault(parent, {})[leaf.partition(":")[0]] = f"{parent}/{leaf}"
        cells[top] = [
            [found[leaf] for leaf in ("kernel", "recurrent_kernel", "bias") if leaf in found]
            for found in parents.values()
            if {"kernel", "recurrent_kernel"} <= found.keys()
        ]
    return cells


def _chunked(attributes: dict[str, Any], name: str) -> list[str]:
    """A list of texts, which is split over several attributes (name0, name1, ...) if it is long."""
    parts = [attributes.get(name), *(attributes.get(f"{name}{i}") for i in range(len(attributes)))]
    return [str(text) for part in parts if isinstance(part, list) for text in part]


def adjacent(file: Hdf5, first: list[Group], second: list[Group], cells: list[Group]) -> bool:
    """Whether two layers are neighbours in a list of layers, with no other weights between them in the file."""
    bases = [group[0][0] for group in (first, second)]
    listed = r"(layers/[^/]+/)*layers/[^/]+(/cell(/cells/[^/]+)?)?|model_weights/.*"
    parents = {base.removesuffix("/cell").rpartition("/")[0] for base in bases}
    if not all(re.fullmatch(listed, base) for base in bases) and (len(parents) > 1 or "" in parents):
        return False  # attributes of a model are in alphabetical order
    known = {name for _, names in cells for name in names}
    low = max(file.addresses[name] for _, names in first for name in names)
    high = min(file.addresses[name] for _, names in second for name in names)
    return not any(low < place < high for name, place in file.addresses.items() if name not in known)


def pair(where: str, cells: dict[str, Any]) -> str:
    """The layer of a cell: the cell itself, or the Bidirectional whose direction it is."""
    for forward, backward in (("/forward_layer/", "/backward_layer/"), ("/forward_", "/backward_")):
        other = where.replace(backward, forward) if backward in where else where.replace(forward, backward)
        if other != where and other in cells:
            return where.replace(backward, forward).split(forward)[0]
    return where


def cells_by_shape(file: Hdf5) -> list[Group]:
    """All groups of tensors with the shapes of a cell, in the order of the file."""
    cells = []
    for name in file.tensors:
        group, _, leaf = name.rpartition("/")
        if leaf == "0" and group.endswith("vars"):
            cell = group.removesuffix("/vars")
            named = str(file.attributes.get(group, {}).get("name", ""))
            names = [f"{group}/{i}" for i in range(3) if f"{group}/{i}" in file.tensors]
            is_cell = cell.endswith("/cell") or "/cell/cells/" in cell or re.search(r"(gru|lstm|rnn)_cell", named)
            if is_cell and kind_of(file, names) is not None and f"{group}/3" not in file.tensors:
                cells.append((cell, names))
    cells += [
        (names[0].rpartition("/")[0], names)
        for group in legacy_cells(file).values()
        for names in group
        if kind_of(file, names) is not None
    ]
    return sorted(cells, key=lambda cell: file.addresses.get(cell[1][0], 0))


def kind_of(file: Hdf5, names: Sequence[str]) -> str | None:
    shapes = [tuple(file.tensors[name].shape) for name in names if name in file.tensors]
    if len(shapes) < 2 or len(shapes[0]) != 2 or len(shapes[1]) != 2 or shapes[0][1] != shapes[1][1]:
        return None
    hidden, width = shapes[1]
    kind = {1: "RNN", 3: "GRU", 4: "LSTM"}.get(width // hidden if hidden and width % hidden == 0 else 0)
    biases: list[tuple[int, ...]] = [(width,), (2, width)] if kind == "GRU" else [(width,)]
    return kind if len(shapes) == 2 or shapes[2] in biases else None


def directions_of(
    file: Hdf5, kind: str, names: Sequence[Sequence[str]], layer: str, reverse: Sequence[bool]
) -> tuple[list[Direction], bool | None]:
    """The directions, and reset_after by the shape of a GRU's biases: None where it has none."""
    gates = len(GATES[kind])
    pick = picker(kind)
    directions: list[Direction] = []
    seen: set[bool] = set()
    for group, backwards in zip(names, reverse, strict=True):
        like = directions[0].weight_x if directions else None
        recurrent = parameter(file.tensors, group[1], (None, None), like)
        hidden, width = recurrent.shape
        if width != gates * hidden:
            raise FormatError(
                f"{group[1]} has shape {[hidden, width]}, expected [{hidden}, {gates * hidden}] of a {kind}"
            )
        kernel = parameter(file.tensors, group[0], (like.shape[1] if like is not None else None, width), recurrent)
        direction = Direction(pick(kernel.T), pick(recurrent.T), reverse=backwards)
        if len(group) > 2:
            bias = file.tensors.get(group[2])
            if kind == "GRU" and bias is not None and bias.ndim == 2:
                both = parameter(file.tensors, group[2], (2, width), recurrent)
                direction.bias_x, direction.bias_h = pick(both[0]), pick(both[1])
                seen.add(True)
            else:
                direction.bias_x = pick(parameter(file.tensors, group[2], (width,), recurrent))
                seen.add(False)
        directions.append(direction)
    if len(seen) > 1 and kind == "GRU":
        raise FormatError(f"layer {layer!r}: one of its directions has reset_after, the other hasn't")
    return directions, (seen.pop() if seen and kind == "GRU" else None)


def picker(kind: str) -> Callable[[Tensor], Tensor]:
    """A function that reorders Keras' gates to this package's order, along the first dimension. For a GRU it is its own
    inverse."""

    def pick(tensor: Tensor) -> Tensor:
        if kind != "GRU":
            return tensor.contiguous()
        parts = tensor.chunk(3)
        return torch.cat([parts[i] for i in _RZN])

    return pick
