"""Calls of weft.scan with complex tensors whose program was found before, which take a shorter way, compared with the
plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import assert_trees_close, loop
from torch import Tensor
from torch.utils import _pytree as pytree

import weft
from weft._control.scan_call import Call

D = torch.complex128
W = torch.randn(3, 3, dtype=D) * 0.4


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that took the longer way."""
    found: list[str] = []
    of = Call.of.__func__  # type: ignore[attr-defined]

    def noted(cls: Any, what: str, *arguments: Any, **options: Any) -> Any:
        found.append(what)
        return of(cls, what, *arguments, **options)

    monkeypatch.setattr(Call, "of", classmethod(noted))
    return found


def _of_complex(h: Tensor, x: Tensor) -> Any:
    h = torch.tanh(h @ W + x)
    return h, h.conj()


def _of_trees(carry: Any, xs: Any) -> Any:
    z, r, n = carry
    z, r = z * 1j + xs["a"], r + xs["b"].abs()
    return (z, r, n + 1), {"r": [r, None], "z": (z * r, z.real), "n": n}


def _of_real(h: Tensor, x: Tensor) -> Any:  # complex within, and outside
    z = torch.complex(h, x) @ W
    return z.imag, z


def _x(steps: int, rows: int = 2, dtype: torch.dtype = D) -> Tensor:
    return torch.randn(steps, rows, 3, dtype=dtype)


CASES: dict[str, tuple[Any, Callable[[int, int], tuple[Any, Any]]]] = {
    "complex": (_of_complex, lambda steps, rows: (_x(1, rows)[0], _x(steps, rows))),
    "real xs": (_of_complex, lambda steps, rows: (_x(1, rows)[0], _x(steps, rows, torch.float64))),
    "conjugate": (_of_complex, lambda steps, rows: (_x(1, rows)[0].conj(), _x(steps, rows).conj())),
    "negated": (_of_complex, lambda steps, rows: (torch._neg_view(_x(1, rows)[0]), _x(steps, rows).conj().imag)),
    "strided": (_of_complex, lambda steps, rows: (_x(rows, 1)[:, 0], _x(rows, steps).transpose(0, 1))),
    "trees": (
        _of_trees,
        lambda steps, rows: (
            (_x(1, rows)[0], _x(1, rows, torch.float64)[0], torch.tensor(3)),
            {"a": _x(steps, rows), "b": _x(steps, rows)},
        ),
    ),
    "real ends": (_of_real, lambda steps, rows: (_x(1, rows, torch.float64)[0], _x(steps, rows, torch.float64))),
}


@pytest.mark.parametrize("case", CASES)
def test_the_short_way_gives_the_loops_results(case: str, longer: list[str]) -> None:
    step, inputs = CASES[case]
    for times, (steps, rows) in enumerate([(4, 2), (4, 2), (7, 2), (1, 2), (5, 3), (6, 3), (5, 0), (5, 0)]):
        init, xs = inputs(steps, rows)
        before = len(longer)
        assert_trees_close(weft.scan(step, init, xs), loop(step, init, xs))
        if times in (1, 2, 5, 7):
            assert len(longer) == before


def _gradients(run: Any, step: Any, init: Any, xs: Any, weights: list[Tensor]) -> list[Tensor | None]:
    leaves = [
        leaf.requires_grad_()
        for leaf in pytree.tree_leaves((init, xs))
        if (leaf.is_floating_point() or leaf.is_complex()) and leaf.grad_fn is None
    ]
    results = [leaf for leaf in pytree.tree_leaves(run(step, init, xs)) if leaf is not None and leaf.requires_grad]
    loss = sum((y.abs() ** 2 * torch.arange(1, y.numel() + 1).view_as(y)).sum() for y in results)
    return list(torch.autograd.grad(loss, [*leaves, *weights], allow_unused=True))


@pytest.mark.parametrize("case", ["complex", "real xs", "strided", "trees", "real ends"])
def test_the_short_way_gives_the_loops_gradients(case: str, longer: list[str], monkeypatch: Any) -> None:
    step, inputs = CASES[case]
    weights = [] if case == "trees" else [W.clone().requires_grad_()]
    if weights:
        monkeypatch.setitem(step.__globals__, "W", weights[0])
    for times in range(3):
        init, xs = pytree.tree_map(lambda leaf: leaf.clone(), inputs(4, 2))
        before = len(longer)
        found, expected = (_gradients(run, step, init, xs, weights) for run in (weft.scan, loop))
        assert_trees_close(found, expected)
        assert times == 0 or len(longer) == before


def test_real_and_complex_tensors_in_turn(longer: list[str]) -> None:
    """One step, whose carry and captured tensor are now real and now complex."""
    captured = torch.zeros(())

    def step(h: Tensor, x: Tensor) -> Any:
        h = h * 0.5 + captured * x
        return h, h * h

    for times in range(3):
        for real in (torch.float64, torch.float32):
            for dtype in (real, real.to_complex()):
                for each in (torch.randn(3, dtype=real), torch.randn(3, dtype=dtype).conj()):
                    captured = each
                    init, xs = _x(1, 2, dtype)[0], _x(4, 2, real)
                    before = len(longer)
                    assert_trees_close(weft.scan(step, init, xs), loop(step, init, xs))
                    assert times < 2 or len(longer) == before


def test_tangents_and_transforms_of_a_known_step() -> None:
    step, (init, xs) = _of_complex, (_x(1)[0], _x(4))
    for _ in range(3):
        weft.scan(step, init, xs)
        tangents = [
            torch.func.jvp(lambda h, x, run=run: run(step, h, x), (init, xs), (init * 1j, xs.conj()))
            for run in (weft.scan, loop)
        ]
        assert_trees_close(*tangents)
        mapped = [
            torch.vmap(lambda h, run=run: run(step, h, xs)[1])(torch.stack([init, init * 2j]))
            for run in (weft.scan, loop)
        ]
        assert_trees_close(*mapped)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(init, init * 1j)
            found, expected = (
                torch.autograd.forward_ad.unpack_dual(run(step, dual, xs)[1].resolve_conj()).tangent
                for run in (weft.scan, loop)
            )
            torch.testing.assert_close(found, expected)
