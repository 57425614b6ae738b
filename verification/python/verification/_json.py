"""A report as JSON, as docs/verify.schema.json describes it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from weft.verification._results import Place, Results

#: The format's version. Additions don't change it.
VERSION = 1


def to_json(report: Results) -> str:
    """One object, indented, in ASCII. Not-a-number and infinities, which JSON lacks, are the strings "NaN", "Infinity"
    and "-Infinity"."""
    return json.dumps({"version": VERSION, "agrees": report.agrees, **_plain(report)}, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value as dicts, lists, strings, numbers and None alone."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return fields | {"difference": _plain(value.difference)} if isinstance(value, Place) else fields
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _odd(value)
    return [_plain(item) for item in value]


def _odd(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
