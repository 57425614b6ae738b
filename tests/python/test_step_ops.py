"""What people write in a step, op by op: traced into a program and held to eager PyTorch, values and gradients.

Nothing here may fall back: a function that the tracer refuses fails its test. The last test does the same with
PyTorch's own samples of its ops (op_db), and names the ops that a program doesn't have.
"""

from __future__ import annotations

import functools
import os
import warnings

import pytest
import torch
import torch.nn.functional as fn
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from weft._base.errors import FailedError, UnsupportedError
from weft._capture import programs
from weft._capture.runs import Function
from weft._capture.trace import trace


def run(f, inputs):
    """The leaves of f's result, by way of a program."""
    leaves, spec = pytree.tree_flatten(tuple(inputs))
    function = Function(lambda *given: (call(f, given), None), leaves, spec, "the step", (f,))
    found = programs.find("the step", None, [function], lambda traces: traces[0].program)
    if found.program.noise:
        pytest.skip("draws random numbers")
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return torch.ops.weft.call(found.program.text, [*leaves, *found.inputs])


def assert_step(f, *inputs, gradients=True, rtol=None, atol=None):
    want = [leaf for leaf in pytree.tree_leaves(f(*inputs)) if isinstance(leaf, torch.Tensor)]
    got = run(f, inputs)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.is_contiguous()
        close(a, b.contiguous(), rtol, atol)
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    if gradients and any(leaf.is_floating_point() for leaf in leaves):
        for a, b in zip(gradient(run, f, inputs), gradient(call, f, inputs), strict=True):
            close(a, b, rtol, atol)


def call(f, inputs):
    return [leaf for leaf in pytree.tree_leaves(f(*inputs)) if isinstance(leaf, torch.Tensor)]


def gradient(how, f, inputs):
    leaves, spec = pytree.tree_flatten(tuple(inputs))
    leaves = [x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in leaves]
    results = how(f, pytree.tree_unflatten(leaves, spec))
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results]
    if not any(r.requires_grad for r in results):
        return [torch.zeros_like(x) for x in wanted]
    results, cotangents = zip(
        *[(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad], strict=True
    )
    return torch.autograd.grad(results, wanted, cotangents, allow_unused=True, materialize_grads=True)


def close(a, b, rtol=None, atol=None):
    if rtol is None and a.dtype in (torch.float16, torch.bfloat16):
        rtol, atol = 2 * torch.finfo(a.dtype).eps, 1e-3
    if rtol is None and a.is_floating_point():
        rtol, atol = (1e-10, 1e-12) if a.dtype == torch.float64 else (2e-5, 1e-5)
    torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def numbers(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def integers(shape, low=-9, high=9, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


SHAPES = [(4, 5), (3, 1), (0, 5), (7,), (), (2, 3, 17)]

# Kinks, and where what is not chosen overflows.
EDGES = torch.tensor(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        3.0,
        -3.0,
        6.0,
        2.5,
        -1.5,
        19.5,
        20.5,
        90.0,
        -90.0,
        120.0,
        -120.0,
        800.0,
        -800.0,
        float("inf"),
        float("-inf"),
        float("nan"),
    ],
    dtype=torch.float64,
)

ACTIVATIONS = {
    "relu": fn.relu,
    "relu6": fn.relu6,
    "gelu": fn.gelu,
    "gelu tanh": lambda x: fn.gelu(x, approximate="tanh"),
    "softplus": fn.softplus,
    "softplus beta": lambda x: fn.softplus(x, beta=2.5, threshold=7),
    "elu": fn.elu,
    "elu alpha": lambda x: fn.elu(x, 0.4),
    "selu": fn.selu,
    "celu": lambda x: fn.celu(x, 1.7),
    "leaky_relu": lambda x: fn.leaky_relu(x, 0.2),
    "hardtanh": fn.hardtanh,
    "hardtanh wide": lambda x: fn.hardtanh(x, -3, 2.5),
    "hardsigmoid": fn.hardsigmoid,
    "hardswish": fn.hardswish,
    "hardshrink": fn.hardshrink,
    "softshrink": lambda x: fn.softshrink(x, 1.5),
    "tanhshrink": fn.tanhshrink,
    "mish": fn.mish,
    "silu": fn.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logsigmoid": fn.logsigmoid,
    "threshold": lambda x: fn.threshold(x, 0.5, -20),
    "softsign": fn.softsign,
    "rrelu": fn.rrelu,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sign,
    "sgn": torch.sgn,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "frac": lambda x: torch.where(x.isfinite(), x, 0).frac(),
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "asinh": torch.asinh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "isnan": lambda x: (x.isnan(), x.isinf(), x.isfinite(), x.signbit()),
    "isposinf": lambda x: (x.isposinf(), x.isneginf()),
    "nan_to_num": torch.nan_to_num,
    "nan_to_num to": lambda x: torch.nan_to_num(x, 1.0, 5.0, -5.0),
    "clamp": lambda x: x.clamp(-1, 0.5),
    "clamp_min": lambda x: x.clamp(min=0),
    "clamp one": lambda x: x.clamp(max=-0.5),
    "step": lambda x: torch.where(x > 0, x, x.exp()),
    "heaviside": lambda x: torch.heaviside(x.detach(), torch.full_like(x, 0.5)),
    "relu of a copy": lambda x: fn.relu(x.clone(), inplace=True),
    "power 3": lambda x: x**3,
    "power 2": lambda x: x**2,
    "less": lambda x: (x < 0, x >= 1, x == 0.5, x != x),
    "logical": lambda x: (x.logical_not(), torch.logical_and(x, x > 1), torch.logical_xor(x, x)),
    "maximum": lambda x: torch.maximum(x, x.flip(0)) + torch.minimum(x, torch.zeros_like(x)),
    "to integer": lambda x: torch.where(x.isfinite() & (x.abs() < 500), x, 0).long() // 2,
    "double, half": lambda x: (x.double(), x.to(torch.bfloat16).sum()),
    "tan": torch.tan,
}
SINGLE = {"celu", "hardsigmoid"}
INFINITE_ELSEWHERE = {"sin", "cos", "tan", "mish", "tanhshrink", "exp2", "silu", "hardswish", "gelu tanh", "gelu"}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_of_one_number(name):
    f = ACTIVATIONS[name]
    # In f64 too, PyTorch computes these with constants of f32.
    check = functools.partial(assert_step, rtol=1e-6, atol=1e-6) if name in SINGLE else assert_step
    for shape in SHAPES:
        check(f, numbers(shape) * 3)
    check(f, (numbers((4, 6)) * 3).float())
    check(f, (numbers((6, 4)) * 3).t())
    check(f, numbers((8, 6))[::2, 1::3] * 3)
    # PyTorch's own derivatives are NaN where 0 is multiplied by infinity, in other places than these.
    edges = EDGES[EDGES.abs() < 30] if name in INFINITE_ELSEWHERE | {"erfc", "double, half"} else EDGES[:-3]
    check(f, edges)
    check(f, edges.float())
    if name not in INFINITE_ELSEWHERE:
        check(f, EDGES, gradients=False)
        check(f, EDGES.float(), gradients=False)


POSITIVE = {
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "power": lambda x: x**1.7,
    "power -2": lambda x: x**-2 + x**-0.5 + x**-1 + x**0,
    "number to a power": lambda x: 1.5**x,
    "acosh": lambda x: torch.acosh(x + 1.1),
    "logit": lambda x: torch.logit(x / (1 + x)) + torch.logit(x / 5, eps=0.1),
    "asin": lambda x: torch.asin(x.clamp(max=0.9)),
    "acos": lambda x: torch.acos(x.clamp(max=0.9)),
    "atanh": lambda x: torch.atanh(x.clamp(max=0.9)),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "entropy": lambda x: torch.special.entr(x) + torch.xlogy(x, x),
    "tanh of log": lambda x: torch.tanh(torch.log(x)),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_of_a_positive_number(name):
    for shape in SHAPES:
        assert_step(POSITIVE[name], numbers(shape).abs() + 0.01)
    assert_step(POSITIVE[name], (numbers((4, 6)).abs() + 0.1).float())
    assert_step(POSITIVE[name], torch.tensor([1e-8, 1e-3, 1.0, 2.0, 8.0, 30.0], dtype=torch.float64))


PAIRS = {
    "add": lambda a, b: a + b,
    "add alpha": lambda a, b: torch.add(a, b, alpha=-2.5),
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "max": torch.max,
    "min": torch.min,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "power": lambda a, b: (a.abs() + 0.1) ** b,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(a, b, 0.7),
    "lerp by tensor": lambda a, b: torch.lerp(a, b, torch.sigmoid(a + b)),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b.abs() + 1, value=0.3),
    "where": lambda a, b: torch.where(a > b, a, b * 2),
    "where numbers": lambda a, b: torch.where(a > b, a, 2.0) + torch.where(b > 0, 1, 0),
    "masked_fill": lambda a, b: (a + b).masked_fill(b > 0, -torch.inf).masked_fill(a > 1, 3),
    "masked_fill tensor": lambda a, b: (a + b).masked_fill(b > 0, a.sum()),
    "clamp": lambda a, b: torch.clamp(a, min=-b.abs(), max=b.abs()),
    "compare": lambda a, b: (a < b, a <= b, a == b, a != b, a > b, a >= b),
    "isclose": lambda a, b: torch.isclose(a, b),
    "huber": lambda a, b: (fn.smooth_l1_loss(a, b), fn.huber_loss(a, b), fn.mse_loss(a, b), fn.l1_loss(a, b)),
    "bce": lambda a, b: fn.binary_cross_entropy_with_logits(a, torch.sigmoid(b), reduction="sum"),
    "xlogy": lambda a, b: torch.xlogy(a, b.abs() + 0.1),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", PAIRS)
def test_of_two_numbers(name):
    f = PAIRS[name]
    gradients = name != "floor_divide"  # eager mode has none
    broadcasts = [((4, 5), (5,)), ((4, 5), (4, 1)), ((), (3,)), ((0, 3), (3,)), ((2, 1, 3), (4, 1))]
    if name in ("huber", "bce"):
        broadcasts = []
    for a, b in [((4, 5), (4, 5)), ((), ()), *broadcasts]:
        assert_step(f, numbers(a) * 2, numbers(b, seed=1) * 2, gradients=gradients)
    assert_step(f, numbers((4, 5)).float(), numbers((5, 4), seed=1).float().t(), gradients=gradients)
    ties = torch.tensor([1.0, 2.0, -1.5, 3.0], dtype=torch.float64)
    if name not in ("compare", "isclose"):
        assert_step(f, ties, ties.roll(1).where(torch.tensor([True, False, False, True]), ties), gradients=gradients)


def test_promotion():
    i, x, d = integers((4,)), numbers((4,)).float(), numbers((4,), seed=1)
    one, half = torch.tensor(1), torch.tensor(0.5, dtype=torch.float64)
    m = x > 0
    assert_step(lambda i: (i + 1, i * 2, i * 0.5, i / 2, -i, i + True, i // 3, i % 3, i**2), i)
    assert_step(lambda i, x: (i + x, x * i, i / x, torch.where(m, i, x), i > x), i, x)
    assert_step(lambda x, d: (x + d, d < x, torch.maximum(x.double(), d)), x, d)
    assert_step(lambda x: (x + one, x * half, x > half, torch.where(m, x, half)), x)
    assert_step(lambda i: (i + one, i * half, i > half), i)
    assert_step(lambda m, i: (m + 1, m * i, m & (i > 0), m | m, m ^ (i > 2), ~m, m.long() + i, m.float() / 2), m, i)
    assert_step(lambda i: (i & 3, i | 8, i ^ 5, ~i, i.bool(), i.to(torch.int32) + 1, i.float().mean()), i)
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        j = integers((5,), 1, 9, dtype)
        assert_step(lambda j: (j + 1, j * j, j - 3, j // 2, j % 3, j.long() + 1, j > 4, j.sum(), j.amax()), j)
        assert_step(lambda j: (j * 1.5, j & 3, ~j, torch.where(j > 3, j, 2), j.to(torch.float64)), j)


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.sum((0, 2)), x.sum(1)),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(-1, keepdim=True), x.mean((0, 2)), x.mean((1, 2))),
    "var": lambda x: (
        x.var(),
        x.var(0),
        x.var(-1, keepdim=True),
        x.var((0, 2), correction=0),
        x.var(1, unbiased=False),
    ),
    "std": lambda x: (x.std(), x.std(0), x.std(-1, keepdim=True), x.std((0, 2), correction=0)),
    "var_mean": lambda x: (*torch.var_mean(x, 2), *torch.std_mean(x, (0, 1), correction=0)),
    "max": lambda x: (*x.max(0), *x.max(-1, keepdim=True), *x.max(1), x.max()),
    "min": lambda x: (*x.min(0), *x.min(-1, keepdim=True), *x.min(1), x.min()),
    "argmax": lambda x: (x.argmax(), x.argmax(0), x.argmax(-1, keepdim=True), x.argmin(1), x.argmin()),
    "amax": lambda x: (x.amax(), x.amax(0), x.amax((0, 2)), x.amin(-1, keepdim=True), x.amin(1)),
    "aminmax": lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)),
    "prod": lambda x: (x.prod(0), x.prod(-1, keepdim=True), x.prod(1), x.prod()),
    "norm": lambda x: (x.norm(), x.norm(dim=0), x.norm(1, -1), x.norm(torch.inf, 1), x.norm(3, 1, keepdim=True)),
    "vector_norm": lambda x: (torch.linalg.vector_norm(x, dim=(0, 2)), torch.linalg.vector_norm(x, 0, dim=1)),
    "normalize": lambda x: (fn.normalize(x, dim=-1), fn.normalize(x, p=1, dim=0), fn.normalize(x, dim=1)),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp(-1, keepdim=True), x.logsumexp((0, 2)), x.logsumexp(1)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.softmax(1), fn.softmin(x, 1)),
    "log_softmax": lambda x: (x.log_softmax(-1), x.log_softmax(0), x.log_softmax(1)),
    "any": lambda x: (
        (x > 1).any(),
        (x > 1).any(0),
        (x > 1).all(-1),
        (x > -9).all(),
        (x > 0).any((0, 1)),
        x.bool().all(1),
    ),
    "count": lambda x: (x.count_nonzero(), x.count_nonzero(1), (x > 0).sum(), (x > 0).sum(-1), (x > 0).double().mean()),
    "cumsum": lambda x: (x.cumsum(2), x.cumsum(1), (x > 0).cumsum(-1)),
    "cumprod": lambda x: (x.cumprod(2), x.cumprod(1)),
    "logcumsumexp": lambda x: (x.logcumsumexp(2), x.logcumsumexp(1)),
    "cummax": lambda x: (*x.cummax(2), *x.cummin(1)),
    "nansum": lambda x: (x.nansum(), x.nansum(1), x.nanmean(2)),
    "cosine": lambda x: fn.cosine_similarity(x, x.flip(-1), dim=-1) + fn.pairwise_distance(x, x * 0.5),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    f = REDUCTIONS[name]
    for shape in [(4, 3, 5), (2, 1, 1), (3, 5, 17)]:
        assert_step(f, numbers(shape), rtol=1e-9, atol=1e-10)
    x = numbers((4, 3, 6)).float()
    assert_step(f, x, rtol=1e-4, atol=1e-5)
    assert_step(f, numbers((6, 3, 4)).transpose(0, 2), rtol=1e-9, atol=1e-10)
    ties = integers((4, 3, 5), -1, 2).double()
    if name not in ("prod", "cosine", "cummax", "cumprod"):
        assert_step(f, ties, rtol=1e-9, atol=1e-10)
    if name in ("max", "min", "argmax", "sum", "amax", "cummax", "prod", "any", "count", "cumsum"):
        assert_step(f, integers((4, 3, 5), -2, 3))
    if name in ("max", "min", "argmax", "amax", "cummax"):
        x = numbers((4, 3, 5))
        x[1, 1, 2] = x[1, 1, 4] = x[0, 2, 2] = torch.nan
        assert_step(f, x, gradients=False)


def test_reduction_of_nothing():
    empty = numbers((3, 0, 4))
    assert_step(lambda x: (x.sum(1), x.sum(), x.prod(1), x.any(1), x.all(1), x.sum(0), x.amax(0), x.mean(1)), empty)
    assert_step(lambda x: (x.logsumexp(0), x.softmax(0), x.cumsum(1), x.norm(dim=1)), empty)


def test_logsumexp_of_infinities():
    x = torch.tensor([[1.0, -torch.inf, 2.0], [-torch.inf] * 3, [torch.inf, 1.0, 2.0]])
    assert_step(lambda x: (x.logsumexp(1), x.logsumexp(0), torch.logaddexp(x[0], x[1])), x, gradients=False)
    assert_step(lambda x: (x.logsumexp(1), torch.logaddexp(x[:, 0], x[:, 2])), x[:1])


MOVEMENT = {
    "split": lambda x: x.split(2, -1),
    "split sizes": lambda x: x.split([1, 3, 2], -1),
    "chunk": lambda x: x.chunk(3, -1),
    "unbind": lambda x: (*x.unbind(1), x.unbind(-1)[2]),
    "tensor_split": lambda x: x.tensor_split(4, -1),
    "narrow": lambda x: (x.narrow(-1, 1, 3), x[..., 2:], x[..., ::2], x[..., 1::3], x[:, -1], x[..., None, 2]),
    "views": lambda x: (x.flatten(1), x.unflatten(-1, (2, 3)), x.unsqueeze(0), x.reshape(-1), x.view_as(x), x.mT),
    "permute": lambda x: (x.permute(2, 0, 1), x.transpose(0, 1), x.movedim(0, -1), x.swapaxes(0, 2)),
    "cat": lambda x: (torch.cat([x, x * 2, x[..., :1]], -1), torch.cat([x, x], 1), torch.stack([x, x + 1], 1)),
    "stacks": lambda x: (torch.hstack([x, x]), torch.dstack([x, x]), torch.column_stack([x, x])),
    "flip": lambda x: (x.flip(-1), x.flip(0, 1), x.fliplr(), x.rot90(1, (1, 2))),
    "roll": lambda x: (x.roll(1, -1), x.roll((2, -1), (1, 2))),
    "repeat": lambda x: (x.repeat(1, 2, 3), x.tile(2), x.repeat_interleave(3, 1), x.expand(2, *x.shape)),
    "pad": lambda x: (fn.pad(x, (1, 2)), fn.pad(x, (0, 1, 2, 0), value=3.0), fn.pad(x, (-1, 1))),
    "pad by others": lambda x: (fn.pad(x, (1, 2), "replicate"), fn.pad(x, (2, 1), "reflect")),
    "diagonal": lambda x: (
        x.diagonal(0, 1, 2),
        x.diagonal(1, 1, 2),
        x.diagonal(-1, 2, 1),
        x[0].diagonal(),
        x[0, :, :3].trace(),
    ),
    "diag_embed": lambda x: (x.diag_embed(), x[0].diag_embed(1), torch.diag(x[0, 0]), torch.diag(x[0], 1)),
    "triangles": lambda x: (x.tril(), x.triu(1), x.tril(-1)),
    "eye": lambda x: x[..., :3] @ torch.eye(3, dtype=x.dtype) + torch.arange(3) + torch.linspace(0, 1, 3),
    "unfold": lambda x: (x.unfold(-1, 3, 2), x.unfold(1, 2, 1)),
    "fills": lambda x: (
        torch.zeros_like(x),
        torch.full((2,), 3.5),
        x.new_zeros(2),
        x.new_full((3,), 2),
        torch.ones(2) * x[0, 0, 0],
    ),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
    "broadcast": lambda x: (torch.broadcast_to(x[:1], x.shape), *torch.broadcast_tensors(x[:1, :, :1], x)),
    "block_diag": lambda x: torch.block_diag(x[0], x[1]),
    "cartesian": lambda x: torch.kron(x[0], x[0, :2]),
    "pixel_shuffle": lambda x: fn.pixel_shuffle(x.reshape(-1, 4, 3, 1), 2),
    "glu": lambda x: (fn.glu(x), fn.glu(x.repeat(1, 2, 1), 1)),
    "item of each": lambda x: x[0, 0, 0] + x[-1, -1, -1],
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name):
    f = MOVEMENT[name]
    shapes = [(4, 3, 6), (2, 5, 6)] if name != "diagonal" else [(4, 3, 6), (2, 5, 5)]
    for shape in shapes:
        assert_step(f, numbers(shape))
    assert_step(f, numbers((6, 3, 4)).transpose(0, 2))


INDEXING = {
    "gather": lambda x, i: (x.gather(1, i), x.gather(0, i.clamp(max=2)), torch.take_along_dim(x, i, 1)),
    "index_select": lambda x, i: (x.index_select(1, i[0]), x.index_select(0, i[:, 0].clamp(max=2))),
    "index": lambda x, i: (
        x[i[:, 0].clamp(max=2)],
        x[:, i[0]],
        x[torch.arange(3), i[:, 0]],
        x[:, -i],
        x[i[0].clamp(max=2), i[1]],
    ),
    "embedding": lambda x, i: (fn.embedding(i.clamp(max=2), x), fn.embedding(i[0].clamp(max=2), x)),
    "take": lambda x, i: x.take(i * 2),
    "scatter": lambda x, i: (
        x.scatter(1, i[:, :1], x[:, 2:3] * 2),
        x.scatter(1, i, 0.5),
        x.scatter(0, i[:1, 1:3], x[:1, 3:]),
    ),
    "scatter_add": lambda x, i: (x.scatter_add(1, i, x[:, :4] * 3), x.scatter_add(0, i.clamp(max=2), x[:, 1:])),
    "index_add": lambda x, i: (x.index_add(1, i[0], x[:, :4] * 2), x.index_add(0, i[:, 0].clamp(max=2), x, alpha=0.5)),
    "index_copy": lambda x, i: (
        x.index_copy(1, torch.tensor([4, 0]), x[:, :2] * 2),
        x.index_fill(0, torch.tensor([1, 0]), 3),
    ),
    "index_put": lambda x, i: (
        x.index_put((torch.tensor([0, 2]),), x[:2] * 2),
        x.index_put((i[:, 0].clamp(max=2),), x, accumulate=True),
        x.index_put((torch.arange(3), i[:, 0]), x[:, 0] * 2),
    ),
    "one_hot": lambda x, i: (
        fn.one_hot(i, 5) * x[:, None],
        fn.one_hot(i[0], 7).sum(0),
        fn.nll_loss(x.log_softmax(1), i[:, 0]),
    ),
    "cross_entropy": lambda x, i: (
        fn.cross_entropy(x, i[:, 0]),
        fn.cross_entropy(x, i[:, 0], reduction="none", label_smoothing=0.1),
    ),
    "scatters": lambda x, i: (
        torch.select_scatter(x, x[:, 0] * 2, 1, 3),
        torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
        torch.diagonal_scatter(x, x[:, 0] * 2),
        x.masked_fill(x > 0, 1),
    ),
    "argmax then gather": lambda x, i: x.gather(1, x.argmax(1, keepdim=True)).squeeze(1) + x.max(1).values,
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    x, i = numbers((3, 5)), torch.tensor([[4, 0, 1, 2], [2, 2, 2, 3], [0, 1, 4, 4]])
    assert_step(INDEXING[name], x, i)
    assert_step(INDEXING[name], x.float(), i)
    assert_step(INDEXING[name], numbers((5, 3)).t(), i)


def test_an_index_out_of_range_is_an_error():
    x = numbers((3, 5))
    for f in [lambda x, i: x.gather(1, i), lambda x, i: x[:, i[0]], lambda x, i: x[i[0] * 0, i[0]]]:
        program = trace(f, (x, torch.tensor([[1]])), what="the step").program
        torch.ops.weft.call(program, [x, torch.tensor([[4]])])
        for bad in (5, -6):
            with pytest.raises(RuntimeError, match="out of bounds"):
                torch.ops.weft.call(program, [x, torch.tensor([[bad]])])
    i = integers((3,))
    program = trace(lambda i, j: i // j, (i, i * 0 + 1), what="the step").program
    with pytest.raises(RuntimeError, match="integer division by zero"):
        torch.ops.weft.call(program, [i, torch.tensor([1, 0, 1])])


IN_PLACE = {
    "row": lambda x: _with(x, lambda y: y.__setitem__(1, x[0] * 2)),
    "column": lambda x: _with(x, lambda y: y.__setitem__((slice(None), 2), x[:, 0] * 2)),
    "range": lambda x: _with(x, lambda y: y[:, 1:3].copy_(x[:, :2] * 2)),
    "mask": lambda x: _with(x, lambda y: y.__setitem__(x > 0, 0.0)),
    "rows by mask": lambda x: _with(x, lambda y: y.__setitem__(x[:, 0] > 0, 0.0)),
    "index": lambda x: _with(x, lambda y: y.__setitem__(torch.tensor([2, 0]), x[:2] * 2)),
    "arithmetic": lambda x: _with(x, lambda y: y.mul_(2).add_(x).clamp_(min=0).tanh_()),
    "part": lambda x: _with(x, lambda y: y[:, 1:].mul_(x[:, 1:])),
    "masked_fill": lambda x: _with(x, lambda y: y.masked_fill_(x > 0, -1)),
    "zero": lambda x: _with(x, lambda y: y[0].zero_()),
}


def _with(x, change):
    y = x.clone()
    change(y)
    return y * 3


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place(name):
    assert_step(IN_PLACE[name], numbers((4, 5)))


PRODUCTS = {
    "matmul": lambda a, b: (a @ b, a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0], (a @ b).mT @ a),
    "linear": lambda a, b: (fn.linear(a, b.t()), fn.linear(a, b.t(), b[0]), fn.linear(a[None], b.t())),
    "batched": lambda a, b: (
        torch.stack([a, a * 2]) @ torch.stack([b, b]),
        torch.stack([a, a]) @ b,
        torch.bmm(a[None], b[None]),
    ),
    "transposed": lambda a, b: (
        b.t() @ a.t(),
        a.t() @ a,
        a @ a.t(),
        torch.stack([a, a]).mT @ a,
        torch.stack([a, a]) @ a.t(),
    ),
    "einsum": lambda a, b: (
        torch.einsum("ij,jk->ik", a, b),
        torch.einsum("ij,jk->", a, b),
        torch.einsum("ij,ij->i", a, a),
        torch.einsum("bi,ij,bj->b", a, a.t() @ a, a),
        torch.einsum("ij,kj->ikj", a, a),
        torch.einsum("ii->i", a.t() @ a),
    ),
    "block diagonal": lambda a, b: torch.einsum("bhi,hij->bhj", a.view(-1, 2, 3), b.reshape(2, 3, -1)),
    "outer": lambda a, b: (
        torch.outer(a[0], b[0]),
        torch.dot(a[0], b[:, 0]),
        torch.inner(a, a),
        torch.tensordot(a, b, 1),
    ),
    "add": lambda a, b: (
        torch.addmm(a @ b, a, b, beta=0.5, alpha=2),
        torch.addmv(a[:, 0], a, b[:, 0]),
        torch.addr(a @ b, a[:, 0], b[0]),
        torch.baddbmm((a @ b)[None], a[None], b[None]),
        torch.addbmm(a @ b, a[None], b[None], beta=2),
    ),
    "bilinear": lambda a, b: fn.bilinear(a, a * 2, torch.stack([a.t() @ a, a.t() @ a + 1])),
    "cross": lambda a, b: torch.linalg.cross(a[:, :3], a[:, 3:]) + torch.cross(a[:, 3:], a[:, :3] * 2, dim=1),
    "attention": lambda a, b: fn.scaled_dot_product_attention(a[None, None], a[None, None] * 2, a[None, None] + 1),
    "causal attention": lambda a, b: fn.scaled_dot_product_attention(
        a[None, None], a[None, None], a[None, None] + 1, is_causal=True
    ),
    "chain": lambda a, b: torch.linalg.multi_dot([a, b, b.t()]),
    "power": lambda a, b: torch.linalg.matrix_power(a.t() @ a, 3),
    "distance": lambda a, b: ((a[:, None] - a[None]) ** 2).sum(-1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    f = PRODUCTS[name]
    assert_step(f, numbers((4, 6)), numbers((6, 8), seed=1), rtol=1e-9, atol=1e-10)
    assert_step(f, numbers((5, 6)).float(), numbers((6, 8), seed=1).float(), rtol=1e-4, atol=1e-4)
    assert_step(f, numbers((6, 3)).t().contiguous().t().reshape(3, 6), numbers((10, 6)).t(), rtol=1e-9, atol=1e-10)


MODULES = {
    "LayerNorm": lambda: nn.LayerNorm(6),
    "LayerNorm over two": lambda: nn.LayerNorm((3, 6)),
    "LayerNorm without": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "RMSNorm": lambda: nn.RMSNorm(6),
    "GroupNorm": lambda: nn.GroupNorm(3, 3),
    "GroupNorm of one": lambda: nn.GroupNorm(1, 3),
    "InstanceNorm": lambda: nn.InstanceNorm1d(3),
    "BatchNorm eval": lambda: nn.BatchNorm1d(3).eval(),
    "Linear": lambda: nn.Linear(6, 4),
    "Bilinear": lambda: _Twice(nn.Bilinear(6, 6, 2)),
    "PReLU": lambda: nn.PReLU(3),
    "PReLU of one": lambda: nn.PReLU(),
    "Softmax": lambda: nn.Softmax(-1),
    "GLU": lambda: nn.GLU(),
    "MultiheadAttention": lambda: _Attention(nn.MultiheadAttention(6, 2, batch_first=True)),
    "Sequential": lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 6)),
    "GRUCell": lambda: _Rows(nn.GRUCell(6, 5)),
    "LSTMCell": lambda: _Rows(nn.LSTMCell(6, 5)),
    "RNNCell": lambda: _Rows(nn.RNNCell(6, 5)),
    "CosineSimilarity": lambda: _Twice(nn.CosineSimilarity(-1)),
}


class _Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x * 2)


class _Attention(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x, x)


class _Rows(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x[:, 0])


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    """With its parameters taken from outside, as a step does; their gradients too."""
    module = MODULES[name]().double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    for shape in [(4, 3, 6), (2, 3, 6)]:
        assert_step(module, numbers(shape), rtol=1e-8, atol=1e-9)
    if not list(module.parameters()):
        return
    x = numbers((4, 3, 6))
    want = torch.autograd.grad(_loss(call(module, (x,))), list(module.parameters()), allow_unused=True)
    got = torch.autograd.grad(_loss(run(module, (x,))), list(module.parameters()), allow_unused=True)
    for a, b in zip(got, want, strict=True):
        if b is not None:
            close(a, b, 1e-8, 1e-9)


def _loss(results):
    return sum((r.double() * torch.arange(r.numel()).reshape(r.shape).sin()).sum() for r in results) + sum(
        r.sum() * 0 for r in results if not r.requires_grad
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    x, w = numbers((4, 6)).to(dtype), (numbers((6, 6), seed=1) / 3).to(dtype)
    for f in [
        lambda x, w: torch.tanh(x @ w + x),
        lambda x, w: fn.layer_norm(x, (6,)) * w[0],
        lambda x, w: (x.softmax(-1), x.logsumexp(-1), x.mean(0), x.sum(), x.amax(1)),
        lambda x, w: (fn.gelu(x), fn.silu(x), fn.elu(x), fn.softplus(x), fn.mish(x)),
        lambda x, w: (x[None] @ w[None], x.float() @ w.float(), x.var(-1), x.cumsum(-1)),
    ]:
        assert_step(f, x, w, rtol=0.03, atol=0.03)


# ---- PyTorch's own samples

#: Ops of op_db whose every sample (but of those that a program refuses by its nature) must be expressed.
MUST = {
    "abs",
    "add",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "baddbmm",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "cat",
    "ceil",
    "chunk",
    "clamp",
    "clone",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "diag_embed",
    "diagonal",
    "div",
    "dot",
    "eq",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "flatten",
    "flip",
    "floor",
    "fmod",
    "frac",
    "gather",
    "ge",
    "gt",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "lerp",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lt",
    "masked_fill",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "mm",
    "movedim",
    "mul",
    "mv",
    "narrow",
    "nan_to_num",
    "ne",
    "neg",
    "permute",
    "pow",
    "prod",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "roll",
    "round",
    "rsqrt",
    "rsub",
    "scatter_add",
    "select",
    "select_scatter",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "slice",
    "slice_scatter",
    "softmax",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "sum",
    "t",
    "take_along_dim",
    "tan",
    "tanh",
    "tile",
    "trace",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "unbind",
    "unsqueeze",
    "var",
    "view",
    "where",
}
SAMPLES = int(os.environ.get("WEFT_OP_SAMPLES", "4"))

#: What eager mode itself leaves open, or where a sample is no function of tensors.
LEFT_OUT = (
    "empty",
    "rand",
    "bernoulli",
    "normal",
    "multinomial",
    "dropout",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "log_normal",
    "linalg",
    "svd",
    "qr",
    "eig",
    "lstsq",
    "lu",
    "cholesky",
    "pinverse",
    "fft",
    "stft",
    "istft",
    "sparse",
    "item",
    "nonzero",
    "unique",
    "masked_select",
    "equal",
    "allclose",
    "to_sparse",
    "nested",
    "_batch",
    "jiterator",
    "__getitem__",
    "tolist",
    "data_ptr",
    "as_strided",
    "resize",
    "conv",
    "pool",
    "interpolate",
    "upsample",
    "grid_sample",
    "ctc_loss",
    "histc",
    "histogram",
    "bincount",
    "searchsorted",
    "bucketize",
    "special",
    "polygamma",
    "view_as_",
    "complex",
    "polar",
    "real",
    "imag",
    "conj",
    "angle",
    "ormqr",
    "geqrf",
    "matrix_exp",
    "cdist",
    "corrcoef",
    "cov",
    "tensorinv",
    "native",
    "attention",
    "torch.ops",
    "unravel",
    "triu_indices",
    "tril_indices",
    "quant",
    "sort",
    "topk",
    "kthvalue",
    "median",
    "mode",
    "msort",
    "repeat_interleave",
    "block_diag",
    "combinations",
    "cartesian",
    "renorm",
    "segment",
    "fake",
)


def samples_of(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = {}
        for sample in op.sample_inputs("cpu", torch.float64 if torch.float64 in op.dtypes else torch.int64):
            key = (tuple(getattr(sample.input, "shape", ())), len(sample.args), tuple(sample.kwargs))
            if key not in seen and len(seen) < SAMPLES:
                seen[key] = sample
        return list(seen.values())


OPS = [op for op in op_db if not any(word in op.full_name for word in LEFT_OUT)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name.replace(".", "_"))
def test_samples_of_pytorch(op, record_property):
    refused = set()
    for sample in samples_of(op):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
        if any(x.is_complex() for x in tensors):
            continue

        def f(*given, leaves=leaves, spec=spec):
            given = iter(given)
            x, args, kwargs = pytree.tree_unflatten(
                [next(given) if isinstance(y, torch.Tensor) else y for y in leaves], spec
            )
            return op(x, *args, **kwargs)

        try:
            f(*tensors)
        except NotImplementedError:  # of this dtype
            continue
        try:
            run(f, tensors)
        except (UnsupportedError, FailedError, RuntimeError) as error:
            assert "internal error" not in str(error)
            refused.add(str(error).split("\n")[0])
            continue
        assert_step(f, *tensors, gradients=op.supports_autograd, rtol=1e-7, atol=1e-8)
    if refused and op.name not in MUST:
        pytest.skip("; ".join(sorted(refused)))
    assert not refused
