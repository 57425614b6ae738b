"""PyTorch's Python decompositions of recurrences ask Weft first.

Below autograd (inference mode, `ExportedProgram.run_decompositions`) tracing leaves `aten::gru.input` and its kin in
the graph, since they have CPU kernels, but still finds their results' shapes by running the Python decomposition, which
loops over the steps: the length would be burnt into the graph.

`ExportedProgram.run_decompositions` is the exception. Where a length is fixed it is to give the operators that
PyTorch's decompositions give, which other tools can read, and there it does. A recurrence over a length that isn't
fixed stays one operator: PyTorch's would be unrolled for the length of the example, without a word, and wrong at any
other. With a table that doesn't decompose an operator, as torch.onnx.export's, it is kept, and a function of the
caller's own is called.
"""

from __future__ import annotations

import contextlib
import contextvars
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


#: Within `ExportedProgram.run_decompositions`, which has switched Weft off.
_exporting: contextvars.ContextVar[bool] = contextvars.ContextVar("_exporting", default=False)


def install(decompositions: ModuleType) -> None:
    """To be called once torch._decomp.decompositions is imported, which registers PyTorch's decompositions."""
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
        if not _exporting.get():
            return _try_weft(name, input, hx, params, *options) or original(input, hx, params, *options)
        if not (len(options) == 6 and isinstance(input.shape[1 if options[5] else 0], torch.SymInt)):
            return original(input, hx, params, *options)
        with _enabled_again():
            outputs = _try_weft(name, input, hx, params, *options)
        if not outputs and _C.enabled():
            raise RuntimeError(
                f"weft: aten::{name} over a length that isn't fixed cannot be decomposed: PyTorch would write the "
                f"steps of the example alone, and Weft has no program for {input.dtype} on {input.device}; export it "
                "with a fixed length"
            )
        return outputs or original(input, hx, params, *options)

    return decomposition


def _try_weft(name: str, input: Tensor, hx: Any, params: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
    """The outputs of Weft's operator; none where PyTorch's decomposition is to run."""
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    if len(options) != 6 or has_torch_function((input, *states, *params)):
        return ()
    # Chosen by key: the operator itself must not be traced, only its call of the program.
    key = DispatchKey.CompositeImplicitAutograd
    return tuple(torch.ops.weft._try_rnn.default._op_dk(key, name, input, states, list(params), *options))


def keep_exported(exported_program: ModuleType) -> None:
    """To be called once torch.export.exported_program is imported, with this module."""
    program_class = exported_program.ExportedProgram
    original = program_class.run_decompositions

    @functools.wraps(original)
    def run_decompositions(self: Any, decomp_table: Any = None, *args: Any, **kwargs: Any) -> Any:
        _decompose_below_autograd()
        table = dict(exported_program.default_decompositions() if decomp_table is None else decomp_table)
        for name in OVERRIDDEN:
            op = getattr(torch.ops.aten, name).input
            if op in table and _is_pytorchs(table[op]):
                table[op] = torch_private.decomposition_table[op]
        _C.enter_disabled()
        token = _exporting.set(True)
        try:
            with _without_kernels_in_python():
                return original(self, table, *args, **kwargs)
        finally:
            _exporting.reset(token)
            _C.exit_disabled()

    program_class.run_decompositions = run_decompositions


def _is_pytorchs(function: Any) -> bool:
    named = function.func if isinstance(function, functools.partial) else function
    return str(getattr(named, "__module__", "")).startswith("torch.")


@functools.cache
def _decompose_below_autograd() -> None:
    """Has PyTorch decompose the overridden operators below autograd too. There PyTorch takes an operator with a kernel
    for the CPU for an operator without a composite. The overridden operators have such kernels from Weft, so their
    composites didn't run in a program with free sizes, nor in the body of a scan."""
    ops = {getattr(getattr(torch.ops.aten, name), overload) for name in OVERRIDDEN for overload in ("input", "data")}
    ops |= {getattr(torch.ops.aten, f"{name}_cell").default for name in OVERRIDDEN}

    def make(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def autograd_would_have_decomposed(op: Any, arguments: Any) -> bool:
            return (op in ops and _exporting.get()) or original(op, arguments)

        return autograd_would_have_decomposed

    torch_private.replace_autograd_would_have_decomposed(make)


@contextlib.contextmanager
def _enabled_again() -> Iterator[None]:
    """Restores Weft's state from before `run_decompositions` was called."""
    _C.exit_disabled()
    token = _exporting.set(False)
    try:
        yield
    finally:
        _exporting.reset(token)
        _C.enter_disabled()


@contextlib.contextmanager
def _without_kernels_in_python() -> Iterator[None]:
    """Takes away Weft's kernels in Python: where there are none PyTorch puts kernels of its own, which keep or
    decompose an operator."""
    ops = [getattr(torch.ops.aten, name).input for name in OVERRIDDEN]
    taken = [(op, op.py_kernels.pop(DispatchKey.AutogradCPU)) for op in ops if DispatchKey.AutogradCPU in op.py_kernels]
    for op, _ in taken:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernel in taken:
            op.py_kernels[DispatchKey.AutogradCPU] = kernel
            op._dispatch_cache.clear()
