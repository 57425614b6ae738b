"""docs/verify.md says what there is."""

from __future__ import annotations

import re
from pathlib import Path

from weft.verification._changes import NAMES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "verify.md"


def test_every_known_difference_is_documented() -> None:
    named = re.findall(r"^\| `([a-z_]+)` \|", DOCUMENT.read_text(), re.M)
    rows = [name for name in named if name not in ("x", "y")]
    assert sorted(rows) == sorted(NAMES)
