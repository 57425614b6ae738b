"""Reductions, scans along a dimension and matrix products in a step, held to eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as fn
from step_checks import assert_step, integers, numbers

REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.sum((0, 2)), x.sum(1)),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(-1, keepdim=True), x.mean((0, 2)), x.mean((1, 2))),
    "var": lambda x: (
        x.var(),
        x.var(0),
        x.var(-1, keepdim=True),
        x.var((0, 2), correction=0),
        x.var(1, unbiased=False),
    ),
    "std": lambda x: (x.std(), x.std(0), x.std(-1, keepdim=True), x.std((0, 2), correction=0)),
    "var_mean": lambda x: (*torch.var_mean(x, 2), *torch.std_mean(x, (0, 1), correction=0)),
    "max": lambda x: (*x.max(0), *x.max(-1, keepdim=True), *x.max(1), x.max()),
    "min": lambda x: (*x.min(0), *x.min(-1, keepdim=True), *x.min(1), x.min()),
    "argmax": lambda x: (x.argmax(), x.argmax(0), x.argmax(-1, keepdim=True), x.argmin(1), x.argmin()),
    "amax": lambda x: (x.amax(), x.amax(0), x.amax((0, 2)), x.amin(-1, keepdim=True), x.amin(1)),
    "aminmax": lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)),
    "prod": lambda x: (x.prod(0), x.prod(-1, keepdim=True), x.prod(1), x.prod()),
    "norm": lambda x: (x.norm(), x.norm(dim=0), x.norm(1, -1), x.norm(torch.inf, 1), x.norm(3, 1, keepdim=True)),
    "vector_norm": lambda x: (torch.linalg.vector_norm(x, dim=(0, 2)), torch.linalg.vector_norm(x, 0, dim=1)),
    "normalize": lambda x: (fn.normalize(x, dim=-1), fn.normalize(x, p=1, dim=0), fn.normalize(x, dim=1)),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp(-1, keepdim=True), x.logsumexp((0, 2)), x.logsumexp(1)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.softmax(1), fn.softmin(x, 1)),
    "log_softmax": lambda x: (x.log_softmax(-1), x.log_softmax(0), x.log_softmax(1)),
    "any": lambda x: (
        (x > 1).any(),
        (x > 1).any(0),
        (x > 1).all(-1),
        (x > -9).all(),
        (x > 0).any((0, 1)),
        x.bool().all(1),
    ),
    "count": lambda x: (x.count_nonzero(), x.count_nonzero(1), (x > 0).sum(), (x > 0).sum(-1), (x > 0).double().mean()),
    "cumsum": lambda x: (x.cumsum(2), x.cumsum(1), (x > 0).cumsum(-1)),
    "cumprod": lambda x: (x.cumprod(2), x.cumprod(1)),
    "logcumsumexp": lambda x: (x.logcumsumexp(2), x.logcumsumexp(1)),
    "cummax": lambda x: (*x.cummax(2), *x.cummin(1)),
    "nansum": lambda x: (x.nansum(), x.nansum(1), x.nanmean(2)),
    "cosine": lambda x: fn.cosine_similarity(x, x.flip(-1), dim=-1) + fn.pairwise_distance(x, x * 0.5),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    f = REDUCTIONS[name]
    for shape in [(4, 3, 5), (2, 1, 1), (3, 5, 17)]:
        assert_step(f, numbers(shape), rtol=1e-9, atol=1e-10)
    x = numbers((4, 3, 6)).float()
    assert_step(f, x, rtol=1e-4, atol=1e-5)
    assert_step(f, numbers((6, 3, 4)).transpose(0, 2), rtol=1e-9, atol=1e-10)
    ties = integers((4, 3, 5), -1, 2).double()
    if name not in ("prod", "cosine", "cummax", "cumprod"):
        assert_step(f, ties, rtol=1e-9, atol=1e-10)
    if name in ("max", "min", "argmax", "sum", "amax", "cummax", "prod", "any", "count", "cumsum"):
        assert_step(f, integers((4, 3, 5), -2, 3))
    if name in ("max", "min", "argmax", "amax", "cummax"):
        x = numbers((4, 3, 5))
        x[1, 1, 2] = x[1, 1, 4] = x[0, 2, 2] = torch.nan
        assert_step(f, x, gradients=False)


def test_reduction_of_nothing():
    empty = numbers((3, 0, 4))
    assert_step(lambda x: (x.sum(1), x.sum(), x.prod(1), x.any(1), x.all(1), x.sum(0), x.amax(0), x.mean(1)), empty)
    assert_step(lambda x: (x.logsumexp(0), x.softmax(0), x.cumsum(1), x.norm(dim=1)), empty)


def test_logsumexp_of_infinities():
    x = torch.tensor([[1.0, -torch.inf, 2.0], [-torch.inf] * 3, [torch.inf, 1.0, 2.0]])
    assert_step(lambda x: (x.logsumexp(1), x.logsumexp(0), torch.logaddexp(x[0], x[1])), x, gradients=False)
    assert_step(lambda x: (x.logsumexp(1), torch.logaddexp(x[:, 0], x[:, 2])), x[:1])


PRODUCTS = {
    "matmul": lambda a, b: (a @ b, a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0], (a @ b).mT @ a),
    "linear": lambda a, b: (fn.linear(a, b.t()), fn.linear(a, b.t(), b[0]), fn.linear(a[None], b.t())),
    "batched": lambda a, b: (
        torch.stack([a, a * 2]) @ torch.stack([b, b]),
        torch.stack([a, a]) @ b,
        torch.bmm(a[None], b[None]),
    ),
    "transposed": lambda a, b: (
        b.t() @ a.t(),
        a.t() @ a,
        a @ a.t(),
        torch.stack([a, a]).mT @ a,
        torch.stack([a, a]) @ a.t(),
    ),
    "einsum": lambda a, b: (
        torch.einsum("ij,jk->ik", a, b),
        torch.einsum("ij,jk->", a, b),
        torch.einsum("ij,ij->i", a, a),
        torch.einsum("bi,ij,bj->b", a, a.t() @ a, a),
        torch.einsum("ij,kj->ikj", a, a),
        torch.einsum("ii->i", a.t() @ a),
    ),
    "block diagonal": lambda a, b: torch.einsum("bhi,hij->bhj", a.view(-1, 2, 3), b.reshape(2, 3, -1)),
    "outer": lambda a, b: (
        torch.outer(a[0], b[0]),
        torch.dot(a[0], b[:, 0]),
        torch.inner(a, a),
        torch.tensordot(a, b, 1),
    ),
    "add": lambda a, b: (
        torch.addmm(a @ b, a, b, beta=0.5, alpha=2),
        torch.addmv(a[:, 0], a, b[:, 0]),
        torch.addr(a @ b, a[:, 0], b[0]),
        torch.baddbmm((a @ b)[None], a[None], b[None]),
        torch.addbmm(a @ b, a[None], b[None], beta=2),
    ),
    "bilinear": lambda a, b: fn.bilinear(a, a * 2, torch.stack([a.t() @ a, a.t() @ a + 1])),
    "cross": lambda a, b: torch.linalg.cross(a[:, :3], a[:, 3:]) + torch.cross(a[:, 3:], a[:, :3] * 2, dim=1),
    "attention": lambda a, b: fn.scaled_dot_product_attention(a[None, None], a[None, None] * 2, a[None, None] + 1),
    "causal attention": lambda a, b: fn.scaled_dot_product_attention(
        a[None, None], a[None, None], a[None, None] + 1, is_causal=True
    ),
    "chain": lambda a, b: torch.linalg.multi_dot([a, b, b.t()]),
    "power": lambda a, b: torch.linalg.matrix_power(a.t() @ a, 3),
    "distance": lambda a, b: ((a[:, None] - a[None]) ** 2).sum(-1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    f = PRODUCTS[name]
    assert_step(f, numbers((4, 6)), numbers((6, 8), seed=1), rtol=1e-9, atol=1e-10)
    assert_step(f, numbers((5, 6)).float(), numbers((6, 8), seed=1).float(), rtol=1e-4, atol=1e-4)
    assert_step(f, numbers((6, 3)).t().contiguous().t().reshape(3, 6), numbers((10, 6)).t(), rtol=1e-9, atol=1e-10)
