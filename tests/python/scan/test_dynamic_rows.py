"""Rows from an index on that a tensor gives: caches that a step writes and reads, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import fallen_back, loop
from step_checks import assert_step, integers, numbers
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import weft

F64 = torch.float64


def attend(cache: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A cache [B, H, S, D] whose row p becomes the step's key, and attention over the rows up to it."""
    key, p = x
    cache = cache.index_copy(2, p.reshape(1), key.unsqueeze(2))
    scores = torch.einsum("bhd,bhsd->bhs", key, cache)
    scores = scores.masked_fill(torch.arange(cache.shape[2]) > p, -torch.inf)
    return cache, torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), cache)


def by_index(cache: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Writes and reads the same row by its index."""
    key, p = x
    cache = cache.clone()
    old = cache[:, :, p] * 1.5  # the row itself is a view, which shows what is written
    cache[:, :, p] = torch.tanh(old + key)
    return cache, cache[:, :, p - 1] * old


def by_range(cache: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Windows of three rows, the last of them counted from the end."""
    key, p = x
    cache = torch.cat([cache[:, :, 1:], key.unsqueeze(2)], 2)
    return cache, torch.narrow(cache, 2, p, 3).sum(2) + torch.narrow(cache, 2, p - cache.shape[2], 3).prod(2)


STEPS = {"attend": attend, "by_index": by_index, "by_range": by_range}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_static_cache(name: str, dtype: torch.dtype) -> None:
    places = torch.tensor([2, 0, 3, 1])
    cache, keys = numbers((2, 3, 6, 4), dtype), numbers((4, 2, 3, 4), dtype, seed=1)
    found = []
    weft.reset_stats()
    for how in (weft.scan, loop):
        leaves = [leaf.clone().requires_grad_() for leaf in (cache, keys)]
        last, ys = how(STEPS[name], leaves[0], (leaves[1], places))
        loss = (last.float() ** 2).sum() + ys.float().sin().sum()
        found.append([last.detach(), ys.detach(), *torch.autograd.grad(loss, leaves)])
    wide = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(*found, **wide)
    assert not fallen_back(), fallen_back()


@pytest.mark.parametrize("name", ["by_index", "by_range"])
def test_second_derivatives_of_a_static_cache(name: str) -> None:
    places = torch.tensor([2, 0])
    leaves = [numbers((1, 1, 5, 2)).requires_grad_(), numbers((2, 1, 1, 2), seed=1).requires_grad_()]

    def run(cache: Tensor, keys: Tensor) -> Any:
        return weft.scan(STEPS[name], cache, (keys, places))

    assert gradcheck(run, leaves) and gradgradcheck(run, leaves)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float64, torch.float16])
@pytest.mark.parametrize("size", [0, 1, 4])
def test_rows_of_any_type(dtype: torch.dtype, size: int) -> None:
    x = integers((4, 3)).to(dtype)
    for given in (x, x.t().contiguous().t(), x[:, :1].expand(4, 3)):
        assert_step(
            lambda x, p: (torch.narrow(x, 0, p, size), torch.narrow(x.t(), 1, -p, size)), given, torch.tensor(0)
        )
        if size == 1:
            assert_step(
                lambda x, p: (x[p], x[:, p - 2], x[..., p, None], x[1:, p], x[p, p], x.index_select(1, p.view(1))),
                given,
                torch.tensor(1, dtype=torch.int32),
            )


def _changed(x: Tensor, change: Callable[[Tensor], object]) -> Tensor:
    y = x.clone()
    change(y)
    return y * 2


CHANGES = {
    "row": lambda x, p: _changed(x, lambda y: y.__setitem__(p, x[0] * 3)),
    "column": lambda x, p: _changed(x, lambda y: y.__setitem__((slice(None), p), 7)),
    "from the end": lambda x, p: _changed(x, lambda y: y.__setitem__((..., p - 3), x[:, :1].t())),
    "part of a column": lambda x, p: _changed(x, lambda y: y.__setitem__((slice(1, None), p), x[1:, 0] * 3)),
    "element": lambda x, p: _changed(x, lambda y: y.__setitem__((p, 1), x[0, 0])),
    "two places": lambda x, p: _changed(x, lambda y: y.__setitem__((p, p), x[0, 0])),
    "index_copy": lambda x, p: _changed(x, lambda y: y.index_copy_(1, p.reshape(1), x[:, :1] * 3)),
    "index_put": lambda x, p: x.index_put((p.reshape(1),), x[0] * 2),
    "index_put of many dims": lambda x, p: x.index_put((torch.arange(4), p.reshape(1, 1)[0]), x[:, 0] * 2),
    "added to": lambda x, p: x.index_put((p.reshape(1),), x[0] * 2, accumulate=True),
    "read, then written": lambda x, p: _changed(x, lambda y: y.__setitem__(p, y[p] * 2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_at_a_place(name: str) -> None:
    for p in (0, 2):
        assert_step(CHANGES[name], numbers((4, 3)), torch.tensor(p))
        assert_step(CHANGES[name], numbers((3, 4)).t(), torch.tensor(p))


def test_ranges_are_slices() -> None:
    """Consecutive rows are one slice, whichever way they are asked for."""
    from weft._capture.trace import trace

    x, p = numbers((6, 5)), torch.tensor(1)
    for f in (
        lambda x, p: torch.narrow(x, 1, p, 2),
        lambda x, p: x.index_select(1, p + torch.arange(2)),
        lambda x, p: x[:, p],
        lambda x, p: x[:, p.reshape(1)],
    ):
        text = trace(f, (x, p), what="the step").program.text
        assert "dynamic_slice" in text and "gather" not in text, text
    for f in (
        lambda x, p: x.index_copy(1, p.reshape(1), x[:, :1]),
        lambda x, p: _changed(x, lambda y: y.__setitem__((slice(None), p), x[:, 0])),
    ):
        text = trace(f, (x, p), what="the step").program.text
        assert "dynamic_update" in text and "scatter" not in text, text


def test_places_out_of_range_are_errors() -> None:
    x, cache = numbers((3, 2)), numbers((5, 2))
    for step, bad, what in (
        (lambda c, x: (c * 2, torch.narrow(c, 0, x, 3)), (3, 5, -6), "dynamic_slice: start .*: 3 rows begin at 0..2"),
        (lambda c, x: (c * 2, c[x]), (5, -6), "dynamic_slice: start .* dimension 0 with size 5: 1 rows begin at 0..4"),
        (lambda c, x: (c, c[x]), (5, -6), "index .* is out of bounds for dimension 0 with size 5"),
        (lambda c, x: (c.index_copy(0, x[None], c[:1]), x), (5, -6), "dynamic_update: start .* is out of bounds"),
    ):
        weft.scan(step, cache, torch.tensor([0, 2, -5]))
        for place in bad:
            with pytest.raises(RuntimeError, match=what):
                weft.scan(step, cache, torch.tensor([0, place, 1]))
    with pytest.raises(RuntimeError, match="start must be an 0-dim integral Tensor"):
        weft.scan(lambda c, x: (c, torch.narrow(c, 0, x, 3)), cache, x)


def test_a_copy_that_would_show_is_left_to_pytorch() -> None:
    """The rows at a place are a view in PyTorch."""
    places = torch.tensor([0, 2, 1])

    def written(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        h = h * 2
        torch.narrow(h, 0, p, 2)[0].add_(1)
        return h, h

    def read_later(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        h = h * 2
        rows = h[p]
        h.mul_(3)
        return h, rows

    def read_later_inside(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        h = h * 2
        rows = torch.narrow(torch.narrow(h, 0, p, 3), 0, p - p, 2)
        h[0] = 1
        return h, rows * 2

    def read_before(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        h = h * 2
        rows = torch.narrow(h, 0, p, 2) * 3
        h.mul_(3)
        return h, rows

    for step, stays in ((written, False), (read_later, False), (read_later_inside, False), (read_before, True)):
        weft.reset_stats()
        h = numbers((6, 2))
        torch.testing.assert_close(
            weft.scan(step, h, places), loop(lambda c, x, step=step: step(c, x[0]), h, (places,))
        )
        assert stays == (not fallen_back()), (step, fallen_back())


def test_a_step_with_an_index_runs_once_a_call() -> None:
    runs = []

    def step(h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        runs.append(None)
        return h, h[p]

    h, places = numbers((6, 2)), torch.tensor([0, 2, 1])
    weft.scan(step, h, places)
    runs.clear()
    weft.scan(step, h, places)
    assert len(runs) == 1


def test_a_donated_cache_is_written_in_place() -> None:
    def write(cache: Tensor, row: Tensor, p: Tensor) -> Tensor:
        return cache.index_copy(1, p.reshape(1), row.unsqueeze(1))

    cache, row = numbers((2, 5, 3)), numbers((2, 3), seed=1)
    expected = cache.clone()
    expected[:, 3] = row
    with torch.no_grad():
        result = weft.jit(write, donate=0)(cache, row, torch.tensor(3))
    assert result.data_ptr() == cache.data_ptr()
    torch.testing.assert_close(result, expected)
