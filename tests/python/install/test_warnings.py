"""Fallbacks and unknown variables, told through Python's warnings at the user's line."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

import weft
from weft._base import warn

#: Dual tensors of forward-mode differentiation, which go to PyTorch's own kernels; a step that can't be recorded.
DUAL = """
import atexit, json, os, sys, threading, time, warnings
import torch, weft
from torch.autograd import forward_ad
torch.set_grad_enabled(False)
forward_ad.enter_dual_level()
atexit.register(forward_ad.exit_dual_level)
x = torch.randn(5, 2, 3)
x = forward_ad.make_dual(x, x)
gru, rnn = torch.nn.GRU(3, 4), torch.nn.RNN(3, 4)
def step(h, x):
    return torch.nn.functional.rrelu(h + 1, training=True), x
"""

#: An embedding's sparse gradient, which the device can't record: the backward runs at once.
SPARSE = """
import warnings, torch, weft
bag = torch.nn.EmbeddingBag(5, 3, mode="sum", sparse=True).to("weft")
"""


def test_a_warning_shows_the_users_line(run_warm_python):
    script = DUAL + (
        "def deeper():\n"
        "    return gru(x)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    deeper()\n"
        "    deeper()\n"
        "    thread = threading.Thread(target=lambda:\n"
        "        rnn(x))\n"
        "    thread.start(); thread.join()\n"
        "    weft.scan(step, torch.zeros(2),\n"
        "              torch.ones(3, 2))\n"
        "print(json.dumps([(w.category.__name__, w.filename, w.lineno, str(w.message)) for w in seen]))\n"
    )
    at = {text: line for line, text in enumerate(script.splitlines(), 1)}
    found = json.loads(run_warm_python(script))
    assert {(name, file) for name, file, *_ in found} == {("FallbackWarning", "<string>")}
    lines = [line for *_, line, _ in found]
    assert lines[:2] == [at["    return gru(x)"], at["        rnn(x))"]]
    assert at["    weft.scan(step, torch.zeros(2),"] <= lines[2] and len(lines) == 3
    assert "weft: gru runs on PyTorch's own kernels: forward-mode differentiation" in found[0][-1]
    assert issubclass(weft.FallbackWarning, UserWarning)


def test_a_backward_in_a_thread_of_autograds_shows_who_waits_for_it(run_warm_python):
    script = SPARSE + (
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    loss = bag(torch.tensor([[1, 2]], device='weft')).sum()\n"
        "    weft.sync()\n"
        "    loss.backward()\n"
        "for w in seen:\n"
        "    print(w.lineno, w.filename, w.message)\n"
    )
    line = script.splitlines().index("    loss.backward()") + 1
    found = run_warm_python(script).splitlines()
    assert any(text.startswith(f"{line} <string> weft: device weft") for text in found), found


def test_a_thread_without_python_has_no_line(run_warm_python):
    script = DUAL + (
        "unit = torch.jit.CompilationUnit('''\n"
        "def one(x: Tensor, h: Tensor, w: List[Tensor]) -> Tensor:\n"
        "    return torch.gru(x, h, w, True, 1, 0.0, False, False, False)[0]\n"
        "def two(x: Tensor, h: Tensor, w: List[Tensor]) -> Tensor:\n"
        "    return torch.jit.wait(torch.jit.fork(one, x, h, w))\n"
        "''')\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    unit.two(x, torch.zeros(1, 2, 4), list(gru.parameters()))\n"
        "    for _ in range(6000):\n"  # a minute, for a machine that is busy
        "        time.sleep(0.01)\n"
        "        if seen: break\n"
        "print([(w.category.__name__, w.filename) for w in seen], flush=True)\n"
        "os._exit(0)\n"  # PyTorch's pool of threads doesn't end well
    )
    assert run_warm_python(script).strip() == "[('FallbackWarning', '<no Python code>')]"


ERRORS = """
warnings.simplefilter("error", weft.FallbackWarning)
def raises(call):
    try:
        call()
    except weft.FallbackWarning as error:
        return True
    return False
"""


def test_as_errors_they_leave_the_call_every_time(run_warm_python):
    script = DUAL + ERRORS + (
        "print([raises(lambda: gru(x)) for _ in range(3)])\n"
        "found = []\n"
        "thread = threading.Thread(target=lambda: found.append(raises(lambda: rnn(x))))\n"
        "thread.start(); thread.join()\n"
        "print(found)\n"
        "print(raises(lambda: weft.scan(step, torch.zeros(2), torch.ones(3, 2))))\n"
        "warnings.simplefilter('ignore', weft.FallbackWarning)\n"
        "print(gru(x)[0].shape, weft.scan(step, torch.zeros(2), torch.ones(3, 2))[0].tolist())\n"
    )  # fmt: skip
    assert run_warm_python(script).splitlines() == [
        "[True, True, True]",
        "[True]",
        "True",
        "torch.Size([5, 2, 4]) [3.0, 3.0]",
    ]


def test_as_errors_they_leave_a_backward(run_warm_python):
    script = SPARSE + ERRORS + (
        "def train():\n"
        "    bag(torch.tensor([[1, 2]], device='weft')).sum().backward()\n"
        "print([raises(train) for _ in range(2)])\n"
        "warnings.simplefilter('ignore', weft.FallbackWarning)\n"
        "bag.zero_grad()\n"
        "train()\n"
        "print(bag.weight.grad.to_dense().cpu().sum().item())\n"
    )  # fmt: skip
    assert run_warm_python(script).splitlines() == ["[True, True]", "6.0"]


@pytest.mark.parametrize("action", ["always", "error"])
def test_threads_that_warn_and_threads_that_hold_the_gil_wait_for_nobody(run_warm_python, action):
    """Errors warn at every call. Some threads take locks of Weft's without giving up the GIL, as `stats` does, others
    run batches of the device, whose lock is held across compilations."""
    script = DUAL + (
        f"warnings.simplefilter({action!r}, weft.FallbackWarning)\n"
        "warnings.showwarning = lambda *args, **kwargs: None\n"
        "sys.setswitchinterval(1e-5)\n"
        "counts = [0] * 9\n"
        "def again(i, call):\n"
        "    for _ in range(60):\n"
        "        try:\n"
        "            call(i)\n"
        "        except weft.FallbackWarning:\n"
        "            pass\n"
        "        counts[i] += 1\n"
        "def on_device(i):\n"
        "    a = torch.ones(4, device='weft') + i\n"
        "    torch.nn.functional.rrelu(a, training=True)\n"
        "    a.sum().item()\n"
        "def fallback(i):\n"
        "    weft._C.report_fallback(f'thread {i}', str(counts[i]))\n"
        "    (gru if i % 2 else rnn)(x)\n"
        "def hold(i):\n"
        "    weft.stats(); weft._C.device_memory(); weft._C.kept_programs(); weft._C.device_ran_at_once()\n"
        "threads = [threading.Thread(target=again, args=(i, (fallback, on_device, hold)[i % 3])) for i in range(9)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "print(counts)\n"
    )
    assert run_warm_python(script).strip() == str([60] * 9)


def test_a_variable_that_nobody_reads(run_warm_python):
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    import weft\n"
        "print([(str(w.message), w.filename, w.lineno) for w in seen])\n"
    )
    text = "weft: nothing reads the environment variable WEFT_STRCT; did you mean 'WEFT_STRICT'?"
    assert run_warm_python(script, WEFT_STRCT="1").strip() == str([(text, "<string>", 4)])
    known = {name: "" for name in ("WEFT_STRICT", "WEFT_CACHE_MB", "WEFT_RUN_STATS", "WEFT_RANDOM_STEPS", "WEFTED")}
    assert run_warm_python(script, **known).strip() == "[]"


def test_no_variable_that_somebody_reads_warns(monkeypatch):
    root = Path(__file__).parents[3]
    folders = ("python", "tests", "verification", "explanation", "benchmarks", "scripts")
    files = [file for folder in folders for file in root.joinpath(folder).rglob("*.py")]
    read = {
        name
        for file in files
        for name in re.findall(r"(?:environ|getenv)\W[^\n]{0,9}?\"(WEFT_\w+)\"", file.read_text())
    }
    assert {"WEFT_RUN", "WEFT_RUN_STATS", "WEFT_SWEEP"} <= read
    for name in read:
        monkeypatch.setenv(name, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn.of_unknown_variables()
    monkeypatch.setenv("WEFT_CAPTURE", "0")
    with pytest.warns(UserWarning, match="WEFT_CAPTURE; did you mean 'WEFT_CAPTURED'"):
        warn.of_unknown_variables()
