"""Sizes that change: what compiling anew costs, and the mark that spares it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from explain_cases import in_process

HEAD = "import torch\n@torch.compile(backend='eager')\n"
SIZES = HEAD + "def step(x, y):\n    return torch.tanh(x) + y\n"


def subject_of(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], Path]:
    program = tmp_path / "program.py"
    program.write_text(text)
    status, out, err = in_process(capsys, "--seconds", "0.5", "--rounds", "3", "--format", "json", program)
    assert status == 0, err
    return json.loads(out)["subjects"][0], program


def test_the_size_that_changed_is_marked_before_the_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SIZES + "for n in (3, 4):\n    batch = torch.ones(2, n)\n    step(batch, torch.ones(1))\n"
    subject, program = subject_of(tmp_path, text, capsys)
    (again,) = subject["recompiles"]
    assert "size mismatch at index 1" in again["guards"][0]
    assert again["tried"] and "1 graphs instead of 2, the results are the same" in again["outcome"], again
    assert again["saved"]["low"] <= again["saved"]["median"] <= again["saved"]["high"]
    assert again["gain"] is not None
    (tmp_path / "change.diff").write_text(again["change"] + "\n")
    subprocess.run(["patch", "-s", program, tmp_path / "change.diff"], check=True)
    assert "    torch._dynamo.mark_dynamic(batch, 1)\n    step(batch, torch.ones(1))\n" in program.read_text()
    after, _ = subject_of(tmp_path, program.read_text(), capsys)
    assert after["recompiles"] == []


def test_an_argument_without_a_name_is_named_as_in_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SIZES + "for n in (3, 4): step(x=torch.ones(n), y=torch.ones(1))\n"
    subject, program = subject_of(tmp_path, text, capsys)
    (again,) = subject["recompiles"]
    assert again["change"] == f"torch._dynamo.mark_dynamic(x, 0)\nbefore the call at {program}:5"


def test_a_number_that_changes_is_compiled_for_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = HEAD + "def step(x, n):\n    return x.sum() * n\nfor n in (3, 4): step(torch.ones(2), n)\n"
    subject, _ = subject_of(tmp_path, text, capsys)
    (again,) = subject["recompiles"]
    assert again["tried"] and again["change"] == "torch.compile(..., dynamic=True)"


def test_what_no_mark_mends_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each branch is a program of its own, so no mark helps."""
    text = HEAD + "def step(x):\n    return x + 1 if x.shape[0] > 3 else x - 1\nfor n in (3, 4): step(torch.ones(n))\n"
    subject, _ = subject_of(tmp_path, text, capsys)
    (again,) = subject["recompiles"]
    assert not again["tried"] and again["saved"] is None and "tried, and" in again["outcome"]
