"""What a search left out when it reached its budget."""

from __future__ import annotations

from collections.abc import Sequence

from weft.verification._results import Untried

_SETS = {1: "single differences", 2: "pairs", 3: "threes"}
_SHOWN = 8  #: names


def together(*searches: Sequence[Untried]) -> list[Untried]:
    """What several searches for one answer left out, by the number of changes."""
    counts = sorted({each.changes for search in searches for each in search})
    result = []
    for count in counts:
        parts = [each for search in searches for each in search if each.changes == count]
        names = list(dict.fromkeys(name for each in parts for name in each.names))
        result.append(Untried(count, sum(each.left for each in parts), sum(each.all for each in parts), names))
    return result


def in_words(untried: Sequence[Untried], budget: float) -> str:
    """A sentence: how many sets weren't tried, and which. "" where there are none."""
    if not untried:
        return ""
    parts = []
    for each in untried:
        more = f" and {len(each.names) - _SHOWN} more" if len(each.names) > _SHOWN else ""
        which = ("" if each.changes == 1 else "with ") + ", ".join(each.names[:_SHOWN]) + more
        parts.append(f"{each.left} of {each.all} {_SETS[each.changes]} ({which})")
    return f"the search ended at its budget of {budget:g} s; not tried: {'; '.join(parts)}; a larger --budget goes on"
