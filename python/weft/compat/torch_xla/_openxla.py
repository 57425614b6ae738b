"""The backend `openxla` of torch.compile, which PyTorch has under this name for PyTorch/XLA."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import fx

from weft._base.import_hooks import when_imported
from weft._base.torch_private import DYNAMO_OPENXLA


def _run_graph(model: fx.GraphModule, fake_tensor_inputs: list[Any], boxed: bool = False) -> Callable[..., Any]:
    """The graph, unchanged: its operations on tensors of the device are recorded, and run with the rest of the step."""

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return model(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run if boxed else model


def _replace(backend: ModuleType) -> None:
    backend.xla_backend_helper = _run_graph  # type: ignore[attr-defined]


def register() -> None:
    """Makes `torch.compile(backend="openxla")` work without PyTorch/XLA."""
    when_imported(DYNAMO_OPENXLA, _replace)
