"""weft.scan in eager mode against the plain Python loop that it stands for."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as fn
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import weft
from weft import _trees


def loop(step: Any, init: Any, xs: Any, reverse: bool = False, length: int | None = None) -> tuple[Any, Any]:
    """The oracle, written out once more."""
    leaves, spec = _trees.flatten(xs)
    steps = length if length is not None else next(leaf.shape[0] for leaf in leaves if leaf is not None)
    carry, ys = init, []
    for t in reversed(range(steps)) if reverse else range(steps):
        carry, y = step(carry, pytree.tree_unflatten([None if leaf is None else leaf[t] for leaf in leaves], spec))
        ys.append(y)
    if reverse:
        ys.reverse()
    _, y_spec = _trees.flatten(ys[0])
    columns = zip(*[_trees.flatten(y)[0] for y in ys], strict=True)
    return carry, pytree.tree_unflatten([torch.stack([torch.as_tensor(v) for v in c]) for c in columns], y_spec)


def assert_same(step: Any, init: Any, xs: Any, *wanted: Tensor, native: bool = True, **options: Any) -> None:
    """The same results, and the same gradients of all of `wanted`."""
    weft.reset_stats()
    results = []
    for run in (weft.scan, loop):
        torch.manual_seed(3)
        leaves = [t for t in _trees.flatten(run(step, init, xs, **options))[0] if isinstance(t, Tensor)]
        total = sum(
            (leaf.float() * torch.linspace(0.5, 1.5, leaf.numel()).reshape(leaf.shape)).sum() for leaf in leaves
        )
        gradients = torch.autograd.grad(total, wanted, allow_unused=True) if wanted else ()
        results.append((leaves, gradients))
    if native:
        assert not [reason for reason in weft.stats()["fallbacks"] if "weft.scan" in reason]
    (ours, our_gradients), (theirs, their_gradients) = results
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        a = torch.zeros_like(b) if a is None and b is not None else a
        b = torch.zeros_like(a) if b is None and a is not None else b
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def random(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*shape, **options).requires_grad_()


class TestCells:
    @pytest.mark.parametrize("reverse", [False, True])
    def test_gru_cell_and_linear(self, reverse: bool) -> None:
        cell, out = nn.GRUCell(5, 8), nn.Linear(8, 3)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = cell(x, h)
            return h, out(h)

        x, h = random(9, 4, 5), random(4, 8)
        assert_same(step, h, x, x, h, *cell.parameters(), *out.parameters(), reverse=reverse)

    def test_lstm_cell(self) -> None:
        cell = nn.LSTMCell(5, 8)

        def step(hc: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            hc = cell(x, hc)
            return hc, hc[0]

        x, h, c = random(6, 3, 5), random(3, 8), random(3, 8)
        assert_same(step, (h, c), x, x, h, c, *cell.parameters())

    @pytest.mark.parametrize("cell", [nn.RNNCell(3, 4), nn.RNNCell(3, 4, nonlinearity="relu"), nn.GRUCell(3, 4, False)])
    def test_other_cells(self, cell: nn.Module) -> None:
        x, h = random(5, 2, 3), random(2, 4)
        assert_same(lambda h, x: (cell(x, h),) * 2, h, x, x, h, *cell.parameters())

    def test_a_cell_of_ones_own(self) -> None:
        w, u, norm = random(5, 8), random(8, 8), nn.LayerNorm(8)

        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            a = norm(x @ w + torch.einsum("bh,hk->bk", h, u))
            h = torch.where(a > 0, torch.tanh(a), 0.5 * h)
            return h, fn.silu(h)

        x, h = random(7, 3, 5), random(3, 8)
        assert_same(step, h, x, x, h, w, u, *norm.parameters())

    def test_a_batch_of_one_and_no_batch(self) -> None:
        w = random(4, 4)
        for shape in [(1, 4), (4,)]:
            h, x = random(*shape), random(5, *shape)
            assert_same(lambda h, x: (torch.tanh(h @ w + x), h), h, x, x, h, w)

    def test_gradcheck(self) -> None:
        cell = nn.GRUCell(2, 3).double()

        def run(x: Tensor, h: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
            return weft.scan(lambda h, x: (cell(x, h), h * x.sum(-1, keepdim=True)), h, x)

        inputs = (random(3, 2, 2, dtype=torch.float64), random(2, 3, dtype=torch.float64), *cell.parameters())
        assert torch.autograd.gradcheck(run, inputs)
        assert torch.autograd.gradgradcheck(run, inputs[:2])


class State(NamedTuple):
    h: Tensor
    count: Tensor


@dataclasses.dataclass
class Both:
    left: Tensor
    right: Tensor


class TestTrees:
    def test_dicts_lists_and_none(self) -> None:
        def step(carry: dict[str, Any], x: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            a, nothing = x
            assert nothing is None
            h = torch.tanh(carry["h"] + a["left"] * a["right"])
            return {"h": h, "seen": carry["seen"] + 1}, {"h": h, "nothing": None}

        init = {"h": random(2, 3), "seen": torch.tensor(0)}
        xs = [{"left": random(4, 2, 3), "right": random(4, 2, 3)}, None]
        carry, ys = weft.scan(step, init, xs)
        assert ys["nothing"] is None and carry["seen"].item() == 4 and ys["h"].shape == (4, 2, 3)

    def test_named_tuples_and_dataclasses(self) -> None:
        def step(state: State, x: Both) -> tuple[State, Both]:
            h = torch.sigmoid(state.h * x.left + x.right)
            return State(h, state.count + (h > 0.5).sum()), Both(h, h * 2)

        init, xs = State(random(2, 3), torch.tensor(0)), Both(random(5, 2, 3), random(5, 2, 3))
        carry, ys = weft.scan(step, init, xs)
        assert isinstance(carry, State) and isinstance(ys, Both)
        assert_same(step, init, xs, init.h, xs.left, xs.right)

    def test_without_xs(self) -> None:
        w = random(3, 3)
        assert_same(lambda h, _: (torch.tanh(h @ w), h), random(2, 3), None, w, length=6)

    def test_numbers_in_the_carry(self) -> None:
        carry, ys = weft.scan(lambda c, x: ((c[0] + 1, c[1] + x.sum()), c[0]), (0, 0.0), torch.ones(5, 2))
        assert carry[0].dtype == torch.int64 and carry[0] == 5 and carry[1] == 10.0
        assert ys.tolist() == [0, 1, 2, 3, 4]

    def test_no_carry(self) -> None:
        x = random(4, 3)
        assert_same(lambda carry, x: (carry, torch.exp(x)), None, x, x)

    def test_results_have_memory_of_their_own(self) -> None:
        x, h = torch.randn(3, 2), torch.randn(2)
        carry, (same, again, through) = weft.scan(lambda h, x: (h, (h, h, x)), h, x)
        assert len({t.untyped_storage().data_ptr() for t in (x, h, carry, same, again, through)}) == 6


class TestDtypes:
    def test_integers_and_bools(self) -> None:
        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            count, done = carry
            return (count + x, torch.logical_or(done, x > 3)), torch.where(done, -1, count)

        x = torch.randint(0, 5, (7, 4))
        assert_same(step, (torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool)), x)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_floats(self, dtype: torch.dtype) -> None:
        w = torch.randn(4, 4, dtype=dtype) / 2
        x, h = torch.randn(5, 3, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
        step = lambda h, x: (torch.tanh(x + h @ w),) * 2  # noqa: E731
        ours, theirs = weft.scan(step, h, x)[1], loop(step, h, x)[1]
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=0.05 if dtype != torch.float64 else 1e-12, atol=0.02)

    def test_autocast(self) -> None:
        linear = nn.Linear(4, 4)
        x, h = torch.randn(5, 3, 4), torch.randn(3, 4)
        with torch.autocast("cpu", torch.bfloat16):
            carry, ys = weft.scan(lambda h, x: (torch.tanh(linear(h) + x), linear(h)), h, x)
        assert carry.dtype == torch.float32 and ys.dtype == torch.bfloat16
        torch.testing.assert_close(
            carry, loop(lambda h, x: (torch.tanh(linear(h) + x), h), h, x)[0], rtol=0.1, atol=0.05
        )


class TestNesting:
    def test_scans_in_sequence(self) -> None:
        one, two = nn.GRUCell(3, 4), nn.GRUCell(4, 4)

        def run(scan: Any, x: Tensor) -> Tensor:
            _, ys = scan(lambda h, x: (one(x, h),) * 2, torch.zeros(2, 4), x)
            return scan(lambda h, x: (two(x, h),) * 2, torch.zeros(2, 4), ys)[1]

        x = random(5, 2, 3)
        wanted = (x, *one.parameters(), *two.parameters())
        ours = torch.autograd.grad(run(weft.scan, x).square().sum(), wanted)
        theirs = torch.autograd.grad(run(loop, x).square().sum(), wanted)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_a_scan_in_a_scan(self) -> None:
        w = random(3, 3)

        def make(scan: Any) -> Any:
            def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
                inner, ys = scan(lambda g, u: (torch.tanh(g @ w + u * h), g), h, x)
                return inner, ys.sum(0)

            return step

        h, x = random(2, 3), random(4, 5, 2, 3)
        ours = weft.scan(make(weft.scan), h, x)
        theirs = loop(make(loop), h, x)
        torch.testing.assert_close(ours, theirs)
        ours, theirs = (torch.autograd.grad(r[0].sum() + r[1].sum(), (h, x, w)) for r in (ours, theirs))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class TestRandomness:
    def test_the_loops_own_numbers(self) -> None:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = fn.dropout(torch.tanh(h + x), 0.3)
            return h, h + torch.rand_like(h) * torch.randn(3)

        x, h = random(6, 4, 3), random(4, 3)
        assert_same(step, h, x, x, h)
        assert_same(step, h, x, x, h, reverse=True)

    def test_capturing_draws_nothing(self) -> None:
        torch.manual_seed(1)
        expected = torch.rand(1)
        torch.manual_seed(1)
        weft.scan(lambda h, x: (h * 1.25 + x, h), torch.zeros(2), torch.zeros(3, 2))
        assert torch.equal(torch.rand(1), expected)
