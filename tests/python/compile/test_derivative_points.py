"""Derivatives where releases of PyTorch have differed: at ties, at zeros, at bounds given to an op, at NaN.

Where a rule of Weft's repeats one of PyTorch's, a new release may have changed PyTorch's, and values that are right say
nothing of it. So every op of op_db that has gradients is given such points in the place of its sample's numbers, and is
held to the PyTorch that is installed.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree
from torch_op_db import _as_it_is, name_of, op_db  # noqa: F401

import weft

ALL = os.environ.get("WEFT_SWEEP") == "all"
SAMPLES = 20 if ALL else 3
#: Beginnings of words in names of ops that have any result at such points (singular matrices, equal eigenvalues), draw
#: it, or show memory that nobody has written.
# fmt: off
LEFT_OUT = (
    "empty", "rand", "bernoulli", "normal", "multinomial", "dropout", "rrelu", "uniform", "exponential", "cauchy",
    "geometric", "linalg", "svd", "qr", "eig", "lstsq", "lu", "cholesky", "pinverse", "inverse", "det", "logdet",
    "slogdet", "solve", "ormqr", "geqrf", "matrix_exp", "pca", "as_strided", "sparse", "nested", "fractional",
)
# fmt: on


def _is_left_out(op: OpInfo) -> bool:
    words = "_" + op.full_name.replace(".", "_")
    return any(f"_{word}" in words for word in LEFT_OUT)


OPS = [op for op in op_db if op.supports_autograd and not _is_left_out(op)]
#: Ops whose derivative by NaN, or beside a NaN, varies in PyTorch itself.
_LOOPS = "the loop over whole vectors takes another branch than the loop over what is left"
_ANY_ZERO = "the formula is one or another by whether the whole tensor has a zero somewhere"
_MEMORY_FORMAT = "which of several NaN is the largest depends on the memory format"
_KERNEL = "one kernel makes a row of NaN zeros, another NaN"
_ZEROS = "a factor that is 0 beside it is left out by some releases, and by some orders of a norm"
_TRANSFORM = "which elements of a transform a NaN reaches depends on the order of its sums"
_OUTSIDE = "a coordinate that is NaN becomes an index that may be outside of memory"
NAN_IS_ARBITRARY = {
    "nn.functional.hardtanh": _LOOPS,
    "nn.functional.relu6": _LOOPS,
    "nn.functional.hardshrink": _LOOPS,
    "nn.functional.softshrink": _LOOPS,
    "nn.functional.hardswish": _LOOPS,
    "logit": _LOOPS,
    "prod": _ANY_ZERO,
    "masked.prod": _ANY_ZERO,
    "cumprod": _ANY_ZERO,
    "masked.cumprod": _ANY_ZERO,
    "nn.functional.max_pool1d": _MEMORY_FORMAT,
    "nn.functional.max_pool2d": _MEMORY_FORMAT,
    "nn.functional.max_pool3d": _MEMORY_FORMAT,
    "max_pool2d_with_indices_backward": _MEMORY_FORMAT,
    "nn.functional.adaptive_max_pool1d": _MEMORY_FORMAT,
    "nn.functional.adaptive_max_pool2d": _MEMORY_FORMAT,
    "nn.functional.adaptive_max_pool3d": _MEMORY_FORMAT,
    "nn.functional.scaled_dot_product_attention": _KERNEL,
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": _KERNEL,
    "copysign": _ZEROS,
    "norm": _ZEROS,
    "nn.functional.grid_sample": _OUTSIDE,
    "grid_sampler_2d": _OUTSIDE,
    "grid_sampler_3d": _OUTSIDE,
    **{op.full_name: _TRANSFORM for op in op_db if "fft" in op.full_name or "stft" in op.full_name},
}
#: Ops of which only the first result's gradient is tried here. PyTorch has no gradients of the other results, or loses
#: them unless each result gets a gradient.
FIRST_RESULT_ONLY = (
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
)


def points(sample: Any, seed: int, has_nan: bool) -> Any:
    """The sample, with such points in the place of its floating tensors' numbers."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    bounds = [float(x) for x in leaves if isinstance(x, int | float) and abs(x) < 1e6]
    pool = [0.0, 0.0, 1.0, -1.0, 0.5, 2.0, *bounds, *([math.nan] if has_nan else [])]
    generator = torch.Generator().manual_seed(seed)

    def placed(x: Tensor) -> Tensor:
        return torch.tensor(pool, dtype=x.dtype)[torch.randint(len(pool), x.shape, generator=generator)]

    is_floating = [isinstance(x, Tensor) and x.dtype == torch.float64 for x in leaves]
    return [placed(x) if wanted else x for x, wanted in zip(leaves, is_floating, strict=True)], is_floating, spec


def functions(op: OpInfo) -> Iterator[tuple[Callable[..., Any], list[Tensor]]]:
    """Functions of floating tensors, and these tensors; half of them without NaN."""
    torch.manual_seed(0)
    if torch.float64 not in op.dtypes:
        return
    for i, sample in enumerate(op.sample_inputs("cpu", torch.float64)):
        if i == SAMPLES:
            return
        if sample.kwargs.get("sparse"):  # its gradient is sparse, which no program's is
            continue
        seed = zlib.crc32(op.full_name.encode()) + i
        leaves, is_floating, spec = points(sample, seed, seed % 2 == 1 and op.full_name not in NAN_IS_ARBITRARY)

        def f(*given: Tensor, leaves: Any = leaves, spec: Any = spec, is_floating: Any = is_floating) -> Any:
            tensors = iter(given)
            filled = [next(tensors) if wanted else leaf for wanted, leaf in zip(is_floating, leaves, strict=True)]
            x, args, kwargs = pytree.tree_unflatten(filled, spec)
            result = op(x, *args, **kwargs)
            return result[0] if op.full_name in FIRST_RESULT_ONLY else result

        yield f, [leaf for leaf, wanted in zip(leaves, is_floating, strict=True) if wanted]


def outcome(f: Callable[..., Any], tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Floating results, and the gradients of each result: in a sum they would hide one another."""
    torch.manual_seed(0)  # for random numbers (dropout)
    inputs = [x.clone().requires_grad_() for x in tensors]
    results = [r for r in pytree.tree_leaves(f(*inputs)) if isinstance(r, Tensor) and r.dtype == torch.float64]
    found = []
    for result in results:
        if result.requires_grad:
            ones = torch.ones_like(result)
            found += torch.autograd.grad(result, inputs, ones, allow_unused=True, retain_graph=True)
    inputs = inputs * (len(found) // max(len(inputs), 1))
    return results, [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_gradients_at_ties_zeros_bounds_and_nan(op: OpInfo) -> None:
    tried = 0
    for f, tensors in functions(op):
        try:
            values, gradients = outcome(f, tensors)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):  # errors of PyTorch's own
            continue
        if not gradients:
            continue
        tried += 1
        got_values, got = outcome(weft.jit(f), tensors)
        for a, b in zip([*got_values, *got], [*values, *gradients], strict=True):
            torch.testing.assert_close(
                a, b, equal_nan=True, rtol=1e-7, atol=1e-8, msg=lambda m, at=tensors: f"{m}\n{at}"
            )
    if not tried:
        pytest.skip("no sample of real numbers with gradients")


def test_where_no_gradient_arrives_none_is_computed() -> None:
    """An infinite derivative adds nothing to the other result's gradient."""
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    total, root = weft.jit(lambda x: (x.sum(), x.sqrt()))(x)
    assert torch.equal(torch.autograd.grad(total, x, retain_graph=True)[0], torch.ones_like(x))
    assert torch.equal(torch.autograd.grad(total, x, retain_graph=True, create_graph=True)[0], torch.ones_like(x))
    (slope,) = torch.autograd.grad(root.sum(), x)
    assert torch.equal(slope, torch.tensor([math.inf, 0.5, 0.25], dtype=torch.float64))


def test_second_derivatives_are_those_of_the_formulas() -> None:
    def f(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = (h * x).clamp(-0.75, 0.75).asin() + torch.special.entr(x) + torch.sinc(x + h) + (x + 2).acosh()
        h = h + x.acos() + torch.xlogy(x, x + 1) + torch.special.xlog1py(h, x) + x.logit(0.01)
        return h.tanh(), h

    h = torch.rand(3, dtype=torch.float64, requires_grad=True)
    xs = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda h, xs: weft.scan(f, h, xs), (h, xs))
    assert torch.autograd.gradgradcheck(lambda h, xs: weft.scan(f, h, xs), (h, xs))
