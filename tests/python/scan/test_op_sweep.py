"""Every op of PyTorch's op_db in a step of weft.scan, and between two recurrences under torch.compile.

What is asked of each: the numbers and gradients of the plain loop, or a refusal that names its reason, or a loop that
is counted; never other numbers, never an error from inside. `make test` tries a part of the ops with two samples each,
which the hash of an op's name chooses; WEFT_SWEEP=all tries all samples of all ops, in `make nightly`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree
from torch_op_db import _as_it_is, name_of, op_db  # noqa: F401

import weft

ALL = os.environ.get("WEFT_SWEEP") == "all"
STEPS = 3
#: One in so many ops is tried in a step, and one in so many between recurrences, unless all are.
SHARE, COMPILED_SHARE = 3, 40

#: Ops whose results are leftovers in memory, or depend on where a tensor lies in it.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "as_strided"}
#: Reasons that a refusal of weft.scan's may give.
REFUSALS = ("needs the value of a tensor", "changes a captured tensor in place", "has a side effect")


def chosen(share: int) -> list[OpInfo]:
    return [op for op in op_db if ALL or zlib.crc32(op.full_name.encode()) % share == 0]


def samples(op: OpInfo) -> Iterator[tuple[Callable[..., Any], list[Tensor]]]:
    """Functions of tensors, and these tensors; the first argument of the op comes first."""
    torch.manual_seed(0)
    if not op.dtypes:
        return  # there is no kernel for the CPU
    dtype = torch.float64 if torch.float64 in op.dtypes else sorted(op.dtypes, key=str)[-1]
    for i, sample in enumerate(op.sample_inputs("cpu", dtype)):
        if i > 1 and not ALL:
            return
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]

        def f(*given: Tensor, leaves: Any = leaves, spec: Any = spec, is_tensor: Any = is_tensor) -> Any:
            tensors = iter(given)
            filled = [next(tensors) if t else leaf for t, leaf in zip(is_tensor, leaves, strict=True)]
            x, args, kwargs = pytree.tree_unflatten(filled, spec)
            return op(x, *args, **kwargs)

        tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, Tensor)]
        if works(f, tensors):
            yield f, tensors


def works(f: Callable[..., Any], tensors: list[Tensor]) -> bool:
    """Whether PyTorch itself runs the sample, with tensors as results."""
    try:
        results = pytree.tree_leaves(f(*(t.clone() for t in tensors)))
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return False
    return bool(results) and all(isinstance(r, Tensor) and r.layout == torch.strided for r in results)


def plain_scan(step: Callable[..., Any], h: Tensor, xs: list[Tensor]) -> tuple[Tensor, Any]:
    ys = []
    for t in range(STEPS):
        h, y = step(h, [x[t] for x in xs])
        ys.append(y)
    return h, [torch.stack(column) for column in zip(*ys, strict=True)]


def outcome(
    how: Callable[..., Any], f: Callable[..., Any], tensors: list[Tensor], xs: int, differentiable: bool
) -> list[Any]:
    """Results and gradients of `f` in a step; None for an input without a gradient.

    The first `xs` tensors come one a step each, the others from outside.
    """
    torch.manual_seed(1)
    leaves = [t.clone().requires_grad_(differentiable and t.is_floating_point()) for t in tensors]
    h = torch.full((), 1.25, dtype=torch.float64, requires_grad=differentiable)
    stacked = [torch.stack([leaf] * STEPS) for leaf in leaves[:xs]] or [torch.zeros(STEPS, 1)]

    def step(h: Tensor, x: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        results = pytree.tree_leaves(f(*[*x, *leaves[xs:]][: len(leaves)]))
        return h * 0.5, [r * h if r.is_floating_point() else r.clone() for r in results]

    last, ys = how(step, h, stacked)
    found = [last, *ys]
    wanted = [t for t in (h, *leaves) if t.requires_grad]
    outputs = [y for y in found if y.requires_grad]
    if not outputs or not wanted:
        return found
    generator = torch.Generator().manual_seed(2)
    cotangents = [torch.rand(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for y in outputs]
    gradients = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
    return [*found, *gradients]


def close(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    is_wide = all(
        b.dtype in (torch.float64, torch.complex128) for b in want if b is not None and b.dtype.is_floating_point
    )
    rtol, atol = (1e-7, 1e-8) if is_wide else (1e-4, 1e-4)  # a gradient sums numbers that were rounded on the way
    for a, b in zip(got, want, strict=True):
        if b is None:  # no gradient gets there; zeros are the same number, which a few operations give (a norm of 0)
            assert a is None or not a.any()
            continue
        assert a is not None, "no gradient, where PyTorch has one"
        torch.testing.assert_close(a, b, equal_nan=True, rtol=rtol, atol=atol)


def check_reasons(op: OpInfo) -> None:
    """Each loop through PyTorch is counted under a reason in words that a user can read."""
    for reason in weft.stats()["fallbacks"]:
        assert reason.split(":", 1)[-1].strip(), reason
        for word in ("internal error", "PrivateUse1", "MismatchError", "INTERNAL ASSERT", "NoneType"):
            assert word not in reason, f"{op.full_name}: {reason}"


@pytest.mark.parametrize("op", chosen(SHARE), ids=name_of)
def test_in_a_step(op: OpInfo) -> None:
    """Of the tensors that the op takes, one or two or all are in xs, the others from outside."""
    refused, tried = set(), 0
    for i, (f, tensors) in enumerate(samples(op)):
        for xs in [min(1, len(tensors)), len(tensors)] if ALL else [min(i + 1, len(tensors))]:
            try:
                want = outcome(plain_scan, f, tensors, xs, op.supports_autograd)
            except RuntimeError:  # errors of gradients that PyTorch doesn't have
                continue
            tried += 1
            try:
                got = outcome(weft.scan, f, tensors, xs, op.supports_autograd)
            except (RuntimeError, ValueError, TypeError) as error:
                assert any(words in str(error) for words in REFUSALS), repr(error)
                refused.add(str(error))
                continue
            if op.name not in UNDEFINED:
                close(got, want)
            else:
                assert [t if t is None else t.shape for t in got] == [t if t is None else t.shape for t in want]
    check_reasons(op)
    if refused or not tried:
        pytest.skip("; ".join(sorted(refused)) or "no sample that is a function of tensors")


class Between(nn.Module):
    """A recurrence, an op on what it gave, and a recurrence of what the op gave."""

    def __init__(self, f: Callable[..., Any], tensors: list[Tensor]) -> None:
        super().__init__()
        self.f, self.tensors = f, tensors
        self.before = nn.GRU(3, 4, dtype=torch.float64)
        self.after = nn.GRU(4, 4, dtype=torch.float64)

    def forward(self, x: Tensor) -> list[Tensor]:
        y, _ = self.before(x)
        first, *rest = self.tensors
        given = first + 1e-3 * fitted(y, first.shape).to(first.dtype)
        results = pytree.tree_leaves(self.f(given, *rest))
        floating = [r for r in results if r.is_floating_point()]
        if not floating:
            return results
        z, _ = self.after(torch.tanh(fitted(floating[0], y.shape).double()))
        return [z, *results]


def fitted(x: Tensor, shape: torch.Size) -> Tensor:
    """The elements of x, repeated as often as need be."""
    if x.numel() == 0:
        return torch.zeros(shape, dtype=x.dtype)
    return x.reshape(-1).repeat(-(-shape.numel() // x.numel()))[: shape.numel()].reshape(shape)


def trained(model: nn.Module, x: Tensor) -> list[Any]:
    torch.manual_seed(1)
    results = model(x)
    outputs = [r for r in results if r.requires_grad and not r.is_complex()]
    if not outputs:
        return results
    gradients = torch.autograd.grad([r.sum() for r in outputs], list(model.parameters()), allow_unused=True)
    return [*results, *gradients]


@pytest.mark.parametrize("op", chosen(COMPILED_SHARE), ids=name_of)
def test_between_recurrences(op: OpInfo) -> None:
    tried = 0
    for f, tensors in samples(op):
        if not tensors or not tensors[0].is_floating_point() or op.name in UNDEFINED:
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, x = Between(f, tensors), torch.randn(5, 2, 3, dtype=torch.float64)
        try:
            with weft.disabled():
                want = trained(model, x)
        except (RuntimeError, NotImplementedError):
            continue
        tried += 1
        close(trained(torch.compile(model, backend="weft"), x), want)
    if not tried:
        pytest.skip("no sample that is a function of floating tensors")
