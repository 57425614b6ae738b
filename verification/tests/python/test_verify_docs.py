"""docs/verify.md lists all that exists."""

from __future__ import annotations

import re
from pathlib import Path

from weft.verification._changes import NAMES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "verify.md"
TRACE = ("x", "y", "hn", "cn")  #: arrays, which have a table of their own


def test_every_known_difference_is_documented() -> None:
    named = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", DOCUMENT.read_text(), re.M)
    rows = [name for row in named for name in re.findall(r"[a-z_]+", row) if name not in TRACE]
    assert sorted(rows) == sorted(NAMES)
