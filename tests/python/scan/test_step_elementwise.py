"""Elementwise operations and promotion in a step, held to eager PyTorch."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as fn
from oracles import loop
from step_checks import assert_step, integers, numbers

import weft

SHAPES = [(4, 5), (3, 1), (0, 5), (7,), (), (2, 3, 17)]

# Kinks, and points where the branch not taken overflows.
EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 2.5, -1.5, 19.5, 20.5, 90.0, -90.0, 120.0, -120.0, 800.0, -800.0,
     float("inf"), float("-inf"), float("nan")], dtype=torch.float64,
)  # fmt: skip

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
    # PyTorch computes these with constants of f32 in f64 too.
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
    gradients = name != "floor_divide"  # eager mode has no gradients of it
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


@pytest.mark.parametrize("op", ["square_", "pow_", "pow_tensor"])
def test_powers_in_place(op):
    def step(h, x):
        u = h * 0.5 + x
        {
            "square_": lambda: u.square_(),
            "pow_": lambda: u.pow_(2),
            "pow_tensor": lambda: u.pow_(x),
        }[op]()
        return h + u, u

    h, xs = torch.ones(3), torch.rand(5, 3) + 1
    with weft.disabled():
        wanted = weft.scan(step, h, xs)
    weft.reset_stats()
    torch.testing.assert_close(weft.scan(step, h, xs), wanted)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("draw", ["cauchy_", "geometric_", "normal_", "uniform_", "exponential_", "log_normal_"])
def test_random_numbers_are_those_of_the_loop(draw):
    """PyTorch's decompositions of some draw other numbers than its kernels."""

    def step(h, x):
        noise = getattr(torch.empty_like(x), draw)(*([0.4] if draw == "geometric_" else []))
        return h + x * noise, noise

    h, xs = torch.ones(3), torch.rand(5, 3)
    torch.manual_seed(3)
    with weft.disabled():
        wanted = weft.scan(step, h, xs)
    torch.manual_seed(3)
    torch.testing.assert_close(weft.scan(step, h, xs), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_a_quotient_by_almost_nothing(dtype):
    """ct / n overflows where (c / n) / n doesn't: 0 by 1e-40, as in a normaliser that has seen nothing."""
    numbers = torch.tensor([0.0, -0.0, 1e-40, 1.0, -3.0, float("inf")], dtype=dtype)
    if dtype == torch.float64:
        numbers = torch.cat([numbers, torch.tensor([1e-310], dtype=dtype)])
    c, n = (t.flatten() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    gradients = []
    for run in (weft.scan, loop):
        carry = c.clone().requires_grad_(), n.clone().requires_grad_()
        _, ys = run(lambda h, x: (h, h[0] / h[1] * x), carry, torch.ones(2, 1, dtype=dtype))
        gradients.append(torch.autograd.grad(ys.sum(), carry))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_by_a_vector_are_machine_code(dtype):
    """Their gradient is an outer product of vectors whose lengths are sizes."""
    w = torch.randn(4, dtype=dtype, requires_grad=True)
    h, xs = torch.randn(2, 4, dtype=dtype, requires_grad=True), torch.randn(5, 2, 3, 4, dtype=dtype)
    for step in (
        lambda h, x: (h + (x * h[:, None] @ w).sum(1, keepdim=True), h.sum()),
        lambda h, x: (h + torch.mv(h, w)[:, None], h.sum()),
        lambda h, x: (h + torch.einsum("bsh,h->bs", x, h.mean(0) * w).sum(1, keepdim=True), h.sum()),
    ):
        runs = [run(step, h, xs) for run in (weft.scan, loop)]
        gradients = [torch.autograd.grad(carry.sum() + ys.sum(), (h, w)) for carry, ys in runs]
        torch.testing.assert_close(runs[0], runs[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
    assert not weft.stats()["fallbacks"]
