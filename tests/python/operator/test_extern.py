"""Operations that the IR doesn't have: PyTorch runs them from inside programs, loops included."""

from __future__ import annotations

import pytest
import torch
from oracles import fallen_back, loop
from torch.autograd import gradcheck, gradgradcheck

import weft

F64 = torch.float64


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    weft.reset_stats()


def conv_step(kernel, bias):
    def step(h, x):
        gates = torch.nn.functional.conv2d(torch.cat([h, x], 1), kernel, bias, padding=1)
        z, n = gates.chunk(2, 1)
        h = torch.sigmoid(z) * h + (1 - torch.sigmoid(z)) * torch.tanh(n)
        return h, h

    return step


def conv_inputs(dtype, steps=3, batch=2, channels=2, size=4):
    shapes = [(2 * channels, channels + 1, 3, 3), (2 * channels,), (batch, channels, size, size)]
    inputs = [0.5 * torch.randn(shape, dtype=dtype) for shape in shapes]
    return [*(t.requires_grad_() for t in inputs), torch.randn(steps, batch, 1, size, size, dtype=dtype)]


def test_a_convolution_in_the_loop():
    kernel, bias, h, xs = conv_inputs(torch.float32, steps=5, batch=3, channels=4, size=8)
    for _ in range(2):
        carry, ys = weft.scan(conv_step(kernel, bias), h, xs)
        expected = loop(conv_step(kernel, bias), h, xs)
        torch.testing.assert_close((carry, ys), expected, rtol=1e-5, atol=1e-5)
        got = torch.autograd.grad(carry.sum() + ys.square().sum(), [kernel, bias, h])
        want = torch.autograd.grad(expected[0].sum() + expected[1].square().sum(), [kernel, bias, h])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    counted = weft.stats()
    assert counted["extern"]["aten.convolution.default"] >= 10, counted
    assert counted["extern"]["aten.convolution_backward.default"] == 10, counted
    assert not fallen_back()


def test_another_batch_and_length_compile_nothing():
    kernel, bias, h, xs = conv_inputs(torch.float32)
    step = conv_step(kernel, bias)
    weft.scan(step, h, xs)
    compiled = weft.stats()["compiled"]
    h, xs = torch.randn(5, 2, 4, 4), torch.randn(7, 5, 1, 4, 4)
    torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs), rtol=1e-5, atol=1e-5)
    assert weft.stats()["compiled"] == compiled


def test_gradients_of_a_convolution_in_the_loop():
    kernel, bias, h, xs = conv_inputs(F64, steps=2, batch=1, channels=1, size=3)

    def run(kernel, bias, h):
        return weft.scan(conv_step(kernel, bias), h, xs)

    assert gradcheck(run, (kernel, bias, h))
    assert gradgradcheck(run, (kernel, bias, h))


def kalman_step(transition, noise):
    def step(state, z):
        mean, covariance = state
        mean = mean @ transition.T
        covariance = transition @ covariance @ transition.T + noise
        gain = torch.linalg.solve(covariance + torch.eye(2, dtype=mean.dtype), covariance).transpose(-1, -2)
        mean = mean + ((z - mean).unsqueeze(-2) @ gain.transpose(-1, -2)).squeeze(-2)
        covariance = covariance - gain @ covariance
        return (mean, covariance), mean

    return step


def test_a_solve_in_the_loop():
    transition = torch.tensor([[1.0, 0.1], [0.0, 0.9]], dtype=F64, requires_grad=True)
    noise = (0.1 * torch.eye(2, dtype=F64)).requires_grad_()
    mean, covariance = torch.zeros(3, 2, dtype=F64), torch.eye(2, dtype=F64).repeat(3, 1, 1)
    zs = torch.randn(4, 3, 2, dtype=F64)
    (mean_t, _), means = weft.scan(kalman_step(transition, noise), (mean, covariance), zs)
    (expected, _), all_expected = loop(kalman_step(transition, noise), (mean, covariance), zs)
    torch.testing.assert_close((mean_t, means), (expected, all_expected))

    def run(transition, noise):
        return weft.scan(kalman_step(transition, noise), (mean, covariance), zs)[1]

    assert gradcheck(run, (transition, noise))
    assert weft.stats()["extern"]["aten._linalg_solve_ex.default"] > 0


def test_what_fails_in_the_loop_fails_as_in_pytorch():
    def step(h, a):
        return torch.linalg.solve(a, h), h

    h, good = torch.ones(2, 1), torch.eye(2).repeat(3, 1, 1)
    torch.testing.assert_close(weft.scan(step, h, good), loop(step, h, good))
    bad = good.clone()
    bad[1] = 0
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        loop(step, h, bad)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        weft.scan(step, h, bad)


OPERATIONS = {
    "cumsum": lambda h: torch.cumsum(h, -1),
    "cumprod": lambda h: torch.cumprod(1 + h, -1),
    "sort": lambda h: torch.sort(h, -1).values,
    "topk": lambda h: torch.nn.functional.pad(torch.topk(h, 2, -1).values, (0, 2)),
    "median": lambda h: h - torch.median(h, -1, keepdim=True).values,
    "cholesky": lambda h: torch.linalg.cholesky(torch.eye(4, dtype=h.dtype) + h[..., None] * h[..., None, :]).sum(-1),
    "gather": lambda h: h.gather(-1, torch.argsort(h, -1)),
    "lgamma": lambda h: torch.lgamma(h.square() + 1),
    "roll": lambda h: torch.roll(h, 1, -1),
    "max_pool": lambda h: torch.nn.functional.interpolate(
        torch.nn.functional.max_pool1d(h[:, None], 2), scale_factor=2.0
    ).squeeze(1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_operations_in_the_loop(name):
    operation = OPERATIONS[name]

    def step(h, x):
        h = 0.5 * operation(torch.tanh(h + x))
        return h, h

    h = torch.randn(3, 4, dtype=F64, requires_grad=True)
    xs = torch.randn(3, 3, 4, dtype=F64, requires_grad=True)
    torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))
    got = torch.autograd.grad(weft.scan(step, h, xs)[1].square().sum(), [h, xs])
    want = torch.autograd.grad(loop(step, h, xs)[1].square().sum(), [h, xs])
    torch.testing.assert_close(got, want)
    assert not fallen_back()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batch, rows, columns", [((5,), 2, 1), ((2, 3), 4, 4), ((), 1, 3), ((3,), 7, 2), ((0,), 3, 2)])
def test_small_matrices_need_no_lapack(batch, rows, columns, upper, dtype):
    def step(h, x):
        a = x @ x.mT + 2 * torch.eye(rows, dtype=dtype)
        factor = torch.linalg.cholesky(a, upper=upper)
        left = torch.linalg.solve_triangular(factor, h, upper=upper)
        right = torch.linalg.solve_triangular(factor, h.mT, upper=upper, left=False).mT
        unit = torch.linalg.solve_triangular(
            factor / factor.diagonal(dim1=-2, dim2=-1)[..., None], h, upper=upper, unitriangular=True
        )
        h = torch.tanh(torch.cholesky_solve(left + right, factor, upper=upper) + 0.1 * unit)
        return h, (h, factor)

    h = torch.randn(*batch, rows, columns, dtype=dtype, requires_grad=True)
    xs = torch.randn(3, *batch, rows, rows, dtype=dtype, requires_grad=True)
    got = weft.scan(step, h, xs)
    carry, ys = h, []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    want = (carry, tuple(torch.stack(each) for each in zip(*ys, strict=True)))
    exact = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(got, want, **exact)
    loss = lambda result: sum(each.square().sum() for each in (result[0], *result[1]))  # noqa: E731
    torch.testing.assert_close(
        torch.autograd.grad(loss(got), [h, xs]), torch.autograd.grad(loss(want), [h, xs]), **exact
    )
    assert not fallen_back()
    if batch != (0,):
        assert not {name for name in weft.stats()["extern"] if "cholesky" in name or "triangular" in name}


def test_matrices_that_have_no_factor_fail_as_in_pytorch():
    def step(h, a):
        return h + torch.linalg.cholesky(a).sum(), h

    h, good = torch.zeros(()), torch.eye(3).repeat(4, 1, 1)
    torch.testing.assert_close(weft.scan(step, h, good), loop(step, h, good))
    for bad in (good * torch.tensor([1.0, 1, -1, 1])[:, None, None], good * float("nan")):
        for run in (loop, weft.scan):
            with pytest.raises(torch.linalg.LinAlgError, match="order 1 is not positive-definite"):
                run(step, h, bad)
    large = torch.eye(40, dtype=F64).repeat(2, 1, 1)  # PyTorch's kernel runs these
    torch.testing.assert_close(weft.scan(step, h.double(), large), loop(step, h.double(), large))
    assert weft.stats()["extern"]["aten.linalg_cholesky_ex.default"] > 0


def test_an_operation_without_derivative():
    def step(h, x):
        h = torch.special.zeta(1.5 + torch.tanh(h).square(), 1 + x.square())
        return h, h

    h, xs = torch.randn(3, dtype=F64, requires_grad=True), torch.randn(4, 3, dtype=F64)
    carry, ys = weft.scan(step, h, xs)
    torch.testing.assert_close((carry, ys), loop(step, h, xs))
    with pytest.raises(RuntimeError, match="the derivative for 'zeta' is not implemented"):
        ys.sum().backward()


@pytest.mark.parametrize("matrix", ["regular", "singular"])
def test_determinants(matrix):
    """det's backward reads values if it has a graph of its own."""

    def step(h, x):
        h = torch.tanh(h * 0.9 + 0.1 * x * torch.det(h))
        return h, torch.linalg.det(h + x)

    h = torch.randn(3, 3, dtype=F64) if matrix == "regular" else torch.ones(3, 3, dtype=F64)
    h, xs = h.requires_grad_(), torch.randn(4, 3, 3, dtype=F64)
    found, expected = weft.scan(step, h, xs), loop(step, h, xs)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(carry.sum() + ys.sum(), h) for carry, ys in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize(
    "call, message",
    [
        ("aten.nonsense.default(%0)", "PyTorch has no operator aten.nonsense.default"),
        ("nonsense(%0)", "'nonsense' names no operator"),
        ("aten.cumsum.default(%0", r"expected \)"),
        ("aten.cumsum.default(%0, 1)", "takes 3 arguments, not 2"),
        ("aten.cumsum.default(%1, 1, None)", "%1 names no operand: there are 1"),
        ("aten.cumsum.default(%0, 'x', None)", "a text can't be an argument of type int"),
        ("aten.cumsum.default(%0, 0, f64)", r"result 0 of aten.cumsum.default is Double\[2\]"),
        ("aten.cumsum.default(%0, 5, None)", "Dimension out of range"),
        ("aten.sort.default(%0, 0, false)", "gives 2 tensors, but the program says 1"),
        ("aten.relu_.default(%0)", "changes its arguments"),
        ("aten.rand_like.default(%0, None, None, None, None, None)", "draws random numbers"),
    ],
)
def test_errors_of_programs_by_hand(call, message):
    text = f'program @p(%x: f32[B]) {{ %y = extern %x {{call = "{call}"}} : f32[B] return %y }}'
    with pytest.raises((RuntimeError, IndexError), match=message):
        weft.call(text, [torch.ones(2)])


def test_arguments_of_programs_by_hand():
    text = """program @p(%x: f32[B,3], %i: i64[2]) {
      %a = extern %x {call = "aten.full.default([size(0, 0), 2*size(0, 1)], -1.5e0, f64, strided, cpu, false)"}
        : f64[B,6]
      %b, %c = extern %x {call = "aten.max.dim(%0, -1, true)"} : f32[B,1], i64[B,1]
      %d = extern %x, %i {call = "aten.index.Tensor(%0, [None, %1])"} : f32[B,2]
      %e = extern %x, %x {call = "aten.cat.default([%0, %1], 0)"} : f32[2*B,3]
      return %a, %b, %c, %d, %e
    }"""
    x, i = torch.randn(4, 3).t().contiguous().t(), torch.tensor([2, 0])
    got = weft.call(text, [x, i])
    want = [torch.full((4, 6), -1.5, dtype=F64), *x.max(-1, keepdim=True), x[:, i], torch.cat([x, x])]
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype
    assert all(t.numel() == 0 for t in weft.call(text, [torch.empty(0, 3), i]))


def test_autocast_does_not_reach_into_programs():
    text = """program @p(%h: f32[B,2,4,4], %k: f32[4,2,3,3]) {
      %y = extern %h, %k {call = "aten.convolution.default(%0, %1, None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)"}
        : f32[B,4,4,4]
      return %y
    }"""
    inputs = [torch.randn(3, 2, 4, 4), torch.randn(4, 2, 3, 3)]
    (plain,) = weft.call(text, inputs)
    torch.testing.assert_close(plain, torch.nn.functional.conv2d(*inputs, padding=1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(weft.call(text, inputs)[0], plain)


def test_what_stands_between_operations_has_all_threads():
    """PyTorch's operators have the threads to themselves, and so have the stages between them."""

    def front_then_recurrence(kernel, w, x):
        wide = torch.nn.functional.conv1d(x, kernel, padding=1)  # [B, C, T]
        xs = torch.tanh(wide).permute(2, 0, 1)

        def step(h, x):
            h = torch.tanh(x + h @ w)
            return h, h

        last, ys = weft.scan(step, torch.zeros_like(xs[0]), xs)
        return last, torch.nn.functional.conv1d(ys.permute(1, 2, 0), kernel.transpose(0, 1)).sum(1)

    kernel, w = 0.3 * torch.randn(64, 1, 3), 0.1 * torch.randn(64, 64)
    x = torch.randn(8, 1, 200)
    compiled = weft.jit(front_then_recurrence)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            got = compiled(kernel, w, x)
            with weft.disabled():
                want = front_then_recurrence(kernel, w, x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(threads)
    assert weft.stats()["extern"] == {"aten.convolution.default": 6}
    assert weft.stats()["compiled"] == 1
