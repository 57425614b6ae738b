"""weft.scan in eager mode against the plain Python loop that it stands for."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as fn
import warm_python
from oracles import loop
from torch import Tensor, nn

import weft
from weft._base import trees


def assert_same(step: Any, init: Any, xs: Any, *wanted: Tensor, native: bool = True, **options: Any) -> None:
    """The same results, and the same gradients of all of `wanted`."""
    weft.reset_stats()
    results = []
    for run in (weft.scan, loop):
        torch.manual_seed(3)
        leaves = [t for t in trees.flatten(run(step, init, xs, **options))[0] if isinstance(t, Tensor)]
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

    def test_defaults_of_pytorch_change_nothing(self) -> None:
        """Programs get types and devices explicitly, also for the stand-in for xs where there are none."""
        w, h = random(3, 3), random(2, 3)
        found = []
        for dtype, device in [(torch.float32, None), (torch.float64, None), (torch.float32, "meta")]:
            torch.set_default_dtype(dtype)
            torch.set_default_device(device)
            try:
                found.append(weft.scan(lambda h, _: (torch.tanh(h @ w), h), h, length=6)[0])
                found.append(weft.checkpoint_scan(lambda h, _: (torch.tanh(h @ w), h), h, length=6)[0])
                found.append(weft.while_loop(lambda h: h.sum() < 1e9, lambda h: torch.tanh(h @ w), h, max_steps=6))
            finally:
                torch.set_default_dtype(torch.float32)
                torch.set_default_device(None)
        assert all(torch.equal(each, found[0]) for each in found)

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


class TestTransforms:
    def run(self, scan: Any, h: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return scan(lambda h, x: (torch.tanh(h @ w + x),) * 2, h, x)[1]

    def both(self, transformed: Any) -> tuple[Any, Any]:
        return transformed(functools.partial(self.run, weft.scan)), transformed(functools.partial(self.run, loop))

    @pytest.mark.parametrize("argument", [0, 1, 2])
    def test_jacobians(self, argument: int) -> None:
        h, x, w = torch.randn(2, 3), torch.randn(4, 2, 3), torch.randn(3, 3)
        for jacobian in (torch.func.jacrev, torch.func.jacfwd):
            torch.testing.assert_close(*self.both(lambda f, j=jacobian: j(f, argument)(h, x, w)))
        torch.testing.assert_close(*self.both(lambda f: torch.func.hessian(f, argument)(h, x, w)), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("in_dims", [(0, 1, None), (None, 0, 0), (0, None, 0)])
    def test_vmap(self, in_dims: tuple[int | None, ...]) -> None:
        shapes = [(2, 3), (4, 2, 3), (3, 3)]
        inputs = [torch.randn(*(s if d is None else (*s[:d], 5, *s[d:]))) for s, d in zip(shapes, in_dims, strict=True)]
        torch.testing.assert_close(*self.both(lambda f: torch.func.vmap(f, in_dims)(*inputs)))

    def test_gradients_of_each_sample(self) -> None:
        h, x, w = torch.randn(5, 2, 3), torch.randn(5, 4, 2, 3), torch.randn(3, 3)
        torch.testing.assert_close(
            *self.both(
                lambda f: torch.func.vmap(torch.func.grad(lambda *a: f(*a).square().sum(), 2), (0, 0, None))(h, x, w)
            )
        )


class TestCheckpointScan:
    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize(("length", "every"), [(1, None), (2, None), (7, 3), (16, None), (17, None), (5, 9)])
    def test_the_same_as_scan(self, length: int, every: int | None, reverse: bool) -> None:
        cell = nn.GRUCell(3, 4)

        def step(carry: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            h = cell(fn.dropout(x, 0.3), carry[0])
            return (h, carry[1] + 1), h * carry[1].unsqueeze(1)

        x, h = random(length, 2, 3), random(2, 4)
        results = []
        for scan in (weft.scan, functools.partial(weft.checkpoint_scan, every=every)):
            torch.manual_seed(5)
            (last, count), ys = scan(step, (h, torch.zeros(2)), x, reverse=reverse)
            gradients = torch.autograd.grad(last.sum() + ys.square().sum(), (x, h, *cell.parameters()))
            results.append([last, count, ys, *gradients])
        # Gradients are sums of terms of up to `length` squared, in another order.
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-4)

    def test_without_xs(self) -> None:
        h = random(2, 3)
        ours = weft.checkpoint_scan(lambda h, _: (torch.sin(h), h), h, length=10)
        torch.testing.assert_close(ours, weft.scan(lambda h, _: (torch.sin(h), h), h, length=10))

    def test_memory_grows_with_the_root_of_the_length(self) -> None:
        """Compares by how much a process grows in the backward. Each function runs in a fresh process, since a process
        keeps memory."""
        script = """
import sys, torch, weft
cell, scan = torch.nn.GRUCell(32, 32), getattr(weft, sys.argv[1])
x, h = torch.randn(8192, 16, 32), torch.zeros(16, 32)
def train(x):
    scan(lambda h, x: (cell(x, h), None), h, x)[0].sum().backward()
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
train(x[:64])
before = peak()
train(x)
print(peak() - before)
"""
        grown = {}
        for name in ("scan", "checkpoint_scan"):
            run = subprocess.run(
                [warm_python.command(), "-c", script, name], capture_output=True, text=True, check=True
            )
            grown[name] = int(run.stdout)
        assert grown["checkpoint_scan"] * 5 < grown["scan"], grown

    def test_every_must_be_positive(self) -> None:
        with pytest.raises(ValueError, match="every must be a positive integer, but is 0"):
            weft.checkpoint_scan(lambda h, x: (h, x), torch.zeros(1), torch.zeros(2, 1), every=0)


class TestAssociativeScan:
    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("length", [1, 2, 9])
    def test_prefixes(self, length: int, reverse: bool) -> None:
        a, b = random(length, 3), random(length, 3)
        sums = weft.associative_scan(torch.add, a, reverse=reverse)
        expected = a.flip(0).cumsum(0).flip(0) if reverse else a.cumsum(0)
        torch.testing.assert_close(sums, expected)

        def linear(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
            return [left[0] * right[0], right[0] * left[1] + right[1]]

        h, wanted = torch.zeros(3), []
        for t in reversed(range(length)) if reverse else range(length):
            h = a[t] * h + b[t]
            wanted.append(h)
        states = torch.stack(wanted[::-1] if reverse else wanted)
        ours = weft.associative_scan(linear, [a, b], reverse=reverse)[1]
        torch.testing.assert_close(ours, states)
        gradients = [torch.autograd.grad(y.square().sum(), (a, b), allow_unused=True)[1] for y in (ours, states)]
        torch.testing.assert_close(*gradients)

    def test_of_matrices(self) -> None:
        m = random(6, 3, 3)
        products = weft.associative_scan(lambda p, q: q @ p, m)
        torch.testing.assert_close(products[-1], m[5] @ m[4] @ m[3] @ m[2] @ m[1] @ m[0])

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="there must be at least one element, but the length is 0"):
            weft.associative_scan(torch.add, torch.zeros(0, 2))
        with pytest.raises(ValueError, match=r"xs\['b'\]: float32\[3\] must have the leading dim of xs\['a'\]"):
            weft.associative_scan(lambda p, q: q, {"a": torch.zeros(2), "b": torch.zeros(3)})
        with pytest.raises(
            ValueError, match=r"combine must keep shapes and dtypes: xs: float32\[1,2\] in, float32\[1,4\] out"
        ):
            weft.associative_scan(lambda p, q: torch.cat([p, q], -1), torch.zeros(3, 2))


class TestJit:
    def test_a_loss_with_a_scan_and_parameters(self) -> None:
        cell, w = nn.GRUCell(3, 4), random(4, 2)

        def loss(x: Tensor, target: Tensor, *, scale: float = 1.0) -> dict[str, Any]:
            _, ys = weft.scan(lambda h, x: (cell(x, h),) * 2, torch.zeros(x.shape[1], 4), x)
            return {"loss": ((ys @ w - target) ** 2).mean() * scale, "steps": x.shape[0]}

        compiled = weft.jit(loss)
        weft.reset_stats()
        for length, batch, scale in [(5, 6, 1.0), (9, 6, 1.0), (9, 2, 2.0)]:
            x, target = random(length, batch, 3), torch.randn(length, batch, 2)
            ours, theirs = compiled(x, target, scale=scale), loss(x, target, scale=scale)
            assert ours["steps"] == length
            torch.testing.assert_close(ours, theirs)
            wanted = (x, w, *cell.parameters())
            gradients = [torch.autograd.grad(r["loss"], wanted) for r in (ours, theirs)]
            torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
        assert not [reason for reason in weft.stats()["fallbacks"] if "jit" in reason]

    def test_modules_and_randomness(self) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5))
        gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
        compiled = weft.jit(model)
        torch.manual_seed(0)
        ours = compiled(x)
        torch.manual_seed(0)
        torch.testing.assert_close(ours, model(x))
        torch.testing.assert_close(weft.jit(lambda x: gru(x)[0])(x), gru(x)[0])

    def test_constants_choose_the_program(self) -> None:
        @weft.jit
        def turned(x: Tensor, how: str) -> Tensor:
            return x.sin() if how == "sin" else x.cos()

        x = torch.randn(4)
        torch.testing.assert_close(turned(x, "sin"), x.sin())
        torch.testing.assert_close(turned(x, "cos"), x.cos())
        assert turned.__name__ == "turned"

    def test_errors(self) -> None:
        with pytest.raises(TypeError, match="takes a function, but got int"):
            weft.jit(3)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match=r"weft.jit: the function needs the value of a tensor"):
            weft.jit(lambda x: x + 1 if x.sum() > 0 else x)(torch.ones(2))


def test_views_in_inference_mode() -> None:
    """Views of tensors from before the mode have versions there, views of those of the mode have none."""
    before, init, xs = random(4, 4), random(2, 4), random(5, 2, 4)
    with torch.inference_mode():
        within = random(4, 4)

        def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            views = before.T + within.T + before[0] * within[1] + before.detach() + before.data + within.data
            low, high = (views + before.unsqueeze(0)[0]).chunk(2)
            parts = [*before.chunk(2), *within.split(2), torch.stack(before.unbind(1)), torch.stack([*within])]
            high = high + parts[0] * parts[1] - parts[2] + parts[3] + parts[4][:2] + parts[5][:2]
            carry = torch.tanh(x + carry @ torch.cat([high, low]))
            return carry, carry.T[0].clone()

        assert_same(step, init, xs)
        assert_same(step, torch.zeros(2, 4), xs.clone())


class Traced(nn.Module):
    """A cell in a loop, for torch.jit.trace."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run, self.linear = run, nn.Linear(4, 4)

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.linear(h) + x)
        return h, h

    def forward(self, h: Tensor, xs: Tensor) -> Any:
        return self.run(self.step, h, xs)


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize(
    "run",
    [
        weft.scan,
        functools.partial(weft.scan, reverse=True),
        lambda step, h, xs: weft.scan(step, h, xs.transpose(0, 1), dim=1),
        weft.checkpoint_scan,
        lambda step, h, xs: (h, weft.associative_scan(lambda a, b: a * b + step(a, b)[0], xs)),
    ],
)
def test_traces_hold_a_scan_of_any_length(run: Any, length: int) -> None:
    model, h = Traced(run), torch.randn(2, 4)
    traced = torch.jit.trace(model, (h, torch.randn(length, 2, 4)))
    for xs in torch.randn(5, 2, 4), torch.randn(1, 2, 4):
        ours, theirs = traced(h, xs), model(h, xs)
        torch.testing.assert_close(ours, theirs)
        if theirs[1].requires_grad:
            gradients = [torch.autograd.grad(results[1].sum(), [*model.parameters()]) for results in (ours, theirs)]
            torch.testing.assert_close(*gradients)


def test_a_trace_of_one_step_holds_a_scan_too() -> None:
    h, xs = torch.randn(2, 4), torch.randn(5, 2, 4)
    model = Traced(weft.scan)
    torch.testing.assert_close(torch.jit.trace(model, (h, xs[:1]))(h, xs), model(h, xs))
    with pytest.raises(ValueError, match="a trace of one element"):
        torch.jit.trace(lambda xs: weft.associative_scan(torch.add, xs), (xs[:1],))


def test_a_trace_holds_a_while_loop() -> None:
    def run(step: Any, h: Tensor, xs: Tensor) -> tuple[Tensor, ...]:
        return weft.while_loop(lambda c: c[0] < xs.sum(), lambda c: (c[0] + 1, step(c[1], xs)[0]), (torch.zeros(()), h))

    model, h, xs = Traced(run), torch.randn(2, 4), torch.ones(2, 4)
    traced = torch.jit.trace(model, (h, xs))
    for steps in 1, 3:
        torch.testing.assert_close(traced(h, xs * steps), model(h, xs * steps))


def test_changes_in_place_with_gradients() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h.mul_(0.9)
        h[:, 0] = x[:, 1]
        x.add_(1)
        return h * x, h

    def pure(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return step(h.clone(), x.clone())

    h, xs = random(3, 4), random(5, 3, 4)
    assert_same(pure, h, xs, h, xs)
    weft.reset_stats()
    torch.testing.assert_close(weft.scan(step, h, xs), loop(pure, h, xs))
    assert not weft.stats()["fallbacks"]


def test_a_step_left_to_pytorch_changes_copies() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h += x
        x[0] = nn.functional.gaussian_nll_loss(h, x, x.square())  # it looks at values
        return h, x

    h, xs = torch.randn(3, 4), torch.randn(5, 3, 4)
    before, steps = h.clone(), xs.clone()
    weft.reset_stats()
    last, ys = weft.scan(step, h, xs)
    assert any("looks at values" in reason for reason in weft.stats()["fallbacks"])
    assert torch.equal(h, before) and torch.equal(xs, steps)
    torch.testing.assert_close((last, ys), loop(lambda h, x: step(h.clone(), x.clone()), h, xs))
