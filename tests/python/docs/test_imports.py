"""scripts/check_imports.py finds imports that point the wrong way, and cycles of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tree_scripts import ROOT, run_script

import weft

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def write(root: Path, modules: dict[str, str]) -> None:
    for name, text in modules.items():
        path = root / "python/weft" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_wheel_has_the_modules_that_are_imported_here() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
    packed = {
        Path(package) / file.relative_to(ROOT / folder)
        for package, folder in settings.items()
        for file in (ROOT / folder).rglob("*.py")
    }
    here = Path(weft.__file__).parent
    assert packed == {file.relative_to(here.parent) for file in here.rglob("*.py")}


def test_this_tree_is_clean() -> None:
    done = run_script("check_imports.py", ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "reason"),
    [
        ("_base/a", "from weft._capture import b", "_base may only use nothing"),
        ("_capture/a", "import weft._control.b", "_capture may only use _base"),
        ("_control/a", "def f():\n    from weft._dynamo.b import g", "_control may only use _base, _capture"),
        ("_dynamo/a", 'x = importlib.import_module("weft.nn")', "_dynamo may only use _base, _capture"),
        ("nn/a", "from weft import scan", "weft itself is for users; take it from where it is defined"),
        ("nn/a", "import weft", "weft itself is for users; take it from where it is defined"),
        ("_capture/a", "from weft.formats import read", "_capture may only use _base"),
        ("nn/a", "import weft.verification", "nn may only use _base, _capture"),
    ],
)
def test_a_wrong_import_is_named(tmp_path: Path, module: str, line: str, reason: str) -> None:
    write(tmp_path, {module: line})
    done = run_script("check_imports.py", tmp_path)
    assert done.returncode == 1
    number = len(line.splitlines())
    assert f"python/weft/{module}.py:{number}: imports weft" in done.stdout and done.stdout.strip().endswith(reason)


def test_a_cycle_is_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "_base/a": "from weft import _C\nfrom weft._base import b",
            "_base/b": "from weft._base.c import f, g",
            "_base/c": "def f():\n    from weft._base import a",
            "_base/d": "import weft._base.a",
        },
    )
    cycle = "an import cycle: weft._base.a -> weft._base.b -> weft._base.c -> weft._base.a"
    assert run_script("check_imports.py", tmp_path).stdout.splitlines() == [cycle]


def test_a_new_package_must_be_listed(tmp_path: Path) -> None:
    write(tmp_path, {"_other/a": "x = 1"})
    assert "weft._other: not in the list of packages" in run_script("check_imports.py", tmp_path).stdout
