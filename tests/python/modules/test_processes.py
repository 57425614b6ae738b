"""Modules in several threads and processes: serving, data loaders, data parallelism; and what falls back."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import weft


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_threads_serve_one_module(kind: str) -> None:
    """Different lengths at once, forward and backward, each as if it were alone."""
    module = getattr(nn, kind)(5, 16, 2, bidirectional=True)
    inputs = [torch.randn(steps, 3, 5) for steps in (1, 4, 9, 16, 33)]

    def results(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            y = module(x)[0]
        trained = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(module(trained)[0].sum(), trained)
        return [y, gradient]

    expected = [results(x) for x in inputs]
    errors: list[BaseException] = []

    def serve(first: int) -> None:
        try:
            for turn in range(20):
                index = (first + turn) % len(inputs)
                for a, b in zip(results(inputs[index]), expected[index], strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not weft.stats()["fallbacks"]


class Encoded(Dataset):
    """Items that went through a recurrent module in the process that made them."""

    def __init__(self) -> None:
        self.module = nn.GRU(4, 6, batch_first=True)
        self.items = torch.randn(16, 5, 4)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.module(self.items[index])[0]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_modules_in_data_loader_workers(method: str) -> None:
    """With `fork` after this process has run programs on its threads."""
    data = Encoded()
    expected = torch.stack([data[i] for i in range(len(data))])
    with torch.no_grad():
        nn.LSTM(64, 64)(torch.randn(20, 32, 64))
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method, timeout=120)
    torch.testing.assert_close(torch.cat(list(loader)), expected)


FORK = r"""
import os, signal, sys, threading, time, torch, weft
torch.set_num_threads(1)  # PyTorch's own threads don't survive a fork

def decayed(rate, x):
    # A step of its own for each rate: a closure's numbers are its program's.
    step = lambda h, x: ((h := rate * h + torch.tanh(x)), h)
    return weft.scan(step, torch.zeros(3), x)[1]

def expected(rate, x):
    h, ys = torch.zeros(3), []
    for row in x:
        h = rate * h + torch.tanh(row)
        ys.append(h)
    return torch.stack(ys)

def is_right(rate, length):
    x = torch.linspace(-1, 1, 3 * length).view(length, 3)
    return torch.allclose(decayed(rate, x), expected(rate, x), rtol=1e-5, atol=1e-6)

stop, errors = False, []

def busy(turn):
    try:
        n = 0
        while not stop:
            n += 1
            assert is_right(0.5, 2 + (7 * n + turn) % 40)        # lengths change, the program stays
            if n % 5 == 0: assert is_right(0.1 + turn + n, 3)  # traced and compiled anew
    except BaseException as error:
        errors.append(error)

def verdict(child):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done: return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"

assert is_right(0.5, 3)
threads = [threading.Thread(target=busy, args=(i,), daemon=True) for i in range(3)]
for thread in threads: thread.start()
verdicts = []
for turn in range(40):
    child = os.fork()
    if child == 0:
        right = is_right(0.5, 50 + turn) and (turn % 4 or is_right(100.5 + turn, 4))
        weft.disable(); weft.enable()
        os._exit(7 if right else 1)
    verdicts.append(verdict(child))
    if verdicts[-1] != 7: break
stop = True
for thread in threads: thread.join()
print(errors, set(verdicts))
"""


def test_a_fork_while_threads_trace_compile_and_run(run_python: Any) -> None:
    """The child finds every lock free: it traces, compiles and runs, programs known and new."""
    assert run_python(FORK, WEFT_CACHE="0", PYTHONWARNINGS="ignore").strip() == "[] {7}"


TRAIN = r"""
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
import weft

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, 2, bidirectional=True, proj_size=4, dropout=0.0)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.gru(self.lstm(x)[0])[0])

def wrapped(model, how):
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001, gradient_as_bucket_view=True)
    if how == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2,))
        for part in (model.lstm, model.gru):
            fully_shard(part, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model

def train(rank, how, file):
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain = Model()
    x = torch.randn(2, 5, 3, 4)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    with weft.disabled():
        for _ in range(3):
            optimiser.zero_grad()
            (sum(plain(one).pow(2).mean() for one in x) / 2).backward()
            optimiser.step()
    torch.manual_seed(0)
    model = wrapped(Model(), how)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model(x[rank]).pow(2).mean().backward()
        optimiser.step()
    ours = [p.full_tensor() if how == "fsdp" else p for p in model.parameters()]
    for a, b in zip(ours, plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    # In one piece: the other process writes too.
    os.write(1, f"{how} {rank} {weft.stats()['calls'] > 0} {weft.stats()['fallbacks']}\n".encode())
    dist.barrier()
    os._exit(0)  # taking gloo's group apart aborts the process now and then, without Weft too

if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1], sys.argv[2]), nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_train_what_one_would(how: str, tmp_path: Path, run_python: Any) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    store = tmp_path / "store"
    output = run_python(
        f"import sys, runpy; sys.argv = ['train.py', {how!r}, {str(store)!r}]; sys.path.insert(0, '.')\n"
        "runpy.run_path('train.py', run_name='__main__')"
    )
    assert sorted(output.splitlines()) == [f"{how} {rank} True {{}}" for rank in (0, 1)]


# What falls back: with PyTorch's result, and counted.

KINDS = ["RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"]


def operator_of(kind: str) -> str:
    name = {"RNN": "rnn_tanh"}.get(kind.removesuffix("Cell"), kind.removesuffix("Cell").lower())
    return f"{name}_cell" if kind.endswith("Cell") else name


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_falls_back(kind: str) -> None:
    module, x = getattr(nn, kind)(4, 6).double(), torch.randn(3, 4).double()

    def first(x: Tensor) -> Tensor:
        return torch.utils._pytree.tree_leaves(module(x))[0]

    def derivatives() -> tuple[Tensor, Tensor]:
        _, pushed = torch.func.jvp(first, (x,), (torch.ones_like(x),))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            return pushed, torch.autograd.forward_ad.unpack_dual(first(dual)).tangent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = derivatives()
        with weft.disabled():
            theirs = derivatives()
    torch.testing.assert_close(ours, theirs)
    assert weft.stats()["fallbacks"] == {f"{operator_of(kind)}: forward-mode differentiation": 2}


class Wrapped(Tensor):
    """An unknown tensor subclass that records its operators."""

    seen: tuple[str, ...] = ()

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.held = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen += (str(func),)
        args, kwargs = torch.utils._pytree.tree_map_only(cls, lambda tensor: tensor.held, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(Tensor, cls, func(*args, **kwargs))


def met(module: nn.Module, x: Tensor) -> tuple[tuple[str, ...], list[Tensor]]:
    """The operators that a wrapped input meets in a module, and the results."""
    Wrapped.seen = ()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = torch.utils._pytree.tree_leaves(module(Wrapped(x)))
    # A tensor that a wrapped one changed in place is not wrapped itself.
    return Wrapped.seen, [result.held if isinstance(result, Wrapped) else result for result in results]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_subclass_falls_back(kind: str) -> None:
    module, x = getattr(nn, kind)(4, 6), torch.randn(3, 4)
    seen, ours = met(module, x)
    with weft.disabled():
        expected, theirs = met(module, x)
    assert seen == expected and not any("weft" in name for name in seen)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
    assert weft.stats()["calls"] == 0
    assert weft.stats()["fallbacks"] == {f"{operator_of(kind)}: a tensor subclass": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_that_only_watches_sees_its_functions(kind: str) -> None:
    """__torch_function__ above the operators, as libraries for logging and units have it."""

    class Named(Tensor):
        pass

    module, x = getattr(nn, kind)(4, 6), torch.randn(3, 4)
    ours = torch.utils._pytree.tree_leaves(module(x.as_subclass(Named)))
    with weft.disabled():
        theirs = torch.utils._pytree.tree_leaves(module(x.as_subclass(Named)))
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        torch.testing.assert_close(a.as_subclass(Tensor), b.as_subclass(Tensor))
