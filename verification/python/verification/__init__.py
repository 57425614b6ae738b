"""`weft.verify`: where two implementations of a recurrence part, and why."""

from __future__ import annotations

from weft.verification._report import Report
from weft.verification._results import Change, Diagnosis, OwnDtype, Place, Side, Spot, Track
from weft.verification._verify import verify

__all__ = ["Change", "Diagnosis", "OwnDtype", "Place", "Report", "Side", "Spot", "Track", "verify"]
