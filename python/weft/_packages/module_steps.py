"""PyTorch's recurrent modules as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn, sigmoid, tanh
from torch.nn import functional

Carry = dict[str, list[Tensor]]


def step_of_module(module: nn.Module, example: Any) -> tuple[Callable[..., Any], Carry, Tensor] | None:
    """The step of an nn.GRU, nn.LSTM or nn.RNN, its first carry, and the x of a step, given an input of the module;
    None for other modules.

    Raises:
        TypeError: the example is no input of the module.
        RuntimeError: the module needs the future (bidirectional), or is in training with dropout.
    """
    if not isinstance(module, nn.RNNBase):
        return None
    what = f"weft.package of {type(module).__name__}"
    if module.bidirectional:
        raise RuntimeError(f"{what}: bidirectional: the backward direction of a step needs all steps after it")
    if module.training and module.dropout and module.num_layers > 1:
        raise RuntimeError(f"{what}: it is in training, with dropout between its layers: call eval() first")
    if not isinstance(example, Tensor) or example.dim() not in (2, 3) or example.shape[-1] != module.input_size:
        raise TypeError(
            f"{what}: the example must be an input of the module, [T, {module.input_size}] or "
            f"[T, B, {module.input_size}] (batch_first: [B, T, {module.input_size}])"
        )
    x = example.select(1 if module.batch_first and example.dim() == 3 else 0, 0)
    rows = x.shape[:-1]
    width = module.proj_size or module.hidden_size
    layers = range(module.num_layers)
    carry = {"h": [x.new_zeros(*rows, width) for _ in layers]}
    if isinstance(module, nn.LSTM):
        carry["c"] = [x.new_zeros(*rows, module.hidden_size) for _ in layers]
    cell = _cell(module)

    def step(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
        after: Carry = {name: [] for name in carry}
        for layer in layers:
            weights = {
                name: getattr(module, f"{name}_l{layer}", None)
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            }
            state = cell(x, {name: values[layer] for name, values in carry.items()}, weights)
            for name, value in state.items():
                after[name].append(value)
            x = state["h"]
        return after, x

    return step, carry, x


Cell = Callable[[Tensor, dict[str, Tensor], dict[str, Any]], dict[str, Tensor]]


def _cell(module: nn.RNNBase) -> Cell:
    if module.mode == "GRU":
        return _gru
    return _lstm if module.mode == "LSTM" else _rnn(functional.relu if module.mode == "RNN_RELU" else tanh)


def _products(x: Tensor, h: Tensor, w: dict[str, Any]) -> tuple[Tensor, Tensor]:
    return functional.linear(x, w["weight_ih"], w["bias_ih"]), functional.linear(h, w["weight_hh"], w["bias_hh"])


def _gru(x: Tensor, state: dict[str, Tensor], w: dict[str, Any]) -> dict[str, Tensor]:
    a, b = _products(x, state["h"], w)
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    n = tanh(an + sigmoid(ar + br) * bn)
    return {"h": n + sigmoid(az + bz) * (state["h"] - n)}


def _lstm(x: Tensor, state: dict[str, Tensor], w: dict[str, Any]) -> dict[str, Tensor]:
    a, b = _products(x, state["h"], w)
    i, f, g, o = (a + b).chunk(4, -1)
    c = sigmoid(f) * state["c"] + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
    return {"h": h if w["weight_hr"] is None else functional.linear(h, w["weight_hr"]), "c": c}


def _rnn(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(x: Tensor, state: dict[str, Tensor], w: dict[str, Any]) -> dict[str, Tensor]:
        a, b = _products(x, state["h"], w)
        return {"h": activation(a + b)}

    return cell
