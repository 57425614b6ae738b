"""ATen operations that the IR has no op for, as others that it has.

PyTorch's own decompositions stand behind these. What is here is what they lack, what they would differentiate to
something else than eager mode does (at a kink, or where an untaken branch overflows), and what is so common in a step
that importing them for it alone would take longer than the capture.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from weft._step_table import Function, entering, floating, root, select, wide

_aten = torch.ops.aten

TABLE: dict[Any, Function] = {}

_decomposes = entering(TABLE)

# ---- activations


@_decomposes(_aten.gelu.default)
def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    w = wide(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (w + 0.044715 * (w * w * w))
        return (0.5 * w * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * w * (1 + torch.erf(w * math.sqrt(0.5)))).to(x.dtype)


@_decomposes(_aten.elu.default)
def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    positive = x > 0
    w = wide(x)
    low = torch.expm1(select(positive, 0.0, w) * input_scale) * (alpha * scale)
    return select(positive, w * scale, low).to(x.dtype)


@_decomposes(_aten.celu.default)
def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@_decomposes(_aten.selu.default)
def _selu(x: Tensor) -> Tensor:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@_decomposes(_aten.softplus.default)
def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = wide(x) * beta
    linear = scaled > threshold
    curve = torch.log1p(torch.exp(select(linear, 0.0, scaled))) / beta
    return select(linear, wide(x), curve).to(x.dtype)


@_decomposes(_aten.mish.default)
def _mish(x: Tensor) -> Tensor:
    w = wide(x)
    return (w * torch.tanh(_softplus(w))).to(x.dtype)


@_decomposes(_aten.log_sigmoid_forward.default)
def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    w = wide(x)
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
    return select(x <= threshold, value, x)


@_decomposes(_aten.hardtanh.default)
def _hardtanh(x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    return select(x <= low, low, select(x >= high, high, x))


@_decomposes(_aten.hardsigmoid.default)
def _hardsigmoid(x: Tensor) -> Tensor:
    return select(x <= -3, 0.0, select(x >= 3, 1.0, ((wide(x) + 3) / 6).to(x.dtype)))


@_decomposes(_aten.hardswish.default)
def _hardswish(x: Tensor) -> Tensor:
    w = wide(x)
    return select(x <= -3, 0.0, torch.where(x < 3, (w * (w + 3) / 6).to(x.dtype), x))


@_decomposes(_aten.hardshrink.default)
def _hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return select((x >= -lambd) & (x <= lambd), 0.0, x)


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
    return select(nothing, 0.0, torch.softmax(select(nothing, 0.0, x), dim, dtype=dtype))


# ---- elementwise


@_decomposes(_aten.addcmul.default)
def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + (a * b if value == 1 else value * a * b)


@_decomposes(_aten.addcdiv.default)
def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + (a / b if value == 1 else value * a / b)


@_decomposes(_aten.lerp.Scalar)
def _lerp_by_number(start: Tensor, end: Tensor, weight: float) -> Tensor:
    s, e = wide(start), wide(end)
    return (s + weight * (e - s) if abs(weight) < 0.5 else e - (e - s) * (1 - weight)).to(start.dtype)


@_decomposes(_aten.lerp.Tensor)
def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    s, e, w = wide(start), wide(end), wide(weight)
    return torch.where(w.abs() < 0.5, s + w * (e - s), e - (e - s) * (1 - w)).to(start.dtype)


@_decomposes(_aten.fmax.default)
def _fmax(a: Tensor, b: Tensor) -> Tensor:
    return torch.where((a >= b) | (b != b), a, b)


@_decomposes(_aten.fmin.default)
def _fmin(a: Tensor, b: Tensor) -> Tensor:
    return torch.where((a <= b) | (b != b), a, b)


@_decomposes(_aten.hypot.default)
def _hypot(a: Tensor, b: Tensor) -> Tensor:
    return root(a * a + b * b)


@_decomposes(_aten.nan_to_num.default)
def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if not x.is_floating_point():
        return x.clone()
    limits = torch.finfo(x.dtype)
    result = select(x != x, 0.0 if nan is None else nan, x)
    result = select(x == torch.inf, limits.max if posinf is None else posinf, result)
    return select(x == -torch.inf, limits.min if neginf is None else neginf, result)


@_decomposes(_aten.frac.default)
def _frac(x: Tensor) -> Tensor:
    return x - torch.trunc(x)


@_decomposes(_aten.round.decimals)
def _round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    scale = 10.0 ** abs(decimals)
    return torch.round(x * scale) / scale if decimals >= 0 else torch.round(x / scale) * scale


@_decomposes(_aten.logit.default)
def _logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = floating(x)
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    return torch.log(x / (1 - x))


@_decomposes(_aten.signbit.default)
def _signbit(x: Tensor) -> Tensor:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


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
    return select(on_it, wide, torch.zeros((), dtype=x.dtype)).movedim((-2, -1), (dim1, dim2))


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
    scores = torch.matmul(wide(q), wide(k).mT) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = select(attn_mask, torch.zeros((), dtype=scores.dtype), -torch.inf)
        scores = scores + attn_mask
    weights = _safe_softmax(scores, -1)
    return torch.matmul(weights, wide(v)).to(q.dtype), torch.logsumexp(scores, -1)
