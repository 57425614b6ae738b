"""Reports made by hand, and the command in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import warm_python
from report_pages import measured

import weft
from weft.explanation._commands import main
from weft.explanation._report.records import (
    Action,
    Break,
    Event,
    Excerpt,
    Frame,
    Graph,
    Measured,
    Recompile,
    Results,
    Run,
    Stage,
    Subject,
    Warned,
)

HERE = Path(__file__).parent
PACKAGE = str(Path(weft.__file__).parent.parent)
SCRIPT = "<script>alert('&\"')</script>\x1b[31m\u202e"


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def command_line(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "weft", "explain", *map(str, words)]


def warm() -> str:
    """Python with the compilers loaded, which each program here imports."""
    return warm_python.command("torch._dynamo", "torch._inductor.compile_fx")


def explain_by_known_times(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, by a clock on which only sleeping takes time."""
    command = [warm(), HERE / "known_times.py", *words]
    return subprocess.run(command, cwd=HERE, env=environment(), capture_output=True, text=True, timeout=300)


def in_process(capsys: pytest.CaptureFixture[str] | None, *words: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of the command, without the seconds that a process needs to begin, it or one that
    it starts, nor those of XLA. Without capsys nothing is captured."""
    argv, executable = list(sys.argv), sys.executable

    def run(program: list[str]) -> None:
        sys.argv[:] = program
        exec(compile(Path(program[0]).read_text(), program[0], "exec"), {"__name__": "__main__"})

    if capsys:
        capsys.readouterr()
    sys.executable = warm()
    try:
        status = main(["--no-hlo", *map(str, words)], run)
    finally:
        sys.argv[:], sys.executable = argv, executable
    out, err = capsys.readouterr() if capsys else ("", "")
    return status, out, err


def room(page: str, folder: Path, width: int) -> dict[str, Any]:
    """The place of the page's time line, and whether the page fits into a window of that width."""
    box = "(box => [box.left, box.top + scrollY, box.width, box.height])"
    line = "document.querySelector('.line').getBoundingClientRect()"
    return measured(page, folder, width, {"box": f"{box}({line})"})


def script(name: str) -> ModuleType:
    """A script of explanation/scripts, as a module."""
    spec = importlib.util.spec_from_file_location(name, HERE.parents[1] / f"scripts/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def broken(number: int, line: int, source: str, kind: str, cost: Measured | None, text: str = "") -> Break:
    return Break(
        id=number, file=f"/p/model.py{text}", line=line, function=f"forward{text}", source=source + text,
        type=kind + text, code="GB0059", reason=f"why{text}", explanation=f"Explained{text}.", hints=[f"Hint{text}."],
        context=f"context{text}", skips_frame=False, skipped_by="", hidden=False, met=2,
        paths=[[Frame("/p/main.py", 3, f"main{text}", "model(x)"), Frame("/p/model.py", line, "forward", source)]],
        hits=1.0, gap=Measured(2.2e-3, 2.1e-3, 2.3e-3), bytes=4096, cost=cost,
        cost_kind="measured" if cost else "unknown",
    )  # fmt: skip


def two_breaks(text: str = "") -> Results:
    """A step of 10 ms with a break that costs 2 ms and one of which nothing is known; `text` stands in every name."""
    gain = Measured(2e-3, 1.8e-3, 2.6e-3)
    graphs = [
        Graph(i, f"{i}/0", f"forward{text}", "/p/model.py", 5, 3, i if i < 2 else None, 1, 2, 0.5, 1.0,
              Measured(1e-3, 0.9e-3, 1.1e-3))
        for i in range(3)
    ]  # fmt: skip
    subject = Subject(
        name=f"Model{text}",
        file="/p/model.py",
        line=5,
        backend=f"inductor{text}",
        train=False,
        calls=3,
        graphs=graphs,
        breaks=[
            broken(0, 7, "print(x)", "Failed to trace builtin operator", gain, text),
            broken(1, 9, "s = x.mean().item()", "item()", None, text),
        ],
        recompiles=[Recompile(f"forward{text}", "/p/model.py", 5, [f"size mismatch{text}"], 1, 1.5, f"a size{text}")],
        actions=[
            Action(0, [0], f"leave it out{text}", f"--- a\n+++ a\n@@ -7 +7 @@\n-print(x)\n+pass{text}", "rewrite", True,
                   f"tried{text}", gain, 0.2, 2, 4),
            Action(1, [1], f"keep it{text}", "", "advice", False, f"does not fit{text}"),
        ],
        stages=[Stage("FX", 3, f"breaks{text}"), Stage("AOT", 3, "one each"), Stage("weft", None, "not")],
        runs=[
            Run("compiled", Measured(10e-3, 9.9e-3, 10.1e-3), 3, 6, 8192, ""),
            Run("mended", Measured(8e-3, 7.9e-3, 8.1e-3), 2, 4, 4096, ""),
            Run("lazy", None, None, None, None, f"not run{text}"),
        ],
        timeline=[
            Event(0, 1e-3, None, None), Event(1e-3, 2e-3, 0, None), Event(2e-3, 6e-3, None, 0),
            Event(6e-3, 7e-3, 1, None), Event(7e-3, 8e-3, None, 1), Event(8e-3, 9e-3, 2, None),
            Event(9e-3, 10e-3, None, None),
        ],
        sources=[Excerpt(f"/p/model.py{text}", 6, ["def f(x):", "print(x)", f"y = 1{text}", "s = x.mean().item()"])],
        notes=[f"a note{text}"],
    )  # fmt: skip
    warned = [Warned(f"torch._dynamo{text}", f"no more code for forward{text}\n  line 5", 2), Warned("W", "again", 1)]
    return Results("weft explain model.py", "2.13.0", "a machine", False, [subject], [f"another{text}"], warned)
