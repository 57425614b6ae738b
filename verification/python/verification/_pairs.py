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
    """Layers by their names or their order in the files, in chains; and what differs so that it can't be run.

    A layer that can't be compared, being of another kind or size, ends the chain before it and is left out. Where
    neither side says that a layer is fed by the one before it, it gets an input of its own.
    """
    pairs: list[Pair] = []
    problems: list[str] = []
    if len(reference) != len(candidate):
        problems.append(f"the reference has {_count(len(reference))}, the candidate {_count(len(candidate))}")
    joined = False
    candidate = _in_order_of(reference, candidate)
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


def _in_order_of(reference: Sequence[Layer], candidate: Sequence[Layer]) -> Sequence[Layer]:
    """The candidate's layers, where their order isn't the reference's: many files hold tensors by name, in the order of
    the alphabet. So layers of the same names belong together; or, where order alone doesn't fit, those that fit."""
    names = [layer.name for layer in reference]
    by_name = {layer.name: layer for layer in candidate}
    if len(by_name) == len(candidate) and sorted(names) == sorted(by_name):
        return [by_name[name] for name in names]
    if len(reference) != len(candidate) or not any(map(_misfit_of, reference, candidate)):
        return candidate
    left, found = list(candidate), []
    for ours in reference:
        fitting = next((index for index, layer in enumerate(left) if not _misfit_of(ours, layer)), None)
        if fitting is None:
            return candidate
        found.append(left.pop(fitting))
    return found


def _misfit_of(ours: Layer, theirs: Layer) -> str:
    return _misfit(0, ours, theirs)


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
