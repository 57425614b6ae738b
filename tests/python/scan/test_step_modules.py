"""PyTorch's modules in a step, and half precision, held to eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as fn
from step_checks import assert_step, call, close, numbers, run
from torch import nn

MODULES = {
    "LayerNorm": lambda: nn.LayerNorm(6),
    "LayerNorm over two": lambda: nn.LayerNorm((3, 6)),
    "LayerNorm without": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "RMSNorm": lambda: nn.RMSNorm(6),
    "GroupNorm": lambda: nn.GroupNorm(3, 3),
    "GroupNorm of one": lambda: nn.GroupNorm(1, 3),
    "InstanceNorm": lambda: nn.InstanceNorm1d(3),
    "BatchNorm eval": lambda: nn.BatchNorm1d(3).eval(),
    "Linear": lambda: nn.Linear(6, 4),
    "Bilinear": lambda: _Twice(nn.Bilinear(6, 6, 2)),
    "PReLU": lambda: nn.PReLU(3),
    "PReLU of one": lambda: nn.PReLU(),
    "Softmax": lambda: nn.Softmax(-1),
    "GLU": lambda: nn.GLU(),
    "MultiheadAttention": lambda: _Attention(nn.MultiheadAttention(6, 2, batch_first=True)),
    # Views its result in the layout that PyTorch's kernel gives, not in one that a decomposition happens to give.
    "MultiheadAttention without weights": lambda: _Attention(
        nn.MultiheadAttention(6, 2, batch_first=True), need_weights=False
    ),
    "Sequential": lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 6)),
    "GRUCell": lambda: _Rows(nn.GRUCell(6, 5)),
    "LSTMCell": lambda: _Rows(nn.LSTMCell(6, 5)),
    "RNNCell": lambda: _Rows(nn.RNNCell(6, 5)),
    "CosineSimilarity": lambda: _Twice(nn.CosineSimilarity(-1)),
}


class _Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x * 2)


class _Attention(nn.Module):
    def __init__(self, inner, need_weights=True):
        super().__init__()
        self.inner = inner
        self.need_weights = need_weights

    def forward(self, x):
        return self.inner(x[:, :2], x, x, need_weights=self.need_weights)[: 1 + self.need_weights]


class _Rows(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x[:, 0])


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    """With its parameters taken from outside, as a step does; their gradients too."""
    module = MODULES[name]().double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    for shape in [(4, 3, 6), (2, 3, 6)]:
        assert_step(module, numbers(shape), rtol=1e-8, atol=1e-9)
    if not list(module.parameters()):
        return
    x = numbers((4, 3, 6))
    want = torch.autograd.grad(_loss(call(module, (x,))), list(module.parameters()), allow_unused=True)
    got = torch.autograd.grad(_loss(run(module, (x,))), list(module.parameters()), allow_unused=True)
    for a, b in zip(got, want, strict=True):
        if b is not None:
            close(a, b, 1e-8, 1e-9)


def _loss(results):
    return sum((r.double() * torch.arange(r.numel()).reshape(r.shape).sin()).sum() for r in results) + sum(
        r.sum() * 0 for r in results if not r.requires_grad
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    x, w = numbers((4, 6)).to(dtype), (numbers((6, 6), seed=1) / 3).to(dtype)
    for f in [
        lambda x, w: torch.tanh(x @ w + x),
        lambda x, w: fn.layer_norm(x, (6,)) * w[0],
        lambda x, w: (x.softmax(-1), x.logsumexp(-1), x.mean(0), x.sum(), x.amax(1)),
        lambda x, w: (fn.gelu(x), fn.silu(x), fn.elu(x), fn.softplus(x), fn.mish(x)),
        lambda x, w: (x[None] @ w[None], x.float() @ w.float(), x.var(-1), x.cumsum(-1)),
    ]:
        assert_step(f, x, w, rtol=0.03, atol=0.03)
