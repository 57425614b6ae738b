"""PyTorch's Python decompositions of recurrences ask Weft first.

Below autograd (inference mode, `ExportedProgram.run_decompositions`) tracing leaves `aten::gru.input` and its kin in
the graph, since they have CPU kernels, but still finds their results' shapes by running the Python decomposition, which
loops over the steps: the length would be burnt into the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.overrides import has_torch_function

OVERRIDDEN = ("gru", "lstm", "rnn_tanh", "rnn_relu")


def install(decompositions: ModuleType) -> None:
    """Once torch._decomp.decompositions is imported, which registers PyTorch's own."""
    for name in OVERRIDDEN:
        op = getattr(torch.ops.aten, name).input
        original = torch._decomp.decomposition_table[op]
        replacement = _asking_weft_first(name, original)
        torch._decomp.decomposition_table[op] = replacement
        for key, kernel in list(op.py_kernels.items()):
            if kernel is original:
                op.py_kernels[key] = replacement
        # The kernel in C++ falls back on the composite in C++; while tracing, PyTorch chooses the one in Python.
        op.py_kernels[DispatchKey.AutogradCPU] = replacement
        op._dispatch_cache.clear()


def _asking_weft_first(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)  # FakeTensorMode looks at the name and module
    def decomposition(input: Tensor, hx: Any, params: list[Tensor], *options: Any) -> Any:
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        if len(options) == 6 and not has_torch_function((input, *states, *params)):
            # By key: the operator itself must not be traced, only what it calls.
            outputs = torch.ops.weft._try_rnn.default._op_dk(
                DispatchKey.CompositeImplicitAutograd, name, input, states, list(params), *options
            )
            if outputs:
                return tuple(outputs)
        return original(input, hx, params, *options)

    return decomposition
