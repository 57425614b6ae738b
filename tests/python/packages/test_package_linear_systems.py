"""Systems of linear equations within a step: inverses, solutions, determinants, factors of Cholesky's."""

from __future__ import annotations

import random
from typing import Any

import packaged
import pytest
import torch
from package_checks import EMULATED, Case, check_cases, check_step
from torch import Tensor, linalg

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def _cases(n: int, k: int, batch: tuple[int, ...], dtype: torch.dtype) -> list[Case]:
    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype)

    one = torch.eye(n, dtype=dtype)
    a, b, v, row = drawn(*batch, n, n) + 2 * one, drawn(*batch, n, k), drawn(*batch, n), drawn(*batch, k, n)
    positive, half = a @ a.mH + one / 2, drawn(n, n) / 4 + one
    cases: list[Case] = [
        ("inv", linalg.inv, (a,)),
        ("inverse", torch.inverse, (a,)),
        ("inv_ex", linalg.inv_ex, (a,)),
        ("solve", linalg.solve, (a, b)),
        ("solve_ex", linalg.solve_ex, (a, b)),
        ("of a vector", linalg.solve, (a, v)),
        ("from the right", lambda a, b: linalg.solve(a, b, left=False), (a, row)),
        ("one matrix for all", linalg.solve, (half, b)),
        ("det", linalg.det, (a,)),
        ("slogdet", linalg.slogdet, (a,)),
        ("cholesky", linalg.cholesky, (positive,)),
        ("the upper one", lambda a: linalg.cholesky(a, upper=True), (positive,)),
        ("cholesky_ex", linalg.cholesky_ex, (positive,)),
        ("lower", lambda a, b: linalg.solve_triangular(a, b, upper=False), (half, b)),
        ("upper", lambda a, b: linalg.solve_triangular(a, b, upper=True, unitriangular=True), (half, b)),
        ("right", lambda a, b: linalg.solve_triangular(a, b, upper=True, left=False), (half, row)),
        ("cholesky_solve", lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a)), (positive, b)),
        ("cholesky_inverse", lambda a: torch.cholesky_inverse(linalg.cholesky(a)), (positive,)),
        ("matrix_power", lambda a: linalg.matrix_power(a, -2), (positive,)),
    ]
    return cases if dtype.is_complex else [*cases, ("logdet", torch.logdet, (a,))]


@pytest.mark.parametrize("seed", range(10))
def test_random_systems(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    n, dtype = rng.choice([1, 2, 3, 4, 6, 9]), rng.choice([torch.float32, torch.float64, torch.complex64])
    cases = rng.sample(_cases(n, rng.randint(1, 3), rng.choice([(), (2,), (2, 1)]), dtype), 9)
    targets = [EMULATED[seed % 2]] if seed % 5 == 4 else ["x86-64-v3"]
    check_cases(tmp_path_factory, cases, targets, 1e-10 if dtype == torch.float64 else 2e-3)


def test_a_matrix_without_an_inverse(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What PyTorch says by an error is no number here; where it gives the reason as a number, it is the same."""
    singular = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    negative = torch.tensor([[4.0, 2.0], [2.0, 0.5]])

    def step(carry: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        return carry, (linalg.inv_ex(x[0]).info, linalg.cholesky_ex(x[1]).info, linalg.inv(x[0]))

    example = (singular + torch.eye(3), negative + torch.eye(2))
    folder = weft.package(step, (torch.zeros(1), example), tmp_path_factory.mktemp("packages") / "model")
    inverse_info, cholesky_info, inverse = packaged.loaded(folder, tmp_path_factory).step(singular, negative)
    assert inverse_info == linalg.inv_ex(singular).info > 0
    assert cholesky_info == linalg.cholesky_ex(negative).info > 0
    assert not inverse.isfinite().all()


def test_a_kalman_filter(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    f, h = torch.eye(6) + torch.diag(torch.full((4,), 0.1), 2), torch.eye(6)[:3]

    def step(carry: tuple[Tensor, Tensor], z: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        mean, cov = carry
        mean, cov = f @ mean, f @ cov @ f.T + 0.01 * torch.eye(6)
        gain = linalg.solve(h @ cov @ h.T + 0.1 * torch.eye(3), h @ cov).T
        mean = mean + gain @ (z - h @ mean)
        return (mean, (torch.eye(6) - gain @ h) @ cov), mean

    init, targets = (torch.zeros(6), torch.eye(6)), [*packaged.NATIVE, *EMULATED, "cortex-m4", "wasm32"]
    check_step(tmp_path_factory, step, init, torch.randn(20, 3), 20, targets, 1e-4)


def test_what_is_too_large_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    x = torch.eye(40)
    with pytest.raises(RuntimeError, match="linalg_inv"):
        weft.package(lambda c, x: (c, linalg.inv(x)), (x, x), tmp_path_factory.mktemp("packages") / "m")


def test_streams_of_small_systems() -> None:
    """Of each step a system of its own, in a model over time."""
    torch.manual_seed(0)
    x = torch.randn(2, 30, 5)

    def model(x: Tensor) -> Tensor:
        a = x[..., :, None] * x[..., None, :] + torch.eye(5)
        return linalg.solve(a, x) + linalg.det(a)[..., None]

    torch.testing.assert_close(weft.stream(model, x).run(x), model(x), atol=1e-4, rtol=1e-4)
