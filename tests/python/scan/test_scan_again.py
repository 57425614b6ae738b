"""Calls of weft.scan whose program was found before, which take a shorter way, compared with the plain loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import assert_trees_close
from torch import Tensor, nn

import weft
from weft._capture import programs
from weft._control.scan_call import Call

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.python_loop import python_loop

H = torch.randn(3, 4)
BIAS = torch.randn(4)


def xs_of(length: int, *sizes: int) -> Tensor:
    return torch.randn(length, *(sizes or (3, 4)))


def tanh(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(h * 0.9 + x + BIAS)
    return h, h * 2


@contextmanager
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Records which calls within took the longer way."""
    longer: list[str] = []
    of = Call.of.__func__  # type: ignore[attr-defined]

    def noted(cls: Any, what: str, *arguments: Any, **options: Any) -> Any:
        longer.append(what)
        return of(cls, what, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Call, "of", classmethod(noted))
        yield longer


def pair(carry: Any, x: Any) -> Any:
    h, (c, n) = carry
    c = torch.sigmoid(c + x["a"]) * x["b"][0]
    return (h + c, [c, n + 1]), {"y": (c, None), "": [h]}


def by_number(carry: Any, x: Tensor) -> Any:
    return {1: carry[1] * x}, x


def counted(n: Tensor, x: None) -> Any:
    return n + 1, n.float() * 0.5


TREES = {
    "tensors": (tanh, H, xs_of),
    "nested": (pair, (H, [H + 1, torch.tensor(3)]), lambda n: {"a": xs_of(n), "b": (xs_of(n),)}),
    "no_y": (lambda h, x: (h + x, None), H, xs_of),
    "empty": (lambda h, x: ((), torch.sin(x)), (), xs_of),
    "integers": (lambda n, x: ([n[0] + x.sum()], n[0]), [torch.tensor(2)], lambda n: torch.arange(3 * n).view(n, 3)),
    "halves": (lambda h, x: (torch.sigmoid(h) * x, h), H.bfloat16(), lambda n: xs_of(n).bfloat16()),
    "no_rows": (tanh, H[:0], lambda n: xs_of(n, 0, 4)),
    "strided": (tanh, H.T.contiguous().T, lambda n: torch.randn(4, 3, n).permute(2, 1, 0)),
    "outside": (lambda h, x: (h * BIAS, BIAS), H, xs_of),
}


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", TREES)
def test_trees(name: str, length: int, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    step, init, make = TREES[name]
    weft.scan(step, init, make(length), reverse=reverse)
    xs = make(length)
    with ways(monkeypatch) as longer:
        found = weft.scan(step, init, xs, reverse=reverse)
    assert not longer
    assert_trees_close(found, python_loop(step, init, xs, reverse=reverse))


def test_dicts_are_their_names_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(carry: Any, x: Tensor) -> Any:
        after = {"}": carry["}"] * x, "2:é": carry["2:é"] + 1}
        return dict(reversed(after.items())) if turned else after, ()

    init, xs, turned = {"}": H, "2:é": H + 1}, xs_of(4), False
    weft.scan(step, init, xs)
    with ways(monkeypatch) as longer:
        assert_trees_close(weft.scan(step, init, xs), python_loop(step, init, xs))
    assert not longer
    turned = True  # its keys say which leaf is which
    for _ in range(2):
        found, _ = weft.scan(step, init, xs)
        expected = python_loop(step, init, xs)[0]
        assert list(found) == list(init)
        assert_trees_close(found, {name: expected[name] for name in init})
    other = {1: H}
    for _ in range(2):
        assert_trees_close(weft.scan(by_number, other, xs), python_loop(by_number, other, xs))


def test_trees_of_many_levels() -> None:
    def deep(carry: Any, x: Tensor) -> Any:
        return carry, [carry, x]

    init: Any = H
    for _ in range(40):
        init = [init]
        weft.scan(deep, init, xs_of(2))
    last, _ = weft.scan(deep, init, xs_of(2))
    assert_trees_close(last, init)
    weft.scan(tanh, H, xs_of(2))
    endless: Any = [H]
    endless.append(endless)
    with pytest.raises(RecursionError):
        weft.scan(tanh, endless, xs_of(2))


def test_without_xs(monkeypatch: pytest.MonkeyPatch) -> None:
    start = torch.tensor([1, 2])
    for length in (3, 1, 4):
        last, ys = weft.scan(counted, start, length=length)
        want = torch.stack([(start + t).float() * 0.5 for t in range(length)])
        assert torch.equal(last, start + length) and torch.equal(ys, want)
    with ways(monkeypatch) as longer:
        weft.scan(counted, start, length=7)
    assert not longer
    with pytest.raises(ValueError, match="at least one step"):
        weft.scan(counted, start, length=0)
    with pytest.raises(ValueError, match="length must say how many"):
        weft.scan(counted, start)
    with pytest.raises(ValueError, match="has 5 steps, but length is 4"):
        weft.scan(tanh, H, xs_of(5), 4)


def test_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = nn.GRUCell(3, 4).double()

    def scan(h: Tensor, xs: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = weft.scan(lambda h, x: (cell(x, h),) * 2, h, xs)
        return last, ys

    for length in (1, 3):
        h, xs = torch.randn(2, 4).double().requires_grad_(), torch.randn(length, 2, 3).double().requires_grad_()
        scan(h, xs)
        with ways(monkeypatch) as longer:
            assert torch.autograd.gradcheck(scan, (h, xs, *cell.parameters()))
            assert torch.autograd.gradgradcheck(scan, (h, xs))
            with torch.no_grad():
                assert not scan(h, xs)[0].requires_grad
        assert len(longer) < 3  # once for each kind of gradient and each grad mode


class Doubled(torch.autograd.Function):
    """A Function whose derivative isn't that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 7 * gradient


def test_derivatives_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h + x, Doubled.apply(x)

    xs = xs_of(3).requires_grad_()
    weft.scan(step, H, xs)
    with ways(monkeypatch) as longer:
        _, ys = weft.scan(step, H, xs)
    (gradient,) = torch.autograd.grad(ys.sum(), xs)
    assert not longer and torch.equal(ys, 2 * xs) and torch.equal(gradient, torch.full_like(xs, 7))


def test_the_step_runs_once_a_call() -> None:
    """This holds for all ways of a call: with a known program, with a new one, and with one for new numbers."""
    runs: list[int] = []
    scale = [1.0]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        runs.append(1)
        h = h * scale[0] + x
        return h, (h, None) if scale[0] > 5 else h

    xs = xs_of(2)
    for rows, number in ((3, 1.0), (3, 1.0), (3, 2.0), (3, 3.0), (2, 3.0), (1, 3.0), (1, 8.0), (1, 8.0), (3, 1.0)):
        scale[0] = number
        before = len(runs)
        found = weft.scan(step, H[:rows], xs[:, :rows])
        if before > 1:  # a new step is run at other sizes too
            assert 1 <= len(runs) - before <= 4
        assert_trees_close(found, python_loop(step, H[:rows], xs[:, :rows]))
    before = len(runs)
    weft.scan(step, H, xs)
    assert len(runs) == before + 1


def test_a_step_that_does_something_else_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [BIAS, torch.randn(3, 4), torch.randn(4, 4)]
    ways_to = [
        lambda h, x: h + x,
        lambda h, x: h - x,
        lambda h, x: h + 2 * x,
        lambda h, x: h + x.flip(0),
        lambda h, x: h * weights[0] + x,
        lambda h, x: h * weights[1] + x,
        lambda h, x: h @ weights[2] + x,
        lambda h, x: 0.5 * h.detach() + h * x,
    ]
    which = [0]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = ways_to[which[0]](h, x)
        return h, torch.relu(h)

    h, xs = H.clone().requires_grad_(), xs_of(3)
    weights[1].requires_grad_()
    for which[0] in [*range(len(ways_to)), 3, 1, *range(len(ways_to))]:
        found = weft.scan(step, h, xs)
        assert_trees_close(found, python_loop(step, h, xs))
        assert_trees_close(
            torch.autograd.grad(found[0].sum(), h), torch.autograd.grad(python_loop(step, h, xs)[0].sum(), h)
        )
    which[0] = 4
    for change in (lambda: weights[0].add_(1), lambda: weights.__setitem__(0, torch.zeros(4))):
        change()
        with ways(monkeypatch) as longer:
            assert_trees_close(weft.scan(step, h, xs), python_loop(step, h, xs))
        assert not longer


def test_numbers_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = [0.0]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * scale[0] + x
        return h, h

    xs = xs_of(2)
    for scale[0] in (1.5, 2.5, 3.5):
        assert_trees_close(weft.scan(step, H, xs), python_loop(step, H, xs))
    with ways(monkeypatch) as longer:
        for scale[0] in (-1.0, float("inf"), 0.1):
            assert_trees_close(weft.scan(step, H, xs), python_loop(step, H, xs))
    assert not longer


def test_what_is_given_stays_and_what_is_returned_is_its_own() -> None:
    kept = torch.randn(3, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Any, Any]:
        h.add_(1)
        x.mul_(2)
        return kept, (x, kept)

    h, xs, before = H.clone(), xs_of(1), kept.clone()
    given = xs.clone()
    for _ in range(3):
        last, ys = weft.scan(step, h, xs)
        assert torch.equal(h, H) and torch.equal(xs, given) and torch.equal(ys[0], 2 * given)
        for result in (last, *ys):
            result.zero_()
        assert torch.equal(kept, before)


@pytest.mark.parametrize("begins", [0, 2])
def test_side_effects_are_refused_also_when_they_begin_later(begins: int) -> None:
    kept: list[Tensor] = []
    table = torch.ones(4)
    variable = 0
    calls = [0]

    def keeps(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if calls[0] >= begins:
            kept.append(h + x)
        return h, x

    def changes(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if calls[0] >= begins:
            table.add_(1)
        return h + table, x

    def rebinds(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal variable
        if calls[0] >= begins:
            variable += 1
        return h + x, x

    def reads(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return (h if calls[0] >= begins and x.sum() > 0 else x), x

    messages = ("that it computes is kept", "changes a captured tensor", "changes a variable", "needs the value")
    for calls[0] in range(begins + 12):  # for longer than the shorter way is tried
        for step, message in zip((keeps, changes, rebinds, reads), messages, strict=True):
            if calls[0] < begins:
                weft.scan(step, H, xs_of(2))
            else:
                with pytest.raises(RuntimeError, match=message):
                    weft.scan(step, H, xs_of(2))
            kept.clear()
    assert torch.equal(table, torch.ones(4))


def test_errors_say_where_also_when_they_begin_later() -> None:
    failing: list[BaseException] = []

    def fails(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if failing:
            raise failing[0]
        return h + x, x

    shapes: list[Any] = [lambda h, x: (h, x)]

    def step(h: Tensor, x: Tensor) -> Any:
        return shapes[0](h, x)

    xs = xs_of(2)
    for _ in range(2):
        weft.scan(fails, H, xs)
        weft.scan(step, H, xs)
    failing.append(KeyError("of the user"))
    for _ in range(12):
        with pytest.raises(KeyError, match="of the user") as info:
            weft.scan(fails, H, xs)
        notes = getattr(info.value, "__notes__", [str(info)])
        assert any("carry float32[3,4], x float32[3,4]" in note for note in notes)
    for failing[0] in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(failing[0])):
            weft.scan(fails, H, xs)
    failing.clear()
    assert_trees_close(weft.scan(fails, H, xs), python_loop(fails, H, xs))
    for shapes[0], error, message in (
        (lambda h, x: (h[0], x), ValueError, "must keep the carry's shapes"),
        (lambda h, x: ((h,), x), ValueError, "structure that it got"),
        (lambda h, x: (h.double(), x), ValueError, "dtypes"),
        (lambda h, x: h, TypeError, "must return"),
        (lambda h, x: (h, "text"), TypeError, "must be a tensor"),
    ):
        with pytest.raises(error, match=message):
            weft.scan(step, H, xs)


def test_arguments_that_are_wrong() -> None:
    weft.scan(tanh, H, xs_of(2))
    for arguments, error, message in (
        ((H, [xs_of(2), xs_of(3)]), ValueError, "steps, but"),
        ((H, torch.tensor(1.0)), ValueError, "has no dims"),
        ((H, xs_of(2)[:0]), ValueError, "at least one step"),
        (("h", xs_of(2)), TypeError, "must be a tensor"),
        ((H, xs_of(2), 2.0), TypeError, "length must be an integer"),
        ((H, xs_of(2), 2**70), ValueError, "has 2 steps, but length is"),
        ((H, xs_of(2), None, 1), TypeError, "reverse must be True or False"),
    ):
        with pytest.raises(error, match=message):
            weft.scan(tanh, *arguments)  # type: ignore[arg-type]


def test_random_numbers_are_the_loops() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = nn.functional.dropout(h + x, 0.5) + torch.rand_like(h)
        return h, h

    xs = xs_of(2)
    for _ in range(3):
        torch.manual_seed(5)
        ours = weft.scan(step, H, xs)
        after = torch.rand(3)
        torch.manual_seed(5)
        assert_trees_close(ours, python_loop(step, H, xs))
        assert torch.equal(after, torch.rand(3))


class Counts(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_whoever_watches_sees_one_call() -> None:
    xs = xs_of(3)
    want = python_loop(tanh, H, xs)
    weft.scan(tanh, H, xs)
    with Counts() as mode:
        assert_trees_close(weft.scan(tanh, H, xs), want)
    assert mode.names.count("weft.call.default") == 1 and "aten.tanh.default" not in mode.names
    with torch.device("cpu"):
        assert_trees_close(weft.scan(tanh, H, xs), want)
    with weft.disabled():
        weft.reset_stats()
        assert_trees_close(weft.scan(tanh, H, xs), want)
        assert weft.stats()["calls"] == 0
    traced = torch.jit.trace(lambda h, xs: weft.scan(tanh, h, xs)[1], (H, xs), check_trace=False)
    assert_trees_close(traced(H, xs), want[1])
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda h, xs: weft.scan(tanh, h, xs)[1])(H, xs)
    assert "weft" in str(graph.graph)
    many = torch.vmap(lambda h, x: weft.scan(tanh, h, x)[1], in_dims=(0, 1))(H, xs)
    assert_trees_close(many.movedim(0, 1), want[1])
    linear = nn.Linear(4, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(linear(h) + x)
        return h, h

    for dtype in (torch.bfloat16, torch.float16, None):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            for _ in range(2):
                last = weft.scan(step, H, xs)[0]
                assert last.dtype == torch.float32
                tolerance = 2e-2 if dtype else 1e-5
                torch.testing.assert_close(last, python_loop(step, H, xs)[0], atol=tolerance, rtol=tolerance)


def test_scans_in_steps_and_forgotten_ones() -> None:
    """A step may cause programs to be forgotten, its own among them."""

    def inner(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.sin(h + x)
        return h, h

    def outer(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return weft.scan(inner, h, torch.stack([x, x + 1]))

    def plain(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return python_loop(inner, h, torch.stack([x, x + 1]))

    def forgets(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        programs.table.clear()
        return inner(h, x)

    xs = xs_of(3)
    for _ in range(3):
        assert_trees_close(weft.scan(outer, H, xs), python_loop(plain, H, xs))
        assert_trees_close(weft.scan(forgets, H, xs), python_loop(inner, H, xs))


def test_checkpointing_computes_it_again() -> None:
    h, xs = H.clone().requires_grad_(), xs_of(2)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h) * x
        return h, h

    for _ in range(2):
        again = torch.utils.checkpoint.checkpoint(lambda: weft.scan(step, h, xs)[0].sum(), use_reentrant=False)
        assert_trees_close(torch.autograd.grad(again, h), torch.autograd.grad(python_loop(step, h, xs)[0].sum(), h))


def test_steps_that_are_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(self.linear(h) + x)
            return h, h

    xs, cells = xs_of(2), [Cell(), Cell()]
    steps: list[Callable[..., Any]] = [*cells, *(cell.forward for cell in cells), Doer(2.0).step, Doer(3.0).step]
    for step in steps * 3:
        assert_trees_close(weft.scan(step, H, xs), python_loop(step, H, xs))
    with ways(monkeypatch) as longer:
        for step in steps:
            weft.scan(step, H, xs)
    assert not longer


class Doer:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def step(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * self.scale - x
        return h, h


def test_threads_that_scan_at_once() -> None:
    xs = [xs_of(n) for n in (1, 2, 5)]
    want = [python_loop(tanh, H, x) for x in xs]
    wrong: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for i in range(first, first + 200):
                assert_trees_close(weft.scan(tanh, H, xs[i % 3]), want[i % 3])
                if i % 50 == 0:
                    programs.table.clear()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_kept_is_bounded() -> None:
    """Of steps whose code is new at each call, as an exec makes it, few are kept."""
    import gc
    import weakref

    first: Any = None
    for i in range(600):
        scope: dict[str, Any] = {}
        exec(f"def step(h, x):\n    return h + x, h * {i % 3}", scope)
        weft.scan(scope["step"], H, xs_of(1))
        first = first or weakref.ref(scope["step"])
    gc.collect()
    assert first() is None


def test_scans_of_the_devices_tensors_take_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their gradients; tensors of several devices and the device's autocast don't."""
    scale = torch.rand(4, device="weft", requires_grad=True)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h * scale + x)
        return h, h

    h0, xs = H.to("weft"), xs_of(5).to("weft")
    weft.scan(step, h0, xs)
    for length in (5, 5, 7):
        xs = xs_of(length)
        with ways(monkeypatch) as longer:
            last, ys = weft.scan(step, h0, xs.to("weft"))
            (gradient,) = torch.autograd.grad(ys.sum(), scale)
        assert not longer and last.device.type == ys.device.type == "weft"
        on_cpu = scale.detach().cpu().requires_grad_()
        _, expected = python_loop(lambda h, x, s=on_cpu: ((h := torch.tanh(h * s + x)), h), H, xs)
        (wanted,) = torch.autograd.grad(expected.sum(), on_cpu)
        torch.testing.assert_close(ys.detach().cpu(), expected.detach())
        torch.testing.assert_close(gradient.cpu(), wanted)
    with ways(monkeypatch) as longer:
        weft.scan(step, H, xs.to("weft"))
        with torch.autocast("weft", torch.bfloat16):
            weft.scan(step, h0, xs.to("weft"))
    assert len(longer) == 2
