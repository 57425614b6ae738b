"""Modules that move to the device and back keep their parameters: tied ones stay tied, and an optimizer that was made
before has them still.

Between devices of which PyTorch can't exchange a tensor's data, `nn.Module.to` makes new parameters, one at each place
where a parameter stands. A model whose embedding is its output layer too would train two of them and say nothing.
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
_state = threading.local()  #: `moves`: within a module that moves

Place = tuple[nn.Module, str]


def _places(module: nn.Module, recurse: bool) -> dict[int, list[Place]]:
    """Of each parameter."""
    found: dict[int, list[Place]] = {}
    for each in module.modules() if recurse else [module]:
        for name, parameter in each._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((each, name))
    return found


def _goes_to(fn: Callable[[Tensor], Tensor]) -> str | None:
    """The kind of device; None if `fn` doesn't say."""
    try:
        with torch.no_grad():
            return fn(torch.empty(0)).device.type
    except Exception:
        return None


def _can_be_exchanged(parameter: nn.Parameter, is_tied: bool) -> bool:
    """Whether torch.utils.swap_tensors takes it, and leaves it what it is."""
    if type(parameter) is not nn.Parameter or weakref.getweakrefcount(parameter):
        return False
    return parameter._use_count() <= 1 and not (is_tied and parameter.grad is not None)  # type: ignore[attr-defined]


def _with_exchange(parameters: list[nn.Parameter], move: Callable[[], nn.Module]) -> nn.Module:
    attributes = [dict(parameter.__dict__) for parameter in parameters]
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return move()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
        for parameter, kept in zip(parameters, attributes, strict=True):
            parameter.__dict__.update(kept)


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
            each._flat_weight_refs = []  # as its own _apply does, which makes them again
    if all(_can_be_exchanged(each, len(places[id(each)]) > 1) for each in parameters):
        return _with_exchange(parameters, lambda: _apply(module, fn, recurse))
    _apply(module, fn, recurse)
    for old, ((owner, name), *others) in zip(parameters, places.values(), strict=True):
        if isinstance(old, nn.UninitializedParameter):  # of a lazy module
            owner._parameters[name] = nn.UninitializedParameter(old.requires_grad, to, old.dtype)
        for other, its_name in others:
            other._parameters[its_name] = owner._parameters[name]
            if isinstance(other, nn.RNNBase):
                other._init_flat_weights()
    return module


@functools.wraps(_apply)
def _apply_keeping(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    if getattr(_state, "moves", False):
        return _apply(self, fn, recurse)
    _state.moves = True
    try:
        return _move(self, fn, recurse)
    finally:
        _state.moves = False


def register() -> None:
    nn.Module._apply = _apply_keeping  # type: ignore[method-assign]
