"""Parameters of two layers side by side, for differences that no known change explains."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from weft.formats import GATES, Direction, Layer


def differing(ours: Layer, theirs: Layer) -> list[str]:
    """The parameters that differ, a phrase each: "weight_h by up to 0.1, in gate r"."""
    found = []
    for index, (mine, other) in enumerate(zip(ours.directions, theirs.directions, strict=True)):
        where = "" if len(ours.directions) == 1 else f" of the {('forward', 'backward')[index]} direction"
        for field in dataclasses.fields(Direction):
            first, second = getattr(mine, field.name), getattr(other, field.name)
            if isinstance(first, Tensor) or isinstance(second, Tensor):
                text = _difference(first, second, GATES[ours.kind] if first is not None else ())
                found += [f"{field.name}{where} {text}"] if text else []
    return found


def _difference(first: Tensor | None, second: Tensor | None, gates: tuple[str, ...]) -> str:
    if first is None or second is None:
        present = second if first is None else first
        assert present is not None
        # zeros are equivalent to None, except for gains, which are None on both sides or on neither
        if not bool(present.any()):
            return ""
        return "that only the candidate has" if first is None else "that the candidate lacks"
    if first.shape != second.shape:
        return f"of shape {list(second.shape)}, not {list(first.shape)}"
    apart = (first.double() - second.double()).abs().nan_to_num(nan=float("inf"))
    if not bool((apart > 0).any()):
        return ""
    if len(gates) < 2 or first.shape[0] % len(gates):
        return f"by up to {float(apart.max()):.3g}"
    of = [gate for gate, rows in zip(gates, apart.chunk(len(gates)), strict=True) if bool((rows > 0).any())]
    rows = "" if len(of) == len(gates) else f" in gate{'s' * (len(of) > 1)} {', '.join(of)}"
    return f"by up to {float(torch.max(apart)):.3g}{rows}"
