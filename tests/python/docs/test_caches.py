"""Every table that lives as long as the process is in docs/engine/execution.md, with its bound."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

#: A static map that is never destroyed, or a thread-local one.
IN_CPP = re.compile(
    r"^(?:\s*(?:static\s+)?thread_local\s+(?:std::(?:unordered_)?(?:map|set|multimap)|HistoryTable)<.*?>\s+(\w+)[;(]"
    r"|(?:static\s+)?auto& (\w+) = \*new std::(?:unordered_)?(?:map|set|multimap)<)",
    re.MULTILINE,
)
IN_PYTHON = re.compile(
    r"^(_\w+)(?:: (?:dict|set|OrderedDict)\[[^=]*)? = (?:\{\}|set\(\)|OrderedDict\(\))", re.MULTILINE
)

#: Tables that hold no results that could be computed again.
NO_CACHES = {
    "call_counts": "counters, by operation",
    "_before": "counters",
    "_start": "counters",
    "_counters_before": "counters",
    "_metrics_before": "counters",
    "_locks": "one for each rank",
    "_undo": "what a switch takes back",
    "_running": "closures that are running",
    "_counted": "two files, in a process of the survey",
}


def _tables() -> dict[str, Path]:
    found = {}
    for folder in ("src", "pytorch", "python/bindings"):
        for file in (ROOT / folder).rglob("*.cpp"):
            for match in IN_CPP.finditer(file.read_text()):
                found[next(filter(None, match.groups()))] = file
    for file in (ROOT / "python/weft").rglob("*.py"):
        for match in IN_PYTHON.finditer(file.read_text()):
            found[match[1]] = file
    return found


def test_every_table_is_in_the_page_with_its_bound():
    page = (ROOT / "docs/engine/execution.md").read_text().split("## Caches")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", page))
    tables = _tables()
    assert len(tables) > 10, "the expressions above find none"
    missing = {
        name: str(file.relative_to(ROOT)) for name, file in tables.items() if name not in listed | NO_CACHES.keys()
    }
    assert not missing, "tables that docs/engine/execution.md does not list, and that are not among NO_CACHES"
