"""`torch_xla.experimental.scan_layers`: layers that are alike as steps of one scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.compat.torch_xla.experimental.scan import scan


def scan_layers(
    layers: Iterable[nn.Module], input_data: Any, partition_fn: Any = None, is_layer_pure: bool = False
) -> Any:
    """`nn.Sequential(*layers)(input_data)` as one scan, whose step is compiled once for all of the layers. A tuple is
    the layers' arguments one by one, and what each of them returns.

    The layers have the same modules, and parameters and buffers of the same names, shapes and dtypes. Gradients reach
    each layer's own parameters, and each layer's buffers (running statistics) are changed as it changes them.
    `partition_fn`, `is_layer_pure`: as for `scan`.

    Raises:
        ValueError: the layers are not alike.
        and what `scan` raises.
    """
    stack = list(layers)
    if not stack:
        return input_data
    first = stack[0]
    for number, layer in enumerate(stack[1:], start=1):
        _check_alike(first, layer, number)
    parameters = _stacked([dict(layer.named_parameters()) for layer in stack])
    buffers = _stacked([dict(layer.named_buffers()) for layer in stack])

    def step(carry: Any, x: tuple[dict[str, Tensor], dict[str, Tensor]]) -> tuple[Any, Any]:
        changed = {name: buffer.clone() for name, buffer in x[1].items()}
        arguments = carry if isinstance(carry, tuple) else (carry,)
        return torch.func.functional_call(first, (x[0], changed), arguments), changed

    if not parameters and not buffers:
        for layer in stack:
            input_data = layer(*input_data) if isinstance(input_data, tuple) else layer(input_data)
        return input_data
    result, after = scan(step, input_data, (parameters, buffers), partition_fn, is_layer_pure)
    with torch.no_grad():
        for number, layer in enumerate(stack):
            for name, buffer in layer.named_buffers():
                buffer.copy_(after[name][number])
    return result


def _stacked(tensors: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}


def _check_alike(first: nn.Module, layer: nn.Module, number: int) -> None:
    for what in ("parameters", "buffers"):
        ours, theirs = (dict(getattr(module, f"named_{what}")()) for module in (first, layer))
        if ours.keys() != theirs.keys():
            differ = sorted(ours.keys() ^ theirs.keys())
            raise ValueError(f"Layer {number} has mismatched keys: {', '.join(differ)} of layer 0 or {number} alone")
        for name, tensor in ours.items():
            other = theirs[name]
            if (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
                raise ValueError(
                    f"Shape mismatch for '{name}' in layer {number}: expected {tensor.dtype} {list(tensor.shape)}, "
                    f"got {other.dtype} {list(other.shape)}."
                )
    for (name, one), (other_name, other) in zip(first.named_modules(), layer.named_modules(), strict=False):
        if (name, type(one), one.training) != (other_name, type(other), other.training):
            raise ValueError(f"Layer {number} differs from layer 0 at '{name}': {other} instead of {one}")
        for key, value in vars(one).items():
            if isinstance(value, float) and vars(other).get(key) != value:
                raise ValueError(
                    f"Layer {number} differs from layer 0: {key} of '{name}' is {vars(other).get(key)}, not {value}"
                )
