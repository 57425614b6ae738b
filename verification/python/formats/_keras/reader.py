"""Keras: `.keras` archives, `.weights.h5`, and Keras 2's HDF5 files, with a config of the model or without.

Keras' gates lie in the columns of its kernels, z, r, h of a GRU and i, f, c, o of an LSTM; z is the same gate as here.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from weft.formats._files.hdf5 import Hdf5, read_hdf5
from weft.formats._files.sniff import container_of, first_line, members, read_member
from weft.formats._keras.cells import Group, adjacent, cells_by_shape, directions_of, kind_of, legacy_cells, pair
from weft.formats._keras.config import MERGES, Cell, Found, Walk, activations, in_chains
from weft.formats._layers import SIGMOID, TANH, FormatError, Layer, Source
from weft.formats._options import Options

#: Options for files without a config, which would say all of this.
OPTIONS = ("activation", "gate_activation", "merge", "reset_after")

_MOST_JSON = 256 << 20


def read(path: Path, options: Options) -> Source:
    """The recurrent layers of a Keras file of any kind.

    Raises:
        FormatError: it is damaged, or holds none.
    """
    return read_keras(path, options) if container_of(path) == "keras" else read_h5(path, options)


def read_keras(path: Path, options: Options) -> Source:
    """The recurrent layers of a `.keras` archive.

    Raises:
        FormatError: it is damaged, or holds none.
    """
    names = [member.filename for member in members(path)]
    weights = [name for name in names if name.endswith(".weights.h5")]
    if len(weights) != 1:
        raise FormatError(f"{path}: holds {len(weights)} files of weights where a .keras archive has model.weights.h5")
    config = _json(path, "config.json", read_member(path, "config.json", _MOST_JSON))
    keras2 = False
    if "metadata.json" in names:
        metadata = _json(path, "metadata.json", read_member(path, "metadata.json", 1 << 20))
        keras2 = str(metadata.get("keras_version", "3")).startswith("2")
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder) / "model.weights.h5"
        inner.write_bytes(read_member(path, weights[0]))
        file = read_hdf5(inner, f"{path}: {weights[0]}")
    return _source(path, file, config, keras2, options)


def read_h5(path: Path, options: Options) -> Source:
    """The recurrent layers of a `.weights.h5` file, or of a whole model as Keras 2 saves it.

    Raises:
        FormatError: it is damaged, or holds none.
    """
    file = read_hdf5(path, str(path))
    root = file.attributes.get("", {})
    text = root.get("model_config")
    config = _json(path, "model_config", text.encode()) if isinstance(text, str) else None
    return _source(path, file, config, str(root.get("keras_version", "3")).startswith(("1", "2")), options)


def _json(path: Path, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: {name} is no JSON: {first_line(error)}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path}: {name} is no JSON object")
    return value


def _source(path: Path, file: Hdf5, config: dict[str, Any] | None, keras2: bool, options: Options) -> Source:
    # The name of a model's layers before Keras 3.
    file.tensors = {name.replace("_layer_checkpoint_dependencies", "layers"): t for name, t in file.tensors.items()}
    source = Source(str(path), "keras", [])
    used: set[str] = set()
    try:
        inner = (config or {}).get("config")
        if config is not None and (isinstance(inner, list) or "layers" in (inner or {})):
            for name in options.values:
                raise FormatError(f"option {name!r} is for files of weights; this one has a config, which says it")
            _by_config(file, config, keras2, source, used)
        else:
            options.check("Keras", OPTIONS)
            _by_shapes(file, options, source, used)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
        raise FormatError(f"{path}: its config isn't one that Keras writes") from None
    if not source.layers:
        raise FormatError(
            f"{path}: holds no GRU, LSTM or SimpleRNN of Keras' own" + "".join(f"; {note}" for note in source.notes[:3])
        )
    source.ignored = [name for name in [*file.tensors, *file.others] if name not in used]
    return source


def _by_config(file: Hdf5, config: dict[str, Any], keras2: bool, source: Source, used: set[str]) -> None:
    walk = Walk(config, keras2)
    source.notes += walk.notes
    legacy = legacy_cells(file)
    for found in in_chains(walk.found):
        gate, inner = activations(found, keras2)
        names = [_names(file, legacy, found, cell) for cell in found.cells]
        used.update(name for group in names for name in group)
        says = {cell.config.get("reset_after") for cell in found.cells} if found.kind == "GRU" else set()
        directions, after = directions_of(file, found.kind, names, found.name, [cell.reverse for cell in found.cells])
        if len(says) > 1 or (says - {None} and after is not None and says != {after}):
            raise FormatError(f"layer {found.name!r}: its biases aren't those of reset_after={says.pop()}")
        units = {cell.config.get("units") for cell in found.cells}
        layer = Layer(found.name, found.kind, directions, found.source is not None)
        if units != {layer.hidden_size}:
            raise FormatError(
                f"layer {found.name!r}: its weights are of {layer.hidden_size} units, its config has {units.pop()}"
            )
        layer.reset_after = bool(says.pop() if says - {None} else after) if found.kind == "GRU" else True
        layer.gate_activation, layer.activation, layer.merge = gate, inner, found.merge
        layer.output_activation = inner if found.kind == "LSTM" else TANH
        source.layers.append(layer)
        _note_policy(found, source)


def _note_policy(found: Found, source: Source) -> None:
    policy = found.cells[0].config.get("dtype")
    name = policy.get("config", {}).get("name") if isinstance(policy, dict) else policy
    if isinstance(name, str) and name.startswith("mixed_"):
        source.notes.append(f"layer {found.name!r} computes in {name[6:]} (policy {name}) from these weights")


def _names(file: Hdf5, legacy: dict[str, list[list[str]]], found: Found, cell: Cell) -> list[str]:
    """The names of a cell's kernel, recurrent kernel and, if there is one, bias."""
    if cell.top in legacy:
        if cell.number >= len(legacy[cell.top]):
            raise FormatError(f"layer {found.name!r}: its weights are missing")
        return legacy[cell.top][cell.number]
    names = [f"{cell.path}/vars/{i}" for i in range(3)]
    if names[0] not in file.tensors:
        kind = file.others.get(names[0])
        raise FormatError(
            f"layer {found.name!r}: its weights {names[0]} are missing"
            if kind is None
            else f"layer {found.name!r}: its weights are {kind}; quantised layers aren't read"
        )
    has_bias = cell.config.get("use_bias", True)
    return names[: 3 if has_bias else 2]


def _by_shapes(file: Hdf5, options: Options, source: Source, used: set[str]) -> None:
    cells = cells_by_shape(file)
    gate = options.activation("gate_activation", SIGMOID)
    inner = options.activation("activation", TANH)
    merge = options.word("merge", MERGES, "concat")
    assumed = [
        f"{name} {value}" for name, value in (("activation", inner), ("gate_activation", gate)) if name not in options
    ]
    pairs: dict[str, list[Group]] = {}
    last: list[Group] = []
    for where, names in cells:
        pairs.setdefault(pair(where, dict(cells)), []).append((where, names))
    for base, group in pairs.items():
        group = sorted(group, key=lambda cell: "backward_" in cell[0])
        name = re.sub(r"(^|/)layers/|^model_weights/", r"\1", base).removesuffix("/cell")
        kind = kind_of(file, group[0][1])
        assert kind is not None
        directions, after = directions_of(file, kind, [names for _, names in group], name, [False, True][: len(group)])
        used.update(name for _, names in group for name in names)
        layer = Layer(name, kind, directions)
        if kind == "GRU" and after is None:
            layer.reset_after = options.flag("reset_after", True)
            if "reset_after" not in options:
                source.notes.append(f"layer {name!r} has no bias, so that nothing says reset_after: true is assumed")
        elif kind == "GRU":
            layer.reset_after = after
            if options.flag("reset_after", after) != after:
                raise FormatError(f"layer {name!r}: its bias is that of reset_after={after}")
        layer.merge = merge if len(directions) > 1 else "concat"
        if source.layers and source.layers[-1].output_size == layer.input_size:
            layer.continues = adjacent(file, last, [(base, names) for _, names in group], cells)
        last = [(base, names) for _, names in group]
        layer.gate_activation = SIGMOID if kind == "RNN" else gate
        layer.activation = inner
        layer.output_activation = inner if kind == "LSTM" else TANH
        source.layers.append(layer)
    if len(pairs) > 1:
        source.notes.append("the order of the layers is that of the file, and those whose sizes fit feed each other")
    if any(len(layer.directions) > 1 for layer in source.layers) and "merge" not in options:
        assumed.append("merge concat")
    if assumed:
        source.notes.append(f"a file of weights says nothing of {', '.join(assumed)}: assumed; options say otherwise")
