"""Convolutions and pooling within a step, of weights that are parameters and of weights that are inputs."""

from __future__ import annotations

import random
from typing import Any

import packaged
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from package_checks import EMULATED, Case, check_cases
from torch import Tensor

CONVOLUTIONS = [F.conv1d, F.conv2d, F.conv3d]
TRANSPOSED = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]
MEANS = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def _convolution(rng: random.Random) -> Case:
    dims, groups = rng.choice([1, 2, 2, 3]), rng.choice([1, 1, 2, 3])
    inputs, outputs = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    if rng.random() < 0.2:
        inputs = outputs = groups  # depthwise
    kernel, stride, dilation, padding = (
        [rng.randint(least, most) for _ in range(dims)] for least, most in ((1, 5 - dims), (1, 3), (1, 2), (0, 2))
    )
    x = torch.randn(rng.choice([1, 2]), inputs, *(rng.randint(7, 9) for _ in range(dims)))
    bias = torch.randn(outputs) if rng.random() < 0.5 else None
    is_transposed = rng.random() < 0.5
    size = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    weight = torch.randn(*size, *kernel)
    more = [rng.randint(0, max(a, b) - 1) for a, b in zip(stride, dilation, strict=True)]

    def f(x: Tensor, weight: Tensor = weight) -> Tensor:
        if is_transposed:
            return TRANSPOSED[dims - 1](x, weight, bias, stride, padding, more, groups, dilation)
        return CONVOLUTIONS[dims - 1](x, weight, bias, stride, padding, dilation, groups)

    tensors = (x, weight) if rng.random() < 0.5 else (x,)
    return f"{dims} dims, {kernel} {stride} {padding} {dilation} {groups} {is_transposed} {more}", f, tensors


def _mean(rng: random.Random) -> Case:
    dims = rng.choice([1, 2, 2, 3])
    kernel, stride = ([rng.randint(1, most) for _ in range(dims)] for most in (5 - dims, 3))
    padding = [rng.randint(0, size // 2) for size in kernel]
    options: list[Any] = [kernel, stride, padding, rng.random() < 0.5, rng.random() < 0.5]
    if dims > 1:
        options.append(rng.choice([None, 3]))
    x = torch.randn(*rng.choice([(2,), (1, 2)]), *(rng.randint(4, 9) for _ in range(dims)))
    return f"means {options}", lambda x: MEANS[dims - 1](x, *options), (x,)


@pytest.mark.parametrize("seed", range(6))
def test_random_windows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    cases: list[Case] = []
    while len(cases) < 8:
        name, f, tensors = rng.choice([_convolution, _convolution, _mean])(rng)
        try:
            f(*tensors)
        except RuntimeError:  # a window larger than what it moves over
            continue
        cases.append((name, f, tensors))
    targets = packaged.NATIVE if seed > 0 else ["aarch64"]
    check_cases(tmp_path_factory, cases, targets, 1e-5)


def test_other_windows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Maxima, means to a given size, interpolation, and a kernel as large as its input."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 8, 6), torch.randn(4, 3, 8, 6)
    cases: list[Case] = [
        ("maxima", lambda x: F.max_pool2d(x, 3, 2, 1), (x,)),
        ("means to a size", lambda x: F.adaptive_avg_pool2d(x, (4, 1)), (x,)),
        ("uneven means", lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (x,)),
        ("maxima to a size", lambda x: F.adaptive_max_pool2d(x, (3, 2)), (x,)),
        ("in three dims", lambda x: F.adaptive_max_pool3d(x, (2, 8, 4)) + F.adaptive_avg_pool3d(x, (2, 8, 4)), (x,)),
        ("in one dim, of bfloat16", lambda x: F.adaptive_max_pool1d(x[0].bfloat16(), 4).float(), (x,)),
        ("larger", lambda x: F.interpolate(x, scale_factor=2), (x,)),
        ("all at once", F.conv2d, (x, weight)),
        ("same", lambda x, w: F.conv1d(x[..., 0], w[:, :, :4, 0], padding="same"), (x, weight)),
        ("half", lambda x, w: F.conv1d(x[..., 0].bfloat16(), w[:, :, :4, 0].bfloat16()).float(), (x, weight)),
    ]
    check_cases(tmp_path_factory, cases, [*packaged.NATIVE, *EMULATED], 1e-2)
