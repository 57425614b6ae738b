"""The sides and inputs of `weft.verify`, brought to the form in which they are compared."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft import formats
from weft.formats import FormatError, Layer, Source, Trace

Side = str | os.PathLike[str] | Source | Trace | Sequence[Layer] | nn.Module | Mapping[str, Any] | Callable[..., Any]


@dataclasses.dataclass
class Input:
    """The input of both sides.

    x: [T, B, I]; h0, c0: [B, H] or [layers*D, B, H], for both sides, or None.
    """

    x: Tensor
    h0: Tensor | None
    c0: Tensor | None
    label: str


def source_of(side: Side, format: str | None, options: Mapping[str, Any] | None) -> Source | None:
    """Layers or a trace; None for a function, which has neither until it is called.

    Raises:
        FormatError: a file that can't be read, or an object that holds no recurrent layer.
        TypeError: something else.
    """
    if isinstance(side, str | os.PathLike):
        return formats.read(side, format, options)
    if options and not isinstance(side, Mapping):
        raise FormatError("options are for what a file doesn't say; an object says it itself")
    if isinstance(side, Source):
        return side
    if isinstance(side, Trace):
        return Source("a trace", "trace", [], side)
    if isinstance(side, nn.Module):
        return formats.layers_of_module(side)
    if isinstance(side, Mapping):
        return formats.layers_of_tensors({str(k): as_tensor(v, str(k)) for k, v in side.items()}, format, options)
    if isinstance(side, Sequence) and side and all(isinstance(layer, Layer) for layer in side):
        return Source("layers", "layers", list(side))
    if callable(side):
        return None
    raise TypeError(
        "weft.verify: a side is a path, an nn.Module, a state dict, a trace (a dict with x and y), a function from "
        f"x [T, B, I] to y, or what weft.formats.read returns; got: {type(side).__name__}"
    )


def as_tensor(value: Any, name: str) -> Tensor:
    """A tensor or an array, as a tensor on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    try:
        return torch.from_numpy(np.ascontiguousarray(np.asarray(value)))
    except TypeError:
        raise FormatError(f"{name} should be a tensor or an array of numbers, got: {type(value).__name__}") from None


def dtype_of(layers: Sequence[Layer]) -> torch.dtype:
    return layers[0].directions[0].weight_x.dtype


def traced(function: Callable[..., Any], input: Input, dtype: torch.dtype) -> Trace:
    """Calls a function with x and the initial states, if there are any, and records its answer: y, or a tuple that
    begins with y."""
    states = [state.to(dtype) for state in (input.h0, input.c0) if state is not None]
    x = input.x.to(dtype)
    with torch.no_grad():
        answer = function(x, *states)
    first = answer[0] if isinstance(answer, tuple | list) else answer
    y = as_tensor(first, "the function's result")
    if y.dim() != 3 or y.shape[:2] != x.shape[:2] or not y.is_floating_point():
        raise FormatError(
            f"the function's result should be y [T, B, H] = [{x.shape[0]}, {x.shape[1]}, H] of floating point numbers, "
            f"got: {list(y.shape)} of {y.dtype}"
        )
    return Trace(x, y, *states)


def engine(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    """Layers in the form of verification/verify."""
    return [_for_engine(layer) for layer in layers]


def _for_engine(layer: Layer) -> dict[str, Any]:
    directions = [
        {
            field.name: _array(value) if isinstance(value := getattr(direction, field.name), Tensor) else value
            for field in dataclasses.fields(direction)
        }
        for direction in layer.directions
    ]
    for direction in directions:
        for state in ("h0", "c0"):
            if direction[state] is not None:
                direction[state] = np.atleast_2d(direction[state])
    activations = ("gate_activation", "activation", "output_activation")
    return {
        "kind": layer.kind,
        "reset_after": layer.reset_after,
        **{name: _activation(getattr(layer, name)) for name in activations},
        "clip": math.inf if layer.clip is None else layer.clip,
        "cell_clip": math.inf if layer.cell_clip is None else layer.cell_clip,
        "coupled": layer.coupled,
        "norm_eps": layer.norm_eps,
        "zoneout": layer.zoneout,
        "merge": layer.merge if len(layer.directions) == 2 else "concat",
        "directions": directions,
    }


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(torch.float64).contiguous().numpy()


def _activation(activation: formats.Activation) -> tuple[str, float, float]:
    return activation.name, activation.alpha, activation.beta


def with_states(layers: Sequence[Layer], h0: Tensor | None, c0: Tensor | None) -> list[Layer]:
    """The layers with initial states from an input instead of their own. The states are [B, H] if there is one layer
    with one direction; else [layers*D, B, H], with a layer's directions next to each other.

    Raises:
        FormatError: a state of another shape.
    """
    if h0 is None and c0 is None:
        return list(layers)
    count = sum(len(layer.directions) for layer in layers)
    parts = {name: _parts(state, count, name) for name, state in (("h0", h0), ("c0", c0)) if state is not None}
    result, at = [], 0
    for layer in layers:
        directions = []
        for direction in layer.directions:
            states = {name: part[at] for name, part in parts.items() if name == "h0" or layer.kind == "LSTM"}
            for name, state in states.items():
                size = direction.output_size if name == "h0" else layer.hidden_size
                if state.shape[-1] != size:
                    raise FormatError(f"{name} has {state.shape[-1]} units, {layer.called} takes {size}")
            directions.append(dataclasses.replace(direction, **states))
            at += 1
        result.append(dataclasses.replace(layer, directions=directions))
    return result


def _parts(state: Tensor, count: int, name: str) -> list[Tensor]:
    whole = state if state.dim() == 3 else state.unsqueeze(0)
    if whole.shape[0] != count:
        raise FormatError(
            f"{name} has shape {list(state.shape)}; [{count}, B, H] is expected, one for each layer and direction"
        )
    return list(whole.unbind(0))


def describe(layer: Layer) -> str:
    """A layer in words: "encoder: GRU 64 -> 128, both directions, reset_after=False"."""
    name = f"{layer.label}: " if layer.label else ""
    words = [f"{name}{layer.kind} {layer.input_size} -> {layer.hidden_size}"]
    if len(layer.directions) == 2:
        words.append("both directions" + ("" if layer.merge == "concat" else f" (merged by {layer.merge})"))
    elif layer.directions[0].reverse:
        words.append("backwards")
    plain = Layer("", layer.kind, [])
    for field in ("reset_after", "gate_activation", "activation", "output_activation", "clip", "cell_clip", "coupled"):
        if (value := getattr(layer, field)) != getattr(plain, field):
            words.append(f"{field}={value}")
    if layer.norm_eps is not None:
        words.append(f"layer normalisation, epsilon {layer.norm_eps:g}")
    first = layer.directions[0]
    if first.projection is not None:
        words.append(f"projection to {first.output_size}")
    words += ["peepholes"] if first.peepholes is not None else []
    biases = (first.bias_x is not None) + (first.bias_h is not None)
    words += [("no bias", "one bias")[biases]] if biases < 2 else []
    return ", ".join(words)
