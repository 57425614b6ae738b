"""PyTorch's Python decompositions of recurrences ask Weft first.

Below autograd (inference mode, `ExportedProgram.run_decompositions`) tracing leaves `aten::gru.input` and its kin in
the graph, since they have CPU kernels, but still finds their results' shapes by running the Python decomposition, which
loops over the steps: the length would be burnt into the graph.

`ExportedProgram.run_decompositions` is the exception: of a program whose lengths are fixed it is to give the operators
that PyTorch's decompositions give, which other tools can read, and there it does. With a table that doesn't decompose
them, as torch.onnx.export's, it keeps them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from weft import _C
from weft._base import torch_private
from weft._base.torch_private import DispatchKey

OVERRIDDEN = ("gru", "lstm", "rnn_tanh", "rnn_relu")


def install(decompositions: ModuleType) -> None:
    """Once torch._decomp.decompositions is imported, which registers PyTorch's own."""
    for name in OVERRIDDEN:
        op = getattr(torch.ops.aten, name).input
        original = torch_private.decomposition_table[op]
        replacement = _asking_weft_first(name, original)
        torch_private.decomposition_table[op] = replacement
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


def keep_exported(exported_program: ModuleType) -> None:
    """Once torch.export.exported_program, `exported_program`, is imported."""
    program_class = exported_program.ExportedProgram
    original = program_class.run_decompositions

    @functools.wraps(original)
    def run_decompositions(self: Any, decomp_table: Any = None, *args: Any, **kwargs: Any) -> Any:
        ops = [getattr(torch.ops.aten, name).input for name in OVERRIDDEN]
        kept = [op for op in ops if decomp_table is not None and op not in decomp_table]
        if not kept and not _lengths_are_fixed(self.graph_module):  # PyTorch alone can neither export nor decompose it
            return original(self, decomp_table, *args, **kwargs)
        _C.enter_disabled()
        try:
            with _without_kernels_in_python(kept):
                return original(self, decomp_table, *args, **kwargs)
        finally:
            _C.exit_disabled()

    program_class.run_decompositions = run_decompositions


@contextlib.contextmanager
def _without_kernels_in_python(ops: list[Any]) -> Iterator[None]:
    """PyTorch keeps an operator that isn't to be decomposed by putting kernels of its own where there are none."""
    taken = [(op, op.py_kernels.pop(DispatchKey.AutogradCPU)) for op in ops if DispatchKey.AutogradCPU in op.py_kernels]
    for op, _ in taken:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernel in taken:
            op.py_kernels[DispatchKey.AutogradCPU] = kernel
            op._dispatch_cache.clear()


def _lengths_are_fixed(program: torch.fx.GraphModule) -> bool:
    """Whether every recurrence in an exported program runs over a number of steps that is known."""
    packets = {getattr(torch.ops.aten, name) for name in OVERRIDDEN}
    for module in program.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op != "call_function" or getattr(node.target, "overloadpacket", None) not in packets:
                continue
            if node.target._overloadname == "data":
                steps = node.args[1].meta["val"].shape[0]  # of the batch sizes
            else:
                batch_first = node.args[8] if len(node.args) > 8 else node.kwargs["batch_first"]
                steps = node.args[0].meta["val"].shape[1 if batch_first else 0]
            if isinstance(steps, torch.SymInt):
                return False
    return True
