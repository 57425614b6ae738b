"""Which of Flax's cells feed which, judging by their paths and sizes."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

_AUTOMATIC = re.compile(r"(.*Cell)_(\d+)", re.DOTALL)
_NUMBERED = re.compile(r"(.*?)_?(\d+)", re.DOTALL)
#: How many orders of a module's cells are tried.
_MOST_WAYS = 20_000

#: By product ("ir", "dense_h") and part ("kernel", "bias"): the name in the file of a cell's tensor.
Found = dict[tuple[str, str], str]


@dataclasses.dataclass
class Unit:
    """A layer: the cells of its one or two directions, and their places in the tree of modules."""

    path: tuple[str, ...]
    cells: list[Found]
    kind: str
    inputs: int
    units: int


def arranged(units: list[Unit], asked: bool | None, merge: str, notes: list[str]) -> list[Unit]:
    """The layers in order. Two cells that linen named in a compact module may be the two directions of one layer.

    Args:
        units: as they are in the file.
        asked: option bidirectional: all such cells are pairs, or none is; None: what their sizes say.
        merge: of two directions.
        notes: what was assumed is added to them.
    """
    named: dict[tuple[str, ...], list[Unit]] = {}
    for unit in units:
        if unit.path and len(unit.cells) == 1 and _AUTOMATIC.fullmatch(unit.path[-1]):
            named.setdefault(unit.path[:-1], []).append(unit)
    order: list[Unit] = []
    placed: set[tuple[str, ...]] = set()
    for unit in _ordered(units):
        group = named.get(unit.path[:-1], [])
        if not any(unit is other for other in group):
            order.append(unit)
        elif unit.path[:-1] not in placed:
            placed.add(unit.path[:-1])
            order += _chain(group, asked, merge, notes) or _folded(_ordered(group), asked, notes)
    return _folded(order, True, notes) if asked else order


def _ordered(units: list[Unit]) -> list[Unit]:
    """Units by name, with numbers compared as numbers; in the order of the file if more of them fit each other in that
    order."""

    def natural(unit: Unit) -> list[list[tuple[int, str]]]:
        words = [re.split(r"(\d+)", word) for word in unit.path]
        return [[(int(part) if part.isdecimal() and len(part) < 10 else -1, part) for part in word] for word in words]

    def fits(order: list[Unit]) -> int:
        return sum(
            after.inputs in (unit.units, unit.units * len(unit.cells)) for unit, after in itertools.pairwise(order)
        )

    by_name = sorted(units, key=natural)
    return units if fits(units) > fits(by_name) else by_name


def _chain(group: list[Unit], asked: bool | None, merge: str, notes: list[str]) -> list[Unit]:
    """Cells that linen numbered, in an order in which each fits behind the one before; [] if there is none."""
    ways = list(itertools.islice(_ways(group, asked, merge), 2))
    if not ways:
        return []
    pairs = [unit for unit in ways[0] if len(unit.cells) == 2]
    names = ", ".join(label_of(unit.path) + (" and the next" if len(unit.cells) == 2 else "") for unit in ways[0])
    if len(ways) > 1:
        notes.append(
            f"the cells of {label_of(group[0].path[:-1])} fit each other in several ways; {names} is assumed, one "
            "behind the other; option bidirectional=true or false says whether they are directions of one layer"
        )
    elif pairs and asked is None:
        notes.append(f"as their sizes say, cells are taken in pairs for the directions of one layer: {names}")
    return ways[0]


def _ways(group: list[Unit], asked: bool | None, merge: str) -> Iterator[list[Unit]]:
    """All orders of the cells in which each cell fits behind the one before; orders without pairs come first. Cells of
    one class keep the order of their numbers."""
    queues: dict[str, list[Unit]] = {}
    for unit in _ordered(group):
        queues.setdefault(unit.path[-1].rpartition("_")[0], []).append(unit)
    # Classes in the order of the file.
    classes = list(dict.fromkeys(unit.path[-1].rpartition("_")[0] for unit in group))
    stack: list[tuple[list[Unit], dict[str, int], int | None]] = [([], dict.fromkeys(classes, 0), None)]
    for _ in range(_MOST_WAYS):
        if not stack:
            return
        way, taken, width = stack.pop()
        if all(taken[name] == len(queues[name]) for name in classes):
            yield way
            continue
        steps = []
        for count in (1, 2):
            for name in classes:
                cells = queues[name][taken[name] : taken[name] + count]
                fits = len(cells) == count and width in (None, cells[0].inputs) and _alike(cells[0], cells[-1])
                if fits and asked in (None, count == 2):
                    unit = dataclasses.replace(cells[0], cells=[cell for one in cells for cell in one.cells])
                    wide = unit.units * (count if merge == "concat" else 1)
                    steps.append(([*way, unit], taken | {name: taken[name] + count}, wide))
        stack += reversed(steps)


def _folded(units: list[Unit], asked: bool | None, notes: list[str]) -> list[Unit]:
    """Joins neighbouring cells that are alike to the two directions of one layer, if neither can be fed by the
    other."""
    if asked is False:
        return units
    order: list[Unit] = []
    for i, unit in enumerate(units):
        if order and order[-1].cells[-1] is unit.cells[0]:
            continue
        after = units[i + 1] if i + 1 < len(units) else unit
        alike = after is not unit and len(unit.cells) == len(after.cells) == 1 and _alike(unit, after)
        if alike and (asked or (unit.inputs != unit.units and _automatic(unit, after))):
            order.append(dataclasses.replace(unit, cells=[*unit.cells, *after.cells]))
            if not asked:
                notes.append(
                    f"{label_of(unit.path)} and {label_of(after.path)} are taken for the directions of one layer, as "
                    "neither fits behind the other; option bidirectional=false says otherwise"
                )
        else:
            order.append(unit)
    return order


def _alike(unit: Unit, other: Unit) -> bool:
    return (unit.kind, unit.inputs, unit.units) == (other.kind, other.inputs, other.units)


def _automatic(unit: Unit, other: Unit) -> bool:
    """Whether linen chose the names of both, one after the other, in one module."""
    if unit.path[:-1] != other.path[:-1] or not unit.path or not other.path:
        return False
    names = [_AUTOMATIC.fullmatch(path[-1]) for path in (unit.path, other.path)]
    return all(names) and names[0][1] == names[1][1] and int(names[0][2]) + 1 == int(names[1][2])  # type: ignore[index]


def follows(before: Unit, unit: Unit) -> bool:
    """Whether `later` comes after the other, in a list of modules or among the cells that linen named."""
    first, second = (path[:-1] if path[-1:] == ("cell",) else path for path in (before.path, unit.path))
    if first[:-1] != second[:-1] or not first or not second:
        return False
    if all(_AUTOMATIC.fullmatch(path[-1]) for path in (first, second)):
        return True
    names = [_NUMBERED.fullmatch(path[-1]) for path in (first, second)]
    if not names[0] or not names[1] or len(names[1][2]) > 9:
        return False
    return names[0][1] == names[1][1] and int(names[0][2]) < int(names[1][2])


def label_of(path: tuple[str, ...]) -> str:
    while path and path[0] in ("params", "model", "state") and len(path) > 1:
        path = path[1:]
    path = path[:-1] if path[-1:] == ("cell",) else path
    return "/".join(path[1:] if path[:1] == ("params",) else path) or "(root)"
