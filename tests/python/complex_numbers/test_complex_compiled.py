"""Complex models under `torch.compile(backend="weft")`: loops and scans, values and gradients against eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from oracles import loop
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import weft
from weft.backend import stats

COMPLEX, REAL = torch.complex128, torch.float64
Loop = Callable[["Weights", Tensor, Tensor], Any]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    weft.reset_stats()
    stats.not_rolled.clear()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where complex gradients are cast to real ones
        yield


class Weights(nn.Module):
    """Weights as such models have them: complex parameters, real ones of angles and sizes, and one of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3, dtype=COMPLEX) * 0.4)
        self.b = nn.Parameter(torch.randn(3, 3, dtype=COMPLEX) * 0.4)
        self.size = nn.Parameter(torch.randn(3, dtype=REAL))
        self.angle = nn.Parameter(torch.randn(3, dtype=REAL))
        self.c = nn.Parameter(torch.randn(3, 3, 2, dtype=REAL))


# ---- models written as loops


def lru(m: Weights, h: Tensor, x: Tensor) -> Any:
    pole = torch.exp(torch.complex(-m.size.exp(), m.angle))
    factor, c, ys = (1 - pole.abs() ** 2).sqrt(), torch.view_as_complex(m.c), []
    for t in range(x.shape[0]):
        h = pole * h + factor * (x[t].to(h.dtype) @ m.b.t())
        ys.append((h @ c.t()).real + m.size * x[t])
    return torch.stack(ys), h


def s4d(m: Weights, h: Tensor, x: Tensor) -> Any:
    a = torch.complex(-m.size.exp(), m.angle)
    da = torch.exp(a * 0.1)
    db, c, ys = (da - 1) / a * m.b[0], torch.view_as_complex(m.c)[0], []
    for u in x.unbind(0):
        h = h * da + db * u
        ys.append(2 * (h * c).real)
    return torch.stack(ys, 1), h


def s5_in_a_buffer(m: Weights, h: Tensor, x: Tensor) -> Any:
    a, bu = torch.polar(torch.sigmoid(m.size), m.angle), x.to(h.dtype) @ m.b.mT
    ys = torch.zeros(x.shape, dtype=x.dtype)
    for t in range(x.shape[0]):
        h = a * h + bu[t]
        ys[t] = (h @ torch.view_as_complex(m.c)).real
    return ys


def modrelu(m: Weights, h: Tensor, x: Tensor) -> Any:
    for t in range(x.shape[0]):
        z = h @ m.w + x[t] @ m.b.real + 1j * (x[t] @ m.b.imag)
        size = z.abs()
        h = torch.relu(size + m.size) * z / (size + 1e-5)
    return h


def gated(m: Weights, h: Tensor, x: Tensor) -> Any:
    ys = []
    for each in x:
        u = torch.complex(each, each * 0.5)
        g = torch.sigmoid(h @ m.w + u)
        h = g * h + (1 - g) * torch.tanh(u @ m.b)
        ys.append(torch.view_as_real(h))
    return torch.stack(ys)


def growing_and_conjugate(m: Weights, h: Tensor, x: Tensor) -> Any:
    ys = torch.zeros(0, *h.shape, dtype=h.dtype)
    for t in range(x.shape[0]):
        h = m.w[1] * h.conj() + x[t]
        ys = torch.cat([ys, h.unsqueeze(0)])
    return ys.mH  # its gradient comes conjugated


def in_place(m: Weights, h: Tensor, x: Tensor) -> Any:
    h = h.clone()
    for t in range(x.shape[0]):
        h *= m.w[0]
        h += x[t]
        h.real.mul_(0.5)
        h[:, :1] *= 2
    return h


def in_place_through_a_conjugate(m: Weights, h: Tensor, x: Tensor) -> Any:
    h = h.clone()
    for t in range(x.shape[0]):
        z = h.conj()
        z.mul_(m.w[0])
        torch.view_as_real(h)[..., 0] += x[t]
        h = h * 0.9
    return h


def indexed(m: Weights, h: Tensor, x: Tensor) -> Any:
    z, ys = x.to(h.dtype) * (1 + 2j), []
    for t in range(x.shape[0]):
        h = h * m.w[0] * torch.tensor(0.5 - 0.1j, dtype=h.dtype) + z.select(-3, t) + z[t, ..., None].sum(-1)
        h = h + z[..., t % 3].mean() + torch.select(z, 0, t) + torch.tensor(t, dtype=h.dtype)
        ys.append(h.select(-1, 1))
    return torch.stack(ys)


def layers(m: Weights, h: Tensor, x: Tensor) -> Any:
    first, second, ys = h, h * 0.5, []
    for t in range(x.shape[0]):
        first = m.w[0] * first + x[t]
        second = m.w[1] * second + torch.where(x[t] > 0, torch.tanh(first @ m.b), first.conj())
        ys.append(torch.cat([first, second], -1).imag)
    return torch.stack(ys), second.angle()


LOOPS: list[Loop] = [
    lru, s4d, s5_in_a_buffer, modrelu, gated, growing_and_conjugate, in_place, in_place_through_a_conjugate, indexed,
    layers,
]  # fmt: skip


def _inputs(kind: str) -> tuple[Tensor, Tensor]:
    rows = {"no rows": 0, "one row": 1}.get(kind, 2)
    h, x = torch.randn(rows, 3, dtype=COMPLEX), torch.randn(1 if kind == "one step" else 5, rows, 3, dtype=REAL)
    if kind == "conjugate":
        h = h.conj()
    if kind == "strided":
        h, x = h.t().contiguous().t(), x.transpose(0, 1).contiguous().transpose(0, 1)
    return h.requires_grad_(), x.requires_grad_()


def _results(f: Loop, m: Weights, h: Tensor, x: Tensor) -> list[Tensor | None]:
    with torch.no_grad():
        plain = [leaf for leaf in pytree.tree_leaves(f(m, h, x)) if leaf is not None]
    values = [leaf for leaf in pytree.tree_leaves(f(m, h, x)) if leaf is not None]
    parts = [torch.view_as_real(v.resolve_conj()) if v.is_complex() else v for v in values]
    loss = sum((part * torch.arange(1, part.numel() + 1).view_as(part)).sum() for part in parts)
    return [*plain, *values, *torch.autograd.grad(loss, [h, x, *m.parameters()], allow_unused=True)]


def _compare(compiled: Loop, eager: Loop, kind: str) -> None:
    m, (h, x) = Weights(), _inputs(kind)
    for found, expected in zip(_results(compiled, m, h, x), _results(eager, m, h, x), strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("f", LOOPS)
def test_a_loop_is_rolled_and_computes_eager_modes_values(f: Loop) -> None:
    before = stats.rolled
    _compare(torch.compile(f, backend="weft", fullgraph=True), f, "usual")
    assert stats.rolled > before and not stats.not_rolled


@pytest.mark.parametrize("kind", ["no rows", "one row", "one step", "conjugate", "strided"])
@pytest.mark.parametrize("f", [lru, modrelu, in_place])
def test_unusual_inputs_of_loops(f: Loop, kind: str) -> None:
    _compare(torch.compile(f, backend="weft"), f, kind)


@pytest.mark.parametrize("f", LOOPS)
def test_a_loop_under_jit(f: Loop) -> None:
    _compare(lambda m, h, x: weft.jit(lambda h, x: f(m, h, x))(h, x), f, "conjugate")
    if f is not in_place_through_a_conjugate:  # the record of its views' gradients is left to PyTorch
        assert not weft.stats()["fallbacks"]


def rooted(m: Weights, h: Tensor, x: Tensor) -> Any:
    for t in range(x.shape[0]):
        h = torch.sqrt(h + 4) @ m.w * 0.3 + x[t]
    return h


def spectral(m: Weights, h: Tensor, x: Tensor) -> Any:
    for t in range(x.shape[0]):
        h = torch.fft.fft(h) @ m.w * 0.3 + torch.fft.irfft(m.w[0], x.shape[-1]) + x[t]
    return h


@pytest.mark.parametrize(
    ("f", "why"), [(rooted, "aten.sqrt.default of complex numbers"), (spectral, "as torch.fft reads tables")]
)
def test_a_loop_without_a_program_is_said(f: Loop, why: str) -> None:
    _compare(torch.compile(f, backend="weft"), f, "usual")
    ((place, reasons),) = stats.not_rolled.items()
    assert place.startswith("test_complex_compiled.py:")
    assert any(why in reason for reason in reasons)


# ---- scans


def _lru_step(m: Weights) -> Any:
    pole, c = torch.exp(torch.complex(-m.size.exp(), m.angle)), torch.view_as_complex(m.c)

    def step(h: Tensor, x: Tensor) -> Any:
        h = pole * h + x.to(h.dtype) @ m.b.t()
        return h, (h @ c.t()).real

    return step


def _gated_step(m: Weights) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        g = torch.sigmoid(h @ m.w + x)
        h = g * h + (1 - g) * torch.tanh(x * (1 + 1j)) @ m.b.conj()
        return h, {"h": h.conj(), "size": h.abs(), "none": None}

    return step


def _in_place_step(m: Weights) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = h @ m.w
        h.mul_(0.5 + 1j)
        h.real.mul_(2.0)
        return h + x, h.imag

    return step


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * 3


def _root_step(m: Weights) -> Any:
    return lambda h, x: (torch.sqrt(h @ m.w + x), h.abs())


def _inverse_step(m: Weights) -> Any:
    return lambda h, x: (h @ torch.linalg.inv(h.mT @ h + m.w) * 0.1 + x, h)


def _function_step(m: Weights) -> Any:
    return lambda h, x: (Doubled.apply(h) * 0.2 + x * m.w[0], h.abs())


def _real_ends_step(m: Weights) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        z = torch.fft.fft(torch.sqrt(torch.complex(h, x)))
        return z.real * 0.1 + x, z.abs()

    return step


def _scanned(make: Callable[[Weights], Any], scan: Any, is_real: bool = False) -> Loop:
    def f(m: Weights, h: Tensor, x: Tensor) -> Any:
        return scan(make(m), h.real if is_real else h, x)

    return f


@pytest.mark.parametrize("kind", ["usual", "no rows", "one step", "conjugate", "strided"])
@pytest.mark.parametrize("make", [_lru_step, _gated_step, _in_place_step])
def test_a_scan_is_a_program(make: Callable[[Weights], Any], kind: str) -> None:
    compiled, before = torch.compile(_scanned(make, weft.scan), backend="weft", fullgraph=True), stats.calls
    _compare(compiled, _scanned(make, loop), kind)
    assert stats.calls > before and not weft.stats()["fallbacks"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_scan_under_another_backend(backend: str) -> None:
    compiled = torch.compile(_scanned(_lru_step, weft.scan), backend=backend, dynamic=True)
    _compare(compiled, _scanned(_lru_step, loop), "usual")
    assert not weft.stats()["fallbacks"]


@pytest.mark.parametrize("make", [_root_step, _inverse_step, _function_step, _real_ends_step])
def test_a_scan_without_a_program_runs_with_its_gradients(make: Callable[[Weights], Any]) -> None:
    """PyTorch's operator has no derivatives for complex numbers."""
    is_real = make is _real_ends_step
    _compare(torch.compile(_scanned(make, weft.scan, is_real), backend="weft"), _scanned(make, loop, is_real), "usual")
    assert weft.stats()["fallbacks"]


def _chosen(m: Weights, h: Tensor, x: Tensor) -> Any:
    return torch.cond(h.real.sum() > 0, lambda h: torch.tanh(h @ m.w), lambda h: h.conj() * 2 @ m.w, (h,))


def _prefixes(m: Weights, h: Tensor, x: Tensor) -> Any:
    def then(a: Any, b: Any) -> Any:
        return b[0] * a[0], b[0] * a[1] + b[1]

    return weft.associative_scan(then, (x.to(h.dtype) * 0.3j, x * (1 + 1j) @ m.w))[1]


def _bounded(m: Weights, h: Tensor, x: Tensor) -> Any:
    return weft.while_loop(
        lambda c: c.abs().sum() < 50, lambda c: c * (1.2 + 0.3j) + c.conj() @ m.w * 0.01, h, max_steps=20
    )


def _saving(m: Weights, h: Tensor, x: Tensor) -> Any:
    return weft.checkpoint_scan(_gated_step(m), h, x)


def _along_another_dim(m: Weights, h: Tensor, x: Tensor) -> Any:
    return weft.scan(_in_place_step(m), h, x.transpose(0, 1) * 1j, dim=1, reverse=True)


@pytest.mark.parametrize("f", [_chosen, _prefixes, _bounded, _saving, _along_another_dim])
def test_other_operators(f: Loop) -> None:
    before = stats.calls
    _compare(torch.compile(f, backend="weft"), f, "usual")
    assert stats.calls > before and not weft.stats()["fallbacks"]


def test_exported() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = Weights()

        def forward(self, h: Tensor, x: Tensor) -> Any:
            return weft.scan(_lru_step(self.m), h, x)

    model, (h, x) = Model(), _inputs("usual")
    for strict in (True, False):
        exported = torch.export.export(model, (h, x), strict=strict).module()
        for found, expected in zip(exported(h, x), model(h, x), strict=True):
            torch.testing.assert_close(found, expected)
