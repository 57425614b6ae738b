"""Random steps of complex and real operations: values and gradients of a scan against the plain loop's.

WEFT_RANDOM_COMPLEX says how many (40).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft

COUNT = int(os.environ.get("WEFT_RANDOM_COMPLEX", "40"))
ROWS, N = 2, 3

#: Operations of one complex value [ROWS, N], which give a complex value of this shape, and of one real value.
OF_ONE: list[Callable[[Tensor], Tensor]] = [
    torch.tanh, torch.sigmoid, torch.sin, torch.conj, torch.neg, torch.sgn, torch.square,
    lambda z: (0.3 * z).exp(), lambda z: (z + 3).log(), lambda z: z * (0.5 - 0.25j), lambda z: 2j - z,
    lambda z: z**3 * 0.1,
    lambda z: z.flip(-1), lambda z: z.roll(1, 0), lambda z: z[:, [2, 0, 0]], lambda z: z.cumsum(-1) * 0.3,
    lambda z: z.sum(-1, keepdim=True) + z, lambda z: z.mean(0).expand(ROWS, N), lambda z: z.t().reshape(ROWS, N),
    lambda z: torch.cat([z[:, 1:], z[:, :1]], -1), lambda z: torch.stack(z.unbind(-1), -1).conj(),
    lambda z: torch.view_as_complex(torch.view_as_real(z.resolve_conj()).clone()), lambda z: z.detach(),
    lambda z: z / (z.abs() + 0.5),
    lambda z: z.clone().mul_(0.5j), lambda z: z.index_select(1, torch.tensor([1, 1, 2])),
    lambda z: 1 / (z + 4), lambda z: torch.where(z.real > 0, z, z.conj()), lambda z: z.masked_fill(z.imag > 0.5, 0.25),
    lambda z: torch.nn.functional.pad(z[:, 1:], (0, 1)),
]  # fmt: skip
OF_TWO: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.sub, torch.mul, lambda a, b: a / (b.abs() + 1), lambda a, b: a / (b + 4 + 1j),
    lambda a, b: torch.addcmul(a, b, b.conj()), lambda a, b: a @ b.mH @ a * 0.2, lambda a, b: torch.lerp(a, b, 0.3),
    lambda a, b: torch.where(a.real > b.real, a, b), lambda a, b: torch.einsum("bi,bj->bj", a, b) * 0.3,
    lambda a, b: torch.baddbmm(a[None], a[None] @ b[None].mT, b[None], beta=0.5, alpha=0.2)[0],
]  # fmt: skip
TO_REAL: list[Callable[[Tensor], Tensor]] = [
    torch.abs, torch.real, torch.imag, lambda z: (z + 3).angle(), lambda z: (z * z.conj()).real,
    lambda z: torch.view_as_real(z.resolve_conj()).sum(-1),
    lambda z: torch.linalg.vector_norm(z, dim=-1, keepdim=True).expand(ROWS, N),
    lambda z: z.var(-1, keepdim=True).expand(ROWS, N),
]  # fmt: skip
TO_COMPLEX: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.to(torch.complex128), lambda x: torch.complex(x, x.flip(0)), lambda x: x * 1j,
    lambda x: torch.polar(x.abs(), x),
    lambda x: x + torch.ones((), dtype=torch.complex128),
]  # fmt: skip
OF_REAL: list[Callable[[Tensor], Tensor]] = [torch.tanh, torch.relu, lambda x: x * 0.5, lambda x: x.exp().clamp(max=3)]


BOTH: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.mul, torch.add, lambda z, y: z / (y.abs() + 1), lambda z, y: y * z.conj(),
]  # fmt: skip
KINDS: dict[str, list[Any]] = {
    "one": OF_ONE, "two": OF_TWO, "to real": TO_REAL, "to complex": TO_COMPLEX, "real": OF_REAL, "both": BOTH
}  # fmt: skip


def _plan(r: random.Random, complexes: int) -> list[tuple[str, Any, int, int, int, bool]]:
    """About ten operations chosen at random: kind, function, which values it reads, whether without gradients."""
    plan, reals = [], 1
    for _ in range(r.randint(4, 12)):
        kind = r.choice(("one", "one", "two", "two", "two", "to real", "to complex", "real", "both"))
        places = r.randrange(complexes), r.randrange(complexes), r.randrange(reals)
        plan.append((kind, r.choice(KINDS[kind]), *places, r.random() < 0.08))
        if kind in ("to real", "real"):
            reals += 1
        else:
            complexes += 1
    return plan


def _made(r: random.Random, weights: list[Tensor]) -> Callable[[Any, Any], Any]:
    """A step of a plan's operations."""
    plan = _plan(r, 2 + len(weights))

    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        complexes, reals = [carry, carry * 0.5 + x.to(carry.dtype), *weights], [x]
        for kind, f, a, b, c, no_grad in plan:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not no_grad):
                if kind == "one":
                    complexes.append(f(complexes[a]))
                elif kind == "two":
                    complexes.append(f(complexes[a], complexes[b]))
                elif kind == "both":
                    complexes.append(f(complexes[a], reals[c]))
                elif kind == "to real":
                    reals.append(f(complexes[a]))
                elif kind == "to complex":
                    complexes.append(f(reals[c]))
                else:
                    reals.append(f(reals[c]))
        carry = torch.tanh(0.5 * (complexes[-1] + 0.3 * carry))
        return carry, (complexes[-1], reals[-1] + complexes[-2].real)

    return step


def _loop(step: Any, carry: Tensor, xs: Tensor) -> tuple[Tensor, Any]:
    ys = []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, tuple(torch.stack(column) for column in zip(*ys, strict=True))


def _results(run: Any, step: Any, leaves: list[Tensor]) -> list[Tensor | None]:
    init, xs = leaves[:2]
    carry, ys = run(step, init, xs)
    results = [carry, *ys]
    losses = [
        (y * torch.arange(1, y.numel() + 1).view_as(y) * (0.7 - 0.2j)).real.sum() for y in results if y.requires_grad
    ]
    if not losses:
        return [*results]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [*results, *torch.autograd.grad(torch.stack(losses).sum(), wanted, allow_unused=True)]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_step_is_the_loop(seed: int) -> None:
    r = random.Random(seed)
    torch.manual_seed(seed)
    weights = [torch.randn(ROWS, N, dtype=torch.complex128, requires_grad=True) for _ in range(2)]
    init = torch.randn(ROWS, N, dtype=torch.complex128).requires_grad_(r.random() < 0.8)
    xs = torch.randn(r.randint(1, 4), ROWS, N, dtype=torch.float64).requires_grad_(r.random() < 0.7)
    step = _made(r, weights)
    before = dict(weft.stats()["fallbacks"])
    leaves = [init, xs, *weights]
    for found, expected in zip(_results(weft.scan, step, leaves), _results(_loop, step, leaves), strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)
    # A view that is made without a gradient and viewed again with one is left to PyTorch, a real one too.
    fresh = [reason for reason, count in weft.stats()["fallbacks"].items() if count != before.get(reason)]
    assert all("that its operations don't give" in reason for reason in fresh), fresh


@pytest.mark.parametrize("seed", range(1000, 1000 + COUNT // 5))
@pytest.mark.parametrize("scan", [weft.scan, _loop])
def test_a_random_step_under_torch_compile(scan: Any, seed: int) -> None:
    r = random.Random(seed)
    torch.manual_seed(seed)
    torch._dynamo.reset()
    weights = [torch.randn(ROWS, N, dtype=torch.complex128, requires_grad=True) for _ in range(2)]
    init = torch.randn(ROWS, N, dtype=torch.complex128).requires_grad_(r.random() < 0.8)
    xs = torch.randn(r.randint(3, 5), ROWS, N, dtype=torch.float64).requires_grad_(r.random() < 0.7)
    step, leaves = _made(r, weights), [init, xs, *weights]

    def run(step: Any, init: Tensor, xs: Tensor) -> Any:
        return torch.compile(lambda init, xs: scan(step, init, xs), backend="weft")(init, xs)

    for found, expected in zip(_results(run, step, leaves), _results(_loop, step, leaves), strict=True):
        if found is not None and expected is None:  # a program of a loop has zeros where no gradient comes
            assert not found.any()
        elif expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)
