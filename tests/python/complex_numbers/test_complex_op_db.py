"""Samples that PyTorch has of its ops (op_db) for complex numbers, as programs of weft.jit.

What a program has no form for runs through PyTorch, which skips the test; what it has gives PyTorch's values and
gradients.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch_op_db import _as_it_is, name_of, op_db  # noqa: F401

import weft

#: Ops of which every sample must be expressed.
# fmt: off
MUST = {
    "abs", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "angle", "baddbmm", "bmm", "cat", "chunk",
    "clone", "complex", "conj", "cos", "cosh", "cov", "cumsum", "cumprod", "diagonal", "div", "dot", "einsum", "eq",
    "exp", "expand", "flatten", "flip", "imag", "index_add", "index_select", "inner", "isnan", "lerp", "log", "matmul",
    "mean", "mm", "movedim", "mul", "mv", "narrow", "ne", "neg", "outer", "permute", "polar", "real", "reciprocal",
    "repeat", "reshape", "roll", "rsub", "select", "sgn", "sigmoid", "sin", "sinh", "slice", "split", "square",
    "squeeze", "stack", "std", "sub", "sum", "t", "tanh", "trace", "transpose", "tril", "triu", "unbind", "unsqueeze",
    "var", "vdot", "view", "view_as_complex", "view_as_real", "where",
}
# fmt: on
SAMPLES = int(os.environ.get("WEFT_OP_SAMPLES", "3"))
#: Words in the names of ops that eager mode itself leaves open, or that no program has for complex numbers.
# fmt: off
LEFT_OUT = (
    "empty", "rand", "bernoulli", "normal", "multinomial", "dropout", "uniform", "exponential", "cauchy", "geometric",
    "linalg", "svd", "qr", "eig", "lu", "cholesky", "pinverse", "lstsq", "ormqr", "geqrf", "fft", "stft", "conv",
    "sparse", "item", "nonzero", "unique", "masked_select", "equal", "allclose", "jiterator", "__getitem__",
    "as_strided", "resize",
)
# fmt: on
OPS = [
    op
    for op in op_db
    if (torch.complex128 in op.dtypes or op.name in MUST) and not any(word in op.full_name for word in LEFT_OUT)
]


def _samples(op: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for sample in op.sample_inputs("cpu", torch.complex128 if torch.complex128 in op.dtypes else torch.float64):
        types = tuple(x.dtype if isinstance(x, Tensor) else type(x) for x in sample.args)
        key = (tuple(getattr(sample.input, "shape", ())), types, tuple(sample.kwargs))
        if len(seen) < SAMPLES:
            seen.setdefault(key, sample)
    return list(seen.values())


def _gradients(results: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    """The gradients of a real loss that depends on both parts of each result."""
    losses = []
    for result in results:
        if result.requires_grad:
            weights = torch.arange(1, result.numel() + 1, dtype=torch.float64).view_as(result)
            scaled = result * (weights * (0.3 - 0.2j))
            losses.append((scaled.abs() ** 2 + (result * (0.5 + 1j)).real).sum())
    wanted = [x for x in inputs if x.requires_grad]
    if not losses or not wanted:
        return []
    return list(torch.autograd.grad(torch.stack(losses).sum(), wanted, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_samples_of_complex_numbers(op: Any) -> None:
    refused = set()
    for sample in _samples(op):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))

        def f(*given: Tensor, leaves: Any = leaves, spec: Any = spec) -> list[Tensor]:
            tensors = iter(given)
            x, args, kwargs = pytree.tree_unflatten(
                [next(tensors) if isinstance(y, Tensor) else y for y in leaves], spec
            )
            return [y for y in pytree.tree_leaves(op(x, *args, **kwargs)) if isinstance(y, Tensor)]

        tensors = [x.detach() for x in leaves if isinstance(x, Tensor)]

        def run(function: Any, tensors: list[Tensor] = tensors) -> tuple[list[Tensor], list[Tensor | None]]:
            varied = op.supports_autograd
            given = [x.clone().requires_grad_(varied and (x.is_complex() or x.is_floating_point())) for x in tensors]
            results = function(*given)
            return results, _gradients(results, given)

        try:
            expected = run(f)
        except (NotImplementedError, RuntimeError):  # PyTorch has no kernel or no derivative for it
            continue
        before = dict(weft.stats()["fallbacks"])
        found = run(weft.jit(f))
        after = weft.stats()["fallbacks"]
        refused |= {reason for reason in after if after[reason] != before.get(reason) and "interpreted" not in reason}
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
    if refused and op.name not in MUST:
        pytest.skip("; ".join(sorted(refused)))
    assert not refused
