"""Complex tensors as a program has them: pairs [..., 2] of a real and an imaginary part, in the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Kind = bool | None  #: of a leaf: None where there is no tensor, else whether it is complex


def as_pairs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, complex ones as views [..., 2]; gradients go through the views."""
    return [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]


def of_pairs(tensor: Tensor) -> Tensor:
    """The complex tensor whose parts are pairs [..., 2]."""
    return torch.view_as_complex(tensor)


def kind_of(leaf: Tensor | None) -> Kind:
    return None if leaf is None else leaf.is_complex()


def next_leaf(results: Iterator[Tensor], kind: Kind) -> Tensor | None:
    """The next of a program's results, as a leaf of this kind."""
    if kind is None:
        return None
    return of_pairs(next(results)) if kind else next(results)
