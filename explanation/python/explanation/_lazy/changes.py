"""Changes of a program that keep a lazily traced step whole, each behind a switch in one copy of the file."""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
from collections.abc import Callable, Sequence

from weft.explanation._changes.code import Source
from weft.explanation._changes.mending import unified, written
from weft.explanation._changes.rewrites import (
    Rewrite,
    branch_to_where,
    item_and_where,
    path_to,
    place_for,
    statement_at,
    without_item,
)
from weft.explanation._lazy import reasons

#: The names of what a copy of the program calls.
SWITCH, LATER, TOTAL = "__weft_is_on__", "__weft_later__", "__weft_total__"


@dataclasses.dataclass(frozen=True)
class LazyChange:
    """A way to mend the cut at a line; `id` is its switch's."""

    id: int
    file: str
    line: int
    way: str  #: one of WAYS
    end: int = 0  #: for "behind": the line of the sync

    @property
    def title(self) -> str:
        """The change in words."""
        return _TITLES[self.way]


# What statements become


class _CopyRemover(ast.NodeTransformer):
    """`t.cpu()` as `t.detach()`, and `t.to("cpu")`."""

    def __init__(self) -> None:
        self.removed = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        to_cpu = [ast.unparse(each) for each in node.args] in (["'cpu'"], ["torch.device('cpu')"])
        if (node.func.attr == "cpu" and not node.args) or (node.func.attr == "to" and to_cpu):
            self.removed += 1
            return ast.Call(ast.Attribute(node.func.value, "detach", ast.Load()), [], [])
        return node


def _without_copy(statement: ast.AST, line: int) -> ast.stmt | None:
    remover = _CopyRemover()
    new = remover.visit(statement)
    return new if remover.removed and isinstance(new, ast.stmt) and ".numpy(" not in ast.unparse(new) else None


def _is_call(statement: ast.AST) -> bool:
    """Whether the statement is a call whose result isn't used, and that nothing waits for."""
    waits = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    is_one = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return is_one and not any(isinstance(node, waits) for node in ast.walk(statement))


_READS = ("item", "tolist", "cpu", "numpy")


class _Hoister(ast.NodeTransformer):
    """Gives names to tensors whose values are read, so that the operations that compute them can stay in place."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.assigned: list[ast.stmt] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS and not node.args:
            node.func.value = self._named(node.func.value, detaches=True)
            return node
        return self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        if not any(isinstance(each, ast.Attribute) and each.attr in _READS for each in ast.walk(node.value)):
            node.value = self._named(node.value)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def _named(self, value: ast.expr, detaches: bool = False) -> ast.expr:
        if not any(isinstance(node, ast.Call) for node in ast.walk(value)):
            return value
        name = f"_value_{self.line}_{len(self.assigned)}"
        kept = ast.Call(ast.Attribute(value, "detach", ast.Load()), [], []) if detaches else value
        self.assigned.append(ast.Assign([ast.Name(name, ast.Store())], kept))
        return ast.Name(name, ast.Load())


def _parted(statement: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Splits a call: the part that computes its arguments, which stays in place, and the call itself, which can run
    later."""
    statement = copy.deepcopy(statement)
    if not isinstance(statement, ast.If):
        hoister = _Hoister(statement.lineno)
        return hoister.assigned, [hoister.visit(statement)]
    parts = [_parted(each) for each in statement.body]
    now = [each for first, _ in parts for each in first]
    later = [each for _, second in parts for each in second]
    return [ast.If(copy.deepcopy(statement.test), now, [])] if now else [], [ast.If(statement.test, later, [])]


def _later(statement: ast.AST, line: int) -> list[ast.stmt] | None:
    return _as_closure(statement, ast.Name(LATER, ast.Load())) if _is_call(statement) else None


def _as_closure(statement: ast.AST, function: ast.expr) -> list[ast.stmt]:
    """`f(x)` as `function(lambda x=x: f(x))`."""
    assert isinstance(statement, ast.Expr)
    now, (later,) = _parted(statement)
    assert isinstance(later, ast.Expr)
    nodes = list(ast.walk(later))
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    read = [node.id for node in nodes if isinstance(node, ast.Name) and node not in called]
    names = [name for name in dict.fromkeys(read) if name not in stored and not hasattr(builtins, name)]
    given = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(name) for name in names],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[ast.Name(name, ast.Load()) for name in names],
    )
    return [*now, ast.Expr(ast.Call(function, [ast.Lambda(given, later.value)], []))]


def _out(statement: ast.AST, line: int) -> ast.stmt | None:
    return ast.Pass() if _is_call(statement) else None


WAYS: dict[str, Rewrite] = {
    "where": branch_to_where,
    "tensor": without_item,
    "tensor and where": item_and_where,
    "device": _without_copy,
    "behind": lambda statement, line: ast.Pass(),
    "closure": _later,
    "out": _out,
}
_TITLES = {
    "where": "torch.where instead of the if",
    "tensor": "keep the value in a tensor instead of .item()",
    "tensor and where": "keep it a tensor, and torch.where instead of the if",
    "device": "leave it on the device",
    "behind": "do it behind the end of the step",
    "closure": "do it behind the end of the step (xm.add_step_closure)",
    "out": "leave the call out of the step",
}


def ways_for(type_: str, source: Source, line: int, end: int, has_closures: bool) -> list[str]:
    """Ways to try, the one that says most about the program first. `end`: the line of the step's sync, or 0."""
    if source.tree is None:
        return []
    place = statement_at(source.tree, line)
    if place is None:
        return []
    statement = place[0][place[1]]
    ways: list[str] = []
    if type_ == reasons.BRANCH:
        ways = ["where", "tensor and where"]
    if _is_call(statement) or type_ == reasons.PRINTED:
        ways += ["behind"] if end and moved(source.tree, line, end) else []
        ways += ["closure" if has_closures else "out"]
    elif type_ in (reasons.NUMBER, reasons.COPY, reasons.BRANCH):
        ways += ["device", "tensor"] if type_ == reasons.COPY else ["tensor", "device"]
    return [way for way in ways if way == "behind" or _fits(WAYS[way], source.tree, line)]


def _fits(rewrite: Rewrite, tree: ast.Module, line: int) -> bool:
    tree = copy.deepcopy(tree)
    place = place_for(rewrite, tree, line)
    return place is not None and rewrite(place[0][place[1]], line) is not None


def moved(tree: ast.Module, line: int, end: int) -> tuple[list[ast.stmt], int, int] | None:
    """The list that contains the statement around the line, the statement's place in the list, and the place of the
    statement at the line `end`, after which it can run instead. None if it can't move, for instance since names that it
    reads are assigned in between."""
    path, other = path_to(tree, line), path_to(tree, end)
    depth = next((i for i, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), None)
    if depth is None or depth + 1 != len(other) or path[depth][0] != other[depth][0]:
        return None
    node: ast.AST = tree
    for name, index in path[:depth]:
        node = getattr(node, name)[index]
    body: list[ast.stmt] = getattr(node, path[depth][0])
    first, last = path[depth][1], other[depth][1]
    if first > last or not _only_calls(body[first]):
        return None
    read = {node.id for node in ast.walk(body[first]) if isinstance(node, ast.Name)}
    between = [each for statement in body[first + 1 : last + 1] for each in ast.walk(statement)]
    assigned = {each.id for each in between if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    leaves = any(isinstance(each, (ast.Continue, ast.Break, ast.Return)) for each in between)
    return None if read & assigned or leaves else (body, first, last)


def _only_calls(statement: ast.stmt) -> bool:
    """Whether the statement is a call, or an `if` around calls."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return all(map(_only_calls, statement.body))
    return _is_call(statement)


# A copy of the file


def switched(source: Source, changes: Sequence[LazyChange]) -> ast.Module:
    """The file's tree with each change behind its switch."""
    assert source.tree is not None
    tree = copy.deepcopy(source.tree)
    _apply(tree, source, changes, _switch)
    return ast.fix_missing_locations(tree)


def changed(source: Source, changes: Sequence[LazyChange], has_closures: bool) -> str:
    """The changes as a unified diff of the file."""
    assert source.tree is not None
    tree = copy.deepcopy(source.tree)
    noted = _Noted(source, has_closures)
    _apply(tree, source, changes, noted.put)
    return unified(source, noted.parts)


Put = Callable[[LazyChange, ast.stmt | None, list[ast.stmt]], list[ast.stmt]]


def _apply(tree: ast.Module, source: Source, changes: Sequence[LazyChange], put: Put) -> None:
    """Has `put` say what stands in the place of each statement; from the last line to the first. `put` gets a switch's
    change, the statement (None for what is added behind the sync), and the new ones."""
    for change in sorted(changes, key=lambda each: -each.line):
        pristine = copy.deepcopy(source.tree)
        assert pristine is not None
        if change.way == "behind":
            here = moved(tree, change.line, change.end)
            assert here is not None
            body, first, last = here
            statement = body[first]
            now, later = _parted(statement)
            for each in (*now, *later):
                _locate(each, statement)
            body[last + 1 : last + 1] = put(change, None, later)
            body[first : first + 1] = put(change, statement, now)
            continue
        place = place_for(WAYS[change.way], tree, change.line)
        own = place_for(WAYS[change.way], pristine, change.line)
        assert place is not None and own is not None
        body, index = place
        new = WAYS[change.way](own[0][own[1]], change.line)
        assert new is not None
        news = new if isinstance(new, list) else [new]
        for each in news:
            _locate(each, body[index])
        body[index : index + 1] = put(change, body[index], news)


def _locate(node: ast.AST, like: ast.stmt) -> None:
    """Gives new nodes without lines the lines of the old statement."""
    last = like.end_lineno or like.lineno
    for each in ast.walk(node):
        is_placed = isinstance(each, (ast.stmt, ast.expr, ast.arg))
        known = getattr(each, "lineno", 0)
        if is_placed and (not known or (isinstance(each, ast.stmt) and not like.lineno <= known <= last)):
            ast.copy_location(each, like)


def _switch(change: LazyChange, old: ast.stmt | None, new: list[ast.stmt]) -> list[ast.stmt]:
    chosen = ast.parse(f"if {SWITCH}({change.id}): pass").body[0]
    assert isinstance(chosen, ast.If)
    chosen.body = new or [ast.Pass()]
    chosen.orelse = [old] if old is not None else []
    own = [] if old is None else _own_total(change, old)
    for node in (chosen, *ast.walk(chosen.test), chosen.body[0], *(node for each in own for node in ast.walk(each))):
        ast.copy_location(node, old if old is not None else new[0])
    return [*own, chosen]


def _own_total(change: LazyChange, statement: ast.stmt) -> list[ast.stmt]:
    """What gives a sum back the type that it has without the change. A change may have made it a tensor, to which the
    statement as it is would add in place of the number: an operation more, which a turn without the change hasn't."""
    if not isinstance(statement, ast.AugAssign) or isinstance(statement.target, ast.Subscript):
        return []
    name = ast.unparse(statement.target)
    return ast.parse(f"{name} = {TOTAL}({change.id}, {name})").body


@dataclasses.dataclass
class _Noted:
    """Notes which lines the changes replace by which."""

    source: Source
    has_closures: bool
    parts: list[tuple[int, int, list[str]]] = dataclasses.field(default_factory=list)

    def put(self, change: LazyChange, old: ast.stmt | None, new: list[ast.stmt]) -> list[ast.stmt]:
        lines = self.source.text.splitlines()
        own = statement_at(self.source.tree, change.line) if self.source.tree is not None else None
        assert own is not None
        if old is None:
            for each in new:
                ast.fix_missing_locations(each)
            end = _end_of(self.source, change.end)
            like = statement_at(self.source.tree, change.end)  # type: ignore[arg-type]
            assert like is not None
            self.parts.append((end, end, written(lines, [like[0][like[1]]], new)))
            return new
        shown = new
        if change.way == "closure":
            shown = _as_closure(old, ast.parse("xm.add_step_closure", mode="eval").body)
        for each in shown:
            ast.fix_missing_locations(each)
        is_nothing = not new or change.way == "out"
        if is_nothing and len(own[0]) > 1:
            shown = []
        text = written(lines, [old], shown or [ast.Pass()]) if shown or len(own[0]) == 1 else []
        self.parts.append((old.lineno - 1, old.end_lineno or old.lineno, text))
        return new or [ast.Pass(lineno=old.lineno, end_lineno=old.end_lineno, col_offset=old.col_offset)]


def _end_of(source: Source, line: int) -> int:
    """How many lines stand until the end of the statement at the line."""
    assert source.tree is not None
    place = statement_at(source.tree, line)
    return (place[0][place[1]].end_lineno or line) if place else line
