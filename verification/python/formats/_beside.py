"""Finds parameters that lie beside a cell's own in its module, and that nothing uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

Path = tuple[str, ...]


def parts_of(name: str) -> Path:
    """The path of a tensor in the tree of modules, whatever character joins its parts."""
    return tuple(re.split(r"[./:]", name))


def by_module(names: Iterable[str]) -> dict[Path, dict[str, str]]:
    """Tensors by module: their names by the last parts of these."""
    modules: dict[Path, dict[str, str]] = {}
    for name in names:
        *path, leaf = parts_of(name)
        modules.setdefault(tuple(path), {})[leaf] = name
    return modules


def beside(ignored: Iterable[str], cells: Collection[Path]) -> list[str]:
    """The unused tensors that belong to cells: those in a cell's module or below it; for a cell that is the whole file,
    those outside of any module."""
    found = []
    for name in ignored:
        path = parts_of(name)[:-1]
        if any(path == cell or (cell and path[: len(cell)] == cell) for cell in cells):
            found.append(name)
    return found


def unused_text(names: list[str]) -> str:
    """A note that names the unused tensors, or the first of many."""
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    verb = "lies" if len(names) == 1 else "lie"
    return f"{shown} {verb} beside a recurrent layer's parameters and {'is' if len(names) == 1 else 'are'} not used"
