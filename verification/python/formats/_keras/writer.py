"""Layers to a `.keras` archive or a `.weights.h5` file, without Keras."""

from __future__ import annotations

import datetime
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats._features import refuse
from weft.formats._files.tensors import optional
from weft.formats._keras.config import SAME, snake, unique
from weft.formats._layers import Activation, Direction, Layer
from weft.formats._options import activation

_CLASSES = {"GRU": "GRU", "LSTM": "LSTM", "RNN": "SimpleRNN"}
_CELLS = ("reset_before", "reset_after", "gate_activation", "activation", "merge", "reverse", "bidirectional")
_SUPPORTED = (*_CELLS, "no_bias", "one_bias", "two_biases")
_ZEROS = {"module": "keras.initializers", "class_name": "Zeros", "config": {}, "registered_name": None}
#: Keras' names of activations that have the same parameters there.
_NAMES = {
    activation("elu", 1.0): "elu",
    activation("hard_sigmoid", 1 / 6, 0.5): "hard_sigmoid",
    activation("identity"): "linear",
    activation("exp"): "exponential",
    activation("leaky_relu", 0.2): "leaky_relu",
} | {activation(name): name for name in SAME}


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes a model, a Sequential one where the layers are a chain, with its config; or its weights alone.

    Returns notes: which biases were added, what order results are in.

    Raises:
        FormatError: Keras can't express the layers; nothing is written.
    """
    h5py = optional("h5py", path)
    refuse("Keras", layers, _SUPPORTED, _problems(layers))
    notes: list[str] = []
    entries, weights = _model(layers, notes)
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        for group, (name, tensors) in weights.items():
            made = file.create_group(f"{group}/vars")
            made.attrs["name"] = name
            for i, tensor in enumerate(tensors):
                _put(made, str(i), tensor)
    if path.name.lower().endswith(".h5"):
        path.write_bytes(data.getvalue())
        return notes + _unsaid(layers)
    metadata = {"keras_version": "3.0.0", "date_saved": f"{datetime.datetime.now():%Y-%m-%d@%H:%M:%S}"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps(metadata))
        archive.writestr("config.json", json.dumps(_config(layers, entries)))
        archive.writestr("model.weights.h5", data.getvalue())
    return notes


def _put(group: Any, name: str, tensor: Tensor) -> None:
    if tensor.dtype == torch.bfloat16:  # two bytes, whose dtype an attribute names
        group.create_dataset(name, data=tensor.contiguous().view(torch.int16).numpy().view("V2"))
        group[name].attrs["dtype"] = "bfloat16"
    else:
        group.create_dataset(name, data=tensor.contiguous().numpy())


def _problems(layers: list[Layer]) -> list[str]:
    problems = []
    flipped = False
    for i, layer in enumerate(layers):
        uses = {layer.activation} | ({layer.gate_activation} if layer.kind != "RNN" else set())
        for used in sorted(uses, key=str):
            if _activation(used) is None:
                problems.append(f"activation {used} ({layer.name})")
        if layer.continues and i > 0 and layers[i - 1].output_size != layer.input_size:
            problems.append(
                f"an input of {layer.input_size} from an output of {layers[i - 1].output_size} ({layer.name})"
            )
        flipped = flipped and layer.continues
        if len(layer.directions) == 1:
            flipped = layer.directions[0].reverse
        elif flipped:
            problems.append(f"two directions behind a layer that runs backwards alone ({layer.name})")
        sizes = {(d.input_size, d.output_size) for d in layer.directions}
        if len(sizes) > 1 or [d.reverse for d in layer.directions][1:] == [False]:
            problems.append(f"directions of different sizes, or in another order ({layer.name})")
    return problems


def _activation(used: Activation) -> Any:
    """An activation in a config's form; None if Keras has no such activation."""
    for known, name in _NAMES.items():
        if known.name == used.name and str(known) == str(used):
            return name
    layer = {"leaky_relu": ("LeakyReLU", "negative_slope"), "elu": ("ELU", "alpha")}.get(used.name)
    if layer is None:
        return None
    return {
        "module": "keras.layers",
        "class_name": layer[0],
        "config": {layer[1]: used.alpha},
        "registered_name": None,
    }


def _model(layers: list[Layer], notes: list[str]) -> tuple[list[dict[str, Any]], dict[str, tuple[str, list[Tensor]]]]:
    """The layers' configs, and by group the cells' names and weights."""
    used: dict[str, int] = {}
    taken: dict[str, int] = {}
    entries: list[dict[str, Any]] = []
    weights: dict[str, tuple[str, list[Tensor]]] = {}
    flipped = False
    for layer in layers:
        name = unique(re.sub(r"\W+", "_", layer.name).strip("_") or layer.kind.lower(), taken)
        kind = _CLASSES[layer.kind]
        parts = ("cell",) if len(layer.directions) == 1 else ("forward_layer/cell", "backward_layer/cell")
        group = f"layers/{unique(snake(kind if len(parts) == 1 else 'Bidirectional'), used)}"
        for part, direction in zip(parts, layer.directions, strict=True):
            weights[f"{group}/{part}"] = (f"{snake(kind)}_cell", _weights(layer, direction, notes))
        if len(parts) == 2:
            entries.append(_bidirectional(layer, name))
            flipped = False
            continue
        # With go_backwards=True a layer returns its results in the order in which it computed them, also to the next
        # layer.
        flipped = flipped and layer.continues
        reverse = layer.directions[0].reverse
        entries.append(_recurrent(layer, layer.directions[0], name, reverse != flipped))
        flipped = reverse
        if reverse:
            notes.append(f"layer {layer.name!r} runs backwards: Keras returns its results last step first")
    return entries, weights


def _weights(layer: Layer, direction: Direction, notes: list[str]) -> list[Tensor]:
    """Kernel [I, G*H], recurrent kernel [H, G*H] and bias, with Keras' order of gates."""

    def gates(tensor: Tensor) -> Tensor:
        parts = tensor.detach().chunk(3)
        return torch.cat([parts[1], parts[0], parts[2]]) if layer.kind == "GRU" else tensor.detach()

    weights = [gates(direction.weight_x).T, gates(direction.weight_h).T]
    biases = [bias for bias in (direction.bias_x, direction.bias_h) if bias is not None]
    if not biases:
        return weights
    if layer.kind == "GRU" and layer.reset_after:
        zeros = torch.zeros_like(biases[0])
        both = [zeros if bias is None else bias for bias in (direction.bias_x, direction.bias_h)]
        return [*weights, torch.stack([gates(bias) for bias in both])]
    if len(biases) == 2:
        note = f"layer {layer.name!r}: its two biases were added: Keras has one"
        if note not in notes:
            notes.append(note)
    return [*weights, gates(biases[0] if len(biases) == 1 else biases[0] + biases[1])]


def _recurrent(layer: Layer, direction: Direction, name: str, go_backwards: bool) -> dict[str, Any]:
    config = _common(name, layer) | {
        "return_sequences": True,
        "return_state": False,
        "go_backwards": go_backwards,
        "stateful": False,
        "unroll": False,
        "zero_output_for_mask": False,
        "units": layer.hidden_size,
        "activation": _activation(layer.activation),
        "use_bias": direction.bias_x is not None or direction.bias_h is not None,
        # The default initialiser needs a QR factorisation, which half precisions don't have; its result isn't used.
        "recurrent_initializer": _ZEROS,
        "dropout": 0.0,
        "recurrent_dropout": 0.0,
        "seed": None,
    }
    if layer.kind != "RNN":
        config["recurrent_activation"] = _activation(layer.gate_activation)
    if layer.kind == "GRU":
        config["reset_after"] = layer.reset_after
    return _entry(_CLASSES[layer.kind], config, layer.input_size)


def _bidirectional(layer: Layer, name: str) -> dict[str, Any]:
    forward, backward = (
        _recurrent(layer, direction, f"{word}_{name}", word == "backward")
        for word, direction in zip(("forward", "backward"), layer.directions, strict=True)
    )
    config = _common(name, layer) | {
        "merge_mode": layer.merge,
        "layer": forward,
        "backward_layer": backward,
    }
    return _entry("Bidirectional", config, layer.input_size)


def _dtype(layer: Layer) -> str:
    return str(layer.directions[0].weight_x.dtype).removeprefix("torch.")


def _common(name: str, layer: Layer) -> dict[str, Any]:
    policy = {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": _dtype(layer)},
        "registered_name": None,
    }
    return {"name": name, "trainable": True, "dtype": policy}


def _entry(kind: str, config: dict[str, Any], inputs: int) -> dict[str, Any]:
    return {
        "module": "keras.layers",
        "class_name": kind,
        "config": config,
        "registered_name": None,
        "build_config": {"input_shape": [None, None, inputs]},
    }


def _input(layer: Layer, name: str) -> dict[str, Any]:
    config = {
        "batch_shape": [None, None, layer.input_size],
        "dtype": _dtype(layer),
        "sparse": False,
        "ragged": False,
        "name": name,
        "optional": False,
    }
    return {"module": "keras.layers", "class_name": "InputLayer", "config": config, "registered_name": None}


def _config(layers: list[Layer], entries: list[dict[str, Any]]) -> dict[str, Any]:
    names = {entry["config"]["name"] for entry in entries}
    inputs = (name for i in range(2 * len(layers)) if (name := f"input_{i}") not in names)
    if all(layer.continues for layer in layers[1:]):
        shape = [None, None, layers[0].input_size]
        config = _common("sequential", layers[0]) | {
            "layers": [_input(layers[0], next(inputs)), *entries],
            "build_input_shape": shape,
        }
        return {
            "module": "keras",
            "class_name": "Sequential",
            "config": config,
            "registered_name": None,
            "build_config": {"input_shape": shape},
        }
    listed: list[dict[str, Any]] = []
    starts, ends = [], []
    for i, (layer, entry) in enumerate(zip(layers, entries, strict=True)):
        source = _name_of(entries[i - 1])
        if not (layer.continues and i > 0):
            source = next(inputs)
            listed.append(_input(layer, source) | {"name": source, "inbound_nodes": []})
            starts.append([source, 0, 0])
            ends.append(["", 0, 0])
        shape = [None, None, layer.input_size]
        fed = {"shape": shape, "dtype": _dtype(layer), "keras_history": [source, 0, 0]}
        tensor = {"class_name": "__keras_tensor__", "config": fed}
        listed.append(entry | {"name": _name_of(entry), "inbound_nodes": [{"args": [tensor], "kwargs": {}}]})
        ends[-1] = [_name_of(entry), 0, 0]
    config = {"name": "functional", "trainable": True, "layers": listed, "input_layers": starts, "output_layers": ends}
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": config,
        "registered_name": "Functional",
    }


def _name_of(entry: dict[str, Any]) -> str:
    return str(entry["config"]["name"])


def _unsaid(layers: list[Layer]) -> list[str]:
    """Settings that differ from Keras' defaults and that a file of weights can't hold."""
    notes = []
    for layer in layers:
        words = []
        if layer.kind != "RNN" and _activation(layer.gate_activation) != "sigmoid":
            words.append(f"recurrent_activation {layer.gate_activation}")
        if _activation(layer.activation) != "tanh":
            words.append(f"activation {layer.activation}")
        if layer.kind == "GRU" and not layer.reset_after:
            words.append("reset_after=False")
        if len(layer.directions) == 2 and layer.merge != "concat":
            words.append(f"merge_mode {layer.merge}")
        if len(layer.directions) == 1 and layer.directions[0].reverse:
            words.append("go_backwards=True")
        if layer.directions[0].bias_x is None and layer.directions[0].bias_h is None:
            words.append("use_bias=False")
        if words:
            notes.append(f"layer {layer.name!r}: a file of weights doesn't say {', '.join(words)}; the model must")
    return notes
