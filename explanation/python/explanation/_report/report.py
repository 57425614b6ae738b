"""A report: its results, and how they are written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from weft.explanation._report.html import to_html
from weft.explanation._report.records import Results
from weft.explanation._report.text import to_text


class Report:
    """The results of `weft.explain`: `results` as objects, `text()`, `json()`, `html()`."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None, color: bool = False) -> str:
        """For a terminal."""
        return to_text(self.results, width, color)

    def to_json(self) -> dict[str, Any]:
        """What docs/explain.schema.json describes."""
        return dataclasses.asdict(self.results)

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False)

    def html(self) -> str:
        """One self-contained page."""
        return to_html(self.results)
