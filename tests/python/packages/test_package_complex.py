"""Packages of steps with complex numbers and Fourier transforms, on all targets."""

from __future__ import annotations

import json
from pathlib import Path

import packaged
import pytest
import torch
from package_checks import check_step
from torch import Tensor

import weft

ALL = [*packaged.NATIVE, *packaged.MACHINES]


@pytest.mark.parametrize("target", ALL)
def test_a_linear_recurrent_unit(tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    torch.manual_seed(0)
    poles = torch.polar(torch.rand(7) * 0.3 + 0.65, torch.rand(7) * 6)
    into, out = torch.randn(3, 7, dtype=torch.complex64), torch.randn(7, 2, dtype=torch.complex64)

    def step(h: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        after = poles * h["h"] + x.to(torch.complex64) @ into
        return {"h": after}, ((after @ out).real, after.conj() * 2j)

    init = {"h": torch.randn(2, 7, dtype=torch.complex64)}
    check_step(tmp_path_factory, step, init, torch.randn(21, 2, 3), 21, [target], tolerance=2e-5)


@pytest.mark.parametrize("target", ALL)
def test_complex_inputs_and_a_modulus(tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    torch.manual_seed(1)
    bias = torch.randn(5)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        turned = h * torch.polar(torch.ones(5), bias) + x
        size = turned.abs()
        after = turned / (size + 1e-3) * torch.relu(size - 0.1)
        return after, torch.view_as_real(after).sum(-1)

    xs = torch.randn(15, 5, dtype=torch.complex64)
    check_step(tmp_path_factory, step, torch.zeros(5, dtype=torch.complex64), xs, 15, [target], tolerance=2e-5)


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("n", [6, 15, 80])
def test_transforms_in_a_step(tmp_path_factory: pytest.TempPathFactory, target: str, n: int) -> None:
    torch.manual_seed(n)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        spectrum = torch.fft.rfft(x)
        after = 0.9 * h + spectrum.abs()
        both = torch.fft.fft(torch.complex(x, x.flip(-1)), norm="ortho")
        return after, (torch.fft.irfft(spectrum * after, n=n), torch.fft.ifft(both).imag)

    xs = torch.randn(9, 2, n)
    check_step(tmp_path_factory, step, torch.zeros(2, n // 2 + 1), xs, 9, [target], tolerance=1e-4)


@pytest.mark.parametrize("n", [1, 2, 31, 64, 65, 97, 128, 441, 480, 512, 514, 1000, 1024, 2048, 4096])
def test_lengths_of_transforms(tmp_path_factory: pytest.TempPathFactory, n: int) -> None:
    """Within 1e-6 of the largest result of a transform by float64."""
    torch.manual_seed(n)

    def step(carry: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        real, full = x
        half = torch.fft.rfft(real)
        return carry + 1, (
            half,
            torch.fft.irfft(half * 1j, n=n),
            torch.fft.fft(full),
            torch.fft.ifft(full, norm="forward"),
        )

    given = torch.randn(n), torch.randn(n, dtype=torch.complex64)
    folder = weft.package(step, (torch.zeros(()), given), tmp_path_factory.mktemp("p") / "model")
    found = packaged.loaded(folder, tmp_path_factory).step(*given)
    _, expected = step(torch.zeros(()), (given[0].double(), given[1].to(torch.complex128)))
    for one, other in zip(found, expected, strict=True):
        wanted = torch.view_as_real(other.resolve_conj()) if other.is_complex() else other
        assert (one.double() - wanted).abs().max() <= 1e-6 * max(wanted.abs().max(), 1)


def test_what_a_package_says_of_complex_tensors(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h * 1j + x, h

    example = torch.zeros(3, dtype=torch.complex64), torch.ones(3, dtype=torch.complex128)
    with pytest.raises(ValueError, match=r"carry: complex64\[3\] in, complex128\[3\] out"):
        weft.package(step, example, tmp_path / "model")
    folder = weft.package(step, (example[0], example[0]), tmp_path / "model")
    facts = json.loads((folder / "model.json").read_text())
    assert [each["shape"] for each in (*facts["inputs"], *facts["states"], *facts["outputs"])] == [[3, 2]] * 3
    model = packaged.loaded(folder, tmp_path_factory)
    x = torch.randn(4, 3, dtype=torch.complex64)
    ys = model.run(x)
    assert torch.equal(ys, packaged.loaded(folder, tmp_path_factory).run(torch.view_as_real(x)))
    torch.testing.assert_close(torch.view_as_complex(ys)[1], x[0])
    with pytest.raises(ValueError, match=r"takes x: float32\[3,2\]"):
        model.step(torch.ones(3))


def test_lengths_that_are_refused(tmp_path: Path) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h, torch.fft.rfft(x).abs()

    for n in (1009, 32768):
        with pytest.raises(RuntimeError, match="_fft_r2c"):
            weft.package(step, (torch.zeros(()), torch.ones(n)), tmp_path / "model")


def test_a_model_over_time_with_complex_results(tmp_path_factory: pytest.TempPathFactory) -> None:
    def model(x: Tensor) -> dict[str, object]:
        return {"twice": x * 2, "parts": (torch.view_as_real(x), x * 1j)}

    x = torch.randn(1, 12, 3, dtype=torch.complex64)
    folder = weft.package(model, x, tmp_path_factory.mktemp("p") / "model", time=1)
    package = packaged.loaded(folder, tmp_path_factory)
    assert [each.name for each in package.outputs] == ["y['twice']", "y['parts'][0]", "y['parts'][1]"]
    twice, parts, turned = package.run(x.unsqueeze(2).movedim(1, 0).contiguous())
    torch.testing.assert_close(torch.view_as_complex(twice)[:, :, 0].transpose(0, 1), x * 2)
    assert torch.equal(parts[:, :, 0].transpose(0, 1), torch.view_as_real(x))
    torch.testing.assert_close(torch.view_as_complex(turned)[:, :, 0].transpose(0, 1), x * 1j)
