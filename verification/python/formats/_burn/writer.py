"""Writes layers as a record that Burn loads."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from weft.formats._burn.reader import ACTIVATIONS, BURN_GATES
from weft.formats._features import refuse
from weft.formats._files.tensors import optional, write_tensors
from weft.formats._layers import GATES, SIGMOID, TANH, Activation, Direction, Layer

_SUPPORTED = (
    "reset_before", "reset_after", "gate_activation", "activation", "output_activation", "cell_clip", "coupled",
    "bidirectional", "no_bias", "one_bias", "two_biases", "reverse",
)  # fmt: skip
#: Burn's ActivationConfig as text, by the name in a Layer; {a} and {b} are the parameters.
_CONFIGS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "identity": "Identity",
    "gelu": "Gelu",
    "gelu_tanh": "GeluApproximate",
    "selu": "Selu",
    "softsign": "Softsign",
    "softplus": "Softplus(SoftplusConfig::new())",
    "hard_silu": "HardSwish",
    "hard_sigmoid": "HardSigmoid(HardSigmoidConfig::new().with_alpha({a}).with_beta({b}))",
    "leaky_relu": "LeakyRelu(LeakyReluConfig::new().with_negative_slope({a}))",
    "elu": "Elu(EluConfig::new().with_alpha({a}))",
    "thresholded_relu": "ThresholdedRelu(ThresholdedReluConfig::new().with_alpha({a}))",
}


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes a record: in Burn's layout to .safetensors, for SafetensorsStore; in PyTorch's to .pt, for PytorchStore.

    Returns notes: what Burn is to be configured to, as a record doesn't hold it.

    Raises:
        FormatError: Burn can't express the layers; nothing is written.
    """
    refuse("Burn", layers, _SUPPORTED, _problems(layers))
    is_torch = path.suffix.lower() in (".pt", ".pth")
    tensors: dict[str, Tensor] = {}
    notes = []
    for name, layer in zip(_record_names(layers), layers, strict=True):
        for word, direction in zip(("forward", "reverse"), layer.directions, strict=False):
            head = f"{name}.{word}" if len(layer.directions) == 2 else name
            tensors |= {f"{head}.{key}".lstrip("."): part for key, part in _parts(layer, direction, not is_torch)}
        notes.append(f"{name or 'the model'} is {_configuration(layer)}")
    if is_torch:
        write_tensors(tensors, path)
    else:
        save = optional("safetensors.torch", path).save_file
        save({name: part.contiguous().clone() for name, part in tensors.items()}, path, {"format": "safetensors"})
    return notes


def _problems(layers: list[Layer]) -> list[str]:
    problems = []
    for layer in layers:
        uses = {layer.activation}
        uses |= {layer.gate_activation} if layer.kind != "RNN" else set()
        uses |= {layer.output_activation} if layer.kind == "LSTM" else set()
        problems += [f"activation {used} ({layer.name})" for used in sorted(uses, key=str) if used.name not in _CONFIGS]
        if layer.coupled == "forget":
            problems.append(f"an input gate that is 1 - the forget gate ({layer.name}); it has the other way round")
        if len(layer.directions) == 1 and layer.directions[0].reverse and layer.kind == "GRU":
            problems.append(f"a Gru that runs backwards alone ({layer.name})")
        if [direction.reverse for direction in layer.directions][1:] == [False] or (
            len(layer.directions) == 2 and layer.directions[0].reverse
        ):
            problems.append(f"directions in another order than forward, reverse ({layer.name})")
    return problems


def _record_names(layers: list[Layer]) -> list[str]:
    """A path of fields for each layer; layers of one kind that feed each other become a Vec."""
    names: list[str] = []
    taken: set[str] = set()
    for i, layer in enumerate(layers):
        before = layers[i - 1] if i else None
        base, _, last = names[-1].rpartition(".") if names else ("", "", "")
        stacked = before is not None and layer.continues and _alike(layer, before)
        if stacked and last.isdecimal():
            names.append(f"{base}.{int(last) + 1}")
            continue
        # A path consists of Rust's identifiers, and of numbers where there is a Vec.
        name = ".".join(re.sub(r"\W", "_", word) for word in layer.name.split(".") if word) or layer.kind.lower()
        name = re.sub(r"(^|\.)(?=\d+$)", r"\1_", name.removeprefix("_root_") or layer.kind.lower())
        free, count = name, 0
        while any(f"{free}.".startswith(f"{other}.") or f"{other}.".startswith(f"{free}.") for other in taken):
            count += 1
            free = f"{name}_{count}"
        taken.add(free)
        follows = i + 1 < len(layers) and layers[i + 1].continues and _alike(layers[i + 1], layer)
        names.append(f"{free}.0" if follows else free)
    return names


def _alike(layer: Layer, other: Layer) -> bool:
    return layer.kind == other.kind and len(layer.directions) == len(other.directions)


def _parts(layer: Layer, direction: Direction, transpose: bool) -> list[tuple[str, Tensor]]:
    """The parameters of a module. All of Burn's Linears have a bias if the layer has one for x or for h."""
    gates = len(GATES[layer.kind])
    sides = {"input": (direction.weight_x, direction.bias_x), "hidden": (direction.weight_h, direction.bias_h)}
    any_bias = next((bias for _, bias in sides.values() if bias is not None), None)
    parts = []
    for side, (weight, bias) in sides.items():
        if bias is None and any_bias is not None:
            bias = torch.zeros_like(any_bias)
        for i, gate in enumerate(BURN_GATES[layer.kind]):
            rows = weight.detach().chunk(gates)[i]
            parts.append((f"{gate}.{side}_transform.weight", rows.T if transpose else rows))
            if bias is not None:
                parts.append((f"{gate}.{side}_transform.bias", bias.detach().chunk(gates)[i]))
    return parts


def _configuration(layer: Layer) -> str:
    """The config that Burn makes the module from."""
    first = layer.directions[0]
    has_bias = any(bias is not None for d in layer.directions for bias in (d.bias_x, d.bias_h))
    kind = ("Bi" if len(layer.directions) == 2 else "") + layer.kind.capitalize()
    text = f"{kind}Config::new({first.input_size}, {layer.hidden_size}, {str(has_bias).lower()})"
    if layer.kind == "GRU" and not layer.reset_after:
        text += ".with_reset_after(false)"
    for field, ours in ACTIVATIONS[layer.kind].items():
        used: Activation = getattr(layer, ours)
        if used != (SIGMOID if ours == "gate_activation" else TANH):
            config = _CONFIGS[used.name].format(a=repr(used.alpha), b=repr(used.beta))
            text += f".with_{field}(ActivationConfig::{config})"
    if layer.cell_clip is not None:
        text += f".with_clip(Some({float(layer.cell_clip)!r}))"
    if layer.coupled:
        text += ".with_input_forget(true)"
    if len(layer.directions) == 1 and first.reverse:
        text += ".with_reverse(true)"
    return text
