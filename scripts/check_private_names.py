"""Checks that weft's Python packages name what is private in PyTorch in one place, weft._base.torch_private.

A name is private if one of its parts begins with an underscore: any release may change it. What is looked for are
imports, dotted uses, whole strings such as "torch._guards", and private attributes of PyTorch's objects, which that
place lists in a table. An attribute is taken for PyTorch's unless a class of weft's has it: one in the same folder, or
in that of a module which is imported.

Prints each use that stands elsewhere, and exits with 1 when there is one.
Usage: check_private_names.py [--list] [ROOT]   (--list: prints the private names that are used, and by whom)
"""

import ast
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import check_imports

PLACE = "weft._base.torch_private"
#: Private by name only: PyTorch's documentation (docs.pytorch.org) has users write them.
DOCUMENTED = (
    "torch._dynamo.config",
    "torch._dynamo.mark_dynamic",
    "torch.ops.aten._log_softmax",  # of the core ATen IR
    "torch.ops.aten._softmax",
)
#: Weft's own operators, under a name of PyTorch's.
OWN = "torch.ops.weft."
#: Private attributes of Python's own objects: of a module's spec, of a named tuple.
PYTHONS = {"_initializing", "_replace"}
_BY_STRING = ("getattr", "hasattr", "setattr", "delattr")
#: A name as a string; torch_private has some as "module:name".
_STRING = re.compile(r"torch(\.\w+)*(:\w*)?")


@dataclasses.dataclass(frozen=True)
class Use:
    """Of a private name, `torch._guards.detect_fake_mode`, or of an object's private attribute, `_schema`."""

    name: str
    line: int


@dataclasses.dataclass(eq=False)
class Module:
    name: str
    file: Path
    tree: ast.Module
    bound: dict[str, str] = dataclasses.field(default_factory=dict)  #: what its names stand for, those it imports first


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def is_below(name: str, names: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in names)


# ---- what a module's text says


def modules(root: Path) -> list[Module]:
    return [Module(name, file, ast.parse(file.read_text())) for name, file in check_imports.modules(root).items()]


def taken_apart(node: ast.expr) -> tuple[str, list[str]]:
    """`a.b.c` as a, [b, c]; `f(x).b` as "", [b]."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return node.id if isinstance(node, ast.Name) else "", parts


def chains(tree: ast.Module) -> Iterator[tuple[str, list[str], int]]:
    """Each dotted use at its full length: taken apart, and its line. So is getattr with a private name."""
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            yield *taken_apart(node), node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BY_STRING:
            holder, name = [*node.args, None, None][:2]
            if holder and isinstance(name, ast.Constant) and is_private(str(name.value)):
                root, parts = taken_apart(holder)
                yield root, [*parts, str(name.value)], node.lineno


def imported(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Each name that an import binds, the whole name that is imported, and the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}", node.lineno


def bind(module: Module, place: dict[str, str]) -> None:
    """Fills in what the module's names stand for: imports, and other names for what these have."""
    for bound, name, _ in imported(module.tree):
        module.bound[bound] = followed(bound if name.startswith(f"{bound}.") else name, place)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            root, parts = taken_apart(node.value)
            if isinstance(target, ast.Name) and target.id not in module.bound and root in module.bound:
                module.bound[target.id] = followed(".".join([module.bound[root], *parts]), place)


def followed(name: str, place: dict[str, str]) -> str:
    """The name, with what torch_private has under it in its place."""
    own, _, rest = name.removeprefix(f"{PLACE}.").partition(".")
    if not name.startswith(f"{PLACE}.") or own not in place:
        return name
    return f"{place[own]}.{rest}" if rest else place[own]


def table(place: list[Module], name: str) -> object:
    """A table of torch_private's."""
    for module in place:
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return ast.literal_eval(node.value)
    raise ValueError(f"{PLACE} has no table {name}")


def defined(tree: ast.Module) -> Iterator[str]:
    """What a module has at its top, beside what it imports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from map(ast.unparse, node.targets)


def attributes_of_classes(tree: ast.Module) -> Iterator[str]:
    """What classes have: methods, attributes of the class, and of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] if ast.unparse(node.value) in ("self", "cls") else []
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield statement.name
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
                yield from (target.id for target in targets if isinstance(target, ast.Name))


# ---- what is private


class Tree:
    """All modules, and what torch_private has."""

    def __init__(self, root: Path) -> None:
        everything = modules(root)
        self.place = [module for module in everything if module.name == PLACE or module.name.startswith(f"{PLACE}.")]
        self.others = [module for module in everything if module not in self.place]
        self.known = {module.name: module for module in everything}
        lazy = table(self.place, "LAZY") if self.place else {}
        pairs = table(self.place, "ATTRIBUTES") if self.place else ()
        assert isinstance(lazy, dict) and isinstance(pairs, tuple)
        self.attributes = {f"{holder.replace(':', '.')}.{attribute}" for holder, attribute in pairs}
        self.names: dict[str, str] = {}  #: of torch_private, with what each stands for
        for module in self.place:
            bind(module, {})
            self.names |= {name: f"{PLACE}.{name}" for name in defined(module.tree)}
            self.names |= {name: path for name, path in module.bound.items() if is_private(path)}
        self.names |= {name: target.replace(":", ".").rstrip(".") for name, target in lazy.items()}
        for module in self.others:
            bind(module, self.names)

    def folders(self, module: Module) -> set[Path]:
        """The module's own, and those of the modules that it imports."""
        names = {part for _, name, _ in imported(module.tree) for part in (name, name.rpartition(".")[0])}
        found = {self.known[name] for name in names & set(self.known)}
        return {each.file.parent for each in (module, *found) if each not in self.place}

    def uses(self, module: Module) -> Iterator[Use]:
        """Private names of PyTorch and private attributes of objects that are used, except through torch_private."""
        for _, name, line in imported(module.tree):
            is_unknown = name.startswith(f"{PLACE}.") and name.removeprefix(f"{PLACE}.") not in self.names
            if is_unknown or (name.startswith("torch.") and is_private(name)):
                yield Use(name, line)
        for root, parts, line in chains(module.tree):
            yield from (Use(name, line) for name in self._of_chain(module.bound.get(root), parts))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _STRING.fullmatch(node.value):
                name = node.value.replace(":", ".").rstrip(".")
                yield from [Use(name, node.lineno)] if is_private(name) else []

    def _of_chain(self, root: str | None, parts: list[str]) -> Iterator[str]:
        """`root`: what the name at its beginning stands for."""
        name = ".".join([root or "", *parts])
        if root is None:
            pass
        elif root == PLACE:
            if parts[0] not in self.names:
                yield f"{PLACE}.{parts[0]}"
            parts = parts[1:]
        elif root in self.known:
            parts = parts[1:]
        elif name.startswith(OWN):
            parts = name.removeprefix(OWN).split(".")[1:]
        elif root.split(".")[0] == "torch" and not is_below(root, tuple(self.names.values())):
            if is_private(name) and not is_private(root):  # else what is bound to it is a use by itself
                yield name
            return
        elif root.split(".")[0] not in ("torch", "weft"):
            return
        yield from filter(is_private, parts)

    def through_place(self, module: Module) -> Iterator[str]:
        """Whole names of PyTorch's that the module uses through torch_private."""
        yield from (path for name, full, _ in imported(module.tree) if (path := followed(full, self.names)) != full)
        for root, parts, _ in chains(module.tree):
            path = followed(".".join([module.bound.get(root, ""), *parts]), self.names)
            public = [i for i, part in enumerate(path.split(".")) if part.startswith("__")]
            path = ".".join(path.split(".")[: public[0]]) if public else path
            if path.startswith("torch.") and is_private(path) and not path.startswith(OWN):
                yield path


def faults(root: Path) -> list[str]:
    """One line for each use under `root` of a private name elsewhere than in torch_private."""
    tree = Tree(root)
    listed = {name.rsplit(".", 1)[1] for name in tree.attributes}
    of_folder: dict[Path, set[str]] = {}
    for module in tree.others:
        of_folder.setdefault(module.file.parent, set()).update(attributes_of_classes(module.tree))
    found = []
    for module in tree.others:
        own = set().union(*(of_folder[folder] for folder in tree.folders(module)))
        for use in dict.fromkeys(tree.uses(module)):
            where = f"{module.file.relative_to(root)}:{use.line}: {use.name}"
            if use.name.startswith(f"{PLACE}."):
                found.append(f"{where}: there is no such name")
            elif "." in use.name:
                if not is_below(use.name, DOCUMENTED) and use.name not in tree.attributes:
                    found.append(f"{where}: take it from {PLACE}")
            elif use.name not in own | listed | PYTHONS and not use.name.startswith("_weft"):
                found.append(f"{where}: an attribute of PyTorch's belongs into ATTRIBUTES of {PLACE}")
    return found


def used(root: Path) -> dict[str, list[str]]:
    """The private names of PyTorch that are used, and the modules that do: torch_private itself, or through it."""
    tree = Tree(root)
    found: dict[str, list[str]] = {name: [] for name in tree.attributes}
    for module in tree.place:
        found |= {use.name: [] for use in tree.uses(module) if "." in use.name}
    for module in tree.others:
        for name in set(tree.through_place(module)):
            found.setdefault(name, []).append(module.name)
    return dict(sorted(found.items()))


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--list"]
    root = Path(words[0]) if words else Path(__file__).resolve().parent.parent
    if "--list" in sys.argv:
        print("\n".join(f"{name}: {', '.join(users) or PLACE}" for name, users in used(root).items()))
        return 0
    found = faults(root)
    print("\n".join(found) if found else f"private names: PyTorch's are all in {PLACE}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
