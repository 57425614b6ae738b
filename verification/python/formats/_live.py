"""The recurrent layers of a module in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import weft.nn
from weft.formats import _pytorch
from weft.formats._functions import evaluate
from weft.formats._layers import Activation, FormatError, Layer, Source
from weft.formats._options import ACTIVATIONS, Options, activation

_CELLS = {nn.GRUCell: "GRU", nn.LSTMCell: "LSTM", nn.RNNCell: "RNN"}
_FORWARDS = {cls.forward for cls in (nn.GRU, nn.LSTM, nn.RNN, weft.nn.GRU, weft.nn.LSTM, weft.nn.RNN, *_CELLS)}
_VARIANT = ("reset_after", "gate_activation", "cell_clip", "coupled_input_forget")


def layers_of_module(module: nn.Module) -> Source:
    """The layers of every nn.GRU, LSTM, RNN, cell and `weft.nn` module of a model, itself included, as in evaluation.

    Raises:
        FormatError: it has none; or an activation that is a function which isn't known here.
    """
    if not isinstance(module, nn.Module):
        raise FormatError(f"expected a torch.nn.Module, got {type(module).__name__}")
    layers: list[Layer] = []
    notes: list[str] = []
    for name, part in module.named_modules():
        if isinstance(part, nn.RNNBase | nn.RNNCellBase):
            layers += _layers(name, part)
            if type(part).forward not in _FORWARDS:
                label = _pytorch.module_name(name)
                notes.append(f"{label}: {type(part).__name__} has a forward of its own, which isn't looked at")
            if part.training and any(getattr(part, p, 0) for p in ("dropout", "recurrent_dropout", "zoneout")):
                notes.append(f"{_pytorch.module_name(name)}: is in training; it is taken as in evaluation")
    if not layers:  # a scripted module has no class of ours, but has the parameters
        found = _pytorch.layers_of(_state(module), Options())
        if found is None:
            raise FormatError(f"{type(module).__name__} holds no nn.GRU, nn.LSTM, nn.RNN, cell or weft.nn module")
        layers, notes = list(found.layers), found.notes
    text = str(module).splitlines()[0]
    return Source(text if text.endswith(")") else type(module).__name__, "pytorch", layers, notes=notes)


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in module.state_dict().items() if isinstance(value, Tensor)}


def _layers(name: str, module: nn.Module) -> list[Layer]:
    """The layers of one module, from its parameters (for parametrised ones their current values) and its attributes."""
    if isinstance(module, nn.RNNBase):
        own = [*(p for names in module._all_weights for p in names)]
        own += [p for names in getattr(module, "_extra_names", ()) for p in names]
    else:
        own = [p for p in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if getattr(module, p) is not None]
    prefix = f"{name}." if name else ""
    tensors = {prefix + p: getattr(module, p).detach().cpu().clone() for p in own}
    values: dict[str, Any] = {key: getattr(module, key) for key in _VARIANT if hasattr(module, key)}
    if "gate_activation" in values:
        values["gate_activation"] = _activation(name, values["gate_activation"])
    if isinstance(module, nn.RNN | nn.RNNCell):
        values["activation"] = activation(module.nonlinearity)
    if getattr(module, "activation", None) is not None:
        values["activation"] = _activation(name, module.activation)
    source = _pytorch.layers_of(tensors, Options(values))
    assert source is not None
    zoneout = getattr(module, "zoneout", 0.0)
    pair = tuple(map(float, zoneout)) if isinstance(zoneout, tuple | list) else (float(zoneout), float(zoneout))
    for layer in source.layers:
        layer.zoneout = pair if layer.kind == "LSTM" else (pair[0], 0.0)
    return list(source.layers)


def _activation(name: str, value: str | Callable[[Tensor], Tensor]) -> Activation:
    """An activation of `weft.nn`: a name, or a function, which is recognised by its values.

    Raises:
        FormatError: no activation here has these values.
    """
    if isinstance(value, str):
        return activation(value)
    x = torch.linspace(-8, 8, 641, dtype=torch.float64)
    try:
        with torch.no_grad():
            y, far = value(x), float(value(torch.tensor([1e3], dtype=x.dtype)))
        for candidate in _candidates(y, x, far):
            if torch.allclose(evaluate(candidate, x), y, rtol=1e-6, atol=1e-7):
                return candidate
    except (RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"{_pytorch.module_name(name)}: its activation can't be called: {error}") from None
    label = getattr(value, "__name__", None) or type(value).__name__
    raise FormatError(
        f"{_pytorch.module_name(name)}: its activation {label} is a function that isn't among {', '.join(ACTIVATIONS)}"
    )


def _candidates(y: Tensor, x: Tensor, far: float) -> list[Activation]:
    """Activations without parameters, and activations with parameters fitted to some of the points."""

    def at(value: float) -> float:
        return float(y[(x - value).abs().argmin()])

    found = [activation(name) for name, defaults in ACTIVATIONS.items() if not defaults]
    slope = (at(0.025) - at(-0.025)) / 0.05
    found += [activation("hard_sigmoid", slope, at(0.0)), activation("affine", slope, at(0.0))]
    found += [activation("leaky_relu", -at(-1.0)), activation("elu", -at(-1.0) / -math.expm1(-1.0))]
    found += [activation("thresholded_relu", float(x[y == 0].max()))] if bool((y == 0).any()) else []
    if 0 < abs(far) < math.inf and abs(at(1.0) / far) < 1:
        found.append(activation("scaled_tanh", far, math.atanh(at(1.0) / far)))
    return [_rounded(a) for a in found] + found


def _rounded(a: Activation) -> Activation:
    """The activation with parameters of few digits, as people write them."""
    return dataclasses.replace(a, alpha=round(a.alpha, 6), beta=round(a.beta, 6))
