"""The public names as type checkers and readers see them: types, docstrings, full parameter lists."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_python

import weft

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent
CHECKED = [str(ROOT / "examples"), str(HERE / "typed_uses.py")]
MODULES = ["weft", "weft.device", "weft.nn", "weft.formats", "weft.verification", "weft.explanation"]
#: Arguments that are passed on to a function of the user's.
PASS_ON = {"weft.explain", "weft.explanation.explain", "weft.stablehlo", "weft.stream", "weft.nn.convert"}


def checker(module: str, *arguments: str, **environment: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_strict() -> None:
    folder = Path(weft.__file__).parents[1]
    cache = ROOT / ".cache" / "mypy"
    checker("mypy", "--config-file", str(HERE / "mypy.ini"), "--cache-dir", str(cache), *CHECKED, MYPYPATH=str(folder))


@pytest.mark.slow
def test_pyright(tmp_path: Path) -> None:
    settings = {
        "include": CHECKED,
        "extraPaths": [str(Path(weft.__file__).parents[1]), str(ROOT / "examples")],
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checker("basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable)


def public() -> Iterator[tuple[str, Any]]:
    for name in MODULES:
        module = importlib.import_module(name)
        here = (n for n, v in vars(module).items() if not n.startswith("_") and inspect.isfunction(v))
        for attribute in getattr(module, "__all__", None) or here:
            if not isinstance(getattr(module, attribute), types.ModuleType | str | dict):
                yield f"{name}.{attribute}", getattr(module, attribute)


PUBLIC = dict(public())


def functions(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value):
        for attribute, member in vars(value).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if not attribute.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{attribute}", function


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings(name: str) -> None:
    assert inspect.getdoc(PUBLIC[name]), name
    for full, function in functions(name, PUBLIC[name]):
        assert inspect.getdoc(function), full
    if inspect.isfunction(PUBLIC[name]) and inspect.signature(PUBLIC[name]).parameters:
        assert "Raises" in PUBLIC[name].__doc__


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures(name: str) -> None:
    for full, function in functions(name, PUBLIC[name]):
        signature = inspect.signature(function)
        assert str(signature.return_annotation) not in ("Any", str(inspect.Signature.empty)), full
        variable = {p.kind for p in signature.parameters.values()} & {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        }
        assert not variable or full in PASS_ON, full


def test_lazy_names_are_listed() -> None:
    code = "import weft; assert {'nn', 'formats', 'verify', 'quantize', 'explain'} <= set(dir(weft)), dir(weft)"
    subprocess.run([warm_python.command(), "-c", code], check=True)
    assert all(hasattr(weft, name) for name in dir(weft))
    with pytest.raises(AttributeError, match="no attribute 'scn'; did you mean 'scan'"):
        weft.scn  # noqa: B018
    with pytest.raises(TypeError, match=r"weft\.nn\.GRU has no option 'reset_aftr'; did you mean 'reset_after'\?"):
        weft.nn.GRU(3, 3, reset_aftr=False)
    with pytest.raises(TypeError, match="one argument, but body takes 2"):
        weft.while_loop(lambda pair: pair[0] < 3, lambda a, b: (a, b), (0, 1))
