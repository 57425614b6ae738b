"""torch.compile's default backend, which has no code for the device and would fail over its name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from weft._base.torch_private import TorchCompileInductorWrapper


def _is_on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "weft"


def _refusing(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Raises:
    RuntimeError: a tensor of the graph is on the device.
    """

    @functools.wraps(compile_graph)
    def compile_elsewhere(self: Any, model_: Any, inputs_: Any, **kwargs: Any) -> Any:
        within = (node.meta.get("example_value") for node in model_.graph.nodes)
        if any(map(_is_on_device, inputs_)) or any(map(_is_on_device, within)):
            raise RuntimeError(
                'weft: Inductor has no code for tensors of device weft. Use torch.compile(..., backend="weft"), or '
                "leave torch.compile out: what is done on the device is compiled without it"
            )
        return compile_graph(self, model_, inputs_, **kwargs)

    return compile_elsewhere


def register() -> None:
    TorchCompileInductorWrapper.__call__ = _refusing(TorchCompileInductorWrapper.__call__)
