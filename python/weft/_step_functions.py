"""What a traced function may call, and what stands in for what.

`FUNCTIONS` replaces torch functions whose composite form changes its own tensors in place; `decomposition` says how an
ATen operation that the IR doesn't have is made of others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as fn
from torch import Tensor

from weft import _C
from weft._aten import UnsupportedError

_aten = torch.ops.aten


class ReadsValueError(Exception):
    """Python asked for a tensor's value."""

    def __init__(self, message: str = "a tensor's value is needed before there is one") -> None:
        super().__init__(message)


class ShapeFromValuesError(Exception):
    """A result's shape depends on values."""


class CannotDrawError(Exception):
    """Random numbers of a kind that can't be drawn ahead."""


def _gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    r_x, z_x, n_x = fn.linear(x, w_ih, b_ih).chunk(3, -1)
    r_h, z_h, n_h = fn.linear(h, w_hh, b_hh).chunk(3, -1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + r * n_h)
    return (h - n) * z + n


def _lstm_cell(
    x: Tensor, hc: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    h, c = hc
    i, f, g, o = (fn.linear(x, w_ih, b_ih) + fn.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _rnn_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def cell(
        x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Tensor:
        return activation(fn.linear(x, w_ih, b_ih) + fn.linear(h, w_hh, b_hh))

    return cell


def _one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """Without a look at the values: an index that is no class is all zeros."""
    if num_classes < 0:
        raise ReadsValueError
    return (x.unsqueeze(-1) == torch.arange(num_classes)).long()


def _rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    if training:
        raise CannotDrawError("rrelu")
    return torch.where(x > 0, x, x * ((lower + upper) / 2))


def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    x1, x2 = torch.broadcast_tensors(x1, x2)
    norms = [torch.linalg.vector_norm(x, dim=dim, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    return (x1 / norms[0] * (x2 / norms[1])).sum(dim)


_rnn_tanh_cell, _rnn_relu_cell = _rnn_cell(torch.tanh), _rnn_cell(torch.relu)

#: By torch function, as TorchFunctionMode sees it.
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.gru_cell.default: _gru_cell,
    _aten.lstm_cell.default: _lstm_cell,
    _aten.rnn_tanh_cell.default: _rnn_tanh_cell,
    _aten.rnn_relu_cell.default: _rnn_relu_cell,
    fn.one_hot: _one_hot,
    fn.rrelu: _rrelu,
    torch.rrelu: _rrelu,
    torch.cosine_similarity: _cosine_similarity,
    torch.gru_cell: _gru_cell,
    torch.lstm_cell: _lstm_cell,
    torch.rnn_tanh_cell: _rnn_tanh_cell,
    torch.rnn_relu_cell: _rnn_relu_cell,
    Tensor.data.__get__: Tensor.detach,  # type: ignore[attr-defined]
}

_READERS = {Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.data_ptr, Tensor.__dlpack__}


def refuse(func: Any, args: Any) -> None:
    """Raises for what hands a tensor's numbers to Python behind the dispatcher's back."""
    if func in _READERS:
        raise ReadsValueError


@functools.cache
def decomposition(func: Any) -> Callable[..., Any] | None:
    """How the operation is made of others; None where there is no way."""
    if _C.decomposes(func.name()):
        return functools.partial(_decompose, func)
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return func.decompose
    if func.namespace == "prims":  # what PyTorch's decompositions are written in
        return getattr(func, "impl_aten", None)
    return _from_pytorch().get(func)


def _decompose(func: Any, *args: Any, **kwargs: Any) -> Any:
    schema = func._schema
    rest = schema.arguments[len(args) :]
    arguments = [*args, *(kwargs.get(a.name, a.default_value) for a in rest)]
    try:
        return _C.decompose(schema.name, schema.overload_name, arguments)
    except NotImplementedError as error:
        raise UnsupportedError(str(error)) from None


@functools.cache
def _from_pytorch() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}
