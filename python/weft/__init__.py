"""Weft: a compiler for recurrent networks behind PyTorch.

Importing it is all there is to do: `nn.GRU`, `nn.LSTM` and `nn.RNN` on the CPU then run on Weft, in eager mode and
under every `torch.compile` backend. What that changes in PyTorch's process-wide state is listed in `weft._patches`, and
`weft.disable()` takes it back. `weft.nn` has what PyTorch's modules lack.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weft._base import torch_release  # noqa: F401  isort: skip  before the module that another release can't load
from weft import _C  # isort: skip
from weft import device
from weft._base import warn
from weft._base.warn import FallbackWarning
from weft._base.words import did_you_mean
from weft._capture.stats import reset_stats, stats
from weft._control.associative_scan import associative_scan
from weft._control.checkpoint_scan import checkpoint_scan
from weft._control.donation import call_
from weft._control.jit import jit
from weft._control.scan import scan
from weft._control.while_loop import while_loop
from weft._patches.switch import disable, disabled, enable
from weft.device import sync

if TYPE_CHECKING:  # these names are imported by __getattr__, when somebody asks for them
    from weft import formats, nn
    from weft._packages.load import load
    from weft._packages.package import package
    from weft._stablehlo.write import stablehlo
    from weft._streaming.stream import stream
    from weft.explanation import explain
    from weft.nn import quantize
    from weft.verification import verify

__all__ = [
    "FallbackWarning",
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
    "load",
    "nn",
    "package",
    "quantize",
    "reset_stats",
    "scan",
    "stablehlo",
    "stats",
    "stream",
    "sync",
    "verify",
    "while_loop",
]

__version__: str = _C.__version__


def call(program: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The operator: runs a program's text (docs/ir.md) on tensors.

    Args:
        program: its text; it is compiled once for each dtype and set of static sizes, and kept.
        inputs: a tensor for each of the program's inputs, of its type: `f32[T,B,8]` takes any T and B that are the
            same wherever they stand.

    Returns:
        The results, contiguous, each with memory of its own. They are differentiable, twice too, and the call may be
        traced (torch.compile, torch.export, torch.func).

    Raises:
        RuntimeError: the text doesn't parse, or an input doesn't fit it.
    """
    results: list[Tensor] = torch.ops.weft.call(program, inputs)
    return results


#: Names that are imported on first use: the name's module, and its name there if it isn't the module itself.
_LAZY = {
    "nn": ("weft.nn", ""),
    "formats": ("weft.formats", ""),
    "quantize": ("weft.nn", "quantize"),
    "verify": ("weft.verification", "verify"),
    "explain": ("weft.explanation", "explain"),
    "package": ("weft._packages.package", "package"),
    "load": ("weft._packages.load", "load"),
    "stablehlo": ("weft._stablehlo.write", "stablehlo"),
    "stream": ("weft._streaming.stream", "stream"),
}


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Imports a part of Weft on its first use."""
        if name not in _LAZY:
            raise AttributeError(f"module 'weft' has no attribute {name!r}{did_you_mean(name, __all__)}")
        module, attribute = _LAZY[name]
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


device.register_at_import()
warn.of_unknown_variables()
