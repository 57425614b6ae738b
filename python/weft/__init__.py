"""Weft: a compiler for recurrent networks behind PyTorch.

Importing it is all there is to do: `nn.GRU`, `nn.LSTM` and `nn.RNN` on the CPU then run on Weft, in eager mode and
under every `torch.compile` backend. What that changes in PyTorch's process-wide state is listed in `weft._patches`, and
`weft.disable()` takes it back. `weft.nn` has what PyTorch's modules lack.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from weft import _C  # isort: skip
from weft import device
from weft._capture.stats import reset_stats, stats
from weft._control.associative_scan import associative_scan
from weft._control.checkpoint_scan import checkpoint_scan
from weft._control.donation import call_
from weft._control.jit import jit
from weft._control.scan import scan
from weft._control.while_loop import while_loop
from weft._patches.switch import disable, disabled, enable
from weft._stablehlo.write import stablehlo
from weft.device import sync

__all__ = [
    "__version__",
    "associative_scan",
    "call",
    "call_",
    "checkpoint_scan",
    "device",
    "disable",
    "disabled",
    "enable",
    "explain",
    "formats",
    "jit",
    "nn",
    "quantize",
    "reset_stats",
    "scan",
    "stablehlo",
    "stats",
    "sync",
    "verify",
    "while_loop",
]

__version__: str = _C.__version__

#: The operator: `weft.call(program, inputs)` runs a program's text on a list of tensors and returns its list of
#: results, differentiable and traceable. Raises RuntimeError if the text doesn't parse or an input doesn't fit it.
call = torch.ops.weft.call


def __getattr__(name: str) -> Any:
    """The parts that are imported when somebody asks for them: nn, quantize, formats, verify, explain."""
    if name in ("nn", "formats"):
        return importlib.import_module(f"weft.{name}")
    if name == "quantize":
        return importlib.import_module("weft.nn").quantize
    if name == "verify":
        return importlib.import_module("weft.verification").verify
    if name == "explain":
        return importlib.import_module("weft.explanation").explain
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


device.register_beside_none()
