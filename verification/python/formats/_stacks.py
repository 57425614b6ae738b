"""Layers as modules: which layers one nn.GRU, LSTM or RNN, or one of `weft.nn`, can hold together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.formats._features import refuse
from weft.formats._functions import for_weft_nn
from weft.formats._layers import SIGMOID, TANH, Activation, Direction, Layer

_EPS = 1e-5  # of weft.nn's layer normalisation
#: The features that weft.nn's modules can have; see `_features.FEATURES`.
SUPPORTED = (
    "reset_before", "reset_after", "gate_activation", "activation", "cell_clip", "coupled", "norm", "projection",
    "peepholes", "bidirectional", "no_bias", "one_bias", "two_biases", "zoneout",
)  # fmt: skip


@dataclasses.dataclass
class Stack:
    """The layers of one module."""

    name: str  #: valid in a state dict, "" where there is one stack alone
    layers: list[Layer]
    dtype: torch.dtype

    @property
    def kind(self) -> str:
        return self.layers[0].kind

    @property
    def has_bias(self) -> bool:
        directions = [d for layer in self.layers for d in layer.directions]
        return any(t is not None for d in directions for t in (d.bias_x, d.bias_h, d.norm_c_bias))

    def arguments(self) -> dict[str, Any]:
        """Arguments of PyTorch's constructor that differ from their defaults."""
        first = self.layers[0]
        found: dict[str, Any] = {"num_layers": len(self.layers)} if len(self.layers) > 1 else {}
        if len(first.directions) == 2:
            found["bidirectional"] = True
        if not self.has_bias:
            found["bias"] = False
        if first.directions[0].projection is not None:
            found["proj_size"] = first.directions[0].output_size
        if self.kind == "RNN" and first.activation == Activation("relu"):
            found["nonlinearity"] = "relu"
        if self.dtype != torch.float32:
            found["dtype"] = self.dtype
        return found

    def options(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Options of `weft.nn`'s constructor that aren't at their defaults: the values, and their text."""
        first = self.layers[0]
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        if self.kind == "GRU" and not first.reset_after:
            values["reset_after"] = False
        if first.cell_clip is not None:
            values["cell_clip"] = first.cell_clip
        if first.directions[0].peepholes is not None:
            values["peepholes"] = True
        if first.coupled:
            values["coupled_input_forget"] = first.coupled
        if first.norm_eps is not None:
            values["layer_norm"] = True
        if any(first.zoneout):
            values["zoneout"] = first.zoneout if self.kind == "LSTM" else first.zoneout[0]
        texts |= {name: repr(value) for name, value in values.items()}
        plain = (TANH, Activation("relu")) if self.kind == "RNN" else (TANH,)
        if self.kind != "RNN" and first.gate_activation != SIGMOID:
            values["gate_activation"], texts["gate_activation"] = for_weft_nn(first.gate_activation)
        if first.activation not in plain:
            values["activation"], texts["activation"] = for_weft_nn(first.activation)
        return values, texts

    def constructor(self) -> str:
        """The line that makes the module."""
        first, (_, options) = self.layers[0], self.options()
        words = [str(first.input_size), str(first.hidden_size)]
        words += [f"{name}={value!r}" for name, value in self.arguments().items()]
        words += [f"{name}={text}" for name, text in options.items()]
        return f"{'weft.nn' if options else 'nn'}.{self.kind}({', '.join(words)})"

    def make(self) -> nn.Module:
        """The module with these weights, in evaluation mode."""
        import weft.nn

        first, (options, _) = self.layers[0], self.options()
        library = weft.nn if options else nn
        module = getattr(library, self.kind)(first.input_size, first.hidden_size, **self.arguments(), **options)
        module.load_state_dict(self.state_dict())
        return module.eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Tensor]:
        """The state dict, without the stack's name."""
        found: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            for direction, suffix in zip(layer.directions, ("", "_reverse"), strict=False):
                for name, tensor in self._parameters(layer, direction).items():
                    found[f"{name}_l{number}{suffix}"] = tensor.to(self.dtype)
        return found

    def _parameters(self, layer: Layer, d: Direction) -> dict[str, Tensor]:
        zeros = d.weight_x.new_zeros(d.weight_x.shape[0])
        found: dict[str, Tensor | None] = {"weight_ih": d.weight_x, "weight_hh": d.weight_h}
        if self.has_bias:
            found["bias_ih"] = zeros if d.bias_x is None else d.bias_x
            found["bias_hh"] = zeros if d.bias_h is None else d.bias_h
        found["weight_hr"] = d.projection
        if d.peepholes is not None:
            kept = {"input": "io", "forget": "fo"}.get(layer.coupled, "ifo")
            found |= {f"weight_c{gate}": d.peepholes["ifo".index(gate)] for gate in kept}
        if layer.norm_eps is not None:
            found |= {"weight_ln_ih": d.norm_x, "weight_ln_hh": d.norm_h, "weight_ln_c": d.norm_c}
            if self.has_bias and d.norm_c is not None:
                found["bias_ln_c"] = torch.zeros_like(d.norm_c) if d.norm_c_bias is None else d.norm_c_bias
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def notes(self) -> list[str]:
        """Notes on values that were filled in, and the module's constructor if a state dict doesn't tell it."""
        notes = []
        directions = [d for layer in self.layers for d in layer.directions]
        if self.has_bias and any((d.bias_x is None) != (d.bias_h is None) for d in directions):
            notes.append(f"{self._label}the source has one bias, which is bias_ih; bias_hh is zero")
        if len({d.weight_x.dtype for d in directions}) > 1:
            notes.append(f"{self._label}the layers have several dtypes; all are written in {self.dtype}")
        return notes

    def configuration_note(self) -> list[str]:
        """The constructor, where the parameters alone don't tell what the module does."""
        if self.options()[0] or "nonlinearity" in self.arguments():
            return [f"{self._label}load it into {self.constructor()}"]
        return []

    @property
    def _label(self) -> str:
        return f"{self.name}: " if self.name else ""


def stacks_of(format: str, layers: Sequence[Layer], supported: Sequence[str] = SUPPORTED) -> list[Stack]:
    """The modules that hold the layers.

    Raises:
        FormatError: no module of PyTorch's or `weft.nn` can be these layers; the message names all reasons.
    """
    refuse(format, layers, supported, _more_problems(layers))
    groups: list[list[Layer]] = []
    for layer in layers:
        if groups and layer.continues and _key(layer) == _key(groups[-1][0]) and _follows(groups[-1][0], layer):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    names = [""] if len(groups) == 1 else _names([group[0].name for group in groups])
    found = []
    for name, group in zip(names, groups, strict=True):
        dtypes = {d.weight_x.dtype for layer in group for d in layer.directions}
        dtype = dtypes.pop()
        for other in dtypes:
            dtype = torch.promote_types(dtype, other)
        found.append(Stack(name, group, dtype))
    return found


def _follows(first: Layer, layer: Layer) -> bool:
    return layer.input_size == first.output_size


def _key(layer: Layer) -> tuple[Any, ...]:
    """A key that all layers of a module have in common."""
    d = layer.directions[0]
    settings = (
        layer.reset_after or layer.kind != "GRU", str(layer.gate_activation), str(layer.activation), layer.cell_clip,
        layer.coupled, layer.norm_eps, layer.zoneout,
    )  # fmt: skip
    return (
        layer.kind, layer.hidden_size, d.output_size, len(layer.directions), d.projection is None,
        d.peepholes is None, *settings,
    )  # fmt: skip


def _more_problems(layers: Sequence[Layer]) -> list[str]:
    problems = []
    for layer in layers:
        gains = ("norm_x", "norm_h", "norm_c")[: 3 if layer.kind == "LSTM" else 2]
        if layer.norm_eps is not None and abs(layer.norm_eps - _EPS) > 1e-12:
            problems.append(f"layer normalisation with epsilon {layer.norm_eps:g} instead of {_EPS:g} ({layer.name})")
        for d in layer.directions:
            if layer.norm_eps is not None and any(getattr(d, gain) is None for gain in gains):
                problems.append(f"layer normalisation of some of {', '.join(gains)} only ({layer.name})")
    return problems


def _names(wanted: Sequence[str]) -> list[str]:
    """Valid names in a state dict, no two the same and none a part of another."""
    found: list[str] = []
    for name in wanted:
        plain = re.sub(r"\.?l0$", "", name)
        plain = re.sub(r"[^0-9A-Za-z_]+", "_", plain).strip("_") or "rnn"
        unique, count = plain, 1
        while unique in found:
            unique, count = f"{plain}_{count}", count + 1
        found.append(unique)
    return found
