"""The command `weft explain`: exit statuses, conditions, differences, traces, Ctrl-C."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import explain_cases
import pytest
import torch
from explain_cases import HERE, command_line, environment, in_process
from shared_fixtures import heed_interrupts

import weft
from weft.explanation import _from_trace
from weft.explanation._report import conditions, files
from weft.explanation._report.report import Report
from weft.explanation._watching.interrupts import Interrupts
from weft.explanation._watching.trace import TraceError

FAST = ("--seconds", "0.2", "--rounds", "3")


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(f"import os, sys\nimport torch\n{text}")
    return path


# Programs that no report can be made of


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("raise ValueError('no\\nway')", 3, "the program failed: ValueError: no"),
        ("sys.exit(7)", 3, "the program ended with status 7"),
        ("pass", 4, "the program compiled nothing: it does not call torch.compile"),
        ("torch.compile(torch.sin)", 4, "no function that it gave to torch.compile was called"),
        ("pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)", 5, "and forked"),
    ],
)
def test_wrong_use_gets_one_line_and_a_status_of_its_own(
    program: str, status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = in_process(capsys, write(tmp_path, program))
    assert found == status, err
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("weft explain: ") and message in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a program is missing"),
        (["--fail-on", "breaks", "x.py"], "'breaks' is no condition"),
        (["--fail-on", "cost>5", "x.py"], "cost is a share or a time"),
        (["--trace", "nowhere"], "nowhere: there is no such file"),
        (["--diff", "nowhere.json", "nowhere.json"], "nowhere.json: No such file"),
        (["--seconds", "0", "x.py"], "should be positive"),
        (["nowhere.py"], "can't open the program 'nowhere.py'"),
    ],
)
def test_a_wrong_command_line_is_status_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = in_process(capsys, *words)
    assert status == 2 and message in err


# Programs from which a report can be made


CLEAN = """
model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
print("printed by the program", sys.argv[1:])
model(torch.ones(2, 4))
"""
BROKEN = """
@torch.compile(backend="eager")
def step(x):
    y = x * 2
    print("step")
    return y + 1
step(torch.ones(3))
"""


def test_a_program_without_breaks_says_so_in_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*FAST, "--fail-on", "breaks>0", write(tmp_path, CLEAN), "--its", "own"]
    status, out, err = in_process(capsys, *words)
    assert status == 0, err
    assert out.startswith("no graph breaks: 1 graph in 1 compiled function\n")
    assert len(out.splitlines()) < 24
    assert "printed by the program ['--its', 'own']" in err


def test_a_condition_that_holds_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    words = ["--format", "json", "--output", report, "--fail-on", "breaks>3,breaks>0"]
    status, _, err = in_process(capsys, *FAST, *words, write(tmp_path, BROKEN))
    assert status == 1, err
    assert err.splitlines()[-1] == "weft explain: failed on breaks>0"
    (subject,) = json.loads(report.read_text())["subjects"]
    assert (subject["name"], subject["calls"], len(subject["breaks"])) == ("step", 1, 1)


def test_a_step_that_cannot_run_again_is_reported_without_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = """
data = [torch.ones(3)]
@torch.compile(backend="eager")
def step(data):
    y = data.pop() * 2
    print("step")
    return y + 1
step(data)
"""
    status, out, err = in_process(capsys, *FAST, "--format", "json", write(tmp_path, once))
    assert status == 0, err
    (subject,) = json.loads(out)["subjects"]
    assert [found["source"] for found in subject["breaks"]] == ['print("step")']
    assert subject["runs"] == []
    assert "not measured: a step run again raised IndexError: pop from empty list" in subject["notes"][0]


def test_ctrl_c_gives_what_was_found_until_then(tmp_path: Path) -> None:
    endless = BROKEN + "print('ready', flush=True)\nwhile True: step(torch.ones(3))\n"
    with subprocess.Popen(
        command_line(*FAST, write(tmp_path, endless)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline().strip() != "ready":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out.startswith("1 distinct graph break, ") and "interrupted: what follows" in out
    assert 'print("step")' in out


@pytest.mark.parametrize("raised", ["", "; raise ValueError"])
def test_ctrl_c_that_compiled_code_loses_is_heeded_behind_it(raised: str, tmp_path: Path) -> None:
    """The compiled code swallows Ctrl-C, as PyTorch's guards do."""
    losing = f"""
import signal
@torch.compile(backend="eager")
def step(x):
    torch._dynamo.graph_break()
    try: signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt: pass{raised}
    return x + 1
step(torch.ones(3))
print("went on")
"""
    done = subprocess.run(
        command_line(*FAST, write(tmp_path, losing)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=heed_interrupts,
    )
    assert done.returncode == 130 and "interrupted: what follows" in done.stdout, done.stderr
    assert "went on" not in done.stderr


def test_interrupts_are_the_main_threads_and_a_program_keeps_its_handler() -> None:
    before = signal.getsignal(signal.SIGINT)

    def own(*_: object) -> None: ...

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with Interrupts() as interrupts:
            with ThreadPoolExecutor() as other, pytest.raises(KeyboardInterrupt), interrupts.kept():
                inside, raised = threading.Event(), threading.Event()

                def call() -> str:
                    with interrupts.kept():
                        inside.set()
                        raised.wait()
                        return "went on"

                result = other.submit(call)
                inside.wait()
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
                raised.set()
            assert result.result() == "went on"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with Interrupts():
            signal.signal(signal.SIGINT, own)
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("calls", [8, 30, 100])
def test_ctrl_c_while_it_measures(calls: int) -> None:
    """After some calls: while changes are tried, and while they are timed."""

    class Interrupting:
        count = 0

        def __str__(self) -> str:
            self.count += 1
            if self.count == calls:
                raise KeyboardInterrupt
            return "text"

    words = Interrupting()

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(words)
        y = y + y.mean().item()
        return y + 1

    results = weft.explain(step, torch.ones(3), backend="eager", seconds=60, rounds=1000, hlo=False).results
    assert results.interrupted
    (subject,) = results.subjects
    assert [found.source for found in subject.breaks] == ["print(words)", "y = y + y.mean().item()"]
    assert {number for action in subject.actions for number in action.breaks} == {0, 1}
    if calls == 100:
        compiled = subject.run("compiled")
        assert compiled is not None
        assert str(Report(results)).count("interrupted") == 1


# Conditions and differences, on results


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("breaks>0", True), ("breaks>2", False), ("breaks==2", True), ("graphs<=2", False), ("recompiles!=1", False),
        ("fallbacks>0", False), ("cost>1ms", True), ("cost>3ms", False), ("cost>2ms", False), ("cost>10%", True),
        ("cost>19%", False), ("cost<3ms", True), ("cost<2500us", False), ("breaks>9, cost>10%", True),
    ],
)  # fmt: skip
def test_conditions(condition: str, holds: bool) -> None:
    """The case's largest gain is 2 ms (1.8 to 2.6) of a step of 10 ms. A condition compares with the certain end."""
    results = explain_cases.two_breaks()
    assert any(each.holds(results) for each in conditions.parse(condition)) is holds


def test_a_report_against_itself_has_no_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text(Report(explain_cases.two_breaks()).json())
    assert in_process(capsys, "--diff", path, path) == (0, "Model: no change\n", "")
    assert files.read(str(path)) == explain_cases.two_breaks()


def test_a_difference_names_what_is_gone_what_is_new_and_what_costs_more() -> None:
    old, new = explain_cases.two_breaks(), explain_cases.two_breaks()
    gone = new.subjects[0].breaks.pop()
    new.subjects[0].breaks[0].line += 5  # moved, and the same
    fresh = copy.deepcopy(gone)
    fresh.source = "y.tolist()"
    new.subjects[0].breaks.append(fresh)
    cost = new.subjects[0].breaks[0].cost
    assert cost is not None
    new.subjects[0].breaks[0].cost = type(cost)(9e-3, 8e-3, 10e-3)
    text, worse = files.difference(old, new)
    assert worse
    lines = text.splitlines()
    assert lines[0] == "Model:"
    assert lines[1].startswith("  gone: /p/model.py:9: s = x.mean().item()")
    assert lines[2].startswith("  new: /p/model.py:9: y.tolist()")
    assert lines[3] == "  cost: /p/model.py:12: 2.00 ms -> 9.00 ms a step"
    text, worse = files.difference(new, old)
    assert worse and "gone: /p/model.py:9: y.tolist()" in text


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"subjects": []}', '{"subjects": [], "version": 99}', '{"subjects": [{}], "version": 1}'],
)
def test_what_is_no_report_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(files.ReportError, match=r"report\.json: "):
        files.read(str(path))


# Traces


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    words = [sys.executable, str(HERE / "five_breaks.py"), "aot_eager"]
    subprocess.run(words, env=environment() | {"TORCH_TRACE": str(folder)}, check=True, capture_output=True)
    return folder


def test_a_trace_gives_the_breaks_without_costs(trace: Path) -> None:
    (subject,) = _from_trace.subjects_of(str(trace))
    sources = [found.source.split("#")[0].strip() for found in subject.breaks]
    assert sources == [
        "time.sleep(SLEEP)", "scale = x.mean().item()", "print(SLOW)", "if x.sum() > 0:",
        "x = x + torch.nonzero(x[0] > 0).shape[0]",
    ]  # fmt: skip
    assert [found.code for found in subject.breaks] == ["GB0007", "GB0124", "GB0059", "GB0170", "GB0036"]
    assert [graph.ended_by for graph in subject.graphs] == [0, 1, 2, 3]
    assert [graph.aot for graph in subject.graphs] == [1, 1, 1, 1]
    assert all(found.cost is None for found in subject.breaks)


def test_the_command_reads_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = in_process(capsys, "--trace", trace, "--fail-on", "breaks>4")
    assert status == 1
    assert out.startswith("5 distinct graph breaks, 4 graphs\n")
    assert out.count("not tried: nothing was run") == 5


def test_a_trace_that_was_cut_off_gives_what_is_whole(trace: Path, tmp_path: Path) -> None:
    (file,) = trace.glob("*.log")
    text = file.read_text()
    cut = tmp_path / "cut.log"
    seen = set()
    for part in range(1, 12):
        cut.write_text(text[: len(text) * part // 12])
        try:
            (subject,) = _from_trace.subjects_of(str(cut))
        except TraceError:
            continue
        seen.add(len(subject.breaks))
    assert len(seen) > 2


@pytest.mark.parametrize(
    "content", [None, "", "nothing that PyTorch wrote\n", "V1123 10:00:00.1 7 a.py:1] {not json\n"]
)
def test_a_trace_without_compilations_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "trace.log").write_text(content)
    with pytest.raises(TraceError, match=r"no trace in it|no compilation"):
        _from_trace.subjects_of(str(tmp_path))


def test_unknown_fields_are_no_argument(tmp_path: Path) -> None:
    """A report of a later version that has more fields can still be compared."""
    found: dict[str, Any] = json.loads(Report(explain_cases.two_breaks()).json())
    found["more"] = found["subjects"][0]["more"] = {"deep": 1}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(found))
    assert files.read(str(path)) == explain_cases.two_breaks()
    assert os.path.exists(path)
