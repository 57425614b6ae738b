"""Operations in which a number, which may differ from call to call, is a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft._aten import UnsupportedError

_aten = torch.ops.aten


class Free:
    """A number that is an input of the program: a double[]."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def call(op: Any, arguments: list[Any]) -> Any:
    """`op(*arguments)`. Raises UnsupportedError where a free number can only be a constant."""
    parameters = op._schema.arguments
    if any(isinstance(item, Free) for a in arguments if isinstance(a, list) for item in a):
        raise UnsupportedError(f"{op} of numbers that differ from call to call")
    if not any(isinstance(argument, Free) for argument in arguments):
        return _call(op, arguments)
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())
    with_tensors = all(
        isinstance(parameter.type, torch.TensorType)
        for parameter, argument in zip(parameters, arguments, strict=True)
        if isinstance(argument, Free)
    )
    given = [a.tensor.to(dtype) if isinstance(a, Free) else a for a in arguments]
    if with_tensors:
        return _call(op, given)
    if op not in _WITH_TENSORS:
        raise UnsupportedError(f"{op} of a number that differs from call to call")
    return _WITH_TENSORS[op](*given)


def _call(op: Any, arguments: list[Any]) -> Any:
    positional, named = [], {}
    for parameter, argument in zip(op._schema.arguments, arguments, strict=True):
        if parameter.kwarg_only:
            named[parameter.name] = argument
        else:
            positional.append(argument)
    return op(*positional, **named)


def _scaled(y: Any, alpha: Any) -> Any:
    return y if isinstance(alpha, int) and alpha == 1 else y * alpha


def _like(bound: Any, x: Tensor) -> Any:
    return None if bound is None else torch.as_tensor(bound, dtype=x.dtype)


def _clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    return torch.clamp(x, _like(low, x), _like(high, x))


def _full(size: list[int], value: Tensor, dtype: Any = None, *_: Any) -> Tensor:
    zeros = _aten.zeros.default(size, dtype=dtype)  # a dtype is its code here, which Python's functions don't take
    return zeros + value.to(zeros.dtype)


_BINARY = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "maximum", "minimum")

_WITH_TENSORS: dict[Any, Callable[..., Any]] = {
    _aten.add.Tensor: lambda x, y, alpha: x + _scaled(y, alpha),
    _aten.sub.Tensor: lambda x, y, alpha: x - _scaled(y, alpha),
    _aten.add.Scalar: lambda x, y, alpha: x + _scaled(y, alpha),
    _aten.sub.Scalar: lambda x, y, alpha: x - _scaled(y, alpha),
    _aten.rsub.Scalar: lambda x, y, alpha: y - _scaled(x, alpha),
    _aten.rsub.Tensor: lambda x, y, alpha: y - _scaled(x, alpha),
    _aten.lerp.Scalar: torch.lerp,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.pow.Scalar: torch.pow,
    _aten.clamp.default: _clamp,
    _aten.clamp_min.default: lambda x, low: _clamp(x, low),
    _aten.clamp_max.default: lambda x, high: _clamp(x, None, high),
    _aten.leaky_relu.default: lambda x, slope: torch.where(x > 0, x, x * slope),
    _aten.full.default: _full,
    _aten.scalar_tensor.default: lambda value, dtype=None, *_: _full([], value, dtype),
    _aten.full_like.default: lambda x, value, *_: value.to(x.dtype).expand(x.shape).clone(),
    _aten.fill_.Scalar: lambda x, value: x.copy_(value),
    _aten.masked_fill.Scalar: lambda x, mask, value: torch.where(mask, value.to(x.dtype), x),
    _aten.where.ScalarOther: lambda mask, x, value: torch.where(mask, x, value.to(x.dtype)),
    _aten.where.ScalarSelf: lambda mask, value, x: torch.where(mask, value.to(x.dtype), x),
    _aten.addmm.default: lambda c, a, b, beta=1, alpha=1: _scaled(c, beta) + _scaled(a @ b, alpha),
    _aten.addcmul.default: lambda x, a, b, value=1: x + _scaled(a * b, value),
    _aten.addcdiv.default: lambda x, a, b, value=1: x + _scaled(a / b, value),
} | {
    getattr(_aten, name).Scalar: getattr(torch, name) for name in _BINARY[2:] if hasattr(getattr(_aten, name), "Scalar")
}
