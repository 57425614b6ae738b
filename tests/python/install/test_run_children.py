"""`weft run` reaches the Python processes that a program starts, and adds up what they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft

UNDER_WEFT = [sys.executable, "-m", "weft", "run"]
LAYER = "torch.nn.GRU(3, 4)(torch.randn(2, 1, 3))"


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Runs a command where Python reads the package's files at its start, as it does where Weft is installed."""
    package = Path(weft.__file__).parents[1]
    hook = tmp_path / "site"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(package)!r})")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(hook), str(package)]), "OMP_NUM_THREADS": "1"}
    environment.pop("WEFT_RUN", None)

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*words], capture_output=True, text=True, cwd=tmp_path, env={**environment, **variables}, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def counted(error: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(error[error.index("{\n") :])
    return found


SCRIPT = f"""
import multiprocessing, subprocess, sys, torch
CHILD = 'import torch, sys; {LAYER}; print("subprocess", "weft" in sys.modules)'
LIGHT = 'import sys; print("light", "weft" in sys.modules or "torch" in sys.modules)'
def work():
    {LAYER}
    print("multiprocessing", "weft" in sys.modules, flush=True)
if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", CHILD], check=True)
    subprocess.run([sys.executable, "-c", LIGHT], check=True)
    for method in ("spawn", "fork"):
        child = multiprocessing.get_context(method).Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
"""


@pytest.mark.slow
def test_subprocesses_and_multiprocessing(start: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = start(*UNDER_WEFT, "--stats", "script.py")
    assert done.stdout.split("\n")[:-1] == [
        "subprocess True", "light False", "multiprocessing True", "multiprocessing True"
    ]  # fmt: skip
    stats = counted(done.stderr)
    assert stats["calls"] == 3 and stats["processes"] == 4 and "note" not in stats
    done = start(*UNDER_WEFT, "--no-children", "--stats", "script.py")
    assert done.stdout.split("\n")[:3] == ["subprocess False", "light False", "multiprocessing False"]
    assert counted(done.stderr)["calls"] == 1  # of the process forked from this one


WORKER = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.GRU(3, 4))
model(torch.randn(2, 1, 3))[0].sum().backward()
sys.stdout.write(f"rank {dist.get_rank()} {'weft' in sys.modules}\\n")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun(start: Any, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "worker.py"]
    done = start(*UNDER_WEFT, "--stats", *launcher)
    assert sorted(done.stdout.split("\n"))[1:] == ["rank 0 True", "rank 1 True"]
    assert counted(done.stderr)["calls"] == 4 and counted(done.stderr)["processes"] == 3


def test_nothing_happens_without_the_variable(start: Any) -> None:
    code = "import sys; print([name for name in sys.modules if 'weft' in name])"
    assert start(sys.executable, "-c", code).stdout == "[]\n"
    assert "'_weft_run'" in start(sys.executable, "-c", code, WEFT_RUN="1").stdout


def test_a_process_may_import_weft_before_pytorch(start: Any) -> None:
    """As one that multiprocessing spawns does, if what it is given refers to weft."""
    code = "import weft, torch; print(torch.compile.__kwdefaults__['backend'].__name__)"
    done = start(sys.executable, "-c", code, WEFT_RUN="1", WEFT_RUN_BACKEND="weft")
    assert (done.stdout, done.stderr) == ("weft\n", "")


def test_a_program_without_layers_is_told_so(start: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch; torch.nn.Linear(2, 2)(torch.ones(2))")
    assert "no recurrent layer was met" in counted(start(*UNDER_WEFT, "--stats", "script.py").stderr)["note"]
