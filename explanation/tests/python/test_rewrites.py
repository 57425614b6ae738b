"""Changes of syntax trees: what they make of each form, and which forms they leave alone."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import textwrap
from pathlib import Path

import pytest

from weft.explanation._changes.code import Source
from weft.explanation._changes.mending import difference
from weft.explanation._changes.rewrites import changed, changes_for
from weft.explanation._report.records import Break

BRANCHING = "Data-dependent branching"
BROKEN = Break(0, "f.py", 1, "f", "", "", "", "", "", [], "", False, "", False, 1, [])
ITEM = "Unsupported Tensor.item() call with capture_scalar_outputs=False"


def rewritten(code: str, line: int, kind: str) -> list[str]:
    """The code after each change that fits it; other changes leave nothing."""
    code = textwrap.dedent(code)
    found = []
    for change in changes_for(dataclasses.replace(BROKEN, line=line, type=kind)):
        tree = change.edit(ast.parse(code)) if change.edit else None
        if tree is not None:
            found.append(ast.unparse(ast.fix_missing_locations(tree)))
    return found


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("if c(x):\n    y = a\nelse:\n    y = b\n", 1,
         "_condition_1 = c(x)\n_y_if = a\n_y_else = b\ny = torch.where(_condition_1, _y_if, _y_else)"),
        ("if c(x):\n    y = a\n", 1, "_condition_1 = c(x)\n_y_if = a\ny = torch.where(_condition_1, _y_if, y)"),
        ("if c(x): y = a\n", 1, "_condition_1 = c(x)\n_y_if = a\ny = torch.where(_condition_1, _y_if, y)"),
        ("if not c(x):\n    y = a\nelse:\n    y = b\n", 1,
         "_condition_1 = c(x)\n_y_if = b\n_y_else = a\ny = torch.where(_condition_1, _y_if, _y_else)"),
        ("if c(x):\n    y = f(y)\n    y = g(y)\n", 1,
         "_condition_1 = c(x)\n_y_if = f(y)\n_y_if = g(_y_if)\ny = torch.where(_condition_1, _y_if, y)"),
        ("if c(x):\n    y += 1\n    z = y\n", 1,
         "_condition_1 = c(x)\n_y_if = y + 1\n_z_if = _y_if\ny = torch.where(_condition_1, _y_if, y)\n"
         "z = torch.where(_condition_1, _z_if, z)"),
        ("def f(x):\n    if c(x):\n        return a\n    else:\n        return b\n", 2,
         "def f(x):\n    return torch.where(c(x), a, b)"),
        ("if p:\n    q = 1\nelif c(x):\n    y = a\n", 3,
         "if p:\n    q = 1\nelse:\n    _condition_3 = c(x)\n    _y_if = a\n"
         "    y = torch.where(_condition_3, _y_if, y)"),
    ],
)  # fmt: skip
def test_a_branch_becomes_torch_where(code: str, line: int, expected: str) -> None:
    assert rewritten(code, line, BRANCHING)[0] == expected


@pytest.mark.parametrize(
    "code",
    [
        "if c(x):\n    print(x)\n",  # an effect
        "if c(x):\n    self.y = a\n",  # a change that somebody may see
        "if c(x):\n    y[0] = a\n",
        "if c(x) and d(x):\n    y = a\n",  # d(x) may need that c(x) holds
        "if (n := c(x)):\n    y = a\n",
        "while c(x):\n    y = a\n",
        "if c(x):\n    return a\n",
        "if c(x):\n    for i in y:\n        z = i\n",
        "if c(x):\n    pass\n",
        "if c(x):\n    y = x.add_(1)\n",
    ],
)
def test_a_branch_that_does_more_than_assign_is_left_alone(code: str) -> None:
    body = "def f(x):\n" + textwrap.indent(code, "    ")
    assert not [each for each in rewritten(body, 2, BRANCHING) if "where" in each]


def test_an_item_stays_a_tensor() -> None:
    first = rewritten("s = x.mean().item() + float(y)\n", 1, ITEM)[0]
    assert first == "s = x.mean().detach() + y.detach()"
    assert rewritten("if x.item() > 0:\n    y = z.item()\n", 1, ITEM)[0].startswith(
        "if x.detach() > 0:\n    y = z.item()"
    )


def test_only_calls_whose_result_nobody_uses_are_left_out() -> None:
    (guarded,) = rewritten("def f(x):\n    log(x)\n    return x\n", 2, "Failed to trace builtin operator")
    assert "    if not torch.compiler.is_compiling():\n        log(x)\n" in guarded
    assert rewritten("y = log(x)\n", 1, "Failed to trace builtin operator") == []


def test_what_changed_is_the_smallest_run_of_statements() -> None:
    old = ast.parse("a = 1\nwith b as c:\n    d = 1\n    if e:\n        f = 1\n        g = 2\n    h = 3\n")
    new = ast.parse(
        "a = 1\nwith b as c:\n    d = 1\n    if e:\n        f = 9\n        k = 7\n        g = 2\n    h = 3\n"
    )
    region = changed(old, new)
    assert region is not None
    assert [[ast.unparse(each) for each in part] for part in region] == [["f = 1"], ["f = 9", "k = 7"]]
    assert changed(old, old) is None


@pytest.mark.parametrize(
    ("code", "line", "kind"),
    [
        ("def f(x):\n    if p:\n        q = 1\n    elif c(x):\n        y = a\n    return y\n", 4, BRANCHING),
        ("def f(x):\n    if p: log(x)\n    return x\n", 2, "other"),
        ("def f(x):\n    y = x.item(); z = x\n    return x\n", 2, ITEM),
        ("def f(x):\n    y = g(\n        x.item(),\n    )\n    return y\n", 3, ITEM),
    ],
)
def test_the_difference_applied_to_the_text_is_the_changed_tree(
    code: str, line: int, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(code)
    source = Source(str(file))
    for change in changes_for(dataclasses.replace(BROKEN, file=str(file), line=line, type=kind)):
        tree = source.edited([change.edit]) if change.edit else None
        if tree is None:
            continue
        patch = tmp_path / "change.diff"
        patch.write_text(difference(source, [change]))
        copy = tmp_path / "copy.py"
        subprocess.run(["patch", "-s", "-o", copy, file, patch], check=True)
        assert ast.unparse(ast.parse(copy.read_text())) == ast.unparse(tree)
        return
    raise AssertionError("no change fits")
