"""The device "weft" as a user of PyTorch meets it: factories, generators, files, values, autograd, threads, errors."""

from __future__ import annotations

import copy
import os
import pickle
import re
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import weft
from weft import _C

# ---- where tensors come from

FACTORIES = [
    lambda: torch.zeros(2),
    lambda: torch.full((2,), 7),
    lambda: torch.eye(3),
    lambda: torch.arange(4),
    lambda: torch.linspace(0, 1, 5),
    lambda: torch.empty(3),
    lambda: torch.rand(2),
    lambda: torch.randint(0, 5, (3,)),
    lambda: torch.randperm(5),
    lambda: torch.tensor([1.0, 2.0]),
    lambda: torch.as_tensor([1, 2]),
    lambda: torch.asarray([1, 2]),
    lambda: torch.hann_window(8),
    lambda: torch.tril_indices(3, 3),
    lambda: torch.scalar_tensor(2.0),
    lambda: nn.Linear(2, 3).weight,
]


@pytest.mark.parametrize("number", range(len(FACTORIES)))
def test_the_default_device(number):
    make = FACTORIES[number]
    torch.manual_seed(1)
    expected = make()
    torch.manual_seed(1)
    with torch.device("weft"):
        inside = make()
    torch.set_default_device("weft")
    try:
        torch.manual_seed(1)
        default = make()
    finally:
        torch.set_default_device(None)
    for tensor in (inside, default):
        assert tensor.device == torch.device("weft:0")
        assert tensor.dtype == expected.dtype and tensor.shape == expected.shape
    if number != 5:
        assert torch.equal(inside.cpu(), expected) and torch.equal(default.cpu(), expected)


def test_ways_to_the_device_and_back():
    x = torch.arange(6.0).view(2, 3)
    for there in (
        x.to("weft"),
        x.weft(),
        x.to(torch.zeros(1, device="weft")),
        x.to(torch.device("weft"), torch.float32),
    ):
        assert there.is_weft and str(there.device) == "weft:0"
        assert torch.equal(there.cpu(), x) and torch.equal(there.to("cpu"), x)
    there = x.to("weft")
    x.zero_()  # a copy
    assert there.sum().item() == 15
    for made in (there.new_zeros(2), torch.ones_like(there), torch.rand_like(there), there.new_tensor([1.0])):
        assert made.is_weft
    model = nn.Linear(2, 2).to("weft")
    assert model.weight.is_weft and not model.cpu().weight.is_weft and model.weft().weight.is_weft
    assert nn.Linear(2, 2, device="meta").to_empty(device="weft").weight.is_weft
    with pytest.raises(RuntimeError, match="there is one device"):
        torch.ones(2, device="weft:1")


# ---- values


def test_values():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="weft")
    assert x.tolist() == [[1, 2], [3, 4]] and x[0, 1].item() == 2
    assert (float(x[1, 1]), int(x[1, 0]), complex(x[0, 0]), bool(x[0, 0])) == (4.0, 3, 1 + 0j, True)
    assert "abc"[torch.tensor(1, device="weft")] == "b" and list(range(torch.tensor(2, device="weft"))) == [0, 1]
    assert torch.allclose(x, x + 0) and torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    assert [row.sum().item() for row in x] == [3, 7] and 2.0 in x and len(x) == 2
    assert x.cpu().numpy().sum() == x.clone().requires_grad_().numpy(force=True).sum() == 10
    for ask in (lambda: x.numpy(), lambda: memoryview(x), lambda: x.__array__()):
        with pytest.raises(TypeError):
            ask()
    with pytest.raises(TypeError, match=r"can't convert weft:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        x.numpy()


@pytest.mark.parametrize(
    "ask",
    [
        repr,
        "{}".format,
        lambda x: f"{x.sum()} {x.sum():.2f}",
        torch.Tensor.tolist,
        lambda x: x.sum().item(),
        lambda x: x.cpu().numpy(),
        lambda x: x.numpy(force=True),
        copy.deepcopy,
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: copy.deepcopy(nn.Parameter(x)),
        lambda x: repr(x.requires_grad_().mul(2)),
        lambda x: repr(x[0, 0]),
        lambda x: repr(x.to(torch.complex64)),
        lambda x: repr(x.to_sparse()),
    ],
)
@pytest.mark.parametrize("sizes", [(1, 1), (200, 300)])
def test_asking_for_values_is_one_run(ask, sizes):
    """Formatting is the CPU's work: a lazy device that formats makes thousands of records of one print."""
    x = torch.rand(sizes, device="weft")
    ran = weft.device.stats()
    ask(x)
    now = weft.device.stats()
    runs = sum(now[name] - ran[name] for name in ("compiled_batches", "plain_batches"))
    assert runs <= 2


def test_printing_is_the_cpus():
    torch.manual_seed(0)
    for x in (
        torch.randn(3, 4),
        torch.randn(200, 300),
        torch.randn(1000) * 1e6,
        torch.tensor(2.5),
        torch.tensor([1.0, float("nan"), float("inf")]),
        torch.randn(2, 3, dtype=torch.complex64),
        torch.randn(4).conj(),
        torch.arange(3),
        torch.randn(2, 3).to_sparse(),
    ):
        got, expected = ("".join(repr(each).split()) for each in (x.to("weft"), x))  # lines break elsewhere
        assert got.replace(",device='weft:0'", "") == expected


def test_printing():
    assert repr(torch.tensor([1.5, 2.0], device="weft")) == "tensor([1.5000, 2.0000], device='weft:0')"
    assert repr(nn.Parameter(torch.ones(1, device="weft"))).endswith("device='weft:0', requires_grad=True)")
    assert "..." in repr(torch.rand(100, 100, device="weft")) and f"{torch.tensor(2.5, device='weft'):.2f}" == "2.50"
    for tensor in (torch.zeros(0, 3), torch.ones(2, dtype=torch.bfloat16), torch.tensor([True]), torch.tensor(3)):
        expected = repr(tensor)
        got = repr(tensor.to("weft"))
        assert got.replace(", device='weft:0'", "") == expected
    torch.set_printoptions(precision=2)
    try:
        assert repr(torch.tensor([1.5], device="weft")) == "tensor([1.50], device='weft:0')"
    finally:
        torch.set_printoptions(profile="default")


# ---- errors


def test_wrong_shapes_are_errors_at_once():
    x = torch.ones(2, 3, device="weft")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2, 3)


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_error_in_the_middle_of_a_batch(rounds):
    """At its third sight the record is a compiled program, if it can be one."""
    x = torch.arange(5.0, device="weft")
    for _ in range(rounds):
        before, wrong, after = x * 2, x[torch.tensor([7])], x * 3
        more = wrong + 1
        assert before.tolist() == [0, 2, 4, 6, 8]
        for each in (wrong, more):
            with pytest.raises(IndexError, match="index 7 is out of bounds"):
                each.tolist()
        assert after.tolist() == [0, 3, 6, 9, 12]


def test_ctrl_c_in_the_middle_of_a_step(run_warm_python):
    said = run_warm_python(
        textwrap.dedent("""
        import os, signal, threading, torch, weft
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
        model, x, n = torch.nn.Linear(8, 8).to("weft"), torch.randn(4, 8, device="weft"), 0
        total = torch.zeros((), device="weft")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                for _ in range(50):
                    total = total + model(x).sum() * 0 + 1
                    n += 1
                weft.sync()
        except KeyboardInterrupt:
            pass
        assert total.item() - n in (0, 1), (total.item(), n)
        for _ in range(3):
            model.zero_grad()
            model(x).sum().backward()
            weft.sync()
        assert model.bias.grad.tolist() == [4.0] * 8
        print("fine after", n > 0)
    """)
    )
    assert "fine after True" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_backward_in_a_child_makes_no_tensor_first(run_warm_python):
    """The graph and its first gradient are the parent's, and so is the engine; a grandchild's too."""
    script = """
        import os, torch, weft
        def backward(generations):
            assert torch.autograd.grad(y, [x], [one], retain_graph=True)[0].tolist() == [2.0] * 3
            if generations == 0:
                os._exit(7)
            child = os.fork()
            if child == 0:
                backward(generations - 1)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 7, status
            os._exit(7)
        x = torch.ones(3, device="weft", requires_grad=True)
        y, one = (2 * x).sum(), torch.ones((), device="weft")
        weft.sync()
        child = os.fork()
        if child == 0:
            backward(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_warm_python(textwrap.dedent(script)).strip() == "7"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_with_pending_operations(run_warm_python):
    said = run_warm_python(
        textwrap.dedent("""
        import os, torch, weft
        x = torch.ones(3, device="weft") * 2
        child = os.fork()
        if child == 0:
            os._exit(0 if (x + 1).tolist() == [3, 3, 3] else 1)
        print(os.waitpid(child, 0)[1], x.tolist())
    """)
    )
    assert "0 [2.0, 2.0, 2.0]" in said


INTEGERS = torch.ones(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, i: i.add_(1.5),
        lambda x, i: torch.add(i, 1.5, out=i),
        lambda x, i: torch.clamp(i),
        lambda x, i: x.index_put_((i[:0],), x[:2].clone()),
        lambda x, i: x.__setitem__((slice(None), [1]), i.unsqueeze(-1)),
        lambda x, i: torch.empty(0, 4, device=x.device)[i],
        lambda x, i: torch.arange(-5, float("nan"), device=x.device),
        lambda x, i: torch.linalg.inv(x.half()),
        lambda x, i: torch.nonzero(x, out=torch.empty(0, device=x.device)),
    ],
)
def test_errors_are_the_cpus_at_their_line(wrong):
    x = torch.arange(9.0).view(3, 3)
    with pytest.raises(Exception) as expected:
        wrong(x.clone(), INTEGERS.clone())
    with pytest.raises(expected.type, match=re.escape(str(expected.value).split("\n")[0])):
        wrong(x.to("weft"), INTEGERS.to("weft"))
    weft.sync()


def test_values_that_the_kernel_refuses_are_no_errors_of_others():
    """An operation whose kernel takes neither zeros nor ones as values is computed at once."""
    lengths = torch.tensor([2, 3], device="weft")
    x = torch.arange(5.0, device="weft")
    assert torch.segment_reduce(x, "sum", lengths=lengths).tolist() == [1, 9]
    inverse = torch.linalg.inv(torch.tensor([[2.0, 0], [0, 4]], device="weft"))
    assert inverse.tolist() == [[0.5, 0], [0, 0.25]]
    assert (torch.tensor([7], device="weft") // torch.tensor([2], device="weft")).tolist() == [3]


@pytest.mark.parametrize("fill", [torch.linspace, torch.logspace])
def test_results_are_filled_in_their_own_shape(fill):
    """linspace into a part of a tensor that has as many elements keeps its shape, the first time and later."""
    for _ in range(4):
        expected, actual = torch.zeros(2, 3), torch.zeros(2, 3, device="weft")
        fill(0, 3, 4, out=expected.narrow(1, 1, 2))
        fill(0, 3, 4, out=actual.narrow(1, 1, 2))
        assert torch.equal(actual.cpu(), expected)
        torch.arange(4, out=expected.narrow(1, 0, 2))
        torch.arange(4, out=actual.narrow(1, 0, 2))
        assert torch.equal(actual.cpu(), expected)
    assert "a result of another shape than the tensor that it is written to" in str(weft.stats()["fallbacks"])
    assert "bad_alloc" not in str(weft.stats()["fallbacks"])


# ---- threads


def losses(device, seed, steps=10):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = (torch.randn(16, n, generator=generator).to(device) for n in (4, 1))
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        weft.sync()
        found.append(loss.detach())
    return [loss.item() for loss in found]


def test_threads_that_train():
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: losses("weft", i)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for i in range(3):
        assert found[i] == pytest.approx(losses("cpu", i), rel=1e-4)


# ---- what it says of itself


@pytest.mark.parametrize("number", [0, 1])
def test_the_programs_of_the_page_run(number, capsys):
    page = (Path(__file__).parents[3] / "docs" / "device.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    _C.device_forget_ran_at_once()
    exec(compile(blocks[number], f"device.md:{number}", "exec"), {})
    said = capsys.readouterr().out
    assert re.search([r"^\d\.\d+$", r"'aten::_local_scalar_dense': {'device.md:1:5': 1"][number], said, re.MULTILINE)


def test_memory_stats():
    weft.sync()
    start = weft.device.memory_stats()
    x = torch.ones(1000, device="weft") + 1
    assert weft.device.memory_stats()["pending"] >= start["pending"] + 2
    weft.sync()
    held = weft.device.memory_stats()
    assert held["bytes"] == start["bytes"] + 4000 and held["storages"] == start["storages"] + 1
    assert held["pending"] == 0
    part = x[:500]
    del x
    assert weft.device.memory_stats()["bytes"] == held["bytes"]  # the view's storage has all of it
    del part
    end = weft.device.memory_stats()
    assert (end["bytes"], end["storages"]) == (start["bytes"], start["storages"])
    assert end["most_bytes"] >= held["bytes"]
    weft.device.reset_peak_memory_stats()
    assert weft.device.memory_stats()["most_bytes"] == torch.weft.max_memory_allocated() == end["bytes"]


def test_operations_that_run_at_once_are_counted_with_their_place():
    _C.device_forget_ran_at_once()
    x = torch.arange(4.0, device="weft")
    (x + 1).sum()
    assert weft.device.stats()["ran_at_once"] == {}
    for _ in range(2):
        x.nonzero()
    x[x > 1]
    x.sum().item()
    ran = weft.device.stats()["ran_at_once"]
    line = test_operations_that_run_at_once_are_counted_with_their_place.__code__.co_firstlineno
    assert ran["aten::nonzero"] == {f"test_device.py:{line + 6}": 2}
    assert ran["aten::index.Tensor"] == {f"test_device.py:{line + 7}": 1}
    assert ran["aten::_local_scalar_dense"] == {f"test_device.py:{line + 8}": 1}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("bins", "low", "high"), [(8, 0, 7), (5, 0, 4), (3, 2, 6), (4, 0, 0), (1, 3, 3)], ids=lambda value: str(value)
)
def test_a_histogram_of_whole_numbers(bins, low, high, dtype):
    """The CPU's kernel takes only floats; equal limits mean the limits of the values."""
    torch.manual_seed(10)
    for x in (torch.randint(0, 9, (40,), dtype=dtype), torch.full((3,), 3, dtype=dtype), torch.empty(0, dtype=dtype)):
        found = torch.histc(x.to("weft"), bins, low, high)
        expected = torch.histc(x.double(), bins, low, high)
        assert found.dtype == dtype and found.tolist() == expected.tolist(), (x, found, expected)
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(x.to("weft"), 0)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x.to("weft"), 4, 2, 1)
