"""The return value of `weft.verify`: its results, and how they are written."""

from __future__ import annotations

import dataclasses

from weft.verification._results import Results


@dataclasses.dataclass(frozen=True)
class Report(Results):
    """The results of `weft.verify`; `text`, `json` and `html` write them."""

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None, color: bool = False) -> str:
        """The report for a terminal, `width` columns wide."""
        from weft.verification._text import to_text

        return to_text(self, width, color)

    def json(self) -> str:
        """By docs/verify.schema.json."""
        from weft.verification._json import to_json

        return to_json(self)

    def html(self) -> str:
        """One self-contained page with plots."""
        from weft.verification._html import to_html

        return to_html(self)
