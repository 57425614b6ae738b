"""`weft.explain`: what each graph break costs, and which to mend first."""

from __future__ import annotations

from weft.explanation._explain import explain
from weft.explanation._report.report import Report

__all__ = ["Report", "explain"]
