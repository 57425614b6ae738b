"""Fixtures of all tests; the conftest.py of each folder imports them."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

# Set before PyTorch reads them, and for the processes that a test starts. Otherwise Inductor would start a pool of
# compilers, a process that imports all of Inductor, beside each process that imports it. It would also build and load a
# library for each vector instruction set, to see whether the compiler knows it.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# XLA is an oracle here, whose code runs once: its time goes to compiling. (test_stablehlo.py takes two thirds.)
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
# Threads share work as if nobody else used the cores, although other workers of pytest do: else chance would decide
# what is tested.
os.environ.setdefault("WEFT_CONTENTION", "0")
# Also on PyTorch's builds for CUDA, where the device isn't registered by itself.
os.environ.setdefault("WEFT_DEVICE", "1")

import spared
import torch
import warm_python

import weft
from weft._base import warn

# Python collects garbage among all objects once those that outlived two collections are a quarter more. Modules that
# tests import, and what PyTorch's compilers keep, are such: a tenth of the tests' time went to looking at them. Young
# objects are collected as ever, and all of them where a test or Weft itself asks for it.
gc.set_threshold(*gc.get_threshold()[:2], 100)
spared.leave_out()

# Workers of pytest-xdist share the cores. Where there are more threads than cores they wait for each other for whole
# slices of the scheduler's time, which makes a call thirty times slower. So each has one thread; processes that a test
# starts have OMP_NUM_THREADS from the Makefile.
SHARES_CORES = "PYTEST_XDIST_WORKER" in os.environ


def heed_interrupts() -> None:
    """For a child's preexec_fn: SIGINT has its default effect in it, though a shell that started pytest in the
    background has made pytest, and what it starts, ignore the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _fresh_state(request):
    """The same random numbers for every test, statistics that start at zero, and warnings that nobody has seen.

    Where workers share cores, one test in eight has two threads all the same. Which tests have two threads depends on
    their names alone, and not on the folder that they are in.
    """
    torch.manual_seed(0)
    weft.reset_stats()
    weft._C.set_warner(warn.of_fallback, warn.of_fallback_elsewhere)
    if SHARES_CORES:
        name = f"{request.node.path.name}::{request.node.nodeid.partition('::')[2]}"
        torch.set_num_threads(2 if zlib.crc32(name.encode()) % 8 == 0 else 1)
    yield
    if SHARES_CORES:
        torch.set_num_threads(1)  # a fixture of the next module may begin before its tests choose
    assert weft._C.enabled(), "a test left weft disabled"


@pytest.fixture
def run_python(tmp_path):
    """Runs a script in a process of its own, with this process's weft and oracles; returns what it printed."""

    return functools.partial(_run, sys.executable, tmp_path)


@pytest.fixture
def run_warm_python(tmp_path):
    """As run_python, for scripts that aren't about the start of a process: PyTorch is loaded already."""
    return functools.partial(_run, warm_python.command(), tmp_path)


def _run(python: str, folder: Path, script: str, **environment: str) -> str:
    folders = [str(Path(weft.__file__).parent.parent), str(Path(__file__).parent)]
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [python, "-c", script],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _cpu_seconds() -> float:
    """The CPU time of this process, of all its threads, and of the processes that it has waited for, with the forks
    that warm_python's server has made."""
    return sum(os.times()[:4]) + warm_python.cpu_seconds()


_spent = 0.0  # when the last test ended


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Notes the CPU time of the test for scripts/test_times.py, fixtures included."""
    global _spent
    try:
        return (yield)
    finally:
        before, _spent = _spent, _cpu_seconds()
        item.user_properties.append(("cpu_seconds", round(_spent - before, 3)))


def pytest_collection_finish():
    """Keeps garbage collections from looking again at objects imported so far."""
    global _spent
    gc.collect()
    gc.freeze()
    _spent = _cpu_seconds()
