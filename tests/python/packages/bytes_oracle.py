"""What quantize="int8-dynamic" computes, in plain PyTorch: with the same integers, and with all roundings in the same
order."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_ROWS, LEAST_COLUMNS = 16, 32  # of a product's weights [K, N], for its activations to be rounded


def rounded_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers of a weight [N, K], and scales [N]."""
    most = weight.abs().amax(1)
    scale = torch.where(most / 127 > 0, most / 127, torch.ones_like(most))
    return (weight / scale[:, None]).round().clamp(-127, 127), scale


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers of activations [..., K], and scales [..., 1], which are NaN for rows that aren't finite."""
    most = x.abs().amax(-1, keepdim=True)
    bounded = most.clamp_min(2.0**-100)
    scale = torch.where(most.isfinite(), bounded / 127, torch.nan)
    integers = (x * (torch.tensor(127.0) / bounded)).round()
    return torch.where(scale.isnan(), torch.zeros(()), integers), scale


def is_rounded(rows: int, columns: int) -> bool:
    return rows >= LEAST_ROWS and columns >= LEAST_COLUMNS


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] by weight [N, K], plus bias [N]."""
    integers, scale = rounded_weight(weight)
    left, of_row = rounded_rows(x)
    if is_rounded(x.shape[-1], len(weight)):
        product = ((left.double() @ integers.double().t()).float() * of_row) * scale
    else:
        product = x @ (integers * scale[:, None]).t()
    return product if bias is None else bias + product


def bound(x: Tensor, weight: Tensor) -> Tensor:
    """How far `linear` may be from the exact product, [..., N]: half a step of each factor times the other one."""
    _, of_column = rounded_weight(weight)
    _, of_row = rounded_rows(x)
    by_rows = of_row / 2 * weight.abs().sum(1)
    by_columns = of_column / 2 * x.abs().sum(-1, keepdim=True)
    return by_rows + by_columns + of_row * of_column * x.shape[-1] / 4 + 1e-5 * (x.abs() @ weight.abs().t())
