"""Checks that imports of weft's Python packages follow the arrows between them, and that there is no cycle of modules
that import one another. Imports inside functions count.

Prints each import that points the wrong way and each cycle, and exits with 1 when there is one.
Usage: check_imports.py [ROOT]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# Where packages of weft lie.
ROOTS = {"python/weft": "weft", "verification/python": "weft", "explanation/python": "weft"}
EXTENSIONS = {"weft._C", "weft.verification._C", "weft.explanation._C"}
# What a package (or a module at the top) may import beside itself and weft._C. Nobody imports weft itself.
ARROWS: dict[str, set[str]] = {
    "_base": set(),
    "_capture": {"_base"},
    "_control": {"_base", "_capture"},
    "_patches": {"_base", "_capture", "_control"},
    "_dynamo": {"_base", "_capture"},
    "backend": {"_base", "_capture", "_control", "_dynamo"},
    "_device": {"_base"},
    "device": {"_base", "_capture", "_device"},
    "_stablehlo": {"_base", "_capture", "_control"},
    "_streaming": {"_base", "_capture"},
    "_packages": {"_base", "_capture", "_control", "_streaming", "formats"},
    "compat": {"_base", "_capture", "_control", "device"},
    "nn": {"_base", "_capture"},
    "formats": {"_base", "nn"},
    "verification": {"_base", "nn", "formats"},
    "explanation": {"_base", "_capture", "_stablehlo", "backend", "device"},
    "_command_line": {
        "_base",
        "_capture",
        "_packages",
        "_stablehlo",
        "backend",
        "compat",
        "verification",
        "explanation",
    },
    "__main__": {"_command_line"},
}

Imports = dict[str, list[tuple[str, int]]]  # by module: each module that it imports, and in which line


def modules(root: Path) -> dict[str, Path]:
    """The files of weft by the names under which they are imported."""
    found = {}
    for folder, package in ROOTS.items():
        for file in sorted((root / folder).rglob("*.py")):
            parts = (package, *file.relative_to(root / folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Each import of weft's: the module, and the line."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known or name in EXTENSIONS else str(node.module) for name in full]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
        for name in names:
            if name.split(".")[0] == "weft" and name not in EXTENSIONS:
                yield name, node.lineno


def package_of(module: str) -> str:
    return [*module.split("."), "weft"][1]


def wrong_way(module: str, target: str) -> str | None:
    """What is wrong with `module` importing `target`; None when nothing is."""
    package, other = package_of(module), package_of(target)
    if module == "weft":
        return None
    if other == "weft":
        return "weft itself is for users; take it from where it is defined"
    allowed = ARROWS.get(package, set())
    if other != package and other not in allowed:
        return f"{package} may only use {', '.join(sorted(allowed)) or 'nothing'}"
    return None


def cycles(imports: Imports) -> list[list[str]]:
    """Modules that import one another: one cycle for each import that closes one."""
    found: list[list[str]] = []
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
        elif module not in done:
            path.append(module)
            for target in dict(imports.get(module, [])):
                visit(target)
            done.add(path.pop())

    for module in imports:
        visit(module)
    return found


def faults(root: Path) -> list[str]:
    """One line for each import under `root` that points the wrong way, and for each cycle."""
    known = modules(root)
    imports = {module: list(imported(ast.parse(file.read_text()), known)) for module, file in known.items()}
    packages = {package_of(module) for module in known if module != "weft"}
    found = [f"weft.{name}: not in the list of packages (scripts/check_imports.py)" for name in packages - set(ARROWS)]
    for module, targets in imports.items():
        for target, line in targets:
            if why := wrong_way(module, target):
                found.append(f"{known[module].relative_to(root)}:{line}: imports {target}: {why}")
    return found + [f"an import cycle: {' -> '.join(cycle)}" for cycle in cycles(imports)]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = faults(root)
    print("\n".join(found) if found else "imports: all arrows point the right way, and there is no cycle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
