"""Every name of weft._base.torch_private is in the installed PyTorch: with a new release, the test tells which are
gone."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from weft._base import torch_private
from weft._base.torch_private.attributes import ATTRIBUTES

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import check_private_names  # noqa: E402

#: Names in ATTRIBUTES are looked for in another way: an attribute that `__init__` makes has no name from outside.
NAMES = sorted(
    set(check_private_names.used(ROOT)) - {f"{holder.replace(':', '.')}.{name}" for holder, name in ATTRIBUTES}
)
#: Modules that `import weft` doesn't pay for.
HEAVY = ("torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torch._functorch.partitioners")


def found(name: str) -> Any:
    """The object of a whole name.

    Raises AttributeError or ImportError where there is none.
    """
    parts = name.split(".")
    thing: Any = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        if isinstance(thing, ModuleType) and not hasattr(thing, part):
            thing = importlib.import_module(".".join(parts[:count]))
        else:
            thing = getattr(thing, part)
    return thing


def mentions(holder: Any, attribute: str) -> bool:
    """Whether the text mentions the attribute: one that `__init__` sets, or one that a module looks for on others'
    objects."""
    return re.search(rf"\b{attribute}\b", inspect.getsource(holder)) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there(name: str) -> None:
    found(name)


@pytest.mark.parametrize(("holder", "attribute"), ATTRIBUTES)
def test_an_attribute_is_there(holder: str, attribute: str) -> None:
    thing = found(holder.replace(":", "."))
    if not hasattr(thing, attribute):
        bases = [base for base in inspect.getmro(thing) if base is not object] if inspect.isclass(thing) else [thing]
        assert any(mentions(base, attribute) for base in bases)


@pytest.mark.parametrize("name", torch_private.LAZY)
def test_what_is_lazy_is_found_when_it_is_asked_for(name: str) -> None:
    assert getattr(torch_private, name) is found(torch_private.LAZY[name].replace(":", ".").rstrip("."))


def test_types_are_those_of_what_is_lazy() -> None:
    """What a type checker sees under a name is what is found under it."""
    tree = ast.parse(Path(torch_private.__file__).read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    module = check_private_names.Module("", Path(), ast.Module(typed.body, []))
    check_private_names.bind(module, {})
    seen = {name: path for name, path in module.bound.items() if name in torch_private.LAZY}
    untyped = {ast.unparse(node.target) for node in typed.body if isinstance(node, ast.AnnAssign)}
    assert set(seen) | untyped == set(torch_private.LAZY)
    assert all(found(path) is getattr(torch_private, name) for name, path in seen.items())


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'weft\._base\.torch_private' has no attribute 'missing'"):
        torch_private.missing  # type: ignore[attr-defined]  # noqa: B018


def test_files_are_there() -> None:
    assert any(Path(f"{name}.py").exists() for name in torch_private.METHODS_FILES)
    assert any(Path(name).exists() for name in torch_private.PRINTING_FILES)
    file, function = torch_private.ENGINE_FRAME
    code = inspect.unwrap(getattr(torch.autograd.graph, function)).__code__
    assert (code.co_filename, code.co_name) == (file, function)


def test_importing_weft_imports_nothing_lazy() -> None:
    code = f"import sys, torch; before = set(sys.modules); import weft; print([m for m in {HEAVY} if m in sys.modules])"
    lazily = {target.partition(":")[0] for target in torch_private.LAZY.values()}
    code += f"; print(sorted({lazily} & set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
