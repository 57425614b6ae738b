"""scripts/check_op_codes.py finds phases that ask an op for its name where it means a fact."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import check_op_codes  # noqa: E402


def test_this_tree_is_clean() -> None:
    assert check_op_codes.faults(ROOT) == []


@pytest.mark.parametrize(
    ("line", "ops"),
    [
        ("if (op.code == OpCode::kReshape) return;", ["Reshape"]),
        (
            "if (op->code != ir::OpCode::kPad &&\n    made->code ==\n      weft::ir::OpCode::kSlice) return;",
            ["Pad", "Slice"],
        ),
        ("bool is_it = OpCode::kSlice == op.code;", ["Slice"]),
        ("case OpCode::kGather:", ["Gather"]),
        ("const Op* sum = definition(op.operands[0], OpCode::kAdd);", ["Add"]),
        ("constexpr OpCode kViews[] = {OpCode::kSlice, OpCode::kReverse, OpCode::kPad};", ["Slice", "Reverse"]),
        ("using enum ir::OpCode;", ["using enum"]),
        ("if (op.code == OpCode::kScan || op.code == OpCode::kCond || op.code == OpCode::kWhile) return;", []),
        ("value = builder.emit(OpCode::kReverse, {value}, {});", []),
        ("// as op.code == OpCode::kPad does", []),
        ("Op op{OpCode::kCast, {result}, {x}, {}, {}};", []),
    ],
)
def test_comparisons_are_found(line: str, ops: list[str]) -> None:
    assert check_op_codes.comparisons(line) == ops


def a_tree(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one table and one file with two comparisons."""
    monkeypatch.setattr(check_op_codes, "TABLES", {"src/codegen/pointwise.cpp": "a table"})
    for name, text in {
        "src/codegen/pointwise.cpp": "case OpCode::kAdd:\n",
        "src/passes/a.cpp": "a.code == OpCode::kAdd && b.code == OpCode::kPad\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_comparisons_outside_of_tables_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_tree(tmp_path, monkeypatch)
    (found,) = check_op_codes.faults(root)
    assert found.startswith("src/passes/a.cpp: 2 comparisons with op codes (Add, Pad): ask for a trait")
    (root / "src/passes/a.cpp").write_text("ir::traits_of(a.code).adds == ir::Adds::kSum\n")
    assert check_op_codes.faults(root) == []


def test_a_table_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_tree(tmp_path, monkeypatch)
    (root / "src/codegen/pointwise.cpp").unlink()
    (root / "src/passes/a.cpp").unlink()
    assert check_op_codes.faults(root) == ["src/codegen/pointwise.cpp: in TABLES, but fits no file"]
