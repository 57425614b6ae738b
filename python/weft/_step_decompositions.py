"""ATen operations that the IR has no op for, as others that it has.

PyTorch's own decompositions stand behind these. What is here is what they lack, what they would differentiate to
something else than eager mode does (at a kink, or where an untaken branch overflows), and what is so common in a step
that importing them for it alone would take longer than the capture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten

TABLE: dict[Any, Callable[..., Any]] = {}

Function = Callable[..., Any]


def _decomposes(*overloads: Any) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for overload in overloads:
            TABLE[overload] = function
        return function

    return register


def _select(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """torch.where whose numbers are of the dtype of the tensor beside them."""
    like = x if isinstance(x, Tensor) else y
    assert isinstance(like, Tensor)
    x = x if isinstance(x, Tensor) else torch.full((), x, dtype=like.dtype)
    y = y if isinstance(y, Tensor) else torch.full((), y, dtype=like.dtype)
    return torch.where(condition, x, y)


def _dims(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The dims that a reduction goes over, none meaning all."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return [d % max(x.dim(), 1) for d in dims] or list(range(x.dim()))


def _float(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    if dtype is not None:
        return x.to(dtype)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _wide(x: Tensor) -> Tensor:
    """f16 and bf16 in f32, where PyTorch's kernels compute in it and round once."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# ---- activations


@_decomposes(_aten.gelu.default)
def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    w = _wide(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (w + 0.044715 * (w * w * w))
        return (0.5 * w * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * w * (1 + torch.erf(w * math.sqrt(0.5)))).to(x.dtype)


@_decomposes(_aten.elu.default)
def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    positive = x > 0
    w = _wide(x)
    low = torch.expm1(_select(positive, 0.0, w) * input_scale) * (alpha * scale)
    return _select(positive, w * scale, low).to(x.dtype)


@_decomposes(_aten.celu.default)
def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@_decomposes(_aten.selu.default)
def _selu(x: Tensor) -> Tensor:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@_decomposes(_aten.softplus.default)
def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = _wide(x) * beta
    linear = scaled > threshold
    curve = torch.log1p(torch.exp(_select(linear, 0.0, scaled))) / beta
    return _select(linear, _wide(x), curve).to(x.dtype)


@_decomposes(_aten.mish.default)
def _mish(x: Tensor) -> Tensor:
    w = _wide(x)
    return (w * torch.tanh(_softplus(w))).to(x.dtype)


@_decomposes(_aten.log_sigmoid_forward.default)
def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    w = _wide(x)
    rest = torch.exp(-w.abs())
    return (torch.minimum(w, torch.zeros_like(w)) - torch.log1p(rest)).to(x.dtype), rest


@_decomposes(_aten.leaky_relu.default)
def _leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return torch.where(x > 0, x, x * negative_slope)


@_decomposes(_aten._prelu_kernel.default)
def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * weight)


@_decomposes(_aten.threshold.default)
def _threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    return _select(x <= threshold, value, x)


@_decomposes(_aten.hardtanh.default)
def _hardtanh(x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    return _select(x <= low, low, _select(x >= high, high, x))


@_decomposes(_aten.hardsigmoid.default)
def _hardsigmoid(x: Tensor) -> Tensor:
    return _select(x <= -3, 0.0, _select(x >= 3, 1.0, ((_wide(x) + 3) / 6).to(x.dtype)))


@_decomposes(_aten.hardswish.default)
def _hardswish(x: Tensor) -> Tensor:
    w = _wide(x)
    return _select(x <= -3, 0.0, torch.where(x < 3, (w * (w + 3) / 6).to(x.dtype), x))


@_decomposes(_aten.hardshrink.default)
def _hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return _select((x >= -lambd) & (x <= lambd), 0.0, x)


@_decomposes(_aten.softshrink.default)
def _softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, x * 0))


@_decomposes(_aten.glu.default)
def _glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


@_decomposes(_aten._safe_softmax.default)
def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    nothing = torch.all(x == -torch.inf, dim, keepdim=True)
    return _select(nothing, 0.0, torch.softmax(_select(nothing, 0.0, x), dim, dtype=dtype))


# ---- elementwise


@_decomposes(_aten.addcmul.default)
def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + (a * b if value == 1 else value * a * b)


@_decomposes(_aten.addcdiv.default)
def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + (a / b if value == 1 else value * a / b)


@_decomposes(_aten.lerp.Scalar)
def _lerp_by_number(start: Tensor, end: Tensor, weight: float) -> Tensor:
    s, e = _wide(start), _wide(end)
    return (s + weight * (e - s) if abs(weight) < 0.5 else e - (e - s) * (1 - weight)).to(start.dtype)


@_decomposes(_aten.lerp.Tensor)
def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    s, e, w = _wide(start), _wide(end), _wide(weight)
    return torch.where(w.abs() < 0.5, s + w * (e - s), e - (e - s) * (1 - w)).to(start.dtype)


@_decomposes(_aten.logaddexp.default)
def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    apart = _select(a == b, 0.0, a - b)  # of equal infinities it would be NaN
    return torch.maximum(a, b) + torch.log1p(torch.exp(-apart.abs()))


@_decomposes(_aten.fmax.default)
def _fmax(a: Tensor, b: Tensor) -> Tensor:
    return torch.where((a >= b) | (b != b), a, b)


@_decomposes(_aten.fmin.default)
def _fmin(a: Tensor, b: Tensor) -> Tensor:
    return torch.where((a <= b) | (b != b), a, b)


@_decomposes(_aten.hypot.default)
def _hypot(a: Tensor, b: Tensor) -> Tensor:
    return _root(a * a + b * b)


@_decomposes(_aten.nan_to_num.default)
def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if not x.is_floating_point():
        return x.clone()
    limits = torch.finfo(x.dtype)
    result = _select(x != x, 0.0 if nan is None else nan, x)
    result = _select(x == torch.inf, limits.max if posinf is None else posinf, result)
    return _select(x == -torch.inf, limits.min if neginf is None else neginf, result)


@_decomposes(_aten.frac.default)
def _frac(x: Tensor) -> Tensor:
    return x - torch.trunc(x)


@_decomposes(_aten.round.decimals)
def _round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    scale = 10.0 ** abs(decimals)
    return torch.round(x * scale) / scale if decimals >= 0 else torch.round(x / scale) * scale


@_decomposes(_aten.logit.default)
def _logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = _float(x)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return torch.log(x / (1 - x))


@_decomposes(_aten.signbit.default)
def _signbit(x: Tensor) -> Tensor:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


# ---- reductions


def _count(x: Tensor, dims: Sequence[int]) -> int | Tensor:
    """How many elements a reduction joins. The leading dim may be a symbol, of which Python has no number."""
    if 0 in dims:
        return torch.ones_like(x).sum(list(dims), keepdim=True)
    return math.prod(x.shape[d] for d in dims)


def _variance(x: Tensor, dim: Any, correction: float | None) -> tuple[Tensor, Tensor, list[int]]:
    """Variance and mean in the type that PyTorch computes in, their dims kept, and the dims."""
    x, dims = _wide(x), _dims(x, dim)
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


def _root(x: Tensor) -> Tensor:
    """The square root whose derivative at 0 is 0, as those of norms and deviations are."""
    zero = x == 0
    return _select(zero, 0.0, torch.sqrt(_select(zero, 1.0, x)))


@_decomposes(_aten.var.correction)
def _var(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    variance, _, dims = _variance(x, dim, correction)
    return _without(variance, dims, keepdim, x.dtype)


@_decomposes(_aten.std.correction)
def _std(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    variance, _, dims = _variance(x, dim, correction)
    return _without(_root(variance), dims, keepdim, x.dtype)


@_decomposes(_aten.var_mean.correction)
def _var_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, mean, dims = _variance(x, dim, correction)
    return _without(variance, dims, keepdim, x.dtype), _without(mean, dims, keepdim, x.dtype)


@_decomposes(_aten.std_mean.correction)
def _std_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, mean, dims = _variance(x, dim, correction)
    return _without(_root(variance), dims, keepdim, x.dtype), _without(mean, dims, keepdim, x.dtype)


@_decomposes(_aten.native_group_norm.default)
def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = _wide(x).reshape(n, groups, c // groups * hxw)
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
    x, dims = _wide(x.to(result)), _dims(x, dim)
    if ord == 2:
        norm = _root(torch.square(x).sum(dims, keepdim=True))
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
        norm = _select(zero, 0.0, _select(zero, 1.0, powers).pow(1 / ord))
    return _without(norm, dims, keepdim, result)


@_decomposes(_aten.logsumexp.default)
def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    x, dims = _float(x), _dims(x, dim)
    largest = _wide(x).amax(dims, keepdim=True).detach()
    largest = _select(largest.abs() == torch.inf, 0.0, largest)
    result = torch.log(torch.exp(_wide(x) - largest).sum(dims, keepdim=True)) + largest
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
        values = _select(chosen, x, 0.0).sum(dim, keepdim=True)
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
    dims = _dims(x, dim)
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


@_decomposes(_aten.prod.dim_int)
def _prod(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    result, x = x.dtype, _wide(x)
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
    return _select(x != x, 0.0, x).sum(dim, keepdim, dtype=dtype) if x.is_floating_point() else x.sum(dim, keepdim)


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
    return _running(_wide(x), dim, torch.add).to(x.dtype)


@_decomposes(_aten.cumprod.default)
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.int64))
    return _running(_wide(x), dim, torch.mul).to(x.dtype)


@_decomposes(_aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return _running(_wide(x), dim, _logaddexp).to(x.dtype)


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


# ---- movement


@_decomposes(_aten.diagonal.default)
def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    start = (max(-offset, 0), max(offset, 0))
    length = max(min(rows - start[0], columns - start[1]), 0)
    if length == 0:
        return x.flatten(-2).narrow(-1, 0, 0)
    x = x.narrow(-2, start[0], length).narrow(-1, start[1], length)
    if length == 1:
        return x.squeeze(-1)
    # In a row, the diagonal stands at every (length + 1)th place.
    row = torch.constant_pad_nd(x.flatten(-2), [0, length])
    return row.unflatten(-1, (length, length + 1)).select(-1, 0)


@_decomposes(_aten.diag_embed.default)
def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    size = x.shape[-1] + abs(offset)
    start = max(offset, 0), max(-offset, 0)
    wide = torch.constant_pad_nd(x, [start[0], size - x.shape[-1] - start[0]]).unsqueeze(-2)
    index = torch.arange(size)
    on_it = index.unsqueeze(0) == index.unsqueeze(1) + offset
    return _select(on_it, wide, torch.zeros((), dtype=x.dtype)).movedim((-2, -1), (dim1, dim2))


@_decomposes(_aten.trace.default)
def _trace(x: Tensor) -> Tensor:
    return _diagonal(x).sum()


@_decomposes(_aten.diagonal_scatter.default)
def _diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    row, column = torch.arange(rows).unsqueeze(1), torch.arange(columns).unsqueeze(0)
    place = (torch.arange(rows) - max(-offset, 0)).clamp(0, max(source.shape[-1] - 1, 0))
    spread = (
        source.index_select(-1, place).unsqueeze(-1) if source.shape[-1] else source.sum(-1, keepdim=True).unsqueeze(-1)
    )
    return torch.where(column == row + offset, spread, moved).movedim((-2, -1), (dim1, dim2))


@_decomposes(_aten.unfold.default)
def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.dim() == 0:
        return x.reshape(1).narrow(0, 0, size)
    dim %= x.dim()
    starts = range(0, x.shape[dim] - size + 1, step)
    return torch.stack([x.narrow(dim, start, size) for start in starts], dim).movedim(dim + 1, -1)


@_decomposes(_aten.take.default)
def _take(x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1)[index]


@_decomposes(_aten.linalg_cross.default)
def _cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    a, b = torch.broadcast_tensors(a, b)
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)


# ---- products


@_decomposes(_aten.addmv.default)
def _addmv(x: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _plus(x, torch.mv(matrix, vector), beta, alpha)


@_decomposes(_aten.addr.default)
def _addr(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _plus(x, a.unsqueeze(1) * b.unsqueeze(0), beta, alpha)


@_decomposes(_aten.addbmm.default)
def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _plus(x, torch.bmm(a, b).sum(0), beta, alpha)


@_decomposes(_aten._trilinear.default)
def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand1: list[int], expand2: list[int], expand3: list[int], sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    for dim in sorted(expand1):
        a = a.unsqueeze(dim)
    for dim in sorted(expand2):
        b = b.unsqueeze(dim)
    for dim in sorted(expand3):
        c = c.unsqueeze(dim)
    return (a * b * c).sum(list(sumdim))


def _plus(x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (x if beta == 1 else x * beta) + product


@_decomposes(_aten._scaled_dot_product_flash_attention_for_cpu.default)
def _attention(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p:
        return NotImplemented
    scores = torch.matmul(_wide(q), _wide(k).mT) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = _select(attn_mask, torch.zeros((), dtype=scores.dtype), -torch.inf)
        scores = scores + attn_mask
    weights = _safe_softmax(scores, -1)
    return torch.matmul(weights, _wide(v)).to(q.dtype), torch.logsumexp(scores, -1)
