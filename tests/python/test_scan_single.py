"""weft.scan of one step, which PyTorch runs where that is little work, beside the loop that it means."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

X, H = torch.randn(1, 3, 4), torch.randn(3, 4)
BIAS = torch.randn(4)


def tanh(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(h * 0.9 + x + BIAS)
    return h, h * 2


def calls_of(step: Any, *arguments: Any, **options: Any) -> tuple[Any, int]:
    """What weft.scan returns at its second call, and how many programs that calls."""
    weft.scan(step, *arguments, **options)
    weft.reset_stats()
    return weft.scan(step, *arguments, **options), weft.stats()["calls"]


def test_little_work_is_pytorchs_to_the_bit() -> None:
    (last, ys), calls = calls_of(tanh, H, X)
    want, y = tanh(H, X[0])
    assert calls == 0 and torch.equal(last, want) and torch.equal(ys, y.unsqueeze(0))


@pytest.mark.parametrize("rows", [1, 600])
def test_much_work_is_a_programs(rows: int) -> None:
    cell = nn.Linear(512, 512)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(cell(h) + x)
        return h, h

    h, xs = torch.randn(rows, 512), torch.randn(1, rows, 512)
    (last, _), calls = calls_of(step, h, xs)
    assert calls == (rows > 1)  # a row reads the weights as they lie, whoever multiplies it
    torch.testing.assert_close(last, step(h, xs[0])[0])


def test_the_first_call_gives_the_same_bits() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.sigmoid(h * 0.7 - x)
        return h, h

    h, xs = torch.randn(3, 5).bfloat16(), torch.randn(1, 3, 5).bfloat16()
    first, second = weft.scan(step, h, xs), weft.scan(step, h, xs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("init", "xs", "options"),
    [
        (H, X, {"reverse": True}),
        (H, X.movedim(0, 1), {"dim": 1}),
        (H, X.movedim(0, -1), {"dim": -1}),
        (H.T.contiguous().T, X.transpose(1, 2).contiguous().transpose(1, 2), {}),
        (H[:0], X[:, :0], {}),
    ],
)
def test_layouts(init: Tensor, xs: Tensor, options: dict[str, Any]) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h.view(-1) + x.view(-1)).view(h.shape)
        return h, h

    (last, ys), calls = calls_of(step, init, xs, **options)
    dim = options.get("dim", 0)
    want = step(init.contiguous(), xs.select(dim, 0).contiguous())[0]
    assert calls == 0 and torch.equal(last, want) and torch.equal(ys, want.unsqueeze(dim))
    assert last.is_contiguous()


def test_trees_without_xs_and_none() -> None:
    def step(carry: dict[str, Any], x: None) -> tuple[dict[str, Any], Any]:
        return {"n": carry["n"] + 1, "none": None}, (carry["n"], None, 2.5)

    ((last, ys), calls) = calls_of(step, {"n": torch.tensor(3), "none": None}, length=1)
    assert calls == 0 and last == {"n": torch.tensor(4), "none": None}
    assert torch.equal(ys[0], torch.tensor([3])) and ys[1] is None and torch.equal(ys[2], torch.tensor([2.5]))


def test_gradients() -> None:
    cell = nn.GRUCell(3, 4).double()
    h, xs = torch.randn(2, 4).double().requires_grad_(), torch.randn(1, 2, 3).double().requires_grad_()

    def scan(h: Tensor, xs: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = weft.scan(lambda h, x: (cell(x, h),) * 2, h, xs)
        return last, ys

    assert torch.autograd.gradcheck(scan, (h, xs, *cell.parameters()))
    assert torch.autograd.gradgradcheck(scan, (h, xs))


def test_what_is_given_stays_and_what_is_returned_is_its_own() -> None:
    kept = torch.randn(3, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Any, Any]:
        h.add_(1)
        x.mul_(2)
        return (h, kept)[1], (x, kept)

    h, xs, before = H.clone(), X.clone(), kept.clone()
    (last, ys), calls = calls_of(step, h, xs)
    assert calls == 0 and torch.equal(h, H) and torch.equal(xs, X) and torch.equal(ys[0], 2 * X)
    for result in (last, *ys):
        result.zero_()
    assert torch.equal(kept, before)


def test_side_effects_are_refused() -> None:
    kept: list[Tensor] = []
    table = torch.ones(4)

    def keeps(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept.append(h + x)
        return h, x

    def changes(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        table.add_(1)
        return h + table, x

    def reads(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return (h if x.sum() > 0 else x), x

    for _ in range(2):
        with pytest.raises(RuntimeError, match="that it computes is kept"):
            weft.scan(keeps, H, X)
        with pytest.raises(RuntimeError, match="changes a captured tensor in place"):
            weft.scan(changes, H, X)
        with pytest.raises(RuntimeError, match="needs the value of a tensor"):
            weft.scan(reads, H, X)
    assert torch.equal(table, torch.ones(4))


def test_errors_say_where() -> None:
    with pytest.raises(ValueError, match="must keep the carry's shapes"):
        weft.scan(lambda h, x: (h[0], x), H, X)

    def fails(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if FAILING:
            raise KeyError("of the user")
        return h + x, x

    weft.scan(fails, H, X)
    FAILING.append(True)
    with pytest.raises(KeyError, match="of the user") as info:
        weft.scan(fails, H, X)
    assert any("carry float32[3,4], x float32[3,4]" in note for note in getattr(info.value, "__notes__", [str(info)]))


FAILING: list[bool] = []


def test_a_step_that_does_something_else_than_before() -> None:
    scale = [1.0]

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * scale[0] + x
        return h, h

    for scale[0] in (1.0, 2.0, -3.0):
        assert torch.equal(weft.scan(step, H, X)[0], H * scale[0] + X[0])


def test_random_numbers_are_the_loops() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = nn.functional.dropout(h + x, 0.5) + torch.rand_like(h)
        return h, h

    for _ in range(2):  # the first call records it, which draws nothing
        torch.manual_seed(5)
        ours = weft.scan(step, H, X)[0]
        after = torch.rand(3)
        torch.manual_seed(5)
        assert torch.equal(ours, step(H, X[0])[0]) and torch.equal(after, torch.rand(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    linear = nn.Linear(4, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(linear(h) + x)
        return h, h

    with torch.autocast("cpu", dtype):
        (last, ys), calls = calls_of(step, H, X)
        want = step(H, X[0])[0]
    assert calls == 0 and last.dtype == torch.float32
    assert torch.equal(last, want.float()) and torch.equal(ys[0], want)


def test_transforms() -> None:
    def one(h: Tensor, xs: Tensor) -> Tensor:
        return weft.scan(tanh, h, xs)[1].sum()

    for _ in range(2):
        many = torch.vmap(one, in_dims=(0, 1))(H, X)
        torch.testing.assert_close(many, torch.stack([one(h, x) for h, x in zip(H, X.unbind(1), strict=True)]))
        torch.testing.assert_close(torch.func.grad(one)(H, X), 2 * (1 - tanh(H, X[0])[0].square()) * 0.9)


def test_checkpointing_computes_it_again() -> None:
    h = H.clone().requires_grad_()

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h) * x
        return h, h

    again = torch.utils.checkpoint.checkpoint(lambda: weft.scan(step, h, X)[0].sum(), use_reentrant=False)
    (gradient,) = torch.autograd.grad(again, h)
    torch.testing.assert_close(gradient, (1 - torch.tanh(h).square()) * X[0])
