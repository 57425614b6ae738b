"""Reductions and running totals that the IR has no op for, as others that it has; see `_step_decompositions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft._step_table import Function, dims_of, entering, floating, root, select, wide

_aten = torch.ops.aten

TABLE: dict[Any, Function] = {}

_decomposes = entering(TABLE)

# ---- reductions


def _count(x: Tensor, dims: Sequence[int]) -> int | Tensor:
    """How many elements a reduction joins. The leading dim may be a symbol, of which Python has no number."""
    if 0 in dims:
        return torch.ones_like(x).sum(list(dims), keepdim=True)
    return math.prod(x.shape[d] for d in dims)


def _variance(x: Tensor, dim: Any, correction: float | None) -> tuple[Tensor, Tensor, list[int]]:
    """Variance and mean in the type that PyTorch computes in, their dims kept, and the dims."""
    x, dims = wide(x), dims_of(x, dim)
    mean = x.mean(dims, keepdim=True)
    squares = torch.square(x - mean)
    correction = 1 if correction is None else correction
    if correction == 0:
        return squares.mean(dims, keepdim=True), mean, dims
    count = _count(x, dims)
    degrees = max(count - correction, 0) if isinstance(count, int) else torch.clamp(count - correction, min=0)
    return squares.sum(dims, keepdim=True) / degrees, mean, dims


def _without(x: Tensor, dims: Sequence[int], keepdim: bool, dtype: torch.dtype) -> Tensor:
    return (x if keepdim else x.squeeze(list(dims))).to(dtype)


@_decomposes(_aten.var.correction)
def _var(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    variance, _, dims = _variance(x, dim, correction)
    return _without(variance, dims, keepdim, x.dtype)


@_decomposes(_aten.std.correction)
def _std(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    variance, _, dims = _variance(x, dim, correction)
    return _without(root(variance), dims, keepdim, x.dtype)


@_decomposes(_aten.var_mean.correction)
def _var_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, mean, dims = _variance(x, dim, correction)
    return _without(variance, dims, keepdim, x.dtype), _without(mean, dims, keepdim, x.dtype)


@_decomposes(_aten.std_mean.correction)
def _std_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, mean, dims = _variance(x, dim, correction)
    return _without(root(variance), dims, keepdim, x.dtype), _without(mean, dims, keepdim, x.dtype)


@_decomposes(_aten.native_group_norm.default)
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = wide(x).reshape(n, groups, c // groups * hxw)
    mean = rows.mean(2, keepdim=True)
    centred = rows - mean
    rstd = torch.rsqrt(torch.square(centred).mean(2, keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    sizes = [1, c] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.reshape(sizes)
    y = y if bias is None else y + bias.reshape(sizes)
    return y.to(x.dtype), mean.squeeze(2).to(x.dtype), rstd.squeeze(2).to(x.dtype)


@_decomposes(_aten.linalg_vector_norm.default)
def _vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    result = dtype or x.dtype
    x, dims = wide(x.to(result)), dims_of(x, dim)
    if ord == 2:
        norm = root(torch.square(x).sum(dims, keepdim=True))
    elif ord == 1:
        norm = x.abs().sum(dims, keepdim=True)
    elif ord == 0:
        norm = (x != 0).to(x.dtype).sum(dims, keepdim=True)
    elif ord == math.inf:
        norm = x.abs().amax(dims, keepdim=True)
    elif ord == -math.inf:
        norm = x.abs().amin(dims, keepdim=True)
    else:
        powers = x.abs().pow(ord).sum(dims, keepdim=True)
        zero = powers == 0
        norm = select(zero, 0.0, select(zero, 1.0, powers).pow(1 / ord))
    return _without(norm, dims, keepdim, result)


@_decomposes(_aten.logsumexp.default)
def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    x, dims = floating(x), dims_of(x, dim)
    largest = wide(x).amax(dims, keepdim=True).detach()
    largest = select(largest.abs() == torch.inf, 0.0, largest)
    result = torch.log(torch.exp(wide(x) - largest).sum(dims, keepdim=True)) + largest
    return _without(result, dims, keepdim, x.dtype)


def _extremum(x: Tensor, dim: int, keepdim: bool, smallest: bool) -> tuple[Tensor, Tensor]:
    """Values and indices; the gradient goes to the element at the index alone."""
    index = (torch.argmin if smallest else torch.argmax)(x, dim, keepdim=True)
    if x.dim() == 0:
        return x.clone(), index
    if x.is_floating_point():
        shape = [1] * x.dim()
        shape[dim] = x.shape[dim]
        chosen = torch.arange(x.shape[dim]).reshape(shape) == index
        values = select(chosen, x, 0.0).sum(dim, keepdim=True)
    else:
        values = (torch.amin if smallest else torch.amax)(x, dim, keepdim=True)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


@_decomposes(_aten.max.dim)
def _max(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(x, dim, keepdim, smallest=False)


@_decomposes(_aten.min.dim)
def _min(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _extremum(x, dim, keepdim, smallest=True)


@_decomposes(_aten.aminmax.default)
def _aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = dims_of(x, dim)
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


@_decomposes(_aten.prod.dim_int)
def _prod(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    result, x = x.dtype, wide(x)
    if x.dim() == 0:
        return x.to(result)
    while (size := x.shape[dim]) > 1:
        half = size // 2
        pairs = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([pairs, x.narrow(dim, size - 1, 1)], dim) if size % 2 else pairs
    if x.shape[dim] == 0:
        x = torch.ones([1 if d == dim % x.dim() else n for d, n in enumerate(x.shape)], dtype=x.dtype)
    return _without(x, [dim], keepdim, result)


@_decomposes(_aten.prod.default)
def _prod_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _prod(x.reshape(-1), 0, dtype=dtype)


@_decomposes(_aten.count_nonzero.dim_IntList)
def _count_nonzero(x: Tensor, dim: Sequence[int]) -> Tensor:
    return (x != 0).sum(list(dim))


@_decomposes(_aten.nansum.default)
def _nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return select(x != x, 0.0, x).sum(dim, keepdim, dtype=dtype) if x.is_floating_point() else x.sum(dim, keepdim)


# ---- running totals, in log2(n) steps


def _running(x: Any, dim: int, combine: Callable[[Any, Any], Any]) -> Any:
    """Of tensors (or tuples of them) along a dim of known size: each element joined with all before it."""
    parts = x if isinstance(x, tuple) else (x,)
    size, shift = parts[0].shape[dim] if parts[0].dim() else 1, 1
    while shift < size:
        early = tuple(p.narrow(dim, 0, size - shift) for p in parts)
        late = tuple(p.narrow(dim, shift, size - shift) for p in parts)
        joined = combine(early, late) if isinstance(x, tuple) else (combine(early[0], late[0]),)
        parts = tuple(torch.cat([p.narrow(dim, 0, shift), j], dim) for p, j in zip(parts, joined, strict=True))
        shift *= 2
    return parts if isinstance(x, tuple) else parts[0]


@_decomposes(_aten.cumsum.default)
def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    return _running(wide(x), dim, torch.add).to(x.dtype)


@_decomposes(_aten.cumprod.default)
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    return _running(wide(x), dim, torch.mul).to(x.dtype)


@_decomposes(_aten.logaddexp.default)
def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    apart = select(a == b, 0.0, a - b)  # of equal infinities it would be NaN
    return torch.maximum(a, b) + torch.log1p(torch.exp(-apart.abs()))


@_decomposes(_aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return _running(wide(x), dim, _logaddexp).to(x.dtype)


def _running_extremum(x: Tensor, dim: int, wins: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    def later(early: tuple[Tensor, Tensor], late: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        takes = wins(late[0], early[0])
        takes = (takes & (early[0] == early[0])) | (late[0] != late[0])
        return torch.where(takes, late[0], early[0]), torch.where(takes, late[1], early[1])

    shape = [1] * x.dim()
    if x.dim():
        shape[dim] = x.shape[dim]
    index = torch.arange(x.shape[dim] if x.dim() else 1).reshape(shape).expand(x.shape)
    return _running((x, index.clone()), dim, later)


@_decomposes(_aten.cummax.default)
def _cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extremum(x, dim, torch.ge)


@_decomposes(_aten.cummin.default)
def _cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extremum(x, dim, torch.le)
