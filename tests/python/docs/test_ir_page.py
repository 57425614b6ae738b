"""docs/ir.md describes the IR as it is: its table of ops is the op table, its examples are programs that run."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
from pathlib import Path

import pytest
import torch

import weft

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "ir.md").read_text()
TOOLS = Path(weft._C.__file__).resolve().parents[2] / "tools"
if not (TOOLS / "weft-opt").exists():
    pytest.skip("needs the tools of a build", allow_module_level=True)

spec = importlib.util.spec_from_file_location("op_reference", ROOT / "scripts" / "op_reference.py")
assert spec is not None and spec.loader is not None
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)

ROWS = {row["op"]: row for row in reference.op_rows(TOOLS / "weft-opt")}
EXAMPLES = {re.findall(r"program @(\w+)", text)[0]: text for text in re.findall(r"```weft\n(.*?)```", PAGE, re.S)}
SIZES = {"T": 5, "B": 3, "N": 9}
OUTPUT = re.compile(r"^%(\w+) [a-z0-9]+\[[\d,]*\]: sum.*\n  (.*)$", re.M)
DIFFERENCE = re.compile(r"^largest difference from the interpreter in \d+: (.*)$", re.M)


def prose() -> str:
    """The page without the generated table."""
    before, _, rest = PAGE.partition(reference.BEGIN)
    return before + rest.partition(reference.END)[2]


def run_tool(name: str, *arguments: str, text: str) -> str:
    done = subprocess.run([TOOLS / name, *arguments, "-"], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def values_printed(printed: str) -> dict[str, list[float]]:
    """The elements that `weft-run --values` prints, by the name of an output."""
    return {name: [float(value) for value in values.split()] for name, values in OUTPUT.findall(printed)}


def test_the_table_is_the_op_table() -> None:
    written = PAGE.partition(reference.BEGIN)[2].partition(reference.END)[0]
    assert written == reference.table(list(ROWS.values())), "run scripts/op_reference.py --write"


def test_every_op_has_an_entry() -> None:
    """A heading of its own, or a place in the first column of a table."""
    entries = re.findall(r"^### `(\w+)`", prose(), re.M)
    for cell in re.findall(r"^\| (`[^|]*`) \|", prose(), re.M):
        entries += re.findall(r"`(\w+)`", cell)
    dtypes = set(re.findall(r"\b[a-z]+\d*\b", "bool i8 i16 i32 i64 u8 f16 bf16 f32 f64"))
    assert sorted(entry for entry in entries if entry not in dtypes) == sorted(ROWS)


def test_elementwise_entries_say_whether_there_is_a_derivative() -> None:
    lines = re.findall(r"^\| (`[^|]*`) \|.*\| ([^|]*) \|$", prose(), re.M)
    said = {op: cell for ops, cell in lines for op in re.findall(r"`(\w+)`", ops) if op in ROWS}
    assert len(said) > 30
    for op, cell in said.items():
        assert (cell == "none") == (ROWS[op]["derivative"] == "no"), op


def test_every_op_is_in_an_example() -> None:
    used = {word for text in EXAMPLES.values() for word in re.findall(r"(?:=|^) *(\w+)", text, re.M)}
    assert set(ROWS) <= used


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_programs(example: str) -> None:
    """They parse and verify, and printing them loses nothing."""
    printed = run_tool("weft-opt", text=EXAMPLES[example])
    assert run_tool("weft-opt", text=printed) == printed


@pytest.mark.parametrize("example", [name for name in EXAMPLES if " extern " not in EXAMPLES[name]])
def test_examples_run(example: str) -> None:
    """In machine code and in the interpreter, with the results that the page states."""
    text = EXAMPLES[example]
    inputs = text.partition("program @")[2].partition("{")[0]
    symbols = sorted(set(re.findall(r"\b[A-Z]\b", inputs)))
    sizes = [f"--dims={','.join(f'{name}={SIZES[name]}' for name in symbols)}"] if symbols else []
    printed = run_tool("weft-run", "--compare", "--values", *sizes, text=text)
    differences = [float(value) for value in DIFFERENCE.findall(printed)]
    assert differences and max(differences) < 1e-5
    found = [
        values_printed(printed),
        values_printed(run_tool("weft-run", "--interpreter", "--values", *sizes, text=text)),
    ]
    for name, stated in re.findall(r"^// %(\w+) = (.*)$", text, re.M):
        for values in found:
            wanted = [float(value) for value in stated.split()]
            assert len(values[name]) == len(wanted)
            assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(values[name], wanted, strict=True))


def test_the_example_of_extern_runs() -> None:
    x = torch.randn(3, 8)
    least, index = weft.call(EXAMPLES["smallest"], [x])
    assert torch.equal(least, x.min(1, keepdim=True).values)
    assert torch.equal(index, x.argsort(1))
