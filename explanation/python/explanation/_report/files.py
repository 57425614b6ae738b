"""Reads reports from JSON, and compares two of them."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

from weft.explanation._report import records as _records
from weft.explanation._report.records import VERSION, Break, Results, Subject
from weft.explanation._report.text import place, seconds


class ReportError(Exception):
    """A file is no report."""


def read(path: str) -> Results:
    """The report in a JSON file.

    Raises:
        ReportError: it can't be read, or is no report of this version.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise ReportError(f"{path}: not JSON") from None
    if not isinstance(found, dict) or "subjects" not in found:
        raise ReportError(f"{path}: not a report of weft explain")
    if found.get("version") != VERSION:
        raise ReportError(f"{path}: a report of version {found.get('version')}, should be {VERSION}")
    try:
        results = _build(Results, found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path}: not a whole report ({type(error).__name__}: {error})") from None
    assert isinstance(results, Results)
    return results


def _build(kind: Any, value: Any) -> Any:
    """An object of the type from its JSON; a list that the format got later may be missing, and is empty then."""
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        (inner,) = [each for each in typing.get_args(kind) if each is not type(None)]
        return None if value is None else _build(inner, value)
    if origin is list:
        (inner,) = typing.get_args(kind)
        return [_build(inner, each) for each in value]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, vars(_records))
        fields = {
            field.name: _build(hints[field.name], value[field.name])
            for field in dataclasses.fields(kind)
            if field.name in value or not _has_default(field)
        }
        return kind(**fields)  # type: ignore[operator]
    return value


def _has_default(field: Any) -> bool:
    """Whether the field may be missing in files of an older format."""
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def difference(old: Results, new: Results) -> tuple[str, bool]:
    """The changes between two reports, line by line, and whether the new one is worse: it has more breaks."""
    lines: list[str] = []
    before, after = _by_name(old), _by_name(new)
    worse = False
    for name in dict.fromkeys([*before, *after]):
        left, right = before.get(name), after.get(name)
        if left is None or right is None:
            lines.append(f"{name}: only in the {'new' if left is None else 'old'} report")
            worse = worse or (right is not None and bool(right.breaks))
            continue
        changes, more = _subject(left, right)
        worse = worse or more
        lines += [f"{name}: {'no change' if not changes else ''}".rstrip(), *(f"  {change}" for change in changes)]
    return "\n".join(lines), worse


def _by_name(results: Results) -> dict[str, Subject]:
    """Subjects by name; a name that occurs again gets a number."""
    found: dict[str, Subject] = {}
    for subject in results.subjects:
        name, count = subject.name, 2
        while name in found:
            name, count = f"{subject.name} ({count})", count + 1
        found[name] = subject
    return found


def _identity(found: Break) -> tuple[str, str, str]:
    """Identifies a break although lines move: by the text of its line, and the reason."""
    return found.function, found.source, found.type


def _subject(old: Subject, new: Subject) -> tuple[list[str], bool]:
    before = {_identity(found): found for found in old.breaks if not found.hidden}
    after = {_identity(found): found for found in new.breaks if not found.hidden}
    gone = [found for key, found in before.items() if key not in after]
    fresh = [found for key, found in after.items() if key not in before]
    lines = [f"gone: {place(found)}: {found.source} ({found.reason})" for found in gone]
    lines += [f"new: {place(found)}: {found.source} ({found.reason})" for found in fresh]
    for key, found in after.items():
        if key in before and (change := _cost(before[key], found)):
            lines.append(change)
    if len(old.graphs) != len(new.graphs):
        lines.append(f"graphs: {len(old.graphs)} -> {len(new.graphs)}")
    if len(old.recompiles) != len(new.recompiles):
        lines.append(f"recompilations: {len(old.recompiles)} -> {len(new.recompiles)}")
    for run in new.runs:
        past = old.run(run.name)
        if past and past.seconds and run.seconds and not _overlap(past.seconds, run.seconds):
            lines.append(f"{run.name}: {seconds(past.seconds.median)} -> {seconds(run.seconds.median)} a step")
    return lines, bool(fresh)


def _cost(old: Break, new: Break) -> str | None:
    """The change of a cost, if it is larger than its uncertainty."""
    if not old.cost or not new.cost or old.cost_kind != new.cost_kind or _overlap(old.cost, new.cost):
        return None
    return f"cost: {place(new)}: {seconds(old.cost.median)} -> {seconds(new.cost.median)} a step"


def _overlap(a: Any, b: Any) -> bool:
    return bool(a.low <= b.high and b.low <= a.high)
