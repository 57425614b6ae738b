"""Complex tensors as a program has them: pairs [..., 2] of a real and an imaginary part, in the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def as_pairs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, complex ones as views [..., 2]; gradients go through the views."""
    return [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]


def of_pairs(tensor: Tensor) -> Tensor:
    """The complex tensor whose parts are pairs [..., 2]."""
    return torch.view_as_complex(tensor)
