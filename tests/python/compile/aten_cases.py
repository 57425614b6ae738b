"""Calls of ATen ops for test_capture.py: what each is called in a failure, the function, its inputs."""

from __future__ import annotations

import torch

aten = torch.ops.aten


def floats(*shape, special=True):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    if special and x.numel() > 4:
        x.view(-1)[:4] = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0])
    return x


def numbers(*shape):
    return floats(*shape, special=False)


def integers(*shape, low=-9, high=9):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(len(shape)))


def ones_apart(x):
    """Moves each number away from 0 by 1, so that none but 0 itself lies in (-1, 1)."""
    return x.sign() * (x.abs() + 1)


def _of_one(op):
    return lambda x: op(x)


MASK = floats(3, 5) > 0
ROWS = torch.tensor([2, 0, -1, 2])

ELEMENTWISE = {
    name: (_of_one(getattr(aten, name)), [floats(3, 5)])
    for name in [
        "expm1",
        "log2",
        "log10",
        "erfc",
        "ceil",
        "trunc",
        "round",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "isnan",
        "isinf",
        "sgn",
        "square",
        "exp2",
        "sinc",
        "special_entr",
        "logit",
    ]
} | {
    "atan2": (lambda a, b: aten.atan2(a, b), [floats(3, 5), floats(5)]),
    "hypot": (lambda a, b: aten.hypot(a, b), [floats(3, 5), floats(5)]),
    "logaddexp": (lambda a, b: aten.logaddexp(a, b), [floats(3, 5), floats(5)]),
    "logaddexp at the edges": (
        lambda a, b: aten.logaddexp(a, b),
        [
            torch.tensor([torch.inf, -torch.inf, -torch.inf, 100.0, torch.nan, 3.0]),
            torch.tensor([torch.inf, -torch.inf, 2.0, -100.0, 1.0, 3.0]),
        ],
    ),
    "hypot at the edges": (
        lambda a, b: aten.hypot(a, b),
        [torch.tensor([1e30, 1e-30, 0.0, -torch.inf, torch.nan]), torch.tensor([1e30, 1e-30, 0.0, torch.nan, 1.0])],
    ),
    "ties": (lambda x: aten.round(x), [torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 8388609.0, -0.0])]),
    "rounded integers": (lambda x: (aten.round(x), aten.floor(x)), [integers(7)]),
    "large": (lambda x: (aten.asinh(x), aten.sinh(x)), [torch.tensor([-1e30, -88.0, 1e-8, -1e-8, 50.0, 1e30])]),
    "acosh of large": (lambda x: aten.acosh(x), [torch.tensor([1.0, 1.0001, 3.0, 1e20])]),
    "domain": (lambda x: (aten.asin(x), aten.acos(x), aten.atanh(x)), [torch.linspace(-1, 1, 9)]),
    "is inf of integers": (lambda x: (aten.isinf(x), aten.isnan(x)), [integers(7)]),
    "logit, clamped": (lambda x: aten.logit(x, 0.1), [floats(3, 5)]),
    "xlogy": (
        lambda a, b: (aten.xlogy(a, b), aten.xlogy(a, 2.0), aten.xlogy(0, b), aten.xlogy(b, a * 0)),
        [floats(3, 5), floats(5)],
    ),
    "xlog1py": (
        lambda a, b: (aten.special_xlog1py(a, b), aten.special_xlog1py(a, 2.0), aten.special_xlog1py(0, b)),
        [floats(3, 5), floats(5)],
    ),
    "binary_cross_entropy": (
        lambda x, y, w: tuple(aten.binary_cross_entropy(x, y, weight, i) for weight in (None, w) for i in range(3)),
        [numbers(3, 5).sigmoid(), numbers(3, 5).sin().abs(), numbers(5)],
    ),
    "binary_cross_entropy of one": (
        lambda x, y: aten.binary_cross_entropy(x, y),
        [torch.tensor(0.0), torch.tensor(1.0)],
    ),
    "fmax": (
        lambda x, y: (aten.fmax(x, y), aten.fmin(x, y)),
        [floats(3, 5).masked_fill(MASK, float("nan")), floats(5)],
    ),
    "fmax of integers": (lambda x, y: (aten.fmax(x, y), aten.fmin(y, x)), [integers(3, 5), integers(5)]),
    "clamp to tensors": (lambda x, a, b: aten.clamp(x, a, b), [floats(3, 5), floats(5), floats(3, 1)]),
    "clamp_min": (lambda x, y: (aten.clamp_min(x, 0.1), aten.clamp_min(x, y)), [floats(3, 5), floats(5)]),
    "clamp_max": (lambda x, y: (aten.clamp_max(x, 0.1), aten.clamp_max(x, y)), [floats(3, 5), floats(5)]),
    "power of tensors": (lambda x, y: (aten.pow(x, y), aten.pow(2.5, y)), [floats(3, 5).abs(), numbers(5)]),
    "powers": (lambda x: tuple(aten.pow(x, n) for n in (0, 1, 3, -1, -2, -0.5, 1.5, 4.0)), [floats(3, 5)]),
    "powers of integers": (lambda x: tuple(aten.pow(x, n) for n in (0, 1, 2, 3, 7)), [integers(7)]),
    "logical": (
        lambda a, b: (aten.logical_or(a, b), aten.logical_xor(a, b), aten.logical_not(a), aten.logical_and(a, b)),
        [integers(7, low=0, high=3), integers(7, low=0, high=2)],
    ),
    "bits": (
        lambda a, b: (aten.bitwise_and(a, b), aten.bitwise_or(a, b), aten.bitwise_xor(a, b), aten.bitwise_not(a)),
        [integers(7), integers(7) * 5],
    ),
    "bits of a number": (
        lambda a: (aten.bitwise_and(a, 6), aten.bitwise_or(a, 6), aten.bitwise_xor(a, 6)),
        [integers(7)],
    ),
    "bits of bools": (
        lambda a, b: (
            aten.bitwise_and(a, b),
            aten.bitwise_xor(a, b),
            aten.bitwise_not(a),
            aten.add(a, b),
            aten.mul(a, b),
        ),
        [MASK, floats(3, 5) > 1],
    ),
    "larger of bools": (lambda a, b: (aten.maximum(a, b), aten.minimum(a, b)), [MASK, floats(3, 5) > 1]),
    "fmod": (
        lambda a, b: (aten.fmod(a, b), aten.fmod(a, 0.7), aten.fmod(a, -3)),
        [floats(3, 5), ones_apart(numbers(5))],
    ),
    "remainder": (
        lambda a, b: (aten.remainder(a, b), aten.remainder(a, -0.7), aten.remainder(2.5, b)),
        [floats(3, 5), ones_apart(numbers(5))],
    ),
    "rests of integers": (
        lambda a, b: (aten.fmod(a, b), aten.remainder(a, b), aten.remainder(a, -3), aten.fmod(a, 4)),
        [integers(9), ones_apart(integers(9))],
    ),
    "floor_divide": (
        lambda a, b: (aten.floor_divide(a, b), aten.floor_divide(a, 0.3), aten.div(a, b, rounding_mode="floor")),
        [floats(3, 5), numbers(5)],
    ),
    "divide by 0": (lambda a: (aten.floor_divide(a, 0.0), aten.remainder(a, 0.0)), [floats(3, 5)]),
    "divide by a tenth": (
        lambda a: (aten.floor_divide(a, 0.1), aten.remainder(a, 0.1)),
        [torch.tensor([1.0, 0.3, -0.3, 0.7, 1e6])],
    ),
    "truncated": (
        lambda a, b: (aten.div(a, b, rounding_mode="trunc"), aten.div(a, 3, rounding_mode="trunc")),
        [floats(3, 5), numbers(5)],
    ),
    "true division by mode": (lambda a, b: aten.div(a, b, rounding_mode=None), [integers(5), integers(5)]),
    "quotients of integers": (
        lambda a, b: (aten.floor_divide(a, b), aten.div(a, b, rounding_mode="trunc"), aten.floor_divide(a, -4)),
        [integers(9), ones_apart(integers(9))],
    ),
    "where with numbers": (
        lambda m, x: (
            aten.where(m, x, 2.0),
            aten.where(m, -1, x),
            aten.where(m, 1, 2),
            aten.masked_fill(x, m, x.sum()),
        ),
        [MASK, numbers(3, 5)],
    ),
    "compare with promotion": (
        lambda x, i, d: (
            aten.lt(x, i),
            aten.ge(i, 0.5),
            aten.eq(i, x),
            aten.gt(d, x),
            aten.ne(x > 0, i),
            aten.le(i, d),
        ),
        [floats(3, 5), integers(5), numbers(3, 5).double()],
    ),
    "compare with a scalar": (
        lambda x, i, s: (aten.lt(x, s), aten.lt(i, s), aten.gt(s, i)),
        [numbers(5), integers(5), torch.tensor(0.3, dtype=torch.float64)],
    ),
    "filled by others": (
        lambda x: (aten.new_full(x, [2, 3], 7), aten.fill(x, 3.5), aten.zeros_like(x), aten.fill(x, x.sum())),
        [numbers(3, 5)],
    ),
    "rsub": (lambda a, b: (aten.rsub(a, b, alpha=2), aten.rsub(a, 3, alpha=2)), [numbers(3, 5), numbers(5)]),
}

INDICES = {
    "arange": (lambda x: (aten.arange(7) + x.sum(), aten.arange(2, 9, 3) + x.sum()), [numbers(3)]),
    "arange of floats": (lambda x: aten.arange(0.5, 3.0, 0.25) * x.sum(), [numbers(3)]),
    "eye": (lambda x: (aten.eye(3) * x, aten.eye(3, 4).sum() * x), [numbers(3, 3)]),
    "triangles": (lambda x: (aten.tril(x), aten.tril(x, -1), aten.triu(x), aten.triu(x, 2)), [floats(2, 4, 5)]),
    "triangles of bools": (lambda x: (aten.tril(x), aten.triu(x)), [MASK]),
    "index_select": (
        lambda x, i: (aten.index_select(x, 1, i), aten.index_select(x, 0, i)),
        [floats(4, 5, 3), torch.tensor([2, 0, 2])],
    ),
    "rows at one place": (
        lambda x, i, p: (
            aten.index_select(x, 1, i),
            aten.index_select(x, 2, p),
            aten.index(x, [None, None, p - 2]),
            aten.index(x, [None, i.view(1, 1)]),
            aten.index_put(x, [None, p], x[:, 0] * 2),
            aten.index_put(x, [i - 3], x[0, 0] * 2),
            aten.index_copy(x, 1, i, x[:, :1] * 2),
        ),
        [floats(4, 5, 3), torch.tensor([2]), torch.tensor(1)],
    ),
    "consecutive rows": (
        lambda x, p: (aten.index_select(x, 1, p + aten.arange(3)), aten.index_select(x, 0, aten.arange(2) + p)),
        [floats(4, 5, 3), torch.tensor(1)],
    ),
    "gather": (
        lambda x, i: (aten.gather(x, 1, i), aten.gather(x, 0, i.clamp(max=2)), aten.gather(x, -1, i[:, :1])),
        [floats(3, 5), torch.tensor([[4, 0, 1], [2, 2, 2], [0, 1, 4]])],
    ),
    "gather of three": (lambda x, i: aten.gather(x, 1, i), [floats(3, 4, 5), integers(2, 6, 5, low=0, high=4)]),
    "index": (
        lambda x, i, j: (
            aten.index(x, [i]),
            aten.index(x, [None, i]),
            aten.index(x, [None, i, j]),
            aten.index(x, [i, None, j]),
            aten.index(x, [i.view(2, 2), j[:2]]),
            aten.index(x, [None, None, i.view(4, 1)]),
        ),
        [floats(3, 4, 5), ROWS, torch.tensor([0, 2, -3, 1])],
    ),
    "index_put": (
        lambda x, i, j, v: (
            aten.index_put(x, [i], v),
            aten.index_put(x, [None, i], v[0]),
            aten.index_put(x, [i, None, j], v[:, :, 0]),
            aten.index_put(x, [i], v, True),
            aten.index_put(x, [None, i, j], v[0, 0, :1]),
        ),
        [floats(3, 4, 5), torch.tensor([2, 0, -2, 1]), torch.tensor([0, 2, -3, 1]), numbers(4, 4, 5)],
    ),
    "index_put by a mask": (
        lambda x, m, r: (
            aten.index_put(x, [m], x.sum()),
            aten.index_put(x, [r], x[0] * 2),
            aten.index_put(x, [None, m[0]], x[0, :1]),
        ),
        [numbers(3, 5), MASK, torch.tensor([True, False, True])],
    ),
    "scatter": (
        lambda x, i, v: (aten.scatter(x, 1, i, v), aten.scatter(x, 0, i, v), aten.scatter(x, 1, i, 2.5)),
        [floats(3, 5), torch.tensor([[1, 0, 2], [2, 1, 0]]), numbers(3, 4)],
    ),
    "scatter_add": (
        lambda x, i, v: (aten.scatter_add(x, 1, i, v), aten.scatter_add(x, 0, i, v)),
        [numbers(3, 5), torch.tensor([[1, 0, 1], [2, 2, 2]]), numbers(3, 4)],
    ),
    "index_add": (
        lambda x, i, v: (aten.index_add(x, 1, i, v), aten.index_add(x, 1, i, v, alpha=-2.0)),
        [numbers(3, 5), torch.tensor([4, 0, 4]), numbers(3, 3)],
    ),
    "index_copy": (
        lambda x, i, v: (aten.index_copy(x, 1, i, v), aten.index_fill(x, 0, i, 2.5), aten.index_fill(x, 1, i, x.sum())),
        [numbers(3, 5), torch.tensor([2, 0, 1]), numbers(3, 3)],
    ),
    "select_scatter": (
        lambda x, v: (aten.select_scatter(x, v, 1, -2), aten.select_scatter(x, v, 1, 0)),
        [floats(3, 5, 2), numbers(3, 2)],
    ),
    "slice_scatter": (
        lambda x, v: (
            aten.slice_scatter(x, v, 1, 1, 4),
            aten.slice_scatter(x, v, 1, -5, None, 2),
            aten.slice_scatter(x, x),
        ),
        [floats(3, 5), numbers(3, 3)],
    ),
}

SHAPES = {
    "slice with a step": (
        lambda x: (aten.slice(x, 1, 0, None, 2), aten.slice(x, 1, 1, 6, 3), aten.slice(x, 0, 1, 3, 5)),
        [floats(3, 7)],
    ),
    "repeat": (lambda x: (aten.repeat(x, [2, 3]), aten.repeat(x, [2, 1, 3]), aten.repeat(x, [1, 1])), [floats(3, 5)]),
    "roll": (lambda x: (aten.roll(x, [2], [1]), aten.roll(x, [-1, 7], [0, -1]), aten.roll(x, [4])), [floats(3, 5)]),
    "pad": (
        lambda x: (
            aten.constant_pad_nd(x, [1, 2]),
            aten.constant_pad_nd(x, [1, 0, 0, 2], 1.5),
            aten.constant_pad_nd(x, [-1, 2, 1, -1], -3),
        ),
        [floats(3, 5)],
    ),
    "copies": (
        lambda x: (
            aten.view_copy(x, [5, 3]),
            aten.unsqueeze_copy(x, 1),
            aten._reshape_alias(x, [5, 3], [3, 1]),
            aten.copy(x, x[0] * 2),
        ),
        [floats(3, 5)],
    ),
    "empty": (lambda x: (aten.new_empty(x, [0, 3]), aten.empty([0]), aten.empty_like(x[:0])), [numbers(3, 5)]),
    "amin": (lambda x: (aten.amin(x, [1]), aten.amin(x), aten.min(x), aten.max(x)), [floats(3, 5)]),
    "extremes of integers": (
        lambda x: (aten.amin(x, [1], True), aten.amax(x, [0]), aten.max(x), aten.min(x)),
        [integers(3, 5)],
    ),
    "extremes of bools": (lambda x: (aten.amin(x, [1]), aten.amax(x, [0])), [MASK]),
    "any, all": (
        lambda x, n: (
            aten.any(x),
            aten.any(x, 1),
            aten.any(x, [0, 1], True),
            aten.all(x),
            aten.all(x, 0),
            aten.all(n, 1),
            aten.any(n[:, :0], 1),
            aten.all(n[:, :0], 1),
        ),
        [MASK, integers(3, 5, low=0, high=2)],
    ),
    "all of dims": (lambda x: (aten.all(x, [0, 1]), aten.any(x, [0])), [MASK]),
    "argmax": (
        lambda x, y, i: (
            aten.argmax(x, 1),
            aten.argmin(x, 1),
            aten.argmax(y),
            aten.argmax(y, 0, True),
            aten.argmin(i, 1),
            aten.argmax(i, 0),
        ),
        [floats(3, 5), numbers(3, 5), integers(3, 5, low=0, high=2)],
    ),
    "argmax of NaNs": (
        lambda x: (aten.argmax(x, 1), aten.argmin(x, 1)),
        [torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [float("-inf")] * 4])],
    ),
    "mean over dims": (lambda x: (aten.mean(x, [0, 2]), aten.mean(x, [1], True)), [numbers(3, 5, 2)]),
    "sum in the middle": (lambda x: (aten.sum(x, [1]), aten.sum(x, [0, 2]), aten.amax(x, [1])), [numbers(3, 70, 5)]),
    "addmm, scaled": (
        lambda c, a, b: (aten.addmm(c, a, b, beta=2, alpha=0.5), aten.addmm(c, a, b, beta=0)),
        [numbers(4), numbers(3, 6), numbers(6, 4)],
    ),
    "mv": (lambda a, b, x: (aten.mv(a, x), aten.mv(aten.t(b), x)), [numbers(3, 6), numbers(6, 4), numbers(6)]),
    "dot": (lambda x, y: aten.dot(x, y), [numbers(6), numbers(6) + 1]),
    "baddbmm": (
        lambda c, a, b: (aten.baddbmm(c, a, b), aten.baddbmm(c, a, b, beta=0.5, alpha=2)),
        [numbers(3, 4), numbers(2, 3, 6), numbers(2, 6, 4)],
    ),
    "bmm, a transposed": (lambda a, b: aten.bmm(aten.transpose(a, 1, 2), b), [numbers(2, 6, 3), numbers(2, 6, 4)]),
}

CASES = ELEMENTWISE | INDICES | SHAPES
