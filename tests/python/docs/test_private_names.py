"""scripts/check_private_names.py finds private names of PyTorch outside weft._base.torch_private."""

from __future__ import annotations

from pathlib import Path

import pytest
from tree_scripts import ROOT, run_script

PLACE = "weft._base.torch_private"
TORCH_PRIVATE = """
import torch

LAZY = {"FakeTensor": "torch._subclasses.fake_tensor:FakeTensor"}
ATTRIBUTES = (("torch.nn:Module", "_parameters"), ("torch._ops:OpOverload", "_schema"))
pytree = torch.utils._pytree
length = torch._C._len_torch_function_stack


def in_forward_mode():
    return torch.autograd.forward_ad._current_level >= 0
"""
TAKE_IT = f"take it from {PLACE}"
LIST_IT = f"an attribute of PyTorch's belongs into ATTRIBUTES of {PLACE}"


def write(root: Path, text: str, folder: str = "python/weft/nn") -> None:
    for path, content in ((f"{folder}/a.py", text), ("python/weft/_base/torch_private/__init__.py", TORCH_PRIVATE)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def test_this_tree_is_clean() -> None:
    done = run_script("check_private_names.py", ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("import torch._guards", "torch._guards", TAKE_IT),
        ("import torch.utils._pytree as pytree\n\npytree.tree_map", "torch.utils._pytree", TAKE_IT),
        ("from torch._guards import detect_fake_mode", "torch._guards.detect_fake_mode", TAKE_IT),
        ("def f():\n    from torch.fx.graph import _BoxedCodeGen as B", "torch.fx.graph._BoxedCodeGen", TAKE_IT),
        ("from torch import _C as c\n\nc._functorch", "torch._C", TAKE_IT),
        ("import torch\n\ntorch._C._get_tracing_state()", "torch._C._get_tracing_state", TAKE_IT),
        ("import torch.autograd as t\n\nt.graph._engine_run_backward = 1", "torch.autograd.graph._engine", TAKE_IT),
        ("import torch\n\ngraph = torch.fx.graph\ngraph._BoxedCodeGen()", "torch.fx.graph._BoxedCodeGen", TAKE_IT),
        ("import torch\n\nx: torch._ops.OpOverload", "torch._ops.OpOverload", TAKE_IT),
        ("import torch\n\ngetattr(torch, '_is_functional_tensor')", "torch._is_functional_tensor", TAKE_IT),
        ("import torch\n\ntorch.ops.aten._to_copy", "torch.ops.aten._to_copy", TAKE_IT),
        ("import sys\n\nsys.modules.get('torch._guards')", "torch._guards", TAKE_IT),
        ("def f(node):\n    return node.target._args", "_args", LIST_IT),
        ("def f(x):\n    return f(x.y)._base.z", "_base", LIST_IT),
        ("def f(x):\n    return getattr(x, '_base', None)", "_base", LIST_IT),
        ("class A:\n    def f(self):\n        return self._flat_weights", "_flat_weights", LIST_IT),
        ("import torch\n\ntorch.ops.weft._rnn.default._op_dk", "_op_dk", LIST_IT),
        (f"from {PLACE} import pytree\n\npytree.tree_map._f", "_f", LIST_IT),
        (f"from {PLACE} import missing", f"{PLACE}.missing", "there is no such name"),
        ("from weft._base import torch_private\n\ntorch_private.missing", f"{PLACE}.missing", "there is no such name"),
    ],
)
def test_a_private_name_elsewhere_is_named(tmp_path: Path, text: str, name: str, reason: str) -> None:
    write(tmp_path, text)
    done = run_script("check_private_names.py", tmp_path)
    (line,) = done.stdout.splitlines()
    assert done.returncode == 1
    assert line.startswith("python/weft/nn/a.py:") and f": {name}" in line and line.endswith(f": {reason}"), line


@pytest.mark.parametrize("folder", ["python/weft", "verification/python/formats", "explanation/python/explanation"])
def test_a_fault_has_its_file_and_line(tmp_path: Path, folder: str) -> None:
    write(tmp_path, "import torch\n\n\ndef f():\n    return torch._C", folder)
    assert run_script("check_private_names.py", tmp_path).stdout == f"{folder}/a.py:5: torch._C: {TAKE_IT}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"from {PLACE} import FakeTensor, pytree\n\npytree.tree_map(FakeTensor)",
        "from weft._base import torch_private\n\ntorch_private.length()\ntorch_private.in_forward_mode()",
        "import torch\n\ntorch.__version__\ntorch._dynamo.config.patch(a=1)\ntorch.ops.weft._rnn(1)",
        "from torch import nn\n\nnn.Module._parameters\n\n\ndef f(module):\n    return module._parameters",
        "import sys\n\nsys._getframe(1)",
        "class A:\n    def __init__(self):\n        self._own = 1\n\n\ndef f(a):\n    return a._own, a._weft_noted",
        "class A:\n    _own: int\n\n    def _method(self):\n        return A()._method()._own",
        "def f():\n    raise ValueError('set torch._dynamo.config.capture_scalar_outputs, or see torch._guards')",
    ],
)
def test_what_is_no_fault(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    done = run_script("check_private_names.py", tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_list_has_what_is_used_and_by_whom(tmp_path: Path) -> None:
    write(tmp_path, f"from {PLACE} import pytree\n\npytree.tree_map")
    assert run_script("check_private_names.py", tmp_path, "--list").stdout.splitlines() == [
        f"torch._C._len_torch_function_stack: {PLACE}",
        f"torch._ops.OpOverload: {PLACE}",
        f"torch._ops.OpOverload._schema: {PLACE}",
        f"torch._subclasses.fake_tensor.FakeTensor: {PLACE}",
        f"torch.autograd.forward_ad._current_level: {PLACE}",
        f"torch.nn.Module._parameters: {PLACE}",
        "torch.utils._pytree: weft.nn.a",
        "torch.utils._pytree.tree_map: weft.nn.a",
    ]
