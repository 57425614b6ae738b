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
from weft.verification._weights import differing


def explained(
    pair: Pair, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], recording: Any, x: np.ndarray
) -> list[Diagnosis]:
    """A diagnosis for each part that differs. Changes of the reference are tried first, then, for the parts left,
    changes of the candidate: no change of the reference can show a part that only the candidate has, such as a bias.
    Last come single changes of both with bounds of the stored dtype, since parameters may have been computed in it."""
    dtype = str(_sides.dtype_of(pair.candidate)).removeprefix("torch.")
    narrow = DTYPES[_sides.dtype_of(pair.candidate)]

    def changed(side: str, recording: Any, most: int) -> list[Diagnosis]:
        layers, chain = (ours, pair.reference) if side == "reference" else (theirs, pair.candidate)
        return diagnoses_of(_C.diagnose_layers(layers, recording, most=most), chain, pair.start, side)

    found = changed("reference", recording, most=3)
    if all(each.changes for each in found):
        return found
    reverse = _C.record_layers(ours, x)
    found = _filled(found, changed("candidate", reverse, most=3))
    for side, other in (("reference", recording), ("candidate", reverse)):
        if not all(each.changes for each in found):
            more = changed(side, other.in_precision_of(narrow), most=1)
            found = [_rounded_otherwise(each, more, dtype) for each in found]
            found = _filled(found, [_up_to_rounding(each, dtype) for each in more])
    return [each if each.changes else _with_weights(each, pair) for each in found]


def _filled(found: list[Diagnosis], more: list[Diagnosis]) -> list[Diagnosis]:
    by_scope = {diagnosis.scope: diagnosis for diagnosis in more if diagnosis.changes}
    return [each if each.changes else by_scope.get(each.scope, each) for each in found]


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
