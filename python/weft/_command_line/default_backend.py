"""`weft run --backend weft`: the backend of torch.compile where the program names none."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from weft._base.torch_private import TorchCompileInductorWrapper


def install() -> None:
    """Makes the backend `weft` the default of `torch.compile`, and so of `Module.compile`, in this process."""
    torch.compile.__kwdefaults__["backend"] = _weft


def _weft(graph_module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    """The backend weft; Inductor if the program passes Inductor's options, since it relies on them."""
    backend = importlib.import_module("weft.backend")
    if (kwargs.get("options") or {}).keys() <= backend.OPTIONS.keys():
        return backend.weft(graph_module, example_inputs, **kwargs)
    inductor = TorchCompileInductorWrapper(kwargs.get("mode"), kwargs["options"], None)
    return inductor(graph_module, example_inputs)


_weft.__name__ = "weft"  # the name by which Dynamo calls it
