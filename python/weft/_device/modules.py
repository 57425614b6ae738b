"""Modules that move to the device and back keep their parameter objects: tied parameters stay tied, and an optimizer
that was made before still has them.

Where PyTorch can't exchange a tensor's data between two devices, `nn.Module.to` makes a new parameter for each
attribute that refers to one. A model whose embedding is also its output layer would silently train two of them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_apply = nn.Module._apply
_state = threading.local()  #: `moves`: a module is moving; `exchanges`: its parameters stay the same objects

Place = tuple[nn.Module, str]


def _places(module: nn.Module, recurse: bool) -> dict[int, list[Place]]:
    """The places of each parameter."""
    found: dict[int, list[Place]] = {}
    for each in module.modules() if recurse else [module]:
        for name, parameter in each._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((each, name))
    return found


def _goes_to(fn: Callable[[Tensor], Tensor]) -> str | None:
    """The type of device to which `fn` moves tensors; None if that isn't visible."""
    try:
        with torch.no_grad():
            return fn(torch.empty(0, device="cpu")).device.type
    except Exception:
        return None


def _can_be_exchanged(parameter: nn.Parameter) -> bool:
    """Whether torch.utils.swap_tensors can exchange the parameter, and keeps its type."""
    return (
        type(parameter) is nn.Parameter and not weakref.getweakrefcount(parameter) and parameter._use_count() <= 1  # type: ignore[attr-defined]
    )


def _apply_with_exchange(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool) -> nn.Module:
    """nn.Module._apply, except that the module's parameters stay the same objects, with what `fn` made of them.

    Not by torch.__future__.set_swap_module_params_on_conversion: it holds for all threads, so that one that moves a
    module would change what another's `.to` or `load_state_dict` does, and two at once could leave it on for good.
    """
    before = dict(module._parameters)
    _apply(module, fn, recurse)
    for name, old in before.items():
        new = module._parameters[name]
        if old is None or new is None or new is old:
            continue
        if old.device != new.device:  # equal devices: exchanged already, under another name of the same module
            attributes = dict(old.__dict__)
            torch.utils.swap_tensors(old, new)
            old.__dict__.update(attributes)
        module._parameters[name] = old
    return module


def _move(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool) -> nn.Module:
    places = _places(module, recurse)
    parameters: list[Any] = [each[0][0]._parameters[each[0][1]] for each in places.values()]
    if not parameters:
        return _apply(module, fn, recurse)
    to = _goes_to(fn)
    if to is None or all((each.device.type == "weft") == (to == "weft") for each in parameters):
        return _apply(module, fn, recurse)
    for each in module.modules() if recurse else [module]:
        if isinstance(each, nn.RNNBase):
            each._flat_weight_refs = []  # as its own _apply does, which makes these references again
    _state.exchanges = all(map(_can_be_exchanged, parameters))
    if _state.exchanges:
        return _apply_with_exchange(module, fn, recurse)
    _apply(module, fn, recurse)
    for old, ((owner, name), *others) in zip(parameters, places.values(), strict=True):
        if isinstance(old, nn.UninitializedParameter):  # a parameter of a lazy module
            owner._parameters[name] = nn.UninitializedParameter(old.requires_grad, to, old.dtype)
        for other, its_name in others:
            other._parameters[its_name] = owner._parameters[name]
            if isinstance(other, nn.RNNBase):
                other._init_flat_weights()
    return module


@functools.wraps(_apply)
def _apply_keeping(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    if getattr(_state, "moves", False):
        return (_apply_with_exchange if _state.exchanges else _apply)(self, fn, recurse)
    _state.moves, _state.exchanges = True, False
    try:
        return _move(self, fn, recurse)
    finally:
        _state.moves = False


def register() -> None:
    nn.Module._apply = _apply_keeping  # type: ignore[method-assign]
