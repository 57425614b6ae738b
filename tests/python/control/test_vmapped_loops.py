"""torch.vmap of recurrent cells, over torch.while_loop and of Python loops; PyTorch's scan with a y that is a carry."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.func import functional_call, grad, stack_module_state

import weft


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    weft.reset_stats()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


CELLS = {
    "gru": lambda: nn.GRUCell(4, 6),
    "gru, no bias": lambda: nn.GRUCell(4, 6, bias=False),
    "lstm": lambda: nn.LSTMCell(4, 6),
    "tanh": lambda: nn.RNNCell(4, 6),
    "relu": lambda: nn.RNNCell(4, 6, nonlinearity="relu", bias=False),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_have_a_batching_rule(name):
    cells = [CELLS[name]() for _ in range(5)]
    cell = cells[0]
    x, h = torch.randn(5, 3, 4), torch.randn(5, 3, 6)

    def one(parameters, x, h):
        return functional_call(cell, parameters, (x, (h, h.cos()) if isinstance(cell, nn.LSTMCell) else h))

    def loss(parameters, x, h):
        return sum(part.sin().sum() for part in torch.utils._pytree.tree_leaves(one(parameters, x, h)))

    shared, (each, _) = dict(cell.named_parameters()), stack_module_state(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of its loop over samples
        for function in (one, grad(loss)):
            for dims in ((None, 0, 0), (None, 0, None), (None, None, 0), (None, 1, 1), (0, None, None), (0, 0, 0)):
                given = [each if dims[0] == 0 else shared, x if dims[1] is not None else x[0]]
                given.append(h if dims[2] is not None else h[0])
                count = 3 if 1 in dims else 5
                got = torch.vmap(function, in_dims=dims)(*given)
                rows = [
                    function(
                        {k: v[i] for k, v in each.items()} if dims[0] == 0 else shared,
                        *(t if dim is None else t.select(dim, i) for t, dim in zip(given[1:], dims[1:], strict=True)),
                    )
                    for i in range(count)
                ]
                want = torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *rows)
                torch.testing.assert_close(got, want)


def until_large(h, limit):
    return while_loop(
        lambda i, h: h.abs().sum() < limit, lambda i, h: (i + 1, h * 1.5 + 0.1), (torch.zeros((), dtype=torch.long), h)
    )


def three_times(h, limit):
    return while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h.tanh() * limit), (torch.tensor(0), h))


@pytest.mark.parametrize("loop", [until_large, three_times])
def test_vmap_over_while_loop(loop):
    """The condition may differ from element to element, and each element does its own number of steps."""
    h, limits = torch.rand(5, 3, 4), torch.tensor([0.5, 9.0, 30.0, 2.0, 100.0])
    want = [loop(each, limit) for each, limit in zip(h, limits, strict=True)]
    assert loop is three_times or len({int(steps) for steps, _ in want}) > 3
    want = [torch.stack(parts) for parts in zip(*want, strict=True)]
    vmapped = torch.vmap(loop)
    for backend in (None, "eager", "weft"):
        function = torch.compile(vmapped, backend=backend, fullgraph=True) if backend else vmapped
        torch.testing.assert_close(list(function(h, limits)), want)
    assert not weft.stats()["fallbacks"]
    inner = torch.stack([loop(each, limits[1])[1] for each in h], 1)
    torch.testing.assert_close(torch.vmap(loop, in_dims=(0, None), out_dims=(0, 1))(h, limits[1])[1], inner)


def is_carry(h, x):
    h = torch.tanh(h + x)
    return h, h


def is_carry_of_before(h, x):
    return torch.tanh(h + x), h


def is_view_of_carry(h, x):
    h = torch.tanh(h + x)
    return h, h[:1]


@pytest.mark.parametrize("step", [is_carry, is_carry_of_before, is_view_of_carry])
def test_ys_that_are_carries(step):
    """Dynamo refuses such a step of PyTorch's scan; as a program its results share no memory."""
    x = torch.randn(6, 3, requires_grad=True)

    def function(x):
        last, ys = scan(step, x[0] * 2, x)
        return last, ys

    def plainly(x):
        h, ys = x[0] * 2, []
        for each in x:
            h, y = step(h, each)
            ys.append(y)
        return h, torch.stack(ys)

    def results(function):
        last, ys = function(x)
        return last, ys, torch.autograd.grad(last.sum() + ys.cos().sum(), x)[0]

    want = results(plainly)
    for backend in (None, "aot_eager", "weft"):
        compiled = torch.compile(function, backend=backend) if backend else function
        torch.testing.assert_close(results(compiled), want)
    with torch.no_grad():
        last, ys = torch.compile(function, backend="weft")(x)
    last.zero_()
    torch.testing.assert_close(ys, want[1])
    assert not weft.stats()["fallbacks"]


def test_loops_within_transforms_stay_and_are_said():
    weight, xs = torch.randn(4, 4), torch.randn(3, 10, 4)

    def loop(x):
        h = torch.zeros(4)
        for t in range(10):
            h = torch.tanh(x[t] @ weight + h)
        return h

    def function(xs):
        return torch.vmap(loop)(xs), grad(lambda x: loop(x).sum())(xs[0]), loop(xs[1])

    with pytest.warns(weft.FallbackWarning, match=r"torch\.vmap"):
        got = torch.compile(function, backend="weft", fullgraph=True)(xs)
    torch.testing.assert_close(got, function(xs))
    counted = weft.stats()["backend"]
    assert counted["rolled"] == 1
    ((reason, steps),) = next(iter(counted["not_rolled"].values())).items()
    assert reason == "it is within torch.vmap or another of torch.func's transforms" and steps == 20
