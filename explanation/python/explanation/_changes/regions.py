"""Statements of the user's as separate functions: their arguments and results."""

from __future__ import annotations

import ast
import copy
import dataclasses
from typing import Any

from weft.explanation._changes.rewrites import path_to

#: Nodes that a statement can't contain if it is to move into another function.
_BOUND_TO_ITS_PLACE = (
    ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Global, ast.Nonlocal, ast.Delete,
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip


@dataclasses.dataclass
class Region:
    """A statement as a function."""

    name: str
    parameters: list[str]
    arguments: list[ast.expr]  #: what the parameters are where it is called
    results: list[str]  #: names that it assigns and that others read; none of a `return`
    returns: bool  #: it is a `return`
    body: list[ast.stmt]

    def call(self) -> ast.stmt:
        """The call that replaces the statement."""
        called = ast.Call(ast.Name(self.name, ast.Load()), copy.deepcopy(self.arguments), [])
        if self.returns:
            return ast.Return(called)
        if not self.results:
            return ast.Expr(called)
        names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in self.results]
        return ast.Assign([names[0] if len(names) == 1 else ast.Tuple(names, ast.Store())], called)

    def function(self, results: list[str] | None = None) -> ast.FunctionDef:
        """The function; if `results` is given, it is what the function returns."""
        ends = results or self.results
        body = list(self.body)
        if not self.returns and ends:
            body += ast.parse(f"def f():\n    return {', '.join(ends)}").body[0].body  # type: ignore[attr-defined]
        parameters = ast.arguments([], [ast.arg(name) for name in self.parameters], None, [], [], None, [])
        return ast.fix_missing_locations(ast.FunctionDef(self.name, parameters, body, [], None, lineno=1))


def region_at(tree: ast.Module, line: int, loop: bool = False, lift: bool = False) -> Region | None:
    """The innermost statement at the line, or with `loop` the outermost loop around it, as a function; None if that
    isn't possible. With `lift`, `self.weight` becomes a parameter of its own instead of `self`."""
    found = _path(tree, line, loop)
    if found is None:
        return None
    *outer, function = found[0]
    body, index = found[1][-1]
    statement = body[index]
    if _is_bound_to_its_place(statement):
        return None
    local = {name for each in (*outer, function) for name in _locals(each)}
    inside, around = _Names(statement), _Names(function, without=statement)
    known = set(_parameters(function)) | around.stored | {name for each in outer for name in _locals(each)}
    returns = isinstance(statement, ast.Return)
    results = [] if returns else sorted(inside.stored & around.loaded)
    needed = inside.loaded & local & known
    if _is_compound(statement):
        needed |= set(results) & known  # a name that a branch leaves alone stays what it was
    arguments: list[ast.expr] = [ast.Name(name, ast.Load()) for name in sorted(needed)]
    region = Region(f"_region_{line}", sorted(needed), arguments, results, returns, [copy.deepcopy(statement)])
    return _lifted(region) if lift and "self" in region.parameters else region


def place_of(tree: ast.Module, line: int, loop: bool) -> tuple[list[ast.stmt], int] | None:
    """The list that contains the region's statement, and its place in the list."""
    found = _path(tree, line, loop)
    return found[1][-1] if found else None


def _path(
    tree: ast.Module, line: int, loop: bool
) -> tuple[list[ast.FunctionDef], list[tuple[list[ast.stmt], int]]] | None:
    """The functions around the region, the innermost last, and the lists from there down to it."""
    node: Any = tree
    places: list[tuple[list[Any], int]] = []
    for name, index in path_to(tree, line):
        places.append((getattr(node, name), index))
        node = places[-1][0][index]
    nodes = [body[index] for body, index in places]
    if not nodes or not isinstance(nodes[-1], ast.stmt) or any(isinstance(n, ast.AsyncFunctionDef) for n in nodes):
        return None
    functions = [i for i, each in enumerate(nodes) if isinstance(each, ast.FunctionDef)]
    within = places[functions[-1] + 1 :] if functions else []
    if loop:
        within = [(body, index) for body, index in within if isinstance(body[index], (ast.For, ast.While))][:1]
    return ([nodes[i] for i in functions], within) if within else None


def _is_compound(statement: ast.stmt) -> bool:
    return hasattr(statement, "body")


def _is_bound_to_its_place(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        if isinstance(node, _BOUND_TO_ITS_PLACE) or (isinstance(node, ast.Return) and node is not statement):
            return True
        if isinstance(node, ast.Name) and node.id in ("super", "__class__", "locals"):
            return True
    if isinstance(statement, ast.Return) and statement.value is None:
        return True
    return _leaves_a_loop(statement)


def _leaves_a_loop(node: ast.AST) -> bool:
    """Whether a break or continue in it belongs to a loop outside of it."""
    if isinstance(node, (ast.Break, ast.Continue)):
        return True
    if isinstance(node, (ast.For, ast.While)):
        return any(_leaves_a_loop(each) for each in node.orelse)
    return any(_leaves_a_loop(each) for each in ast.iter_child_nodes(node))


class _Names(ast.NodeVisitor):
    """Names that are loaded and stored in a node; those of a comprehension are its own."""

    def __init__(self, node: ast.AST, without: ast.AST | None = None) -> None:
        self.loaded: set[str] = set()
        self.stored: set[str] = set()
        self._root, self._without = node, without
        self.visit(node)

    def visit(self, node: ast.AST) -> None:
        if node is not self._without:
            super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        (self.loaded if isinstance(node.ctx, ast.Load) else self.stored).add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.loaded.add(node.target.id)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node is self._root:
            self.generic_visit(node)
        else:  # what it assigns is its own
            self.stored.add(node.name)
            self.loaded |= _Names(node).loaded

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for each in node.ifs:
            self.visit(each)


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    several = [each for each in (given.vararg, given.kwarg) if each]
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several)]


def _locals(function: ast.FunctionDef) -> set[str]:
    return set(_parameters(function)) | _Names(function).stored


class _Lift(ast.NodeTransformer):
    """`self.a.b` as the name self_a_b; the method of a call is not part of it."""

    def __init__(self) -> None:
        self.lifted: dict[str, ast.expr] = {}
        self.stays = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
            return node
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if isinstance(node.ctx, ast.Load) and all(part.isidentifier() for part in text.split(".")):
            if text.startswith("self."):
                name = text.replace(".", "_")
                self.lifted[name] = copy.deepcopy(node)
                return ast.Name(name, ast.Load())
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.stays = self.stays or node.id == "self"
        return node


def _lifted(region: Region) -> Region:
    lift = _Lift()
    body = [lift.visit(statement) for statement in region.body]
    if lift.stays:
        return region
    kept = [(n, a) for n, a in zip(region.parameters, region.arguments, strict=True) if n != "self"]
    if lift.lifted.keys() & set(region.parameters):
        return region
    every = [*kept, *lift.lifted.items()]
    return dataclasses.replace(region, parameters=[n for n, _ in every], arguments=[a for _, a in every], body=body)
