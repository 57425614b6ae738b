"""PyTorch's modes and transforms that are active in a thread, and how to run code without them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from weft import _C
from weft._base import torch_private
from weft._base.torch_private import (
    DeviceContext,
    DispatchKey,
    get_tracing_state,
    get_unwrapped,
    is_dispatch_key_included,
    is_functional_tensor,
    is_functorch_wrapped_tensor,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    peek_interpreter_stack,
    pop_torch_function_stack,
    push_on_torch_function_stack,
    set_tracing_state,
)

is_plain = _C.is_plain
in_forward_mode = torch_private.in_forward_mode
modules_are_traced = torch_private.modules_are_traced


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside all wrappers of torch.func's transforms, which a function itself may use."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def is_recordable(tensors: Sequence[Tensor]) -> bool:
    """Whether no active mode or transform must itself see the operations of the function, or of its arguments."""
    if _C.are_plain(tensors):
        return True
    return all(is_plain(tensor) or _C.is_recorded(tensor) or is_transformed(tensor) for tensor in tensors)


def is_transformed(tensor: Tensor) -> bool:
    """Whether the tensor is a plain tensor within torch.func's transforms, which see the program's call and not the
    step."""
    if not is_functorch_wrapped_tensor(tensor) or is_functional_tensor(tensor):
        return False
    return is_plain(unwrapped(tensor))


class Substitution(TorchFunctionMode):
    """Shows PyTorch's functions replacements for some tensors."""

    def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
        """`other` returns a tensor's replacement; the tensor itself if it has none."""
        super().__init__()
        self.other = other

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*self.lift(args), **self.lift(kwargs or {}))

    def lift(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self.other(argument)
        if type(argument) in (list, tuple):
            return type(argument)(self.lift(item) for item in argument)
        if type(argument) is dict:
            return {key: self.lift(value) for key, value in argument.items()}
        return argument


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No mode and no transform of the caller's is active within, and the caller's random numbers stay what they are."""
    with contextlib.ExitStack() as stack:
        if _C.recording():
            stack.enter_context(_C.Suspended())
        stack.enter_context(_C.WithoutSavedTensorHooks())
        if peek_interpreter_stack() is not None:
            stack.enter_context(torch_private.temporarily_clear_interpreter_stack())
        if len_torch_dispatch_stack() or is_dispatch_key_included(DispatchKey.PreDispatch):
            stack.enter_context(without_dispatch_modes())
        stack.enter_context(without_function_modes())
        stack.enter_context(without_traced_modules())
        stack.enter_context(without_tracing())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(without_autocast_cache())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        yield


@contextlib.contextmanager
def without_dispatch_modes() -> Iterator[None]:
    with torch_private.disable_current_modes():
        yield


@contextlib.contextmanager
def without_function_modes() -> Iterator[None]:
    """Removes all modes of functions except a default device: those of outer traces, Weft's own and torch.export's."""
    popped = [pop_torch_function_stack() for _ in range(len_torch_function_stack())]
    for mode in reversed(popped):
        if isinstance(mode, DeviceContext):
            push_on_torch_function_stack(mode)
    try:
        yield
    finally:
        for _ in range(len_torch_function_stack()):
            pop_torch_function_stack()
        for mode in reversed(popped):
            push_on_torch_function_stack(mode)


@contextlib.contextmanager
def without_traced_modules() -> Iterator[None]:
    """Hides module calls that happen only while recording from torch.fx, which would count them."""
    if not modules_are_traced():
        yield
        return
    before = torch.nn.Module.__call__
    torch.nn.Module.__call__ = torch_private.untraced_module_call()
    try:
        yield
    finally:
        torch.nn.Module.__call__ = before


def is_tracing() -> bool:
    """Whether torch.jit.trace is recording this thread."""
    return get_tracing_state() is not None


@contextlib.contextmanager
def without_tracing() -> Iterator[None]:
    """Hides a step's operations from torch.jit.trace."""
    before = get_tracing_state()
    set_tracing_state(None)
    try:
        yield
    finally:
        set_tracing_state(before)


@contextlib.contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Has weights cast anew: autocast's cached cast of one would come from nowhere in a recording."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextlib.contextmanager
def without_fused_attention() -> Iterator[None]:
    """Makes layers of attention call the operations that they are made of, as they do in training: in inference
    nn.MultiheadAttention and nn.TransformerEncoderLayer are one kernel of PyTorch's each."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
