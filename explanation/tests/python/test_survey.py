"""`weft survey`: a model's row, and what the study says of rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.explanation import _survey, _survey_worker
from weft.explanation._models import NotInstalled, makers
from weft.explanation._survey import Row, to_markdown

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def row(name: str, breaks: int, compiled: float) -> Row:
    return Row(
        "recurrent", name, "", fx=breaks + 1, aot=breaks + 1, kernels=4, weft=1, lazy=1,
        causes=["Data-dependent branching"] * breaks, breaks=breaks, eager=1e-3, compiled=compiled, lazy_seconds=1e-3,
        gaps=0.25 * breaks, compile_seconds=2.0,
    )  # fmt: skip


def test_a_row_says_what_each_stage_makes_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = json.dumps({"backend": "eager", "train": False, "seconds": 0.1})
    assert _survey_worker.main(["recurrent", ".", "decoder that stops early", options]) == 0
    found = Row("recurrent", "decoder", **json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found.breaks == 1 and found.causes == ["Data-dependent branching"]
    assert (found.fx, found.gaps) == (0, 1), "a break in a loop leaves the whole function to Python"
    assert found.lazy is not None and found.lazy > 1, found.lazy_note
    assert found.eager and found.compiled and found.lazy_seconds


def test_a_recurrence_is_one_graph_one_program_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    options = json.dumps({"backend": "aot_eager", "train": True, "seconds": 0.1})
    assert _survey_worker.main(["cells", str(EXAMPLES), "mgu", options]) == 0
    found = Row("cells", "mgu", **json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert (found.breaks, found.fx, found.aot, found.lazy, found.lazy_note) == (0, 1, 2, 1, "")
    assert found.weft and found.weft > 0


def test_every_group_lists_its_models_or_says_why_not() -> None:
    assert len(makers("recurrent")) > 10 and len(makers("cells", EXAMPLES)) > 15
    with pytest.raises(NotInstalled, match="no package `cells`"):
        makers("cells", EXAMPLES / "cells")


def test_the_study_counts_what_is_in_the_rows() -> None:
    rows = [row("one", 0, 1e-3), row("two", 1, 2e-3), row("three", 2, 4e-3), Row("timm", "four", "took longer")]
    text = to_markdown(rows, ["torchvision: not there"], "inductor", True)
    for part in (
        "4 models, of which 3 ran", "| recurrent | two | 1 | 2 | 2 | 4 | 1 | 1 | 1.00 ms | 2.00 ms | 1.00 ms | 25% |",
        "- timm, four: took longer", "| Data-dependent branching | 3 | three, two |",
        "Not there: torchvision: not there.",
        "compiled time by eager time with distinct breaks: 1.00.", "the median of 2 models with breaks: 3.00",
    ):  # fmt: skip
        assert part in text, part


def test_no_models_make_no_figures() -> None:
    text = to_markdown([], ["timm: not there"], "inductor", False)
    assert "0 models, of which 0 ran" in text and "not defined" in text


def test_a_wrong_command_line_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert _survey.main(["--models", "recurrent,nothing"]) == 2
    assert "there is no nothing" in capsys.readouterr().err
