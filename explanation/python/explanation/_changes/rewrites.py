"""Changes of a program that mend a break: edits of the user's syntax tree, and settings of Dynamo's."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import Any

from weft.explanation._changes.code import Edit
from weft.explanation._report.records import Break


@dataclasses.dataclass(frozen=True)
class Change:
    """One mechanical way to mend a break."""

    title: str
    edit: Edit | None = None  #: of the file of the break
    line: int = 0  #: the line that the edit is about
    file: str = ""
    settings: tuple[tuple[str, Any], ...] = ()  #: of torch._dynamo.config
    way: str = ""  #: around the break, one of bridges.py's


def changes_for(found: Break) -> list[Change]:
    """Changes to try, the most specific one first."""
    changes = [
        Change(title, _at(found.line, edit), found.line, found.file) for title, edit in _edits(found) if found.file
    ]
    return changes + _settings(found)


Rewrite = Callable[[ast.AST, int], "ast.stmt | list[ast.stmt] | None"]  #: of a statement, or of part of it


def _edits(found: Break) -> list[tuple[str, Rewrite]]:
    edits: list[tuple[str, Rewrite]] = []
    kind = found.type
    if "branching" in kind or "jump" in kind:
        edits.append(("torch.where instead of the if", branch_to_where))
    if "item()" in kind or "tolist" in kind or "branching" in kind or "dependent" in kind:
        edits.append(("keep the value in a tensor instead of .item()", without_item))
    if "item()" in kind or "dependent" in kind:
        edits.append(("keep it a tensor, and torch.where instead of the if", item_and_where))
    if "graph_break()" in kind:
        edits.append(("delete the call", _deleted))
    edits.append(("leave the call out while compiling", _not_while_compiling))
    return edits


def _settings(found: Break) -> list[Change]:
    def setting(**values: Any) -> Change:
        words = ", ".join(f"torch._dynamo.config.{name} = {value!r}" for name, value in values.items())
        return Change(words, settings=tuple(values.items()))

    kind = found.type
    if "item()" in kind:
        return [setting(capture_scalar_outputs=True)]
    if kind.startswith(("Dynamic shape operator", "Data dependent operator")):
        return [
            setting(capture_dynamic_output_shape_ops=True),
            setting(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True),
        ]
    if "tolist" in kind:
        return [setting(capture_scalar_outputs=True)]
    if "RNN, GRU" in kind:
        return [setting(allow_rnn=True)]
    if "backward()" in kind or "autograd.grad" in kind:
        return [setting(trace_autograd_ops=True)]
    return []


def _at(line: int, rewrite: Rewrite) -> Edit:
    """The rewrite of the innermost statement at the line, in whichever body it stands."""

    def edit(tree: ast.Module) -> ast.Module | None:
        place = place_for(rewrite, tree, line)
        if place is None:
            return None
        body, index = place
        new = rewrite(body[index], line)
        if new is None:
            return None
        news = new if isinstance(new, list) else [new]
        for statement in news:
            ast.copy_location(statement, body[index])
        body[index : index + 1] = news
        return tree

    return edit


def place_for(rewrite: Rewrite, tree: ast.AST, line: int) -> tuple[list[ast.stmt], int] | None:
    """The place of the statement that the rewrite is about."""
    find = branch_at if rewrite in (branch_to_where, item_and_where) else statement_at
    return find(tree, line)


def branch_at(tree: ast.AST, line: int) -> tuple[list[ast.stmt], int] | None:
    """Where the innermost `if` whose condition is at the line stands."""
    found: tuple[list[ast.stmt], int] | None = None
    for node in ast.walk(tree):
        for name in _BODIES[:3]:
            body: list[ast.stmt] = getattr(node, name, None) or []
            for index, each in enumerate(body if isinstance(body, list) else []):
                if isinstance(each, ast.If) and each.test.lineno <= line <= (each.test.end_lineno or 0):
                    found = (body, index)
    return found


_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def path_to(tree: ast.AST, line: int) -> list[tuple[str, int]]:
    """The path from the tree to the innermost statement at the line: names of lists and places in them."""
    for name in _BODIES:
        body = getattr(tree, name, None)
        if not isinstance(body, list):
            continue
        for index, node in enumerate(body):
            first, last = _lines(node)
            if first <= line <= last:
                inner = path_to(node, line)
                if inner or isinstance(node, ast.stmt):
                    return [(name, index), *inner]
    return []


def _lines(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[-1].end_lineno or 0
    return getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0


def statement_at(tree: ast.AST, line: int) -> tuple[list[ast.stmt], int] | None:
    """The list that contains the innermost statement at the line, and its place in the list."""
    path = path_to(tree, line)
    if not path:
        return None
    node: Any = tree
    for name, index in path[:-1]:
        node = getattr(node, name)[index]
    body: list[ast.stmt] = getattr(node, path[-1][0])
    return (body, path[-1][1]) if isinstance(body[path[-1][1]], ast.stmt) else None


def changed(old: ast.AST, new: ast.AST) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
    """The smallest run of statements that differs, old and new; None if nothing differs."""
    for name in _BODIES:
        before, after = list(getattr(old, name, None) or []), list(getattr(new, name, None) or [])
        while before and after and ast.dump(before[0]) == ast.dump(after[0]):
            before, after = before[1:], after[1:]
        while before and after and ast.dump(before[-1]) == ast.dump(after[-1]):
            before, after = before[:-1], after[:-1]
        if len(before) == len(after) == 1 and _head(before[0]) == _head(after[0]):
            return changed(before[0], after[0])
        if before and after:
            return before, after
    return None


def _head(node: ast.AST) -> str:
    """A compound statement without its bodies."""

    def written(value: object) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(written, value))}]"
        return ast.dump(value) if isinstance(value, ast.AST) else repr(value)

    fields = [(name, written(value)) for name, value in ast.iter_fields(node) if name not in _BODIES]
    return f"{type(node).__name__}{fields}"


# Calls


def _not_while_compiling(statement: ast.AST, line: int) -> ast.stmt | None:
    """A call whose result nobody uses."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    guarded = ast.parse("if not torch.compiler.is_compiling():\n    pass").body[0]
    assert isinstance(guarded, ast.If)
    guarded.body = [statement]
    return guarded


def _deleted(statement: ast.AST, line: int) -> ast.stmt | None:
    return ast.Pass() if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


class _ItemRemover(ast.NodeTransformer):
    """`t.item()` as `t.detach()`, since no gradient went through the number, and `float(t)` likewise."""

    def __init__(self) -> None:
        self.removed = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
            return self._detached(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id in ("float", "bool") and len(node.args) == 1:
            return self._detached(node.args[0])
        return node

    def _detached(self, tensor: ast.expr) -> ast.expr:
        self.removed += 1
        return ast.Call(ast.Attribute(tensor, "detach", ast.Load()), [], [])

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.visit(node.test)  # and not what stands in its branches
        return node


def without_item(statement: ast.AST, line: int) -> ast.stmt | None:
    """Tensors instead of the numbers that are read from them."""
    remover = _ItemRemover()
    new = remover.visit(statement)
    return new if remover.removed and isinstance(new, ast.stmt) else None


def item_and_where(statement: ast.AST, line: int) -> ast.stmt | list[ast.stmt] | None:
    """Both: the condition as a tensor, and torch.where."""
    without = without_item(statement, line)
    return branch_to_where(without, line) if without is not None else None


# Branches


def branch_to_where(statement: ast.AST, line: int) -> ast.stmt | list[ast.stmt] | None:
    """Computes both branches, as functions of what they assign, and chooses between the results by torch.where."""
    if not isinstance(statement, ast.If) or not _is_one_comparison(statement.test):
        return None
    then, other = statement.body, statement.orelse
    if _changes_in_place([*then, *other]):
        return None
    if _returns(then) and _returns(other):
        return _where_of_returns(statement)
    names = _assigned(then), _assigned(other)
    if names[0] is None or names[1] is None:
        return None
    written = sorted(names[0] | names[1])
    return _where_of_assignments(statement, written) if written else None


def _is_one_comparison(test: ast.expr) -> bool:
    """Whether the condition is one comparison. `a and b` isn't, since it computes b only if a holds."""
    return not any(isinstance(node, (ast.BoolOp, ast.NamedExpr)) for node in ast.walk(test))


def _changes_in_place(statements: list[ast.stmt]) -> bool:
    """Whether a method such as add_ is called, whose effect torch.where would not undo."""
    methods = [
        node.func.attr
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    return any(name.endswith("_") and not name.endswith("__") for name in methods)


def _returns(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None


def _assigned(body: list[ast.stmt]) -> set[str] | None:
    """The names that the statements assign; None if they do anything else."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Pass):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else None
        if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
            targets = [statement.target]
        if targets is None or not all(isinstance(target, ast.Name) for target in targets):
            return None
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _test_and_branches(statement: ast.If) -> tuple[ast.expr, list[ast.stmt], list[ast.stmt]]:
    test = statement.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand, statement.orelse, statement.body
    return test, statement.body, statement.orelse


def _where_of_returns(statement: ast.If) -> list[ast.stmt]:
    test, then, other = _test_and_branches(statement)
    assert isinstance(then[0], ast.Return) and isinstance(other[0], ast.Return)
    new = ast.parse("return torch.where(T, A, B)").body[0]
    call = new.value  # type: ignore[attr-defined]
    call.args = [test, then[0].value, other[0].value]
    return [new]


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def _where_of_assignments(statement: ast.If, written: list[str]) -> list[ast.stmt]:
    """Each branch works on copies of the names, with the values from before."""
    test, then, other = _test_and_branches(statement)
    lines: list[ast.stmt] = []
    ends: list[dict[str, str]] = []
    for body, suffix in ((then, "if"), (other, "else")):
        current: dict[str, str] = {}
        for each in body:
            if isinstance(each, ast.Pass):
                continue
            lines.append(_in_own_names(each, current, suffix))
        ends.append(current)
    chosen = ast.parse("C = T").body[0]
    assert isinstance(chosen, ast.Assign)
    flag = f"_condition_{statement.lineno}"
    chosen.targets = [ast.Name(flag, ast.Store())]
    chosen.value = test
    results = [
        ast.parse(f"{name} = torch.where({flag}, {ends[0].get(name, name)}, {ends[1].get(name, name)})").body[0]
        for name in written
    ]
    return [chosen, *lines, *results]


def _in_own_names(statement: ast.stmt, current: dict[str, str], suffix: str) -> ast.stmt:
    """`x = f(x)` as `x_if = f(x)`, and the next statement reads x_if."""
    if isinstance(statement, ast.AugAssign):
        assert isinstance(statement.target, ast.Name)
        name = statement.target.id
        value: ast.expr = ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
        targets = [name]
    elif isinstance(statement, ast.AnnAssign):
        assert isinstance(statement.target, ast.Name) and statement.value is not None
        value, targets = statement.value, [statement.target.id]
    else:
        assert isinstance(statement, ast.Assign)
        value, targets = statement.value, [target.id for target in statement.targets if isinstance(target, ast.Name)]
    value = _Renamed(dict(current)).visit(value)
    for name in targets:
        current[name] = f"_{name}_{suffix}"
    return ast.Assign([ast.Name(current[name], ast.Store()) for name in targets], value)
