"""scripts/check_includes.py finds includes that point the wrong way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tree_scripts import ROOT, run_script


def test_this_tree_is_clean() -> None:
    done = run_script("check_includes.py", ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("src/ir/a.cpp", '#include "passes/dce.h"', "ir may only use base"),
        ("src/base/a.h", '#include "ir/type.h"', "base may only use nothing"),
        ("src/runtime/a.cpp", '#  include "ir/type.h"', "runtime may only use base"),
        ("src/engine/a.cpp", "#include <torch/library.h>", "engine never includes torch"),
        ("src/ir/ops.def", "#include <ATen/ATen.h>", "ir never includes torch"),
        ("src/engine/a.cpp", "#include <llvm/IR/Module.h>", "only codegen, jit and packages see LLVM"),
        (
            "pytorch/operator/a.cpp",
            '#include "codegen/codegen.h"',
            "pytorch/operator may only use base, engine, ir, passes, runtime",
        ),
        ("pytorch/record/a.h", '#include "programs/record_table.h"', "pytorch/record may only use base, engine, ir"),
        (
            "python/bindings/a.cpp",
            '#include "verify/compare.h"',
            "python/bindings may only use base, decompose, device, engine, importer, interpreter, ir",
        ),
        (
            "src/engine/a.cpp",
            '#include "verify/compare.h"',
            "engine may only use base, interpreter, ir, jit, passes",
        ),
        ("verification/verify/a.cpp", '#include "ir/type.h"', "verification/verify may only use base"),
        ("verification/verify/a.cpp", "#include <ATen/ATen.h>", "verification/verify never includes torch"),
        ("verification/bindings/a.cpp", '#include "ir/type.h"', "verification/bindings may only use base, verify"),
    ],
)
def test_a_wrong_include_is_named(tmp_path: Path, file: str, line: str, reason: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f"// a file\n{line}\n")
    done = run_script("check_includes.py", tmp_path)
    assert done.returncode == 1
    assert f"{file}:2: includes" in done.stdout and reason in done.stdout


def test_a_new_phase_must_be_listed(tmp_path: Path) -> None:
    (tmp_path / "src/optimizer").mkdir(parents=True)
    assert "src/optimizer: not in the list of phases" in run_script("check_includes.py", tmp_path).stdout
