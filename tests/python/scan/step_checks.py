"""Compares functions in a step with eager PyTorch: traced into a program, values and gradients.

Nothing here may fall back: a function that the tracer refuses fails its test.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from weft._capture import programs
from weft._capture.runs import Function


def run(f, inputs):
    """The leaves of f's result, computed by a program."""
    leaves, spec = pytree.tree_flatten(tuple(inputs))
    function = Function(lambda *given: (call(f, given), None), leaves, spec, "the step", (f,))
    found = programs.find("the step", None, [function], lambda traces: traces[0].program)
    if found.captured.noise:
        pytest.skip("draws random numbers")
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return torch.ops.weft.call(found.captured.program.text, [*leaves, *found.inputs])


def assert_step(f, *inputs, gradients=True, rtol=None, atol=None):
    want = [leaf for leaf in pytree.tree_leaves(f(*inputs)) if isinstance(leaf, torch.Tensor)]
    got = run(f, inputs)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.is_contiguous()
        close(a, b.contiguous(), rtol, atol)
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    if gradients and any(leaf.is_floating_point() for leaf in leaves):
        for a, b in zip(gradient(run, f, inputs), gradient(call, f, inputs), strict=True):
            close(a, b, rtol, atol)


def call(f, inputs):
    return [leaf for leaf in pytree.tree_leaves(f(*inputs)) if isinstance(leaf, torch.Tensor)]


def gradient(how, f, inputs):
    leaves, spec = pytree.tree_flatten(tuple(inputs))
    leaves = [x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in leaves]
    results = how(f, pytree.tree_unflatten(leaves, spec))
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in results]
    if not any(r.requires_grad for r in results):
        return [torch.zeros_like(x) for x in wanted]
    results, cotangents = zip(
        *[(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad], strict=True
    )
    return torch.autograd.grad(results, wanted, cotangents, allow_unused=True, materialize_grads=True)


def close(a, b, rtol=None, atol=None):
    if rtol is None and a.dtype in (torch.float16, torch.bfloat16):
        rtol, atol = 2 * torch.finfo(a.dtype).eps, 1e-3
    if rtol is None and a.is_floating_point():
        rtol, atol = (1e-10, 1e-12) if a.dtype == torch.float64 else (2e-5, 1e-5)
    torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def numbers(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def integers(shape, low=-9, high=9, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
