"""The search for what explains the difference of two models: by changes of either side, exactly or up to rounding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from weft import _C
from weft.verification import _sides
from weft.verification._findings import diagnoses_of
from weft.verification._pairs import Pair
from weft.verification._report import Change, Diagnosis
from weft.verification._weights import differing


def explained(
    pair: Pair, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], recording: Any, x: np.ndarray
) -> list[Diagnosis]:
    """A diagnosis for each part that differs. First what changes of the reference do; then, for what is left, changes
    of the candidate, since what only that has (a bias, say) no change of the reference can show; then single ones of
    both with the bounds of the dtype that the weights are stored in, in which they may have been computed with."""
    found = diagnoses_of(_C.diagnose_layers(ours, recording), pair.reference, pair.start, "reference")
    reverse: Any = None
    dtype = _sides.dtype_of(pair.candidate)
    narrow = _sides.DTYPES[dtype]
    for precision in (None, narrow):
        for side in ("reference", "candidate"):
            if all(each.changes for each in found):
                return found
            if precision is None and side == "reference":
                continue  # done
            if side == "candidate" and reverse is None:
                reverse = _C.record_layers(ours, x)
            layers, chain = (ours, pair.reference) if side == "reference" else (theirs, pair.candidate)
            other = recording if side == "reference" else reverse
            other = other if precision is None else other.in_precision_of(precision)
            more = diagnoses_of(_C.diagnose_layers(layers, other, pairs=precision is None), chain, pair.start, side)
            if precision is not None:
                more = [_up_to_rounding(each, str(dtype)) for each in more]
                found = [_rounded_otherwise(each, more, str(dtype)) for each in found]
            found = _filled(found, more)
    return [each if each.changes else _with_weights(each, pair) for each in found]


def _filled(found: list[Diagnosis], more: list[Diagnosis]) -> list[Diagnosis]:
    by_scope = {diagnosis.scope: diagnosis for diagnosis in more if diagnosis.changes}
    return [each if each.changes else by_scope.get(each.scope, each) for each in found]


def _up_to_rounding(diagnosis: Diagnosis, dtype: str) -> Diagnosis:
    if not diagnosis.changes:
        return diagnosis
    return dataclasses.replace(diagnosis, sentence=f"{diagnosis.sentence} (up to the rounding of {_name(dtype)})")


def _rounded_otherwise(diagnosis: Diagnosis, differing_parts: list[Diagnosis], dtype: str) -> Diagnosis:
    """What doesn't differ any more with the bounds of the dtype differs by rounding alone."""
    layer = diagnosis.scope.split(",")[0]
    if diagnosis.changes or any(other.scope.split(",")[0] in (layer, "all layers") for other in differing_parts):
        return diagnosis
    name = _name(dtype)
    meaning = f"the candidate's parameters were rounded otherwise: the difference is within the rounding of {name}"
    change = Change("dtype", f"rounded otherwise in {name}", meaning, "# nothing to configure")
    return dataclasses.replace(diagnosis, changes=[change], sentence=meaning)


def _name(dtype: str) -> str:
    return dtype.removeprefix("torch.")


def _with_weights(diagnosis: Diagnosis, pair: Pair) -> Diagnosis:
    """Of what no known difference explains: which parameters differ."""
    index = int(diagnosis.scope.split(",")[0].removeprefix("layer ")) - pair.start
    found = differing(pair.reference[index], pair.candidate[index])
    weights = f"parameters differ: {'; '.join(found)}" if found else "the parameters are the same"
    return dataclasses.replace(diagnosis, sentence=f"{diagnosis.sentence}; {weights}")
