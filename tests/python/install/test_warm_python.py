"""The forks that some tests run in the place of Python behave as Python does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from shared_fixtures import heed_interrupts

PROGRAM = "import os, sys; print(__name__, sys.argv, os.getcwd(), sys.path[0], os.environ.get('WEFT_X'), input())"


def both(words: list[str], folder: Path, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    return [
        subprocess.run(
            [python, *words],
            cwd=folder,
            env=warm_python.environment() | environment,
            input="a line\n",
            capture_output=True,
            text=True,
            timeout=120,
        )
        for python in (sys.executable, warm_python.command())
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["-c", PROGRAM, "word"],
        ["-m", "program", "word"],
        ["program.py", "word"],
        ["-c", "import sys; sys.exit(3)"],
        ["-c", "import sys; sys.exit('words')"],
        ["-c", "import os; print('written'); os._exit(4)"],
        ["-c", "import os; os.kill(os.getpid(), 9)"],
        ["-c", "def f():\n    return 1 / 0\nf()"],
        ["-c", "x = (1,\ny = 2"],
    ],
)
def test_it_ends_as_python_does(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    python, fork = both(words, tmp_path, WEFT_X="set")
    assert (fork.returncode, fork.stdout, fork.stderr) == (python.returncode, python.stdout, python.stderr)


def test_pytorch_is_there_and_weft_is_not(tmp_path: Path) -> None:
    code = "import sys; print([name for name in ('torch', 'weft', 'torch._dynamo') if name in sys.modules])"
    python, fork = both(["-c", code], tmp_path)
    assert (python.stdout, fork.stdout) == ("[]\n", "['torch']\n")


def test_what_pytorch_has_read_is_left_to_python(tmp_path: Path) -> None:
    code = "import sys; print('torch' in sys.modules)"
    for name in ("TORCH_LOGS", "OMP_NUM_THREADS", "WEFT_RUN"):
        assert both(["-c", code], tmp_path, **{name: "7"})[1].stdout == "False\n", name


def test_what_other_tests_import_keeps_none_from_a_fork(tmp_path: Path) -> None:
    code = "import sys; print('torch' in sys.modules)"
    others = {"KERAS_BACKEND": "torch", "TPU_SKIP_MDS_QUERY": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert both(["-c", code], tmp_path, **others)[1].stdout == "True\n"


def test_signals_reach_it() -> None:
    waits = "    print('here', flush=True)\n    time.sleep(100)"
    code = f"import time\ntry:\n{waits}\nexcept KeyboardInterrupt:\n    print('ended')"
    process = subprocess.Popen(
        [warm_python.command(), "-c", code],
        env=warm_python.environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "ended\n" and process.returncode == 0
