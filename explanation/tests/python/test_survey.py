"""`weft survey`: a model's row, and what the study says of rows."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import weft
from weft.explanation._survey import survey, survey_worker
from weft.explanation._survey.habits import HABITS
from weft.explanation._survey.models import NotInstalled, makers
from weft.explanation._survey.study import to_markdown
from weft.explanation._survey.study_rows import Gain, Row, Study, StudyError, read, row_from, write

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def row(name: str, breaks: int, compiled: float) -> Row:
    return Row(
        "recurrent", name, "", fx=breaks + 1, aot=breaks + 1, kernels=4, weft=1, lazy=1,
        causes=["Data-dependent branching"] * breaks, breaks=breaks, anew=0, eager=1e-3, compiled=compiled,
        lazy_seconds=1e-3, gaps=0.25 * breaks, compile_seconds=2.0, stablehlo=breaks + 1, xla=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("", ""),
        ("killed\n", "killed"),
        ("Traceback\n  File x\nRuntimeError: bad\n\nSet VERBOSE=1 for more", "RuntimeError: bad"),
        ("torch.exc.Unsupported: no\n  Explanation: it failed on x\n  Hint: y\n\nSet VERBOSE=1", "it failed on x"),
    ],
)
def test_a_model_that_fails_has_the_exceptions_words(stderr: str, reason: str) -> None:
    assert survey._reason(stderr) == reason


def test_a_row_says_what_each_stage_makes_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = json.dumps({"backend": "eager", "train": False, "seconds": 0.1, "hlo": False})
    assert survey_worker.main(["recurrent", ".", "decoder that stops early", options]) == 0
    found = Row("recurrent", "decoder", **json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found.breaks == 1 and found.causes == ["Data-dependent branching"]
    assert (found.fx, found.gaps) == (0, 1), "a break in a loop leaves the whole function to Python"
    assert found.lazy is not None and found.lazy > 1, found.lazy_note
    assert found.eager and found.compiled and found.lazy_seconds


def test_a_recurrence_is_one_graph_one_program_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    options = json.dumps({"backend": "aot_eager", "train": True, "seconds": 0.1, "hlo": False})
    assert survey_worker.main(["cells", str(EXAMPLES), "mgu", options]) == 0
    found = Row("cells", "mgu", **json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert (found.breaks, found.fx, found.aot, found.lazy, found.lazy_note) == (0, 1, 2, 1, "")
    assert found.weft and found.weft > 0


def test_lengths_stay_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    options = json.dumps({"backend": "eager", "train": False, "seconds": 0.1, "hlo": False})
    assert survey_worker.main(["recurrent", ".", "packed lstm", options]) == 0
    found = Row("recurrent", "packed", **json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found.breaks and found.lazy == 1 and found.lazy_note == ""


ITEM = "Unsupported Tensor.item() call with capture_scalar_outputs=False"
BRANCH = "Data-dependent branching"
#: What Dynamo reports for each habit in training, except for breaks behind another.
CAUSES = {
    "greedy decoding": [ITEM],
    "beam search": ["Data dependent operator", ITEM],
    "prints and logs": ["Failed to trace builtin operator"],
    "experts by nonzero": ["Dynamic shape operator"],
    "early exit": [BRANCH],
    "through numpy": ["attempted to trace numpy function unsupported by PyTorch"],
    "packed tagger": ["Attempted to call function marked as skipped", "Data dependent operator"],
    "annealed temperature": [],
    "gradient clipped inside": [ITEM, "Unsupported python_type() call"],
    "from text": [],
    "checkpointed": [],
}


@pytest.mark.parametrize("name", HABITS)
def test_a_habit_is_a_model_that_trains(name: str) -> None:
    """Which breaks it has is tested for some habits below, and for all in docs/figures/survey.md."""
    torch.manual_seed(0)
    model, args, kwargs = HABITS[name]()
    outputs = [leaf for leaf in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    assert outputs and name in CAUSES
    assert all(leaf.isfinite().all() for leaf in outputs if leaf.is_floating_point())


@pytest.mark.parametrize("name", ["annealed temperature", "packed tagger", "through numpy", "checkpointed"])
def test_a_habit_is_explained_and_runs_on_the_device(name: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    model, args, kwargs = HABITS[name]()
    options: dict[str, Any] = {"backend": "eager", "train": True, "seconds": 0.01, "rounds": 1, "hlo": False}
    (subject,) = weft.explain(model, *args, **kwargs, **options).results.subjects
    # By line of the model's where a test before has made these the user's: then the same cause may be met twice.
    assert list(dict.fromkeys(found.type for found in subject.breaks if not found.hidden)) == CAUSES[name]
    assert bool(subject.recompiles) == (name == "annealed temperature")
    lazy = subject.run("lazy")
    assert lazy is not None and lazy.graphs and lazy.seconds and lazy.note == "", lazy


def test_every_group_lists_its_models_or_says_why_not() -> None:
    assert len(makers("recurrent")) > 10 and len(makers("cells", EXAMPLES)) > 15
    with pytest.raises(NotInstalled, match="no package `cells`"):
        makers("cells", EXAMPLES / "cells")


def test_the_study_counts_what_is_in_the_rows() -> None:
    rows = [row("one", 0, 1e-3), row("two", 1, 2e-3), row("three", 2, 4e-3), Row("timm", "four", "took longer")]
    text = to_markdown([Study(True, "inductor", "a day", rows, ["torchvision: not there"])])
    for part in (
        "4 models, of which 3 ran",
        "| recurrent | two | 1 | 0 | 2 | 2 | 4 | 2 | 5 | 1 | 1 | 1.00 ms | 2.00 ms | 1.00 ms | 25% |",
        "- timm, four: took longer", "| Data-dependent branching | 3 | three, two |",
        "## Models",
        "Made by `weft survey` on a day.", "A step is a forward and a backward with",
        "Not there: torchvision: not there.",
        "compiled time by eager time with distinct breaks: 1.00.", "the median of 2 models with breaks: 3.00",
        "- Which stage: 2 of 3 models have breaks where Dynamo reads Python.", "StableHLO in 3 models; 0 have a graph",
        "of 2 models with breaks 2 are slower compiled than eager", "'Data-dependent branching' (3 breaks)",
    ):  # fmt: skip
        assert part in text, part


def test_what_to_do_first_is_what_gains_most() -> None:
    """Frequency doesn't decide; a gain within noise counts for nothing, and the gain of a cause is in its line."""
    rows = [row(name, 2, 2e-3) for name in ("one", "two", "three")]
    rows[0].gains = [Gain("leave it out", ["Printed"], 1e-3, 0.5, True)]
    rows[1].gains = [Gain("where", ["Branch"], 4e-4, 0.2, True), Gain("set it", ["Branch", "Item"], 1e-3, 0.5, False)]
    rows[2].gains = [Gain("where", ["Branch"], -4e-4, -0.2, True)]
    rows[2].lazy, rows[2].lazy_causes = 3, ["a number", "a number"]
    text = to_markdown([Study(False, "inductor", "a day", rows)])
    assert "What to do first: 'leave it out', which gains 50% of a step (median) in 1 model, more in sum" in text
    assert "| Branch | 3 | 1 | 1 | 20% | where |" in text and "| Item | 1 | 0 | 0 | 50% | set it |" in text
    assert "- What cuts the device's steps, by models: a number in 1." in text
    for each in rows:
        each.gains = []
    assert "no change gains a time that is more than noise" in to_markdown([Study(False, "inductor", "a day", rows)])


def test_the_page_says_how_busy_the_machine_was(tmp_path: Path) -> None:
    rows = [row("one", 1, 1e-3), row("two", 1, 1e-3)]
    rows[0].load, rows[1].load = 1.5, 4.5
    rows[0].gains = [Gain("where", ["Branch"], 1e-3, 0.5, True)]
    path = str(tmp_path / "rows.json")
    write([Study(False, "inductor", "a day", rows)], path)
    assert read(path)[0].rows == rows
    assert "The machine's load was 3.0 (median over the models" in to_markdown(read(path))


def test_a_model_that_ships_with_weft_is_changed_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Its lines are those of the model's file, not of the package."""
    options = json.dumps({"backend": "eager", "train": False, "seconds": 0.1, "hlo": False})
    assert survey_worker.main(["habits", ".", "prints and logs", options]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    found = row_from({"group": "habits", "name": "logs"} | json.loads(line))
    assert found.causes == ["Failed to trace builtin operator"] and found.gains
    assert found.causes[0] in found.gains[0].causes
    assert len(found.lazy_causes) == 2 and "printed or logged" in found.lazy_causes[0], found.lazy_causes


def test_the_page_of_a_run_is_that_of_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row with gains comes from a worker as JSON: the page of the run reads it as `--read` does."""
    said = {"breaks": 1, "fx": 2, "compiled": 2e-3, "eager": 1e-3, "mended": 1e-3, "causes": ["a cause"]}
    said |= {"gains": [dataclasses.asdict(Gain("a change", ["a cause"], 1e-3, 0.5, True))]}

    def worker(command: list[str], **options: object) -> SimpleNamespace:
        return SimpleNamespace(returncode=0, stderr="", stdout=json.dumps(["one"] if "--list" in command else said))

    monkeypatch.setattr(subprocess, "run", worker)
    kept, page = tmp_path / "rows.json", tmp_path / "page.md"
    assert survey.main(["--models", "habits", "--json", str(kept), "--output", str(page)]) == 0
    assert "'a change'" in page.read_text()
    assert page.read_text() == to_markdown(read(str(kept)))


def test_no_models_make_no_figures() -> None:
    text = to_markdown([Study(False, "inductor", "a day", [], ["timm: not there"])])
    assert "0 models, of which 0 ran" in text and "not defined" in text


@pytest.mark.usefixtures("warm_processes")
def test_two_studies_are_one_page_whether_run_together_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is made from the runs that --json kept, and both name a group that is missing."""
    studies = [Study(False, "inductor", "a day", [row("one", 0, 1e-3)]), Study(True, "inductor", "another", [])]
    paths = [str(tmp_path / f"{study.train}.json") for study in studies]
    for study, path in zip(studies, paths, strict=True):
        write([study], path)
    assert read(paths[0]) == studies[:1]
    assert survey.main(["--read", *paths]) == 0
    text = capsys.readouterr().out
    assert text == to_markdown(studies) + "\n"
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[0] == "## Inference: models" and "## Training: models" in titles
    assert len(set(titles)) == len(titles)

    output = tmp_path / "page.md"
    words = ["--both", "--models", "cells", "--cells", str(tmp_path), "--output", str(output)]
    assert survey.main(words) == 0
    assert output.read_text().count("Not there: cells: there is no package `cells`") == 2


@pytest.mark.parametrize("content", [None, "", "[]", '{"studies": [{}]}'])
def test_a_file_that_is_no_study_is_status_2(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StudyError):
        read(str(path))
    assert survey.main(["--read", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_wrong_command_line_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert survey.main(["--models", "recurrent,nothing"]) == 2
    assert "there is no nothing" in capsys.readouterr().err
