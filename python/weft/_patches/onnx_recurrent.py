"""torch.onnx.export writes recurrences as ONNX's own operators, GRU, LSTM and RNN, of any length and batch.

Its own translations know no RNN, and give an LSTM with projections states of the wrong size, which no runtime accepts.
What a caller's `custom_translation_table` says comes first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from weft import _C

#: By PyTorch's name: ONNX's operator, the places in PyTorch's order of ONNX's gates, and further attributes of the
#: operator.
OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "lstm": ("LSTM", (0, 3, 1, 2), {}),
    "rnn_tanh": ("RNN", (0,), {"activations": ["Tanh"]}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
}
#: How many weights and biases each direction of each layer has.
WEIGHTS, BIASES = 2, 2


def install(registration: ModuleType) -> None:
    """Once PyTorch's module with the exporter's table is imported."""
    table = registration.ONNXRegistry
    original = table.from_torchlib.__func__

    @functools.wraps(original)
    def from_torchlib(cls: Any, *args: Any, **kwargs: Any) -> Any:
        registry = original(cls, *args, **kwargs)
        if _C.enabled():
            for name in OPERATORS:
                registry.register_op(getattr(torch.ops.aten, name).input, _translation(name))
            registry.register_op(torch.ops.weft.call.default, _no_translation)
        return registry

    table.from_torchlib = classmethod(from_torchlib)


def _no_translation(program: Any, inputs: Any) -> Any:
    raise NotImplementedError(
        "weft: a program of Weft's has no form in ONNX. For a weft.scan, give torch.onnx.export what "
        "torch.export.export(model, args, dynamic_shapes=..., strict=True) returns, in which it is PyTorch's scan"
    )


def _translation(name: str) -> Callable[..., Any]:
    # The functions have no types: the exporter would look for ONNX's types in annotations.
    def translate(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # type: ignore[no-untyped-def]
        states = list(hx) if name == "lstm" else [hx]
        if name == "lstm" and states[0].shape[2] != states[1].shape[2]:
            raise NotImplementedError("weft: ONNX's LSTM has no projections (proj_size of nn.LSTM)")
        layers = _Layers(name, params, has_biases, 2 if bidirectional else 1)
        x = layers.ops.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        ends = []
        for layer in range(num_layers):
            if layer and dropout > 0.0 and train:
                x, _ = layers.ops.Dropout(x, dropout, True)
            x, *end = layers.run(layer, x, states)
            ends.append(end)
        last = [parts[0] if num_layers == 1 else layers.ops.Concat(*parts, axis=0) for parts in zip(*ends, strict=True)]
        return (layers.ops.Transpose(x, perm=[1, 0, 2]) if batch_first else x, *last)

    translate.__name__ = f"weft_{name}"
    return translate


class _Layers:
    """The layers of one module, while the exporter records operations on `ops`."""

    def __init__(self, name: str, params: Sequence[Any], has_biases: bool, directions: int) -> None:
        import onnxscript  # the exporter needs it too

        self.ops: Any = onnxscript.opset18
        self.operator, self.gates, self.attributes = OPERATORS[name]
        count = WEIGHTS + (BIASES if has_biases else 0)
        self.params = [list(params[start : start + count]) for start in range(0, len(params), count)]
        self.directions = directions
        self.features = params[1].shape[1]

    def run(self, layer: int, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of all steps, [T, B, directions * features], and the last states."""
        ops, first = self.ops, layer * self.directions
        params = self.params[first : first + self.directions]
        weights = [self._joined([[direction[i]] for direction in params]) for i in range(WEIGHTS)]
        biases = self._joined([direction[WEIGHTS:] for direction in params]) if len(params[0]) > WEIGHTS else None
        starts = [ops.Slice(state, [first], [first + self.directions], [0]) for state in states]
        attributes = dict(self.attributes)
        if "activations" in attributes:
            attributes["activations"] = attributes["activations"] * self.directions
        y, *ends = getattr(ops, self.operator)(
            x,
            *weights,
            biases,
            None,  # the lengths of sequences; without them all steps count
            *starts,
            direction="bidirectional" if self.directions == 2 else "forward",
            hidden_size=self.features,
            **attributes,
        )
        if self.directions == 1:
            return (ops.Squeeze(y, [1]), *ends)
        rows = ops.Transpose(y, perm=[0, 2, 1, 3])  # y is [T, directions, B, features]
        return (ops.Reshape(rows, [0, 0, self.directions * self.features]), *ends)

    def _joined(self, directions: list[list[Any]]) -> Any:
        """Parameters of each direction, with their gates in ONNX's order, one direction after another: [directions,
        ...]."""
        ops, whole = self.ops, []
        for params in directions:
            parts = []
            for param in params:
                starts = [gate * self.features for gate in self.gates]
                parts += [ops.Slice(param, [start], [start + self.features], [0]) for start in starts]
            whole.append(ops.Unsqueeze(parts[0] if len(parts) == 1 else ops.Concat(*parts, axis=0), [0]))
        return whole[0] if len(whole) == 1 else ops.Concat(*whole, axis=0)
