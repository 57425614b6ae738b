"""The changes that import weft makes in a process, and the switches."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch

import weft


def calls_of(module, x):
    before = weft.stats()["calls"]
    with torch.no_grad():
        module(x)
    return weft.stats()["calls"] - before


@pytest.fixture
def gru():
    return torch.nn.GRU(3, 4), torch.randn(5, 2, 3)


def test_disabled_is_for_this_thread_and_nests(gru):
    seen = []
    with weft.disabled():
        with weft.disabled():
            assert calls_of(*gru) == 0
        assert calls_of(*gru) == 0
        thread = threading.Thread(target=lambda: seen.append(calls_of(*gru)))
        thread.start()
        thread.join()
    assert calls_of(*gru) == 1 and seen == [1]


def test_disabled_ends_with_an_exception(gru):
    with pytest.raises(ValueError), weft.disabled():
        raise ValueError
    assert calls_of(*gru) == 1


def test_disable_is_for_all_threads(gru):
    tag = torch.compiler.config.cache_key_tag
    weft.disable()
    try:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(calls_of(*gru)))
        thread.start()
        thread.join()
        assert calls_of(*gru) == 0 and seen == [0]
        assert torch.compiler.config.cache_key_tag != tag
    finally:
        weft.enable()
    assert calls_of(*gru) == 1 and torch.compiler.config.cache_key_tag == tag


def test_enabling_twice_changes_nothing():
    tag = torch.compiler.config.cache_key_tag
    weft.enable()
    weft.enable()
    assert torch.compiler.config.cache_key_tag == tag


def test_the_functions_that_modules_call_are_pytorchs_own():
    names = {f"{name}{suffix}" for name in ("gru", "lstm", "rnn_tanh", "rnn_relu") for suffix in ("", "_cell")}
    for name in names:
        assert getattr(torch._VF, name) is getattr(torch._C._VariableFunctions, name)
    assert names <= set(vars(torch._VF))
    weft.disable()
    try:
        assert not names & set(vars(torch._VF))
        assert torch._VF.gru is torch._C._VariableFunctions.gru
        torch._VF.gru = mine = lambda *arguments: arguments
        weft.enable()
        assert torch._VF.gru is mine
        weft.disable()
        assert torch._VF.gru is mine
        del torch._VF.gru
    finally:
        weft.enable()


def test_stats_count_and_reset(gru):
    assert calls_of(*gru) == 1
    weft.reset_stats()
    assert weft.stats()["calls"] == 0 and weft.stats()["fallbacks"] == {}


def test_a_fallback_warns_once_a_reason():
    module, x = torch.nn.RNN(3, 4, nonlinearity="relu"), torch.randn(5, 2, 3)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.warns(UserWarning, match="rnn_relu runs on PyTorch's own kernels: forward-mode differentiation"):
            module(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            module(x)
    assert weft.stats()["fallbacks"]["rnn_relu: forward-mode differentiation"] == 2


def test_strict(run_warm_python):
    script = """
import torch, weft
module, x = torch.nn.GRU(3, 4), torch.randn(5, 2, 3)
with torch.autograd.forward_ad.dual_level():
    x = torch.autograd.forward_ad.make_dual(x, x)
    try:
        module(x)
    except RuntimeError as error:
        print(error)
    with weft.disabled():
        module(x)
"""
    assert "gru cannot run on Weft: forward-mode differentiation" in run_warm_python(script, WEFT_STRICT="1")


def test_off_by_environment(run_warm_python):
    script = """
import torch, weft
torch.nn.GRU(3, 4)(torch.randn(5, 2, 3))
print(weft.stats()["calls"], repr(torch.compiler.config.cache_key_tag))
"""
    assert run_warm_python(script, WEFT="0").split() == ["0", "''"]


def test_the_users_cache_tag_stays(run_python):
    script = "import torch, weft; print(torch.compiler.config.cache_key_tag)"
    assert run_python(script, TORCH_COMPILE_CACHE_KEY_TAG="mine").startswith("mine+weft-")


def test_import_is_light(run_python):
    """Beside PyTorch it loads its own modules only, and no more than a few dozen: a hundred milliseconds."""
    script = """
import sys, torch
before = set(sys.modules)
import weft
print(*sorted(set(sys.modules) - before))
"""
    loaded = run_python(script).split()
    assert {name for name in loaded if name.split(".")[0] != "weft"} <= {"torch.utils._device", "torch.weft"}
    assert 1 <= len(loaded) < 66
    assert not [name for name in loaded if name.startswith(("weft.nn", "weft.formats", "weft.verification"))]


def test_one_openmp_team(run_python):
    """A second libgomp would bring a second team, and a missing -fopenmp a team of one."""
    script = """
import os, torch, weft
torch.set_num_threads(2)
module, x = torch.nn.GRU(64, 64), torch.randn(8, 32, 64)
a = torch.randn(512, 512)
(a @ a).sum(), a.exp()
before = len(os.listdir("/proc/self/task"))
with torch.no_grad():
    module(x)
after = len(os.listdir("/proc/self/task"))
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line or "iomp" in line}
print(len(libraries), weft._C.team_size())
torch.set_num_threads(1)
print(weft._C.team_size(), after - before)
"""
    assert run_python(script).split() == ["1", "2", "1", "0"]


def test_denormals_are_flushed_when_the_caller_flushes_them():
    """All threads of the team flush alike, although each of OpenMP's workers has its own mode."""
    text = """
program @small(%x: f32[T,N]) {
  %factor = constant {value = 1e-30} : f32[T,N]
  %y = mul %x, %factor : f32[T,N]
  return %y
}
"""
    x = torch.full((64, 4096), 1e-10)
    for flush in (True, False):
        if not torch.set_flush_denormal(flush):
            pytest.skip("this CPU cannot flush denormals")
        (y,) = weft.call(text, [x])
        found = y.numpy()  # PyTorch's own threads compare denormals as zeros if they were made while the caller flushed
        assert bool((found == 0).all()) == flush and bool((found > 0).all()) != flush
