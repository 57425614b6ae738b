"""A million steps of a package in processes that end at what real time forbids: calls of the system, memory of others,
allocation, locks, threads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from torch import Tensor, nn

import weft

STEPS = 1_000_000


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def filtered(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """A step with ops that modules lack: an index that is looked up, a window, an integer division, sines."""
    window = torch.cat([carry["window"][1:], x])
    count = (carry["count"] + 1) % 7
    return {"window": window, "count": count}, torch.sin(window).cumsum(0) + window[count // 2]


MODELS: dict[str, Callable[[Path, str], Path]] = {
    "gru": lambda path, target: weft.package(nn.GRU(3, 21, 2), torch.randn(4, 3), path, targets=target),
    "gru of bytes": lambda path, target: weft.package(
        nn.GRU(19, 21, 2), torch.randn(4, 19), path, targets=target, quantize="int8-dynamic"
    ),
    "filter": lambda path, target: weft.package(
        filtered, ({"window": torch.zeros(5), "count": torch.tensor(0)}, torch.zeros(1)), path, targets=target
    ),
    "convolution": lambda path, target: weft.package(
        nn.Sequential(nn.Conv1d(2, 4, 4, stride=2), nn.ReLU(), nn.Conv1d(4, 3, 2)).eval(),
        torch.randn(1, 2, 40),
        path,
        targets=target,
        time=2,
    ),
}


@pytest.mark.parametrize("target", packaged.NATIVE)
@pytest.mark.parametrize("name", MODELS)
def test_no_call_of_the_system(name: str, target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = packaged.build(MODELS[name](tmp_path / "model", target), packaged.FOLDER / "realtime.c", target)
    done = subprocess.run([str(program)], check=False)
    if done.returncode == 77:
        pytest.skip("there is no seccomp here")
    assert done.returncode == 0


@pytest.fixture(scope="module")
def interposed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs the program with a package's library for some steps. `provoked`: what the program shall also
    do itself."""
    place = tmp_path_factory.mktemp("interposed")
    library = MODELS["gru"](place / "model", packaged.NATIVE[-1]) / "libmodel.so"
    if not library.exists():
        pytest.skip("there is no linker")
    program = place / "interposed"
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-O1", "-fno-builtin", f"-I{place / 'model'}"]
    source = packaged.FOLDER / "interposed.c"
    packaged.machine_of(packaged.NATIVE[-1])
    subprocess.run([*command, str(source), "-o", str(program), "-rdynamic", "-ldl", "-pthread"], check=True)

    def run(steps: int, *provoked: str, library: Path = library) -> subprocess.CompletedProcess[str]:
        words = [str(program), str(library), f"{library.parent.name}_model", str(steps), *provoked]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("name", MODELS)
def test_no_allocation_and_no_lock(name: str, interposed: Any, tmp_path: Path) -> None:
    """Of the shared library, whose calls another library's functions could answer."""
    folder = MODELS[name](tmp_path / "model", packaged.NATIVE[-1])
    done = interposed(STEPS, library=folder / "libmodel.so")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("provoked", "named"), [("malloc", "malloc"), ("mutex", "pthread_mutex_lock"), ("thread", "pthread_create")]
)
def test_an_allocation_or_a_lock_would_be_seen(provoked: str, named: str, interposed: Any) -> None:
    done = interposed(10, provoked)
    assert done.returncode < 0 and done.stderr == f"interposed: called while steps ran: {named}\n"
