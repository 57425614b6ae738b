"""Which layers of two models are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.formats import Layer
from weft.verification._sides import describe


@dataclasses.dataclass
class Pair:
    """A chain of layers on both sides, each fed by the one before. `start`: the index of the first layer in the
    file."""

    start: int
    reference: list[Layer]
    candidate: list[Layer]


def paired(reference: Sequence[Layer], candidate: Sequence[Layer]) -> tuple[list[Pair], list[str], list[str]]:
    """Layers paired by name or by order in the files, in chains; differences that prevent running them; and, if the
    structure differs, which layers fit which.

    A layer of another kind or size can't be compared: it ends the chain before it and is left out. A layer that on
    neither side is fed by the one before gets an input of its own.
    """
    pairs: list[Pair] = []
    problems: list[str] = []
    merges: list[str] = []
    if len(reference) != len(candidate):
        problems.append(f"the reference has {_count(len(reference))}, the candidate {_count(len(candidate))}")
    partners = _partners(reference, candidate)
    last = -2
    for index, (ours, partner) in enumerate(zip(reference, partners, strict=True)):
        if partner is None:
            continue
        theirs = candidate[partner]
        if found := _misfit(ours, theirs):
            problems.append(f"layer {index}: {found}")
            continue
        if _merges_differ(ours, theirs):
            merges.append(
                f"layer {index}: the candidate merges its directions by {theirs.merge}, the reference by {ours.merge}"
            )
        if last == index - 1 and (ours.continues or theirs.continues) and _fits(pairs[-1], ours, theirs):
            pairs[-1].reference.append(ours)
            pairs[-1].candidate.append(theirs)
        else:
            pairs.append(Pair(index, [ours], [theirs]))
        last = index
    if problems:
        problems = _of_the_same_names(reference, candidate) + problems
    structure = _what_fits(reference, candidate) if problems else []
    return pairs, problems + merges, structure


def _of_the_same_names(reference: Sequence[Layer], candidate: Sequence[Layer]) -> list[str]:
    """One line about layers with the same name on both sides that can't be compared. Probably the model is another
    version, which a list of unmatched layers wouldn't tell."""
    by_name = {layer.label: layer for layer in candidate if layer.label}
    both = [(layer, by_name[layer.label]) for layer in reference if layer.label in by_name]
    apart = [f"{ours.label} ({_shape(ours)}, not {_shape(theirs)})" for ours, theirs in both if _misfit(ours, theirs)]
    if not apart:
        return []
    shown = ", ".join(apart[:4]) + (f" and {len(apart) - 4} more" if len(apart) > 4 else "")
    every = "all layers" if len(apart) == len(reference) == len(candidate) else "layers"
    return [f"{every} of the same names have other shapes in the reference than in the candidate: {shown}"]


def _shape(layer: Layer) -> str:
    return f"{layer.kind} {layer.input_size} -> {layer.hidden_size}" + ", both ways" * (len(layer.directions) == 2)


def _partners(reference: Sequence[Layer], candidate: Sequence[Layer]) -> list[int | None]:
    """For each of the reference's layers the index of the candidate's that it is compared with. Many files hold tensors
    in alphabetical order of names, so layers with the same names belong together; else layers in the same place; or,
    where the order doesn't fit, layers that fit."""
    names = [layer.name for layer in reference]
    by_name = {layer.name: index for index, layer in enumerate(candidate)}
    if len(by_name) == len(candidate) and sorted(names) == sorted(by_name):
        return [by_name[name] for name in names]
    in_order = list(range(len(candidate)))
    if len(reference) == len(candidate) and not any(map(_misfit, reference, candidate)):
        return [*in_order]
    found = _fitting(reference, candidate)
    if len(reference) == len(candidate) and None in found:
        return [*in_order]
    return found


def _fitting(reference: Sequence[Layer], candidate: Sequence[Layer]) -> list[int | None]:
    """For each of the reference's layers the first of the candidate's remaining layers that fits it."""
    left = list(range(len(candidate)))
    found: list[int | None] = []
    for ours in reference:
        fitting = next((index for index in left if not _misfit(ours, candidate[index])), None)
        found.append(fitting)
        if fitting is not None:
            left.remove(fitting)
    return found


def _what_fits(reference: Sequence[Layer], candidate: Sequence[Layer]) -> list[str]:
    partners = _fitting(reference, candidate)
    lines = []
    for index, (layer, partner) in enumerate(zip(reference, partners, strict=True)):
        fits = "nothing of the candidate's" if partner is None else f"the candidate's layer {partner}"
        lines.append(f"the reference's layer {index} ({describe(layer)}) fits {fits}")
    for index, layer in enumerate(candidate):
        if index not in partners:
            lines.append(f"the candidate's layer {index} ({describe(layer)}) fits nothing of the reference's")
    return lines


def _count(layers: int) -> str:
    return f"{layers} layer{'' if layers == 1 else 's'}"


def _merges_differ(ours: Layer, theirs: Layer) -> bool:
    return len(ours.directions) == 2 and ours.merge != theirs.merge


def _fits(pair: Pair, ours: Layer, theirs: Layer) -> bool:
    return pair.reference[-1].output_size == ours.input_size and pair.candidate[-1].output_size == theirs.input_size


def _misfit(ours: Layer, theirs: Layer) -> str:
    """Why two layers can't be compared; "" if they can."""
    for what, mine, other in (
        ("inputs", ours.input_size, theirs.input_size),
        ("units", ours.hidden_size, theirs.hidden_size),
        ("outputs", ours.directions[0].output_size, theirs.directions[0].output_size),
        ("directions", len(ours.directions), len(theirs.directions)),
    ):
        if ours.kind != theirs.kind:
            return f"the candidate's is of kind {theirs.kind}, the reference's of kind {ours.kind}"
        if mine != other:
            return f"the candidate's has {other} {what}, the reference's has {mine}"
    return ""
