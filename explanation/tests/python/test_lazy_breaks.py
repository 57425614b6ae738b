"""Programs that use the lazy device: what cuts their steps, which changes keep them whole, and what is not said."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from explain_cases import HERE, environment, in_process, script, warm

from weft.explanation._changes.code import Source
from weft.explanation._lazy import changes as _lazy_changes
from weft.explanation._lazy import trial_worker
from weft.explanation._lazy.changes import LazyChange
from weft.explanation._lazy.trials import Looked, Trials

PROGRAMS = HERE / "programs"

#: For each program: the text of each line that cuts a step, whether another break hides it, and whether a change mends
#: it.
CUTS = {
    "lazy_training": {
        "if loss > 100:": (False, True),
        "total += loss.item()": (True, True),
        'print("loss", loss)': (True, True),
    },
    "lazy_xla": {"if y.abs().max() > 5:": (False, True), 'print("mean", y.mean().item())': (False, True)},
    "lazy_agent": {
        "errors = [*errors[-3:], lost.cpu()]": (False, True),
        "if norm > 1:": (False, True),
        "worst += norm.item()": (True, True),
    },
    "lazy_sizes": {"kept = y[y > 0]": (False, False)},
}


@pytest.fixture(scope="module", params=CUTS)
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("lazy") / "report.json"
    words = ["--seconds", "0.5", "--rounds", "4", "--output", file, PROGRAMS / f"{request.param}.py"]
    status, _, err = in_process(None, *words)
    assert status == 0, err
    (subject,) = json.loads(file.read_text())["subjects"]
    return request.param, subject


def test_each_line_that_cuts_a_step_is_named(explained: tuple[str, dict[str, Any]]) -> None:
    name, subject = explained
    mended = {number for action in subject["actions"] if action["tried"] for number in action["breaks"]}
    found = {each["source"]: (each["hidden"], each["id"] in mended) for each in subject["breaks"]}
    assert found == CUTS[name], subject["actions"]
    assert subject["backend"] == "lazy" and subject["train"] == (name != "lazy_sizes")


def test_a_step_has_a_graph_more_than_lines_that_cut_it(explained: tuple[str, dict[str, Any]]) -> None:
    _, subject = explained
    visible = [found for found in subject["breaks"] if not found["hidden"]]
    assert [graph["ended_by"] for graph in subject["graphs"]] == [*(found["id"] for found in visible), None]
    run = next(run for run in subject["runs"] if run["name"] == "lazy")
    assert run["graphs"] == len(subject["graphs"]) and run["seconds"]["median"] > 0
    assert subject["timeline"][-1]["end"] > 0


def test_a_change_is_the_users_program_without_the_cut(explained: tuple[str, dict[str, Any]]) -> None:
    name, subject = explained
    for action in subject["actions"]:
        if action["tried"]:
            assert action["change"].startswith("--- ") and action["gain"] is not None
    if name == "lazy_sizes":
        (again,) = [each for each in subject["recompiles"] if "torch.roll" in _line(name, each["line"])]
        assert again["times"] > 3 and "the argument shifts" in again["guards"][0]
        assert again["advice"].startswith("a Python number changed")


def test_the_changed_file_says_what_the_program_says(explained: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """The change as a patch of the user's file does what was measured, and mends all breaks."""
    name, subject = explained
    if name == "lazy_sizes":
        pytest.skip("no change was found for its break")
    action, program = subject["actions"][0], PROGRAMS / f"{name}.py"
    assert set(action["breaks"]) == {each["id"] for each in subject["breaks"]}
    own, changed = (_numbers(each) for each in (program, script("promised").changed(program, action, tmp_path)))
    assert len(own) > 1 and changed == pytest.approx(own, rel=1e-3)


def _numbers(program: Path) -> list[float]:
    """The numbers that a program prints, except in the name of the device."""
    done = subprocess.run([warm(), program], capture_output=True, text=True, check=True, env=environment())
    return [float(each) for each in re.findall(r"-?\d+\.\d+", done.stdout)]


def _line(name: str, number: int) -> str:
    return (PROGRAMS / f"{name}.py").read_text().splitlines()[number - 1]


@pytest.mark.parametrize(
    ("without", "changed", "misfit"),
    [
        ([1.0], [1.1], "x: other values"),
        ([1.0 + 1e-7], [1.1], "x: other values"),  # rounded otherwise
        ([1.0 + 1e-7], [1.0 + 1e-4], ""),
        ([2000.9], [2002.1], ""),  # seconds since the machine's start: each run has others, by chance nearly the same
        ([0.00105], [0.0003], ""),  # the seconds of a step, which the change makes shorter
    ],
)
def test_what_differs_without_a_change_is_not_compared(without: list[float], changed: list[float], misfit: str) -> None:
    """The numbers are the value of a variable x, or are printed. The program's own run has the first number of
    `without`, rounded."""

    def looked(variant: int, numbers: list[float], is_named: bool) -> Looked:
        return Looked(variant, 0, 1, [], {"x": numbers} if is_named else {}, ("at", [] if is_named else numbers), 0)

    own = [round(without[0], 3)] if without[0] < 2000 else [2000.0]
    for is_named, words in ((True, misfit), (False, misfit and "it prints something else")):
        trials = Trials([], None, 1.0, 1.0)  # type: ignore[arg-type]
        trials._reference = [looked(0, own, is_named) for _ in range(8)]
        again = [looked(0, without, is_named)] * 4 + [looked(1, changed, is_named)] * 4
        assert trials.misfit(again, 1).startswith(words) and bool(trials.misfit(again, 1)) is bool(words)


def test_a_sum_has_its_own_type_again_when_the_change_is_off(tmp_path: Path) -> None:
    """A change makes it a tensor. With that a step as it is would add to the tensor, and promise too much."""
    import torch

    path = tmp_path / "totals.py"
    path.write_text("def step(x):\n    global total\n    total += x.sum().item()\n")
    change = LazyChange(0, str(path), 3, "tensor")
    code = compile(_lazy_changes.switched(Source(str(path)), [change]), str(path), "exec")
    for start, own in ((0.0, float), (torch.zeros(()), torch.Tensor)):
        trial = trial_worker._Trial(trial_worker.Plan("look", [], ("", 0), True, [], [[], [0]], 1, 1, 1.0, ""))
        names = {"total": start, _lazy_changes.SWITCH: trial.is_on, _lazy_changes.TOTAL: trial.own_total}
        exec(code, names)
        kinds = []
        for on in ((), (0,), (), (0,)):
            trial.on = frozenset(on)
            names["step"](torch.ones(3))
            kinds.append(type(names["total"]))
        assert kinds == [own, torch.Tensor, own, torch.Tensor]
        assert float(names["total"]) == 12


def test_a_program_on_the_device_without_a_loop_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "once.py"
    path.write_text("import torch, weft\nx = torch.ones(3, device='weft')\nprint((x + 1).sum().item())\n")
    status, out, err = in_process(capsys, path)
    assert status == 0, err
    assert "the device was used, but in no loop" in out


STEP = """
for x in data:
    loss = f(x)
    {}
    w = w - loss
    {}sync()
"""


@pytest.mark.parametrize(
    ("statement", "between", "moves"),
    [
        ("print(loss)", "", True),
        ("if n % 10 == 0: print(loss.item())", "", True),
        ("print(w)", "", False),  # is assigned before the sync
        ("y = print(loss)", "", False),
        ("print(loss)", "if w: continue\n    ", False),
    ],
)
def test_a_call_moves_behind_the_sync_only_if_it_says_the_same_there(
    statement: str, between: str, moves: bool, tmp_path: Path
) -> None:
    text = STEP.format(statement, between)
    tree = ast.parse(text)
    end = next(n for n, line in enumerate(text.splitlines(), 1) if "sync()" in line)
    assert (_lazy_changes.moved(tree, 4, end) is not None) is moves


def test_a_switched_copy_does_either(tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    lines = (
        "def step(x, out):",
        "    if x.sum() > 0:",
        "        x = x * 2",
        "    out(f'{x.mean():.1f}')",
        "    return x",
    )
    path.write_text("\n".join(lines) + "\n")
    source = Source(str(path))
    changes = [LazyChange(0, str(path), 2, "where"), LazyChange(1, str(path), 4, "closure")]
    code = compile(_lazy_changes.switched(source, changes), str(path), "exec")
    import torch

    for on in ((), (0,), (1,), (0, 1)):
        said: list[str] = []
        later: list[Any] = []
        names: dict[str, Any] = {
            "torch": torch, _lazy_changes.SWITCH: on.__contains__, _lazy_changes.LATER: later.append,
        }  # fmt: skip
        exec(code, names)
        for x, doubled, text in ((torch.ones(2), 2.0, "2.0"), (-torch.ones(2), -1.0, "-1.0")):
            said.clear()
            assert torch.equal(names["step"](x, said.append), torch.full((2,), doubled))
            assert len(later) == (1 in on)
            while later:
                later.pop()()
            assert said == [text]


DECODER = """
import torch, weft
torch.manual_seed(0)
cell, out = torch.nn.GRUCell(4, 4).to("weft"), torch.nn.Linear(4, 4).to("weft")


def pick(scores):
    return scores.argmax(-1)


def decode(x):
    h, found = torch.zeros(2, 4, device="weft"), []
    for t in range(6):
        h = cell(x, h)
        token = pick(out(h))
        found.append(token)
        if token.min().item() > 8:
            break
    return torch.stack(found)


def answer(x):
    tokens = decode(x)
    return tokens.tolist()


with torch.no_grad():
    for batch in range(8):
        tokens = answer(torch.randn(2, 4, device="weft"))
"""

EPOCHS = """
import torch, weft
torch.manual_seed(0)
w = torch.zeros(4, device="weft", requires_grad=True)
{optimizer}
for epoch in range(5):
    total = torch.zeros((), device="weft")
    for x in torch.randn(6, 3, 4):
        for _ in range(2):
            probe = (w.detach() * 2).sum().item()
        loss = ((x.to("weft") @ w - 1) ** 2).mean()
        loss.backward()
        {update}
        total = total + loss.detach()
        seen = loss.item()
    print(total.item())
"""
ADAM = {"optimizer": "o = torch.optim.Adam([w])", "update": "o.step(); o.zero_grad()"}
BY_HAND = {"optimizer": "", "update": "w.data -= 0.1 * w.grad; w.grad = None"}


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (DECODER, "return tokens.tolist()"),
        (EPOCHS.format(**ADAM), "seen = loss.item()"),
        (EPOCHS.format(**BY_HAND), "seen = loss.item()"),
    ],
)
def test_without_a_sync_a_step_ends_after_its_inner_loops(text: str, end: str, tmp_path: Path) -> None:
    """In training a step ends at each update of the parameters, however many epochs there are; else with each turn of
    the outermost loop."""
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(text)
    status, _, err = in_process(None, "--seconds", "0.2", "--rounds", "1", "--output", report, program)
    assert status == 0, err
    (subject,) = json.loads(report.read_text())["subjects"]
    assert text.splitlines()[subject["line"] - 1].strip() == end
