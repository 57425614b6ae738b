"""Operations in a step that once went wrong, or were refused for no reason: numbers, gradients, and messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as fn
from oracles import fallen_back, loop
from torch import Tensor

import weft

F64 = torch.float64


def assert_like_the_loop(f: Callable[..., Tensor], x: Tensor, *others: Tensor, loops: bool = False) -> None:
    """f(x, *others) in a step, with the others from outside; with `loops` it may be left to PyTorch, for a reason in
    words."""
    found = []
    for how in (weft.scan, loop):
        xs = torch.stack([x, x * 0.5, x * 0.25]).detach()
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in (xs, torch.ones((), dtype=F64), *others)]
        xs, h, *outside = leaves

        def step(h: Tensor, x: Tensor, outside: list[Tensor] = outside) -> tuple[Tensor, Tensor]:
            return h * 0.5, f(x, *outside) * h

        last, ys = how(step, h, xs)
        wanted = [t for t in leaves if t.requires_grad]
        weights = torch.linspace(0.5, 2, ys.numel(), dtype=F64).reshape(ys.shape)
        gradients = torch.autograd.grad((ys * weights).sum() + last, wanted, allow_unused=True)
        found.append([ys, *(torch.zeros(()) if g is None else g for g in gradients)])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want.expand(got.shape).to(got.dtype), equal_nan=True)
    reasons = fallen_back()
    assert loops == bool(reasons), reasons
    assert all(reason.split(": ", 1)[-1].strip() for reason in reasons)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=F64)


def test_an_index_that_fills_twice_counts_once() -> None:
    twice = torch.tensor([1, 3, 1, 0, 1])
    for value in (torch.tensor(2.0, dtype=F64), torch.tensor(-1.5, dtype=F64)):
        assert_like_the_loop(lambda x, v: x.index_fill(1, twice, v), numbers(3, 4), value)
        assert_like_the_loop(lambda x, v: x.index_fill(0, twice.clamp(0, 1), v), numbers(3, 4), value)
    assert_like_the_loop(lambda x: x.index_fill(1, twice, 3.0), numbers(3, 4))
    assert_like_the_loop(lambda x: x.index_fill(0, torch.tensor([], dtype=torch.int64), 3.0), numbers(3))
    assert_like_the_loop(lambda x: x.sum().index_fill(0, torch.tensor([0, 0]), 3.0), numbers(3))


def test_an_index_that_copies_twice() -> None:
    """The last copy decides which one stays; PyTorch's derivative covers all of them."""
    twice = torch.tensor([1, 3, 1])
    assert_like_the_loop(lambda x, y: x.index_copy(1, twice, y), numbers(3, 4), numbers(3, 3))


def test_a_fill_out_of_range_is_an_error() -> None:
    def step(h: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        return h.index_fill(0, i, 1.0), h

    weft.scan(step, torch.zeros(3), torch.tensor([[0], [-3], [2]]))
    for bad in (3, -4):
        with pytest.raises((RuntimeError, IndexError), match="out of"):
            weft.scan(step, torch.zeros(3), torch.tensor([[0], [bad], [2]]))


def test_log_ndtr_far_to_the_left() -> None:
    x = torch.tensor([-60.0, -20.0, -5.5, -1.0, 0.0, 0.99, 1.0, 1.01, 5.0, 9.0, 40.0], dtype=F64)
    assert_like_the_loop(torch.special.log_ndtr, x)


@pytest.mark.parametrize("order", [-3.5, -1, -0.5, 0.5, 1, 1.5, 2, 3.5])
def test_a_norm_by_an_element_that_is_zero(order: float) -> None:
    x = torch.tensor([[0.0, -2.0, 0.5], [1.0, 3.0, -0.5], [0.0, 0.0, 0.0]], dtype=F64)
    assert_like_the_loop(lambda x: torch.linalg.vector_norm(x, order, 1), x)


def test_the_median_of_what_a_mask_leaves() -> None:
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert_like_the_loop(lambda x: torch.masked.median(x, 1, mask=mask), numbers(2, 3))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_tensor_from_outside(layout: str) -> None:
    matrix = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.0, 3.0]], dtype=F64)
    sparse = matrix.to_sparse() if layout == "coo" else matrix.to_sparse_csr()
    h, xs = torch.ones(3, 2, dtype=F64), numbers(4, 3, 2)
    for step in (
        lambda h, x: (torch.tanh(sparse @ h + x), h),
        lambda h, x: (torch.tanh(torch.sparse.mm(sparse, h) + x), h),
        lambda h, x: (torch.tanh(sparse.to_dense() @ h + x), h),
    ):
        weft.reset_stats()
        torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))
        assert any("layout" in reason or "strided" in reason for reason in fallen_back()), fallen_back()


@pytest.mark.parametrize("gradients", [False, True])
def test_where_a_tensor_lies_in_memory(gradients: bool) -> None:
    """as_strided reads beside its tensor; without gradients and with them it is PyTorch that does it."""
    base = numbers(3, 12)
    for f in (
        lambda x: x.as_strided((2, 3), (3, 1), 2),
        lambda x: x.as_strided((2, 3), (1, 2)),
        lambda x: torch.as_strided_copy(x, (2, 3), (3, 1), 1),
        lambda x: (x * 2).as_strided((2,), (2,), 1),
    ):
        found = []
        for how in (weft.scan, loop):
            xs = base.clone().requires_grad_(gradients)

            def step(h: Tensor, x: Tensor, f: Any = f) -> tuple[Tensor, Tensor]:
                return h * 0.5, f(x) * h

            ys = how(step, torch.ones((), dtype=F64), xs)[1]
            found.append([ys.detach()] + ([torch.autograd.grad(ys.sum(), xs)[0]] if gradients else []))
        torch.testing.assert_close(*found)
        assert any("as_strided" in reason for reason in fallen_back()), fallen_back()


WITHOUT_A_LOOK = {
    "cov": lambda x: torch.cov(x),
    "cov of a row": lambda x: torch.cov(x[0]),
    "cov correction": lambda x: torch.cov(x, correction=0),
    "corrcoef": lambda x: torch.corrcoef(x),
    "take": lambda x: torch.take(x, torch.tensor([0, 5, -1])),
    "narrow": lambda x: torch.narrow(x, 1, torch.tensor(2), 3),
    "narrow from the end": lambda x: torch.narrow(x, 1, torch.tensor(-2), 2),
    "tensor_split": lambda x: torch.tensor_split(x, torch.tensor([1, 4]), 1)[1],
    "tensor_split in": lambda x: torch.tensor_split(x, torch.tensor(2), 1)[1],
    "quantile": lambda x: torch.quantile(x, 0.3, 1),
    "quantiles": lambda x: torch.quantile(x, torch.tensor([0.25, 0.9], dtype=F64), 0),
    "nanquantile": lambda x: torch.nanquantile(x, 0.3, 1),
    "pad circular": lambda x: fn.pad(x[None], (1, 2), mode="circular"),
    "cosine_embedding_loss": lambda x: fn.cosine_embedding_loss(x, x.flip(1), torch.tensor([1.0, -1.0, 1.0])),
    "hinge_embedding_loss": lambda x: fn.hinge_embedding_loss(x, torch.ones_like(x)),
    "complex": lambda x: torch.complex(x, x * 2).abs(),
    "polar": lambda x: torch.polar(x.abs(), x).real,
}


@pytest.mark.parametrize("name", WITHOUT_A_LOOK)
def test_no_value_is_needed(name: str) -> None:
    assert_like_the_loop(WITHOUT_A_LOOK[name], numbers(3, 6))


LEFT_TO_PYTORCH = {
    "weighted cov": lambda x: torch.cov(x, aweights=x[0].abs()),
    "gaussian_nll_loss": lambda x: fn.gaussian_nll_loss(x, x * 2, x.abs() + 1),
    "stft of another type": lambda x: torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True).abs(),
}


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_left_to_pytorch(name: str) -> None:
    assert_like_the_loop(LEFT_TO_PYTORCH[name], numbers(3, 6), loops=True)


def test_spectra() -> None:
    window = torch.rand(4, dtype=F64) + 0.5
    assert_like_the_loop(lambda x: torch.stft(x, 4, 2, window=window, return_complex=True).abs(), numbers(3, 6))
    assert_like_the_loop(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2j, n=6), numbers(3, 6))
    assert_like_the_loop(lambda x: torch.fft.fft2(x).real, numbers(3, 6))


def test_sizes_and_places_by_a_tensor_of_the_sequence() -> None:
    """PyTorch reads them, not the user: a loop, and a view that may be written to."""
    h, starts = numbers(6), torch.tensor([0, 2, -4])

    def narrow(h: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        h = h * 2
        torch.narrow(h, 0, start, 3).add_(1)
        return h, h

    def split(h: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        return h * 2, torch.tensor_split(h, count)[0].sum()

    for step, xs in ((narrow, starts), (split, torch.tensor([1, 2, 3]))):
        weft.reset_stats()
        torch.testing.assert_close(weft.scan(step, h, xs), loop(step, h, xs))
        assert any("depends on values" in r or "depend on values" in r for r in fallen_back()), fallen_back()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_numbers_that_the_loop_draws(dtype: torch.dtype) -> None:
    chance = torch.linspace(0, 1, 40).to(dtype).requires_grad_()
    for f in (
        torch.bernoulli,
        lambda p: torch.normal(p, p),
        lambda p: torch.normal(p, 2.0),
        lambda p: torch.normal(0.5, p),
    ):
        found = []
        for how in (weft.scan, loop):
            torch.manual_seed(3)

            def step(h: Tensor, x: Tensor, f: Any = f) -> tuple[Tensor, Tensor]:
                return h * 0.5, f(chance) * x

            ys = how(step, torch.ones(()), torch.ones(3, 1, dtype=dtype))[1]
            found.append([ys.detach(), torch.autograd.grad(ys.sum(), chance)[0], torch.rand(1)])
        torch.testing.assert_close(*found)
    assert not fallen_back()
