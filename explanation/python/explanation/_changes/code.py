"""The user's functions by their lines, and other code put in their place for a while."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from weft.explanation._report.records import Excerpt

Edit = Callable[[ast.Module], ast.Module | None]  #: None: it can't be done there
Put = tuple[Any, str, Any]  #: where, by which name, what: in a module's names, a class or a closure's cell


class Source:
    """A file of the user's: its text, and its live functions."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.text = "".join(linecache.getlines(file))
        try:
            self.tree: ast.Module | None = ast.parse(self.text) if self.text else None
        except SyntaxError:
            self.tree = None

    def functions_at(self, lines: Iterable[int]) -> list[list[FunctionType]]:
        """For each line, the functions whose code covers it, shortest first."""
        return functions_at({self.file: lines})[self.file]

    def edited(self, edits: list[Edit]) -> ast.Module | None:
        """A copy of the file's tree with all edits; None where one can't be done."""
        if self.tree is None:
            return None
        tree: ast.Module | None = copy.deepcopy(self.tree)
        for edit in edits:
            tree = edit(tree) if tree is not None else None
        return ast.fix_missing_locations(tree) if tree is not None else None

    def swaps(self, tree: ast.Module, lines: list[int]) -> list[tuple[FunctionType, CodeType]] | None:
        """For every live function over one of the lines, its code in the tree; None where one has no counterpart."""
        code = compile(tree, self.file, "exec", dont_inherit=True)
        found: dict[int, tuple[FunctionType, CodeType]] = {}
        for functions in self.functions_at(lines):
            if not functions:
                return None
            fitting = [(function, _counterpart(code, function.__code__)) for function in functions]
            ready = [(function, new) for function, new in fitting if new is not None]
            if not ready or any(new.co_freevars != function.__code__.co_freevars for function, new in ready):
                return None
            found |= {id(function): (function, new) for function, new in ready}
        return list(found.values())


def functions_at(lines: Mapping[str, Iterable[int]]) -> dict[str, list[list[FunctionType]]]:
    """For each line of each file, the live functions whose code covers it, shortest first. All files at once, since it
    visits every object of the process."""
    alive: dict[str, list[tuple[FunctionType, int, int]]] = {file: [] for file in lines}
    for thing in living_functions(lambda function: function.__code__.co_filename in alive):
        code = thing.__code__
        # Not code that Dynamo makes: of the rest of a function, or of a module's code.
        if not code.co_name.startswith(("torch_dynamo_resume_in_", "<module>")):
            alive[code.co_filename].append((thing, code.co_firstlineno, _last_line(code)))
    for found in alive.values():
        found.sort(key=lambda each: each[2] - each[1])
    return {
        file: [[function for function, first, last in alive[file] if first <= line <= last] for line in places]
        for file, places in lines.items()
    }


def code_copies(lines: Mapping[str, Iterable[int]]) -> list[tuple[FunctionType, CodeType]]:
    """For every live function over one of a file's lines, a copy of its code, about which Dynamo knows nothing."""
    functions = {id(each): each for places in functions_at(lines).values() for found in places for each in found}
    return [(function, function.__code__.replace()) for function in functions.values()]


def living() -> Iterator[Any]:
    """All objects of this process, each once. It includes objects that a program has frozen (gc.freeze), as far as
    modules name them. A process may have millions of objects, so the work for each must be small."""
    return _living(lambda things: things)


def living_functions(is_wanted: Callable[[FunctionType], bool]) -> Iterator[FunctionType]:
    """Those of the objects of `living()` that are functions, and wanted."""
    return _living(lambda things: [each for each in things if type(each) is FunctionType and is_wanted(each)])


def _living(of: Callable[[list[Any]], list[Any]]) -> Iterator[Any]:
    """The objects that `of` takes of lists of them."""
    found = of(gc.get_objects())
    yield from found
    if not gc.get_freeze_count():
        return
    seen = {id(thing) for thing in found}
    for thing in _named(of):
        if id(thing) not in seen:
            seen.add(id(thing))
            yield thing


def _named(of: Callable[[list[Any]], list[Any]]) -> Iterator[Any]:
    """Objects, of those that `of` takes, that modules and their classes name; some occur several times, but a class
    that many modules name occurs once."""
    classes: set[int] = set()
    is_class = _IsClass()
    for module in list(sys.modules.values()):
        things = list(vars(module).values()) if isinstance(module, ModuleType) else []
        yield from of(things)
        for thing in [thing for thing in things if is_class[type(thing)]]:
            if id(thing) not in classes:
                classes.add(id(thing))
                yield from of(list(vars(thing).values()))


class _IsClass(dict[type, bool]):
    """Whether a type's objects are classes."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, type)
        return self[kind]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _last_line(code: CodeType) -> int:
    """The last line of the code, including the functions in it."""
    lines = [line for each in (code, *_codes(code)) for _, _, line in each.co_lines() if line is not None]
    return max(lines, default=code.co_firstlineno)


def _counterpart(module: CodeType, old: CodeType) -> CodeType | None:
    return next(
        (new for new in _codes(module) if new.co_name == old.co_name and new.co_firstlineno == old.co_firstlineno),
        None,
    )


@contextlib.contextmanager
def swapped(swaps: list[tuple[FunctionType, CodeType]]) -> Iterator[None]:
    """The functions have the other code inside, and their own again afterwards."""
    own = [(function, function.__code__) for function, _ in swaps]
    try:
        for function, code in swaps:
            function.__code__ = code
        yield
    finally:
        for function, code in own:
            function.__code__ = code


_NOTHING = object()


@contextlib.contextmanager
def replaced(puts: list[Put]) -> Iterator[None]:
    """The names stand for other things inside, and for their own again afterwards."""
    own = [(place, name, _get(place, name)) for place, name, _ in puts]
    try:
        for place, name, value in puts:
            _put(place, name, value)
        yield
    finally:
        for place, name, value in reversed(own):
            _put(place, name, value)


def _get(place: Any, name: str) -> Any:
    if isinstance(place, CellType):
        return place.cell_contents
    return (place if isinstance(place, dict) else vars(place)).get(name, _NOTHING)


def _put(place: Any, name: str, value: Any) -> None:
    if isinstance(place, CellType):
        place.cell_contents = value
    elif not isinstance(place, dict):
        setattr(place, name, value)
    elif value is _NOTHING:
        place.pop(name, None)
    else:
        place[name] = value


def excerpts(lines: list[tuple[str, int]], around: int = 3) -> list[Excerpt]:
    """The text of the files around the lines; neighbouring pieces are one excerpt."""
    found: list[Excerpt] = []
    for file in dict.fromkeys(file for file, _ in lines):
        text = linecache.getlines(file)
        for number in sorted(line for name, line in lines if name == file):
            first, last = max(1, number - around), min(len(text), number + around)
            if found and found[-1].file == file and first <= found[-1].first + len(found[-1].lines):
                first = found[-1].first + len(found[-1].lines)
                found[-1].lines += [line.rstrip("\n") for line in text[first - 1 : last]]
            elif last >= first:
                found.append(Excerpt(file, first, [line.rstrip("\n") for line in text[first - 1 : last]]))
    return found
