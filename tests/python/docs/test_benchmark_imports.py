"""Programs of benchmarks find the modules that they import: nothing else in the tests starts all of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FILES = sorted(BENCHMARKS.rglob("*.py"))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def searched(file: Path, text: str) -> list[Path]:
    """The folders in which a program looks for modules of ours."""
    is_program = "__main__" in text
    also = [BENCHMARKS] if not is_program or "sys.path.insert" in text else []
    return [file.parent, *also, BENCHMARKS.parent / "examples"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(BENCHMARKS)))
def test_modules_of_ours_are_where_they_are_imported_from(file: Path) -> None:
    text = file.read_text()
    ours = {path.stem for path in FILES} | {path.name for path in BENCHMARKS.iterdir() if path.is_dir()}
    for module in imported_modules(ast.parse(text)):
        top, *inner = module.split(".")
        if top not in ours or top in sys.stdlib_module_names:
            continue
        places = [folder.joinpath(top, *inner) for folder in searched(file, text)]
        assert any(place.with_suffix(".py").exists() or place.is_dir() for place in places), f"{file}: {module}"
