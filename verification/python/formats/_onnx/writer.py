"""Layers as an ONNX model: a GRU, LSTM or RNN node each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.formats._features import refuse
from weft.formats._files.tensors import optional
from weft.formats._layers import GATES, SIGMOID, TANH, Activation, Direction, FormatError, Layer
from weft.formats._onnx.reader import ACTIVATIONS, ORDER, PEEPHOLES, reorder

_SUPPORTED = (
    "reset_before", "reset_after", "gate_activation", "activation", "output_activation", "clip", "coupled",
    "peepholes", "state", "reverse", "bidirectional", "no_bias", "one_bias", "two_biases",
)  # fmt: skip
_NAMES = {ours: theirs for theirs, (ours, _) in ACTIVATIONS.items()}
_DEFAULTS = {"GRU": [SIGMOID, TANH], "LSTM": [SIGMOID, TANH, TANH], "RNN": [TANH]}
_LARGEST = (1 << 31) - (1 << 20)  # bytes of a protobuf message
#: An opset, and an IR version that supports it; these nodes got bfloat16 late.
_OPSET, _IR = 14, 8
_OPSET_BFLOAT16, _IR_BFLOAT16 = 22, 10


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes a model: of each chain of layers x [T, B, I] -> y [T, B, D*H] (x_1, y_1, ... where there are several).

    Raises:
        FormatError: ONNX's nodes can't express the layers; all that they can't express is named.
    """
    onnx = optional("onnx", path)
    notes: list[str] = []
    layers = [_coupled_by_input(layer, notes) for layer in layers]
    refuse("ONNX", layers, _SUPPORTED, _more_problems(layers))
    for layer in layers:
        if any(d.bias_x is not None and d.bias_h is None for d in layer.directions):
            notes.append(f"{layer.name}: the source has one bias, which is Wb; Rb is zero")
    writer = _Writer(onnx)
    chains: list[list[Layer]] = []
    for layer in layers:
        if chains and layer.continues and layer.input_size == chains[-1][-1].output_size:
            chains[-1].append(layer)
        else:
            chains.append([layer])
    for i, chain in enumerate(chains):
        writer.chain(chain, f"_{i}" if len(chains) > 1 else "")
    is_bfloat16 = any(d.weight_x.dtype == torch.bfloat16 for layer in layers for d in layer.directions)
    writer.save(path, *((_OPSET_BFLOAT16, _IR_BFLOAT16) if is_bfloat16 else (_OPSET, _IR)))
    return notes


def _coupled_by_input(layer: Layer, notes: list[str]) -> Layer:
    """i = 1 - f as f = 1 - i, which ONNX has: with s(-x) = 1 - s(x) it is a change of sign."""
    a = layer.gate_activation
    if layer.coupled != "forget" or not (a == SIGMOID or (a.name == "hard_sigmoid" and math.isclose(a.beta, 0.5))):
        return layer
    rows = slice(0, layer.hidden_size), slice(layer.hidden_size, 2 * layer.hidden_size)

    def swapped(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        tensor = tensor.clone()
        tensor[rows[0]] = -tensor[rows[1]]
        return tensor

    directions = []
    for d in layer.directions:
        peepholes = None if d.peepholes is None else d.peepholes.clone()
        if peepholes is not None:
            peepholes[0] = -peepholes[1]
        changed = {name: swapped(getattr(d, name)) for name in ("weight_x", "weight_h", "bias_x", "bias_h")}
        directions.append(dataclasses.replace(d, peepholes=peepholes, **changed))  # type: ignore[arg-type]
    notes.append(f"{layer.name}: i = 1 - f is written as f = 1 - i with the signs of the forget gate's weights changed")
    return dataclasses.replace(layer, directions=directions, coupled="input")


def _activations(layer: Layer) -> list[Activation]:
    own = {"GRU": [layer.gate_activation, layer.activation], "RNN": [layer.activation]}
    return own.get(layer.kind, [layer.gate_activation, layer.activation, layer.output_activation])


def _more_problems(layers: Sequence[Layer]) -> list[str]:
    problems = []
    for layer in layers:
        missing = [a for a in _activations(layer) if a.name not in _NAMES and a.name != "identity"]
        problems += [f"activation {a} ({layer.name})" for a in dict.fromkeys(missing)]
        if layer.coupled == "forget":
            problems.append(f"i = 1 - f with gate activation {layer.gate_activation} ({layer.name})")
        if len({d.weight_x.dtype for d in layer.directions}) > 1:
            problems.append(f"directions of several dtypes ({layer.name})")
    return problems


class _Writer:
    """Nodes and initialisers of one graph."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._names: set[str] = set()
        self._count = 0

    def chain(self, layers: list[Layer], suffix: str) -> None:
        x = f"x{suffix}"
        first, last = layers[0], layers[-1]
        self._inputs.append(self._info(x, first, [f"T{suffix}", f"B{suffix}", first.input_size]))
        value = x
        for i, layer in enumerate(layers):
            dtype = layer.directions[0].weight_x.dtype
            if i and layers[i - 1].directions[0].weight_x.dtype != dtype:
                value = self._node("Cast", [value], to=self._type(dtype))
            is_last = i + 1 == len(layers)
            value = self._layer(layer, value, f"y{suffix}" if is_last else None)
        self._outputs.append(self._info(f"y{suffix}", last, [f"T{suffix}", f"B{suffix}", last.output_size]))

    def save(self, path: Path, opset: int, ir_version: int) -> None:
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "weft", self._inputs, self._outputs, self._initializers)
        model = helper.make_model(
            graph, producer_name="weft", ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)]
        )
        if model.ByteSize() > _LARGEST:
            raise FormatError(f"{path}: the weights have {model.ByteSize()} bytes; an ONNX file has at most 2 GB")
        self._onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())

    def _layer(self, layer: Layer, x: str, y: str | None) -> str:
        """The node; Y is [T, D, B, H], of which [T, B, D*H] is made."""
        kind, directions = layer.kind, layer.directions
        name = self._unique(layer.name)
        count = len(directions)
        inputs = [
            x,
            self._constant(f"{name}_W", torch.stack([reorder(d.weight_x, _inverse(kind)) for d in directions])),
            self._constant(f"{name}_R", torch.stack([reorder(d.weight_h, _inverse(kind)) for d in directions])),
            self._biases(name, layer),
            "",
            self._state(f"{name}_initial_h", [d.h0 for d in directions], layer, x),
            self._state(f"{name}_initial_c", [d.c0 for d in directions], layer, x),
            self._peepholes(name, layer),
        ]
        while not inputs[-1]:
            inputs.pop()
        output = self._node(kind, inputs, label=name, **self._attributes(layer))
        if count == 1:
            return self._node("Squeeze", [output, self._constant(f"{name}_axes", torch.tensor([1]))], y)
        output = self._node("Transpose", [output], perm=[0, 2, 1, 3])
        return self._node("Reshape", [output, self._constant(f"{name}_shape", torch.tensor([0, 0, -1]))], y)

    def _attributes(self, layer: Layer) -> dict[str, Any]:
        count = len(layer.directions)
        own: dict[str, Any] = {"hidden_size": layer.hidden_size}
        if count == 2 or layer.directions[0].reverse:
            own["direction"] = "bidirectional" if count == 2 else "reverse"
        if layer.kind == "GRU":
            own["linear_before_reset"] = int(layer.reset_after)
        if layer.clip is not None:
            own["clip"] = float(layer.clip)
        if layer.coupled:
            own["input_forget"] = 1
        if _activations(layer) != _DEFAULTS[layer.kind]:
            used = [Activation("affine", 1.0, 0.0) if a.name == "identity" else a for a in _activations(layer)] * count
            own["activations"] = [_NAMES[a.name] for a in used]
            alphas = [a.alpha for a in used if not math.isnan(a.alpha)]
            betas = [a.beta for a in used if not math.isnan(a.beta)]
            own |= {
                name: values for name, values in (("activation_alpha", alphas), ("activation_beta", betas)) if values
            }
        return own

    def _biases(self, name: str, layer: Layer) -> str:
        if all(d.bias_x is None and d.bias_h is None for d in layer.directions):
            return ""

        def both(d: Direction) -> Tensor:
            zeros = d.weight_x.new_zeros(d.weight_x.shape[0])
            own = [zeros if bias is None else bias for bias in (d.bias_x, d.bias_h)]
            return torch.cat([reorder(bias, _inverse(layer.kind)) for bias in own])

        return self._constant(f"{name}_B", torch.stack([both(d) for d in layer.directions]))

    def _peepholes(self, name: str, layer: Layer) -> str:
        if all(d.peepholes is None for d in layer.directions):
            return ""
        zeros = layer.directions[0].weight_x.new_zeros(3, layer.hidden_size)
        own = [zeros if d.peepholes is None else d.peepholes for d in layer.directions]
        return self._constant(f"{name}_P", torch.stack([p[list(PEEPHOLES)].reshape(-1) for p in own]))

    def _state(self, name: str, states: list[Tensor | None], layer: Layer, x: str) -> str:
        """[D, B, H]; a state [H] is expanded over the batch of x."""
        given = [state for state in states if state is not None]
        if not given:
            return ""
        zeros = torch.zeros_like(given[0])
        value = torch.stack([zeros if state is None else state for state in states])
        if value.dim() == 3:
            return self._constant(name, value)
        ints = {"axes": [0], "batch": [1], "head": [len(states)], "tail": [layer.hidden_size]}
        own = {key: self._constant(f"{name}_{key}", torch.tensor(numbers)) for key, numbers in ints.items()}
        shape = self._node("Shape", [x])
        batch = self._node("Gather", [shape, own["batch"]], axis=0)
        shape = self._node("Concat", [own["head"], batch, own["tail"]], axis=0)
        return self._node("Expand", [self._constant(name, value[:, None]), shape])

    def _node(self, op: str, inputs: list[str], output: str | None = None, label: str = "", **own: Any) -> str:
        self._count += 1
        output = output or f"v{self._count}"
        self._nodes.append(self._onnx.helper.make_node(op, inputs, [output], name=label, **own))
        return output

    def _constant(self, name: str, value: Tensor) -> str:
        raw = value.detach().contiguous()
        data = (raw.view(torch.int16) if raw.dtype in (torch.bfloat16, torch.float16) else raw).numpy().tobytes()
        made = self._onnx.helper.make_tensor(name, self._type(raw.dtype), list(raw.shape), data, raw=True)
        self._initializers.append(made)
        return name

    def _type(self, dtype: torch.dtype) -> int:
        names = {torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.float16: "FLOAT16", torch.bfloat16: "BFLOAT16"}
        return int(self._onnx.TensorProto.DataType.Value(names.get(dtype, "INT64")))

    def _info(self, name: str, layer: Layer, shape: list[Any]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._type(layer.directions[0].weight_x.dtype), shape)

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique


def _inverse(kind: str) -> tuple[int, ...]:
    order = ORDER[kind]
    assert sorted(order) == list(range(len(GATES[kind])))
    return tuple(order.index(i) for i in range(len(order)))
