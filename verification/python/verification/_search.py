"""The search for changes that explain the difference of two models: changes of either side, exactly or up to
rounding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from weft._base.dtypes import DTYPES
from weft.verification import _C, _sides
from weft.verification._findings import diagnoses_of
from weft.verification._pairs import Pair
from weft.verification._results import Change, Diagnosis
from weft.verification._untried import together
from weft.verification._weights import differing


def explained(
    pair: Pair, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], recording: Any, x: np.ndarray, budget: float
) -> tuple[list[Diagnosis], float]:
    """A diagnosis for each part that differs. Changes of the reference are tried first, then, for the parts left,
    changes of the candidate: no change of the reference can show a part that only the candidate has, such as a bias.
    Last come single changes of both with bounds of the stored dtype, since parameters may have been computed in it.
    Each of these searches may do a part of the work that is left of the budget.

    Returns: the diagnoses, and what is left of the budget.
    """
    dtype = str(_sides.dtype_of(pair.candidate)).removeprefix("torch.")
    narrow = DTYPES[_sides.dtype_of(pair.candidate)]

    def changed(side: str, recording: Any, most: int, share: float) -> list[Diagnosis]:
        nonlocal budget
        layers, chain = (ours, pair.reference) if side == "reference" else (theirs, pair.candidate)
        raw, left = _C.diagnose_layers(layers, recording, share * budget, most=most)
        budget += left - share * budget
        return diagnoses_of(raw, chain, pair.start, side)

    found = changed("reference", recording, most=3, share=0.5)
    if all(each.changes for each in found):
        return found, budget
    reverse = _C.record_layers(ours, x)
    found = _filled(found, changed("candidate", reverse, most=3, share=0.75))
    for side, other, share in (("reference", recording, 0.5), ("candidate", reverse, 1)):
        if not all(each.changes for each in found):
            more = changed(side, other.in_precision_of(narrow), most=1, share=share)
            found = [_rounded_otherwise(each, more, dtype) for each in found]
            found = _filled(found, [_up_to_rounding(each, dtype) for each in more])
    return [each if each.changes else _with_weights(each, pair) for each in found], budget


def _filled(found: list[Diagnosis], more: list[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses, those without a change from `more` where that has one; what neither search tried is counted."""
    by_scope = {diagnosis.scope: diagnosis for diagnosis in more}

    def filled(each: Diagnosis) -> Diagnosis:
        other = by_scope.get(each.scope)
        if each.changes or other is None:
            return each
        base = other if other.changes else each
        return dataclasses.replace(base, untried=together(each.untried, other.untried))

    return [filled(each) for each in found]


def _up_to_rounding(diagnosis: Diagnosis, dtype: str) -> Diagnosis:
    if not diagnosis.changes:
        return diagnosis
    return dataclasses.replace(diagnosis, sentence=f"{diagnosis.sentence} (up to the rounding of {dtype})")


def _rounded_otherwise(diagnosis: Diagnosis, differing_parts: list[Diagnosis], dtype: str) -> Diagnosis:
    """The diagnosis of a part that no longer differs with the bounds of the dtype: it differs by rounding alone."""
    layer = diagnosis.scope.split(",")[0]
    if diagnosis.changes or any(other.scope.split(",")[0] in (layer, "all layers") for other in differing_parts):
        return diagnosis
    meaning = f"the candidate's parameters were rounded otherwise: the difference is within the rounding of {dtype}"
    change = Change("dtype", f"rounded otherwise in {dtype}", meaning, "# nothing to configure")
    return dataclasses.replace(diagnosis, changes=[change], sentence=meaning)


def _with_weights(diagnosis: Diagnosis, pair: Pair) -> Diagnosis:
    """For a part that no known difference explains: the diagnosis, with the parameters that differ."""
    index = int(diagnosis.scope.split(",")[0].removeprefix("layer ")) - pair.start
    found = differing(pair.reference[index], pair.candidate[index])
    weights = f"parameters differ: {'; '.join(found)}" if found else "the parameters are the same"
    return dataclasses.replace(diagnosis, sentence=f"{diagnosis.sentence}; {weights}")
