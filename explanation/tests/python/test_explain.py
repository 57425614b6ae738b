"""`weft.explain` on programs with known breaks: found, told apart, mended, ranked."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from explain_cases import HERE, explain_by_known_times
from torch import nn

import weft
from weft.explanation import Report
from weft.explanation._measuring import hlo as _hlo
from weft.explanation._report.records import Results, Subject


def explain_results(subject: Subject) -> Results:
    return Results("weft explain", "", "", False, [subject], [])


def explain(function: Any, *args: Any, **options: Any) -> Report:
    """Quickly, since nothing here is about times."""
    return weft.explain(function, *args, **{"backend": "eager", "seconds": 0.2, "rounds": 3, "hlo": False} | options)


# The program with five breaks


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Its report by a clock on which only sleeping takes time."""
    file = tmp_path_factory.mktemp("five") / "report.json"
    words = ["--no-hlo", "--seconds", "3", "--rounds", "5", "--format", "json", "--output", file]
    done = explain_by_known_times(*words, "five_breaks.py", "eager")
    assert done.returncode == 0, done.stderr
    (subject,) = json.loads(file.read_text())["subjects"]
    return subject


def line_of(text: str) -> list[int]:
    lines = (HERE / "five_breaks.py").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line and not line.startswith("SLEEP")]


SITES = {
    "sleep": "time.sleep(SLEEP)",
    "item": ".item()",
    "print": "print(SLOW)",
    "branch": "if x.sum() > 0",
    "nonzero": "torch.nonzero(",
}


def test_each_break_is_found_once_by_its_line_and_reason(five: dict[str, Any]) -> None:
    found = [(each["line"], each["type"]) for each in five["breaks"]]
    assert len(found) == len(set(found))
    assert sorted(line for line, _ in found) == sorted(line for text in SITES.values() for line in line_of(text))
    assert len({each["type"] for each in five["breaks"] if each["line"] in line_of(SITES["nonzero"])}) == 1
    assert all(each["function"] == "forward" for each in five["breaks"])


def test_what_a_loop_hides_is_found_by_mending_it(five: dict[str, Any]) -> None:
    hidden = [each["line"] for each in five["breaks"] if each["hidden"]]
    assert sorted(hidden) == line_of(SITES["nonzero"])[1:]
    (first,) = [each for each in five["breaks"] if each["line"] == line_of(SITES["nonzero"])[0]]
    assert first["skips_frame"] and first["skipped_by"] == "graph break in loop"


def test_the_two_of_known_cost_come_first_in_their_order(five: dict[str, Any]) -> None:
    together, *single = five["actions"]
    assert len(together["breaks"]) == len(five["breaks"]), "all changes together"
    lines = [[five["breaks"][number]["line"] for number in action["breaks"]] for action in single]
    assert lines[:2] == [line_of(SITES["sleep"]), line_of(SITES["print"])]
    gains = [action["gain"] for action in single]
    assert [gain["median"] for gain in gains] == pytest.approx([0.012, 0.004] + [0.0] * len(gains[2:]), abs=2e-6)
    assert together["gain"]["median"] == pytest.approx(0.016, abs=2e-6)
    assert all(gain["low"] == gain["median"] == gain["high"] for gain in [together["gain"], *gains])


def test_every_break_is_mended_and_all_together_leave_one_graph(five: dict[str, Any]) -> None:
    assert all(action["tried"] for action in five["actions"]), five["actions"]
    assert {number for action in five["actions"] for number in action["breaks"]} == set(range(len(five["breaks"])))
    (mended,) = [run for run in five["runs"] if run["name"] == "mended"]
    assert mended["graphs"] == 1
    changes = "\n".join(action["change"] for action in five["actions"])
    for line in (
        "+        if not torch.compiler.is_compiling():",
        "+        scale = x.mean().detach()",
        "+        x = torch.where(",
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    ):
        assert line in changes


def test_the_time_line_is_the_step(five: dict[str, Any]) -> None:
    events = five["timeline"]
    assert events[0]["begin"] == 0
    for before, after in itertools.pairwise(events):
        assert after["begin"] == before["end"]
    graphs = [event["graph"] for event in events if event["graph"] is not None]
    assert graphs == [graph["id"] for graph in five["graphs"]] == [0, 1, 2, 3]
    ended = [five["breaks"][graph["ended_by"]]["line"] for graph in five["graphs"]]
    assert ended == [line for name in ("sleep", "item", "print", "branch") for line in line_of(SITES[name])]


def test_backwards_stand_in_the_time_line_and_so_do_the_gaps_between_them() -> None:
    linear = nn.Linear(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(linear(x))
        print("a")
        y = torch.tanh(linear(y))
        return y * 2

    (subject,) = explain(step, torch.randn(8, 4), backend="aot_eager", train=True).results.subjects
    (broken,) = subject.breaks
    ran = [(event.graph, event.backward) for event in subject.timeline if event.graph is not None]
    assert ran == [(0, False), (1, False), (1, True), (0, True)]
    for before, after in itertools.pairwise(subject.timeline):
        assert after.begin == before.end
    lost = [(event.broken_by, event.backward) for event in subject.timeline if event.graph is None]
    assert lost == [(None, False), (0, False), (None, False), (0, True), (None, True)]
    assert all(graph.backward_seconds and graph.hits == 1 for graph in subject.graphs)
    assert broken.gap and broken.backward_gap and broken.backward_gap.median > 0
    kinds = [each for each in Report(explain_results(subject)).html().split('class="')[1:] if "<title>" in each[:200]]
    assert sum(each.startswith("back") for each in kinds) == 2


def test_without_aot_there_is_no_backward_that_is_one_graph() -> None:
    (subject,) = explain(Plain(), torch.randn(8, 4), train=True).results.subjects
    assert subject.graphs[0].seconds and subject.graphs[0].backward_seconds is None


# Small ones


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def test_a_model_without_breaks_is_said_to_have_none() -> None:
    report = explain(Plain(), torch.ones(2, 4))
    text = report.text(80)
    assert text.startswith("no graph breaks: 1 graph in 1 compiled function\n")
    assert len(text.splitlines()) < 24
    assert report.results.breaks == 0


def test_training_leaves_parameters_and_gradients_as_they_were() -> None:
    model = nn.Sequential(Plain(), nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = explain(model, torch.randn(8, 4), backend="aot_eager", train=True)
    (subject,) = report.results.subjects
    assert subject.train and sum(graph.aot for graph in subject.graphs) == 2, "a forward and a backward"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_device_is_a_way_around_breaks() -> None:
    """A change that is only offered where it is faster, which a test can't know: if it is offered, it is one program,
    and gains."""

    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.sin(x)
        print("a")
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    subject = explain(step, torch.ones(3), rounds=9).results.subjects[0]
    assert {found.source for found in subject.breaks} == {'print("a")', "torch._dynamo.graph_break()"}
    lazy, compiled = subject.run("lazy"), subject.run("compiled")
    assert lazy and compiled and lazy.seconds and compiled.seconds
    offered = [action for action in subject.actions if action.kind == "device"]
    assert len(offered) <= 1
    for action in offered:
        assert action.gain is not None and action.gain.low > 0 and action.graphs == 1
    titles = {action.title for action in subject.actions if action.kind == "rewrite"}
    single = {"leave the call out while compiling", "delete the call"}
    assert titles == {*single, "all 2 changes that follow, together"}
    assert subject.actions[0].title.startswith("all 2 changes"), "it stands before those of each"


def test_a_step_that_is_compiled_anew_each_time_is_said_to_be() -> None:
    seen: list[int] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(seen))
        return x * len(seen)

    with torch._dynamo.config.patch(recompile_limit=200):
        (subject,) = explain(step, torch.ones(3)).results.subjects
    assert any("the step does not settle" in note for note in subject.notes), subject.notes
    assert subject.recompiles and all("seen" in again.guards[0] for again in subject.recompiles)


def test_what_xla_makes_of_graphs_and_programs_stands_beside_them() -> None:
    pytest.importorskip("jax")
    model, x = nn.GRU(4, 8), torch.randn(5, 2, 4)
    with torch.no_grad():
        (subject,) = explain(model, x, backend="weft", hlo=True).results.subjects
        counts = weft.stablehlo(model, x).count()
    (graph,), (program,) = subject.graphs, subject.programs
    assert graph.hlo and (graph.hlo.operations, graph.hlo.fusions) == (counts.total, counts.fusions)
    assert program.calls == 1 and program.hlo and program.hlo.operations and program.ops > 1
    (stage,) = [stage for stage in subject.stages if stage.name == "kernels of XLA"]
    assert stage.count == counts.kernels and f"{counts.total} HLO operations" in stage.why
    (modules,) = [stage for stage in subject.stages if stage.name == "StableHLO"]
    assert modules.count == 1


def test_numbers_among_a_graphs_inputs_do_not_keep_it_from_xla() -> None:
    pytest.importorskip("jax")

    def step(x: torch.Tensor, scale: float, times: int) -> torch.Tensor:
        return (x / scale).repeat(times, 1) * times

    function = torch.compile(step, backend="eager", dynamic=True)
    with torch.no_grad():
        (subject,) = explain(function, torch.randn(3, 4), 0.5, 2, dynamic=True, hlo=True).results.subjects
    (hlo,) = [graph.hlo for graph in subject.graphs]
    assert hlo and hlo.operations and hlo.note.endswith("numbers of Python's as constants"), hlo


def test_a_graph_that_is_no_stablehlo_says_which_operator() -> None:
    pytest.importorskip("jax")
    (subject,) = explain(torch.linalg.svdvals, torch.eye(3), hlo=True).results.subjects
    (hlo,) = [graph.hlo for graph in subject.graphs]
    assert hlo and hlo.operations is None and "svd" in hlo.note
    stages = {stage.name: stage for stage in subject.stages}
    assert stages["StableHLO"].count is None and "svd" in stages["StableHLO"].why
    assert stages["kernels of XLA"].count is None


def test_without_jax_there_is_a_line_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hlo, "is_installed", lambda: False)
    results = explain(Plain(), torch.ones(2, 4), hlo=True).results
    assert results.notes == [_hlo.NOT_INSTALLED]
    assert all(stage.name != "kernels of XLA" for stage in results.subjects[0].stages)


def test_calls_left_to_aten_are_counted() -> None:
    (subject,) = explain(Plain(), torch.ones(2, 4), backend="weft").results.subjects
    assert subject.weft["backend_graphs"] == 1
    assert sum(subject.weft["extern"].values()) >= 2, "a linear layer and relu, beside no recurrence"
