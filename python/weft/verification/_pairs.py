"""Which layers of two models are compared with each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.formats import Layer


@dataclasses.dataclass
class Pair:
    """A chain of layers, each fed by the one before it, on both sides. start: its first layer's index in the file."""

    start: int
    reference: list[Layer]
    candidate: list[Layer]


def paired(reference: Sequence[Layer], candidate: Sequence[Layer]) -> tuple[list[Pair], list[str]]:
    """Layers by their order in the files, in chains; and what differs so that it can't be run.

    A layer that can't be compared, being of another kind or size, ends the chain before it and is left out. Where
    neither side says that a layer is fed by the one before it, it gets an input of its own.
    """
    pairs: list[Pair] = []
    problems: list[str] = []
    if len(reference) != len(candidate):
        problems.append(f"the reference has {_count(len(reference))}, the candidate {_count(len(candidate))}")
    joined = False
    for index, (ours, theirs) in enumerate(zip(reference, candidate, strict=False)):
        if found := _misfit(index, ours, theirs):
            problems.append(found)
            joined = False
            continue
        if _merges_differ(ours, theirs):
            problems.append(
                f"layer {index}: {theirs.name} merges its directions by {theirs.merge}, {ours.name} by {ours.merge}"
            )
        chained = joined and (ours.continues or theirs.continues) and _fits(pairs[-1], ours, theirs)
        if chained:
            pairs[-1].reference.append(ours)
            pairs[-1].candidate.append(theirs)
        else:
            pairs.append(Pair(index, [ours], [theirs]))
        joined = True
    return pairs, problems


def _count(layers: int) -> str:
    return f"{layers} layer{'' if layers == 1 else 's'}"


def _merges_differ(ours: Layer, theirs: Layer) -> bool:
    return len(ours.directions) == 2 and ours.merge != theirs.merge


def _fits(pair: Pair, ours: Layer, theirs: Layer) -> bool:
    return pair.reference[-1].output_size == ours.input_size and pair.candidate[-1].output_size == theirs.input_size


def _misfit(index: int, ours: Layer, theirs: Layer) -> str:
    """What keeps two layers from being compared, "" if nothing does."""
    for what, mine, other in (
        ("kind", ours.kind, theirs.kind),
        ("inputs", ours.input_size, theirs.input_size),
        ("units", ours.hidden_size, theirs.hidden_size),
        ("outputs", ours.directions[0].output_size, theirs.directions[0].output_size),
        ("directions", len(ours.directions), len(theirs.directions)),
    ):
        if mine == other:
            continue
        if what == "kind":
            return f"layer {index}: {theirs.name} is of kind {other}, {ours.name} of kind {mine}"
        return f"layer {index}: {theirs.name} has {other} {what}, {ours.name} has {mine}"
    return ""
