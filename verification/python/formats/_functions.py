"""The activations of a Layer as functions, and as arguments of `weft.nn`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from weft.formats._layers import Activation
from weft.formats._options import ACTIVATIONS
from weft.nn import _activations


def _hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


def _thresholded_relu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x > alpha, x, torch.zeros_like(x))


#: By name: functions of a tensor, and of alpha and beta where the activation has them.
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda x: x,
    "hard_sigmoid": _hard_sigmoid,
    "hard_tanh": functional.hardtanh,
    "softsign": functional.softsign,
    "softplus": functional.softplus,
    "elu": functional.elu,
    "selu": functional.selu,
    "leaky_relu": functional.leaky_relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "mish": functional.mish,
    "exp": torch.exp,
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "scaled_tanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "thresholded_relu": _thresholded_relu,
    "relu6": functional.relu6,
    "hard_silu": functional.hardswish,
    "log_sigmoid": functional.logsigmoid,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}
#: A constructor's text for activations without a name in `weft.nn`.
_TEXTS = {
    "hard_sigmoid": "(alpha * x + beta).clamp(0, 1)",
    "elu": "torch.nn.functional.elu(x, alpha)",
    "leaky_relu": "torch.nn.functional.leaky_relu(x, alpha)",
    "exp": "torch.exp(x)",
    "affine": "alpha * x + beta",
    "scaled_tanh": "alpha * torch.tanh(beta * x)",
    "thresholded_relu": "torch.where(x > alpha, x, torch.zeros_like(x))",
    "gelu_tanh": 'torch.nn.functional.gelu(x, approximate="tanh")',
}


def parameters(activation: Activation) -> list[float]:
    return [value for value in (activation.alpha, activation.beta) if not math.isnan(value)]


def evaluate(activation: Activation, x: Tensor) -> Tensor:
    """Applies the activation to a tensor."""
    return FUNCTIONS[activation.name](x, *parameters(activation))


def for_weft_nn(activation: Activation) -> tuple[str | Callable[[Tensor], Tensor], str]:
    """An activation as an option of `weft.nn`: its name or a function, and the option's text in a constructor."""
    name = {"hard_silu": "hard_swish"}.get(activation.name, activation.name)
    is_default = all(
        math.isclose(value, default, rel_tol=1e-7)
        for value, default in zip(parameters(activation), ACTIVATIONS[activation.name], strict=True)
    )
    if is_default and name in _activations.NAMES:
        return name, repr(name)
    text = _TEXTS[activation.name]
    for word, value in (("alpha", activation.alpha), ("beta", activation.beta)):
        text = text.replace(word, f"{value:.9g}")
    return functools.partial(evaluate, activation), f"lambda x: {text}"
