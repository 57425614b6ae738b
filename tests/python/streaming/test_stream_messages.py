"""What weft.stream and weft.package say of arguments that they can't take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_streaming import compare
from torch import Tensor

import weft

X = torch.randn(2, 12, 4)


def sums(x: Tensor) -> Tensor:
    return x.cumsum(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time": "1"}, "time is a dim's number, or a list of one or None for each tensor, but is '1'"),
        ({"time": 1.0}, "time is a dim's number"),
        ({"time": ["1"]}, "time is a dim's number"),
        ({"delay": "2"}, "delay is a number of steps, but is '2'"),
        ({"delay": None}, "delay is a number of steps, but is None"),
    ],
)
def test_numbers_that_are_none(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"weft.stream: {message}"):
        weft.stream(sums, X, **arguments)
    with pytest.raises(TypeError, match=f"weft.package: {message}"):
        weft.package(sums, X, tmp_path / "model", **{"time": 1, **arguments})


def test_a_chunk_that_is_no_number() -> None:
    with pytest.raises(TypeError, match=r"weft\.stream: chunk is a number of steps, but is '4'"):
        weft.stream(sums, X, chunk="4")  # type: ignore[arg-type]


def test_sparse_inputs() -> None:
    stream = weft.stream(sums, X)
    for given in (X[:, 0], X[:, :1]):
        with pytest.raises(ValueError, match=r"takes strided tensors, not torch.sparse_coo: call to_dense\(\)"):
            stream.step(given.to_sparse())
    with pytest.raises(ValueError, match=r"takes strided tensors, not torch.sparse_coo: call to_dense\(\)"):
        stream.run(X.to_sparse())
    torch.testing.assert_close(stream.run(X), sums(X))  # and goes on as if nothing had been


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("rows", [1, 3])
def test_running_sums_of_complex_numbers(dtype: torch.dtype, rows: int) -> None:
    x = torch.randn(rows, 17, 4, dtype=dtype)
    stream = weft.stream(sums, x)
    found = torch.cat([stream.run(x[:, :1]), stream.run(x[:, 1:12]), stream.run(x[:, 12:])], 1)
    torch.testing.assert_close(found, sums(x), rtol=1e-5, atol=1e-5)
    compare(lambda x: torch.complex(x, x.sin()).cumsum(-2).abs(), x.real.clone(), 1)
