"""Steps with complex numbers, which programs compute in parts: values and gradients against the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft

Step = Callable[[Any, Any], tuple[Any, Any]]


def _loop(step: Step, carry: Any, xs: Any) -> tuple[Any, Any]:
    ys = []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, torch.stack(ys)


def _weights(dtype: torch.dtype = torch.complex64) -> dict[str, Tensor]:
    torch.manual_seed(1)
    real = torch.float32 if dtype == torch.complex64 else torch.float64
    n, inputs, outputs = 5, 3, 4
    found = {
        "pole": torch.polar(torch.rand(n, dtype=real) * 0.3 + 0.6, torch.rand(n, dtype=real) * 3),
        "b": torch.randn(n, inputs, dtype=dtype),
        "c": torch.randn(outputs, n, dtype=dtype) * 0.4,
        "square": torch.randn(n, n, dtype=dtype) * 0.3,
        "bias": torch.randn(n, dtype=real),
        "angle": torch.randn(n, dtype=real),
    }
    return {name: tensor.requires_grad_() for name, tensor in found.items()}


def _compare(step: Step, init: Any, xs: Any, weights: dict[str, Tensor], near: float = 1e-4) -> None:
    leaves = [*weights.values(), init, xs]

    def all_of(run: Callable[..., Any]) -> list[Tensor | None]:
        carry, ys = run(step, init, xs)
        loss = sum((each.abs() ** 2 * torch.arange(1, each.numel() + 1).view_as(each)).sum() for each in (carry, ys))
        with_gradients = [leaf for leaf in leaves if leaf.requires_grad]
        return [carry, ys, *torch.autograd.grad(loss, with_gradients, allow_unused=True)]

    before = dict(weft.stats()["fallbacks"])
    for found, expected in zip(all_of(weft.scan), all_of(_loop), strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.dtype == expected.dtype and found.shape == expected.shape
            torch.testing.assert_close(found, expected, rtol=near, atol=near * float(expected.abs().sum() + 1))
    assert weft.stats()["fallbacks"] == before


def _lru(w: dict[str, Tensor]) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = w["pole"] * h + x.to(h.dtype) @ w["b"].t()
        return h, (h @ w["c"].mT).real

    return step


def _modrelu(w: dict[str, Tensor]) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z = h @ w["square"] + x.to(h.dtype) @ w["b"].t()
        size = z.abs()
        h = torch.relu(size + w["bias"]) * z / (size + 1e-3)
        return h, h

    return step


def _rotation(w: dict[str, Tensor]) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        turn = torch.polar(torch.ones_like(w["angle"]), w["angle"])
        h = 0.9 * turn * h.conj() + 1j * torch.complex(x @ w["b"].real.t(), x @ w["b"].imag.t())
        return h, torch.view_as_real(h * (0.5 - 2j)).flatten(-2)

    return step


def _of_everything(w: dict[str, Tensor]) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        u = torch.nn.functional.linear(x.to(h.dtype), w["b"])
        g = torch.sigmoid(u) - torch.tanh(h * 0.5) / (2 + torch.exp(0.1 * h))
        z = torch.stack([g, h, g.sgn()]).mean(0) + torch.cat([g[..., :2], h[..., 2:]], -1) ** 2 * 0.1
        z = torch.where(x[..., :1] > 0, z, z.conj() * 0.7) + torch.einsum("bi,ij->bj", z, w["square"]) * 0.2
        z = z / (1.5 + 0.5j + u.abs()) + z.angle() * 0.01 + torch.addmm(u, z, w["square"], alpha=0.1) * 0.1
        return z, z.unsqueeze(0).expand(2, *z.shape).sum((0, 1)) - z.square()[0]

    return step


STEPS = {"lru": _lru, "modrelu": _modrelu, "rotation": _rotation, "everything": _of_everything}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", STEPS)
def test_values_and_gradients_are_the_loops(name: str, dtype: torch.dtype) -> None:
    w = _weights(dtype)
    real = w["bias"].dtype
    xs = torch.randn(7, 2, 3, dtype=real, requires_grad=True)
    init = torch.randn(2, 5, dtype=dtype, requires_grad=True)
    _compare(STEPS[name](w), init, xs, w, 2e-4 if dtype == torch.complex64 else 1e-10)


@pytest.mark.parametrize(
    ("name", "steps", "batch"), [("lru", 1, 1), ("modrelu", 5, 0), ("rotation", 3, 1), ("everything", 1, 3)]
)
def test_unusual_sizes(name: str, steps: int, batch: int) -> None:
    w = _weights()
    xs = torch.randn(batch, steps, 3).transpose(0, 1).requires_grad_()
    init = torch.randn(5, batch, dtype=torch.complex64).t().requires_grad_()
    _compare(STEPS[name](w), init, xs, w, 2e-4)


def _known(w: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 5, dtype=torch.complex128), torch.randn(6, 2, 3, dtype=torch.complex128)


def _simple(w: dict[str, Tensor]) -> Step:
    return lambda h, x: (torch.tanh(h @ w["square"] + x @ w["b"].t()), h.abs())


def test_lazily_conjugated_and_negated_tensors() -> None:
    """Their memory holds other numbers than they have."""
    w = _weights(torch.complex128)
    init, xs = _known(w)
    step = _simple(w)
    for _ in range(3):  # the third is found by the short way
        _same(weft.scan(step, init.conj(), xs.conj()), _loop(step, init.conj(), xs.conj()))
    fixed = w["square"].detach().conj()
    turned: Step = lambda h, x: (h @ fixed.t() + x[..., :1], h.real)  # noqa: E731
    _same(weft.scan(turned, init, xs), _loop(turned, init, xs))
    halved: Step = lambda h, x: (h * 0.5 + x, h * x)  # noqa: E731
    for _ in range(3):
        parts = xs.conj().imag
        _same(weft.scan(halved, parts[0], parts), _loop(halved, parts[0], parts))


def _same(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def _second_derivatives(scan: Any, step: Step, init: Tensor, xs: Tensor, w: dict[str, Tensor]) -> list[Tensor]:
    init = init.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(scan(step, init, xs)[1].sum(), init, create_graph=True)
    return [gradient, *torch.autograd.grad((gradient.abs() ** 2).sum(), [init, w["square"]])]


def _under_vmap(scan: Any, step: Step, init: Tensor, xs: Tensor, _: Any) -> list[Tensor]:
    return [torch.vmap(lambda each: scan(step, each, xs)[0])(torch.stack([init, init * 2j]))]


def _tangents(scan: Any, step: Step, init: Tensor, xs: Tensor, _: Any) -> list[Tensor]:
    return list(torch.func.jvp(lambda each: scan(step, each, xs)[0], (init,), (init * 1j,)))


def _func_grad(scan: Any, step: Step, init: Tensor, xs: Tensor, _: Any) -> list[Tensor]:
    return [torch.func.grad(lambda each: scan(step, each, xs)[1].sum())(init)]


@pytest.mark.parametrize("how", [_second_derivatives, _under_vmap, _tangents, _func_grad])
def test_transforms(how: Callable[..., list[Tensor]]) -> None:
    w = _weights(torch.complex128)
    init, xs = _known(w)
    for found, expected in zip(*(how(run, _simple(w), init, xs, w) for run in (weft.scan, _loop)), strict=True):
        torch.testing.assert_close(found, expected)


def test_gradients_are_those_of_finite_differences() -> None:
    w = _weights(torch.complex128)
    xs = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    init = torch.randn(2, 5, dtype=torch.complex128, requires_grad=True)
    for make in (_lru, _rotation):
        leaves = [w["pole"], w["b"], w["c"], w["angle"], init, xs]

        def f(*_: Tensor, make: Any = make) -> tuple[Tensor, ...]:
            return tuple(weft.scan(make(w), init, xs))

        used = [leaf for leaf in leaves if make is _rotation or leaf is not w["angle"]]
        used = [leaf for leaf in used if make is _lru or not (leaf is w["pole"] or leaf is w["c"])]
        assert torch.autograd.gradcheck(f, used)


def test_changes_in_place_and_detached_values() -> None:
    w = _weights(torch.complex128)
    init, xs = torch.randn(2, 5, dtype=torch.complex128), torch.randn(4, 2, 5, dtype=torch.complex128)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = h.detach() * 0.3
        h = (h @ w["square"]).clone()
        h.mul_(0.5 + 1j)
        h[0] = x[1]
        h.real.mul_(2.0)
        return h + kept, h.imag

    _compare(step, init.requires_grad_(), xs, w, 1e-10)


def test_a_value_at_0_has_the_loops_derivatives() -> None:
    init = torch.zeros(2, 3, dtype=torch.complex128, requires_grad=True)
    xs = torch.zeros(3, 2, 3, dtype=torch.float64)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h * 0.5 + x, h.abs() + h.angle() + h.sgn().real + h.norm() + (h.real**2 + h.imag**2)

    _compare(step, init, xs, {})


def test_what_is_refused_runs_as_the_loop_with_its_gradients() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * 3

    def hooked(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h * (0.5 + 0.1j) + x
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient * 0.5)
        return h, h.abs()

    def function(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = Doubled.apply(h) * 0.2 + x
        return h, h.abs()

    init, xs = _known({})
    init, xs = init[:, :3].clone().requires_grad_(), xs
    for step in (hooked, function, lambda h, x: (torch.linalg.inv(h @ h.mT) @ h + x, h.abs())):
        before = sum(weft.stats()["fallbacks"].values())
        found, expected = (torch.autograd.grad(run(step, init, xs)[1].sum(), init)[0] for run in (weft.scan, _loop))
        torch.testing.assert_close(found, expected)
        assert sum(weft.stats()["fallbacks"].values()) > before


def test_numbers_trees_and_other_loops() -> None:
    init, xs = _known({})

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        z, r = carry
        z, r = z * 1j + x["a"], r + x["b"].abs()
        return (z, r), {"z": z * r, "none": None, "r": r}

    trees = {"a": xs[..., :1], "b": xs[..., 1:2]}
    a, b = init[:, :1], torch.zeros(2, 1, dtype=torch.float64)
    (z, r), ys = weft.scan(step, (a, b), trees)
    for t in range(len(xs)):
        a, b = a * 1j + xs[t, :, :1], b + xs[t, :, 1:2].abs()
        torch.testing.assert_close((ys["z"][t], ys["r"][t]), (a * b, b))
    torch.testing.assert_close((z, r), (a, b))
    torch.testing.assert_close(weft.checkpoint_scan(_times, init, xs[..., :1])[0], _loop(_times, init, xs[..., :1])[0])
    torch.testing.assert_close(weft.associative_scan(torch.mul, xs), torch.cumprod(xs, 0))
    grown = weft.while_loop(lambda c: c.abs().sum() < 100, lambda c: c * (1.2 + 0.3j), init)
    expected = init
    while expected.abs().sum() < 100:
        expected = expected * (1.2 + 0.3j)
    torch.testing.assert_close(grown, expected)


def _times(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return h * x, h


def test_another_number_of_steps_is_the_same_program() -> None:
    step = _lru(_weights())
    h = torch.zeros(2, 5, dtype=torch.complex64)
    before = weft.stats()["captured"]["programs"]
    for steps in (4, 9, 17):
        for batch in (2, 3):
            xs, init = torch.randn(steps, batch, 3), h[:1].expand(batch, 5)
            _same(weft.scan(step, init, xs), _loop(step, init, xs))
    assert weft.stats()["captured"]["programs"] <= before + 3


def test_zeros_have_the_signs_that_pytorch_gives_them() -> None:
    """They decide on which side of a branch cut a negative number lies."""
    x = torch.tensor([[1.0, -1.0, 2.0], [-3.0, 0.5, -0.5]], dtype=torch.float64)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z = x.to(torch.complex128)
        values = (
            z, -z, z.conj(), -z.conj(), z * -2, z * (-1 + 0j), x * torch.complex(x, torch.zeros_like(x)), z - 3, z / -2,
            z / x, z / torch.complex(x, -torch.zeros_like(x)), z * z * z, torch.stack([z, -z]).sum(0) - 1, 1 / z,
        )  # fmt: skip
        return h + 1, torch.stack([value.angle() for value in values] + [value.log().imag for value in values])

    init = torch.zeros(3, dtype=torch.complex128)
    _same(weft.scan(step, init, x), _loop(step, init, x))


def test_a_cast_to_bool_looks_at_both_parts() -> None:
    init = torch.tensor([0j, 1j, 1 + 0j])
    step: Step = lambda h, x: (h * 1, h.bool() ^ (x > 0))  # noqa: E731
    _same(weft.scan(step, init, torch.zeros(2, 3)), _loop(step, init, torch.zeros(2, 3)))
