"""Biases that one format keeps separate and another adds, in the dtype of the file. The rounding of these sums shows as
a difference in float64, but is no fault."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from weft.formats import Direction, Layer
from weft.verification._pairs import Pair


def settled(pair: Pair) -> tuple[Pair, list[str]]:
    """The pair of sides, where biases that differ by the rounding of such a sum alone, on either side, are replaced by
    the reference's. Also a line about each layer with such biases."""
    layers, notes = [], []
    for ours, theirs in zip(pair.reference, pair.candidate, strict=True):
        directions = [_settled(ours, *both) for both in zip(ours.directions, theirs.directions, strict=True)]
        if any(new is not old for new, old in zip(directions, theirs.directions, strict=True)):
            theirs = dataclasses.replace(theirs, directions=directions)
            notes.append(
                f"{theirs.called}: the two biases of one side are one on the other, which is their sum but for the "
                "rounding of the file's dtype; in float64 they are taken to be the same"
            )
        layers.append(theirs)
    return dataclasses.replace(pair, candidate=layers), notes


def _settled(layer: Layer, ours: Direction, theirs: Direction) -> Direction:
    """The candidate's direction, settled; `theirs` itself where there is nothing to settle."""
    rows = ours.weight_x.shape[0]
    mine, other = _biases(ours, rows), _biases(theirs, rows)
    sums = mine.sum(0), other.sum(0)
    # A sum of two exact numbers has half a unit of rounding; a sum of rounded numbers may have more.
    unit = max(_unit(each) for each in (ours, theirs))
    same = (sums[0] - sums[1]).abs() <= unit * torch.maximum(sums[0].abs(), sums[1].abs())
    joined = (mine == 0).any(0) != (other == 0).any(0)
    if layer.kind == "GRU" and layer.reset_after:
        joined[2 * rows // 3 :] = False  # the reset gate is between these two
    settling = same & joined & (sums[0] != sums[1])
    # Rows that differ by more stay unchanged, so that they are reported.
    if not bool(settling.any()):
        return theirs
    bias_x, bias_h = torch.where(settling, mine, other).unbind(0)
    return dataclasses.replace(theirs, bias_x=bias_x, bias_h=bias_h)


def _biases(direction: Direction, rows: int) -> Tensor:
    """The two biases [2, G*H] in float64; zeros for a missing one."""
    parts = (direction.bias_x, direction.bias_h)
    return torch.stack([torch.zeros(rows, dtype=torch.float64) if part is None else part.double() for part in parts])


def _unit(direction: Direction) -> float:
    """Half the distance from 1 to the next number."""
    return torch.finfo(direction.weight_x.dtype).eps / 2
