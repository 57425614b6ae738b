"""PyTorch's control flow operators under the backend `weft`, and weft.while_loop and associative_scan under Dynamo."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop

import weft
from weft._control.while_loop import while_loop

BACKENDS = ["weft", "aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()


def outcome(f, arguments, leaves):
    """The result of f, and the gradients of a number made of it."""
    results = [t for t in torch.utils._pytree.tree_leaves(f(*arguments)) if isinstance(t, torch.Tensor)]
    if not leaves:
        return results
    loss = sum(t.square().sum() for t in results if t.requires_grad)
    return [*results, *torch.autograd.grad(loss, leaves)]


def check_compiled(f, reference, arguments, leaves=(), *, backend="weft", calls=True):
    """The compiled `f` is one program, with the results and gradients of `reference`."""
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    weft.reset_stats()
    ours, theirs = outcome(compiled, arguments, leaves), outcome(reference, arguments, leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert (weft.stats()["calls"] > 0) == calls
    assert not [reason for reason in weft.stats()["fallbacks"] if "interpreted" not in reason]


def parameter(*shape):
    return (torch.randn(shape) / 2).requires_grad_()


def test_map_of_a_function_with_a_parameter():
    w, xs = parameter(4, 4), parameter(5, 3, 4)

    def f(xs):
        return torch_map(lambda x: (torch.tanh(x @ w), x * 2), xs)

    check_compiled(f, lambda xs: (torch.tanh(xs @ w), xs * 2), (xs,), (w, xs))
    torch._dynamo.reset()
    check_compiled(f, lambda xs: (torch.tanh(xs @ w), xs * 2), (xs,), (w, xs), backend="aot_eager", calls=False)


def test_associative_scan_of_pairs():
    a, b = parameter(6, 3), parameter(6, 3)

    def combine(left_a, left_b, right_a, right_b):
        return left_a * right_a, left_b * right_a + right_b

    def reference(a, b):
        pairs = [(a[0], b[0])]
        for t in range(1, 6):
            pairs.append(combine(*pairs[-1], a[t], b[t]))
        return [torch.stack(column) for column in zip(*pairs, strict=True)]

    check_compiled(lambda a, b: weft.associative_scan(lambda p, q: combine(*p, *q), (a, b)), reference, (a, b), (a, b))
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda a, b: associative_scan_op(combine, (a, b), ()))(a.detach(), b.detach())
    torch.testing.assert_close(list(graph(a, b)), reference(a, b))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_takes_one_branch_and_its_gradients(sign):
    w, v, x = parameter(4, 4), parameter(4), torch.full((2, 4), sign)

    def yes(x):
        return torch.sin(x @ w), x * 2

    def no(x):
        return torch.cos(x * v), x.clone()

    def f(x):
        return torch.cond(x.sum() > 0, yes, no, (x,))

    def reference(x):
        first, second = yes(x) if sign > 0 else no(x)
        return first + 0 * (w.sum() + v.sum()), second

    check_compiled(f, reference, (x,), (w, v))


def test_while_loop_without_gradients():
    def f(x):
        return torch_while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, torch.tanh(x * 1.5)), (torch.tensor(0), x))

    def reference(x):
        for _ in range(5):
            x = torch.tanh(x * 1.5)
        return torch.tensor(5), x

    check_compiled(f, reference, (torch.randn(3),))


def test_a_while_loop_that_trains_is_pytorchs():
    """A loop with any number of steps must keep any number of values, which a program can't."""
    w, x = parameter(4, 4), torch.randn(2, 4)

    def f(x):
        return torch_while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(x @ w)), (torch.tensor(0), x))

    def reference(x):
        for _ in range(3):
            x = torch.tanh(x @ w)
        return torch.tensor(3), x

    compiled = torch.compile(f, backend="weft", fullgraph=True)
    for a, b in zip(outcome(compiled, (x,), (w,)), outcome(reference, (x,), (w,)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert any("gradients of a loop" in reason for reason in weft.stats()["fallbacks"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scan_whose_step_has_a_choice(backend):
    w, h, xs = parameter(3, 3), torch.zeros(2, 3), torch.randn(6, 2, 3)

    def step(h, x):
        h = torch.cond(x.sum() > 0, lambda h, x: torch.tanh(h @ w + x), lambda h, x: h - x, (h, x))
        return h, h.clone()

    def reference(h, xs):
        ys = []
        for x in xs:
            h = torch.tanh(h @ w + x) if x.sum() > 0 else h - x
            ys.append(h)
        return h, torch.stack(ys)

    check_compiled(lambda h, xs: torch_scan(step, h, xs), reference, (h, xs), (w,), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("max_steps", [None, 0, 4, 20])
def test_wefts_while_loop_is_that_of_eager_mode(backend, max_steps):
    def f(x):
        def body(carry):
            return {"x": carry["x"] * 1.5, "count": carry["count"] + 1}

        return while_loop(lambda c: c["x"].sum() < 30, body, {"x": x, "count": 0}, max_steps=max_steps)

    x = torch.rand(3) + 0.5
    ours, theirs = torch.compile(f, backend=backend, fullgraph=True)(x), f(x)
    assert ours["count"] == theirs["count"] and ours["count"].dtype == torch.int64
    torch.testing.assert_close(ours["x"], theirs["x"])


def test_a_bounded_while_loop_trains():
    w, x = parameter(3, 3), torch.randn(2, 3)

    def f(x):
        return while_loop(lambda x: x.abs().sum() > 0.5, lambda x: torch.tanh(x @ w), x, max_steps=6)

    def reference(x):
        for _ in range(6):
            if x.abs().sum() > 0.5:
                x = torch.tanh(x @ w)
        return x

    check_compiled(f, reference, (x,), (w,))
    torch._dynamo.reset()
    check_compiled(f, reference, (x,), (w,), backend="inductor")
