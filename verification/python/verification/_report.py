"""What `weft.verify` returns: its results, and how they are written."""

from __future__ import annotations

import dataclasses

from weft.verification._results import Results


@dataclasses.dataclass(frozen=True)
class Report(Results):
    """What was found; `text`, `json` and `html` write it."""

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None, color: bool = False) -> str:
        """For a terminal, `width` columns wide."""
        from weft.verification._text import to_text

        return to_text(self, width, color)

    def json(self) -> str:
        """By docs/verify.schema.json."""
        from weft.verification._json import to_json

        return to_json(self)

    def html(self) -> str:
        """One page with plots that needs nothing else."""
        from weft.verification._html import to_html

        return to_html(self)
