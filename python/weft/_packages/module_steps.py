"""PyTorch's recurrent modules as steps: the module itself, on a sequence of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Carry = dict[str, list[Tensor]]


def step_of_module(module: nn.Module, example: Any) -> tuple[Callable[..., Any], Any, Tensor] | None:
    """The step of an nn.GRU, nn.LSTM or nn.RNN (weft.nn's are such), given an input of the module, or of a cell
    (nn.GRUCell), given its input: the function, its first carry, and the x of a step. None for other modules.

    Raises:
        TypeError: the example is no input of the module.
        RuntimeError: the module needs the future (bidirectional), or is in training with dropout.
    """
    if isinstance(module, nn.RNNCellBase):
        return _step_of_cell(module, example)
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
    time = 1 if module.batch_first and example.dim() == 3 else 0
    x = example.select(time, 0)
    rows, layers = x.shape[:-1], range(module.num_layers)
    carry = {"h": [x.new_zeros(*rows, module.proj_size or module.hidden_size) for _ in layers]}
    if module.mode == "LSTM":
        carry["c"] = [x.new_zeros(*rows, module.hidden_size) for _ in layers]

    def step(carry: Carry, x: Tensor) -> tuple[Carry, Tensor]:
        states = tuple(torch.stack(values) for values in carry.values())
        y, after = module(x.unsqueeze(time), states if len(states) > 1 else states[0])
        after = after if len(states) > 1 else (after,)
        return {name: list(value.unbind(0)) for name, value in zip(carry, after, strict=True)}, y.squeeze(time)

    return step, carry, x


def _step_of_cell(module: nn.RNNCellBase, example: Any) -> tuple[Callable[..., Any], Any, Tensor]:
    if not isinstance(example, Tensor) or example.dim() not in (1, 2) or example.shape[-1] != module.input_size:
        raise TypeError(
            f"weft.package of {type(module).__name__}: the example must be an input of the module, "
            f"[{module.input_size}] or [B, {module.input_size}]"
        )
    zeros = example.new_zeros(*example.shape[:-1], module.hidden_size)
    if isinstance(module, nn.LSTMCell):
        return lambda carry, x: _both(module(x, (carry["h"], carry["c"]))), {"h": zeros, "c": zeros.clone()}, example

    def step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        h = module(x, carry["h"])
        return {"h": h}, h

    return step, {"h": zeros}, example


def _both(states: tuple[Tensor, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    return {"h": states[0], "c": states[1]}, states[0]
