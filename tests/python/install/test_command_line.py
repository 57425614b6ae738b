"""`weft run`: the program does what it does under `python`, on Weft."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import warm_python
from shared_fixtures import heed_interrupts

import weft
from weft import _command_line

EXAMPLES = Path(__file__).parents[3] / "examples"
PACKAGE = str(Path(weft.__file__).parent.parent)
PLAIN, UNDER_WEFT = [sys.executable], [sys.executable, "-m", "weft", "run"]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def command(words: list[str], folder: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(),
        preexec_fn=heed_interrupts,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def both_ways(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    return command([*PLAIN, *words], folder), command([*UNDER_WEFT, *words], folder)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def losses(output: str) -> list[float]:
    return [float(line.split()[-1]) for line in output.splitlines() if line.startswith("step ")]


@pytest.mark.parametrize("name", ["tagger", "attention", "policy"])
def test_examples_that_know_nothing_of_weft_learn_the_same(name: str, tmp_path: Path) -> None:
    """The curves are the same to a hundredth of a per cent of the first loss: results differ in the last bits, and what
    40 steps of an optimiser make of that stays far below."""
    script = str(EXAMPLES / f"{name}.py")
    assert "import weft" not in Path(script).read_text()
    plain = command([warm_python.command(), script], tmp_path)
    ours = command([*UNDER_WEFT, "--stats", script], tmp_path)
    assert plain.returncode == 0 and ours.returncode == 0, plain.stderr + ours.stderr
    expected, found = losses(plain.stdout), losses(ours.stdout)
    assert len(expected) == len(found) == 40
    assert expected[-1] < expected[0] - 0.1, "the example learns nothing"
    assert max(abs(a - b) for a, b in zip(expected, found, strict=True)) < 1e-4 * max(map(abs, expected))
    stats = json.loads(ours.stderr[ours.stderr.index("{\n") :])
    assert stats["calls"] > 0 and not stats["fallbacks"]
    ends = [output.splitlines()[-1] for output in (plain.stdout, ours.stdout)]
    said = [
        re.fullmatch(r"accuracy (0\.\d+|1\.0+) on new \w+, \d+\.\d steps/s (with|without) Weft", end) for end in ends
    ]
    assert all(said), ends
    assert [found[2] for found in said if found] == ["without", "with"]
    accuracies = [float(found[1]) for found in said if found]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.02) and accuracies[0] > 0.3


SURROUNDINGS = """
import pickle, sys, os
import helper
class Thing: pass
print(__name__, __file__, __package__, __spec__, type(__loader__).__name__, __doc__)
print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals())
print(sorted(globals()), type(__builtins__))
print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, os.getcwd(), helper.VALUE)
"""


@pytest.mark.parametrize("how", ["here", "elsewhere", "absolute", "link", "folder", "archive"])
def test_a_script_finds_the_surroundings_that_python_gives_it(how: str, tmp_path: Path) -> None:
    write(tmp_path, "sub/helper.py", "VALUE = 'the right one'")
    write(tmp_path, "helper.py", "VALUE = 'that of the current folder'")
    script = write(tmp_path, "sub/script.py", SURROUNDINGS)
    write(tmp_path, "sub/__main__.py", SURROUNDINGS)
    folder = tmp_path
    if how == "here":
        folder, name = tmp_path / "sub", "./script.py"
    elif how == "elsewhere":
        name = "sub/script.py"
    elif how == "absolute":
        name = str(script)
    elif how == "link":
        (tmp_path / "link.py").symlink_to(script)
        name = "link.py"
    elif how == "folder":
        name = "sub"
    else:
        name = "program.zip"
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("__main__.py", SURROUNDINGS)
            archive.writestr("helper.py", "VALUE = 'in the archive'")
    plain, ours = both_ways(folder, name, "--stats", "-m", "a b")
    assert plain.returncode == 0, plain.stderr
    assert re.sub("0x[0-9a-f]+", "", ours.stdout) == re.sub("0x[0-9a-f]+", "", plain.stdout)


def test_a_module_runs_as_under_dash_m(tmp_path: Path) -> None:
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/helper.py", "VALUE = 3")
    write(
        tmp_path,
        "package/program.py",
        "import sys\nfrom . import helper\n"
        "print(__name__, __package__, __spec__.name, sys.argv, sys.path[0], __file__)",
    )
    write(tmp_path, "package/__main__.py", "import sys\nprint('whole', sys.argv, sys.path[0])")
    for module in ("package.program", "package"):
        plain, ours = both_ways(tmp_path, "-m", module, "x", "--help")
        assert plain.returncode == 0 and ours.stdout == plain.stdout
    plain, ours = both_ways(tmp_path, "-m", "package.missing")
    assert ours.returncode == plain.returncode == 1 and ours.stderr == plain.stderr


def test_weft_is_there_before_the_first_line(tmp_path: Path) -> None:
    write(tmp_path, "script.py", "import sys\nassert 'weft' in sys.modules\nimport weft\nprint(weft._C.active())")
    assert command([*UNDER_WEFT, "script.py"], tmp_path).stdout == "True\n"


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit",
        "raise SystemExit(3)",
        "import sys; sys.exit('words')",
        "def f():\n    raise ValueError('no')\ndef g():\n    try:\n        f()\n    except ValueError as e:\n"
        "        raise KeyError(1) from e\ng()",
        "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__, a[2].tb_lineno)\n1 / 0",
        "x = (1,\ny = 2",
        "import missing_module",
        "import atexit, threading, time\natexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\n1 / 0",
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
        "# -*- coding: latin-1 -*-\nprint('\u00e9')",
        "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
    ],
)
def test_ends_as_under_python(body: str, tmp_path: Path) -> None:
    write(tmp_path, "script.py", body)
    plain, ours = both_ways(tmp_path, "script.py")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_an_error_in_a_module_looks_as_under_python(tmp_path: Path) -> None:
    write(tmp_path, "program.py", "def f():\n    1 / 0\nf()")
    plain, ours = both_ways(tmp_path, "-m", "program")
    keep = "program.py"
    assert plain.stderr[plain.stderr.index(keep) :] == ours.stderr[ours.stderr.index(keep) :]
    assert ours.returncode == plain.returncode and "weft" not in ours.stderr.replace(str(tmp_path), "")


def state_of(process: int) -> str:
    """What the process's first thread does, as Linux has it: R runs, S sleeps."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_control_c(tmp_path: Path) -> None:
    write(tmp_path, "script.py", "import time\nprint('ready', flush=True)\ntime.sleep(60)")
    ends = []
    for words in (PLAIN, UNDER_WEFT):
        process = subprocess.Popen(
            [*words, "script.py"],
            cwd=tmp_path,
            env=environment(),
            preexec_fn=heed_interrupts,
            stdout=-1,
            stderr=-1,
            text=True,
        )
        assert process.stdout.readline() == "ready\n"
        while state_of(process.pid) in "RD":  # until it sleeps
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
        ends.append((process.returncode, error))
    assert ends[0] == ends[1] and ends[0][0] == -signal.SIGINT


def test_stats_at_the_end(tmp_path: Path) -> None:
    write(
        tmp_path,
        "script.py",
        "import os, torch\ntorch.nn.GRU(3, 4)(torch.randn(2, 1, 3))\n"
        "if os.fork() == 0:\n    raise SystemExit\nos.wait()\nprint('out')\n1 / 0",
    )
    ours = command([*UNDER_WEFT, "--stats", "script.py"], tmp_path)
    assert ours.stdout == "out\n" and ours.returncode == 1
    error, _, stats = ours.stderr.partition("{\n")
    assert "ZeroDivisionError" in error and json.loads("{" + stats)["calls"] == 1


DEFAULT_BACKEND = """
import multiprocessing, torch
def loop(x, w):
    h = torch.zeros(4)
    for t in range(12):
        h = torch.tanh(x[t] @ w + h)
    return h
class Loop(torch.nn.Module):
    def forward(self, x, w):
        return loop(x, w)
def compiled_by():
    x, w = torch.linspace(-1, 1, 48).reshape(12, 4), torch.eye(4)
    model = Loop()
    model.compile()
    wants = [torch.compile(loop)(x, w), model(x, w), torch.compile(loop, backend="eager")(x, w)]
    for want in wants:
        torch.testing.assert_close(want, loop(x, w))
    import weft
    return [weft.stats()["backend"][key] for key in ("frames", "rolled")]
def work():
    print(*compiled_by(), flush=True)
if __name__ == "__main__":
    work()
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, options={"max_autotune": False})(torch.ones(3))
    work()
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
"""


def test_weft_as_the_default_of_torch_compile(tmp_path: Path) -> None:
    """A program that names another backend, or gives Inductor's options, gets what it asks for."""
    write(tmp_path, "script.py", DEFAULT_BACKEND)
    ours = command([*UNDER_WEFT, "--backend", "weft", "script.py"], tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout.split("\n") == ["2 2", "4 4", "2 2", ""]
    without = command([*UNDER_WEFT, "--backend", "eager", "script.py"], tmp_path)
    assert without.returncode == 2 and "--backend takes weft" in without.stderr


CHILDREN = """
import sys, torch, multiprocessing
def work(i):
    print(i, "weft" in sys.modules, __name__, flush=True)
if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        child = multiprocessing.get_context(method).Process(target=work, args=(method,))
        child.start()
        child.join()
        assert child.exitcode == 0
"""


def test_processes_that_the_program_starts_have_weft(tmp_path: Path) -> None:
    write(tmp_path, "script.py", CHILDREN)
    plain, ours = both_ways(tmp_path, "script.py")
    assert plain.returncode == ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout.replace("False", "True") and "False" in plain.stdout


def test_version_help_and_wrong_command_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = command([sys.executable, "-m", "weft", "--version"], tmp_path)
    assert started.returncode == 0 and started.stdout.startswith(f"weft {weft.__version__}, PyTorch 2.")
    monkeypatch.chdir(tmp_path)
    # The process state that a program's run replaces.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("WEFT_RUN", "")  # the run sets it for the program's children, and later tests' are none of these
    for words in (["--help"], ["run", "--help"]):
        assert _command_line.main(words) == 0
        assert capsys.readouterr().out.startswith("usage: weft run")
    for words, message in (
        ([], "a command is missing"),
        (["run"], "run needs a script"),
        (["run", "-m"], "-m needs the name of a module"),
        (["run", "--stat", "x.py"], "run has no option '--stat'"),
        (["run", "x.py"], f"can't open file '{tmp_path}/x.py': [Errno 2] No such file or directory"),
    ):
        with pytest.raises(SystemExit) as ended:
            _command_line.main(words)
        wrong = capsys.readouterr()
        assert message in wrong.err and wrong.out == "" and ended.value.code == 2
    for word, hint in (("rnu", "; did you mean 'run'?"), ("frobnicate", "; there are run, explain, survey, verify,")):
        assert _command_line.main([word, "x.py"]) == 2
        wrong = capsys.readouterr()
        assert f"weft: there is no command {word!r}{hint}" in wrong.err and wrong.err.count("\n") == 1
    folder = command([sys.executable, "-m", "weft", "run", "."], tmp_path)
    assert f"can't find '__main__' module in '{tmp_path}/.'" in folder.stderr and folder.returncode == 1
    assert folder.stdout == "" and "Traceback" not in folder.stderr


def test_the_command_is_installed_with_the_package() -> None:
    commands = importlib.metadata.distribution("weft").entry_points.select(group="console_scripts", name="weft")
    assert {command.value for command in commands} == {"weft._command_line:main"}
