"""What else is at work in a thread, and how to run something without it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._device import DeviceContext

from weft import _C


class SideEffectError(RuntimeError):
    """A function does more than return its results."""


class MutatesCapturedError(SideEffectError):
    """A function changes a tensor that it doesn't own."""

    def __init__(self, message: str, tensor: Tensor | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's numbers can be read here: no subclass, no transform's wrapper."""
    return (
        type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
        and not _C.is_recorded(tensor)
    )


def unwrapped(tensor: Tensor) -> Tensor:
    """What the wrappers of torch.func's transforms, which a function itself may use, hold."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within, no mode and no transform of the caller's is active, and his random numbers stay what they are."""
    with contextlib.ExitStack() as stack:
        if _C.recording():
            stack.enter_context(_C.Suspended())
        stack.enter_context(_C.WithoutSavedTensorHooks())
        if torch._C._functorch.peek_interpreter_stack() is not None:
            from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch._C._len_torch_dispatch_stack() or torch._C._dispatch_tls_is_dispatch_key_included(
            torch._C.DispatchKey.PreDispatch
        ):
            stack.enter_context(without_dispatch_modes())
        stack.enter_context(without_function_modes())
        stack.enter_context(without_traced_modules())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_autocast_cache())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        yield


@contextlib.contextmanager
def without_dispatch_modes() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


@contextlib.contextmanager
def without_function_modes() -> Iterator[None]:
    """A default device stays; outer traces', ours or export's, don't."""
    popped = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    for mode in reversed(popped):
        if isinstance(mode, DeviceContext):
            torch._C._push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        for _ in range(torch._C._len_torch_function_stack()):
            torch._C._pop_torch_function_stack()
        for mode in reversed(popped):
            torch._C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def without_traced_modules() -> Iterator[None]:
    """torch.fx watches the calls of modules; it would count those that are only made here."""
    traced = sys.modules.get("torch.fx._symbolic_trace")
    before = torch.nn.Module.__call__
    if traced is None or before is traced._orig_module_call:
        yield
        return
    torch.nn.Module.__call__ = traced._orig_module_call
    try:
        yield
    finally:
        torch.nn.Module.__call__ = before


@contextlib.contextmanager
def without_autocast_cache() -> Iterator[None]:
    """A weight that autocast has cast before would come from nowhere."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
