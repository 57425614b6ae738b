"""Results of programs: their memory comes from the engine's arena, and is a tensor's like any other."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import weakref

import pytest
import torch
from torch import nn

import weft

STEPS, BATCH, UNITS = 64, 32, 64  # results of 512 KiB


@pytest.fixture
def layer() -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(UNITS, UNITS)


def inputs() -> torch.Tensor:
    return torch.randn(STEPS, BATCH, UNITS, generator=torch.Generator().manual_seed(0))


def test_a_result_that_is_kept_is_not_written_again(layer):
    with torch.no_grad():
        first = layer(inputs())[0]
        copy = first.clone()
        for _ in range(5):
            layer(torch.randn(STEPS, BATCH, UNITS))
    assert torch.equal(first, copy)


def test_a_view_keeps_the_memory(layer):
    with torch.no_grad():
        row = layer(inputs())[0][3, 5]
        copy = row.clone()
        gc.collect()
        for _ in range(5):
            layer(torch.randn(STEPS, BATCH, UNITS))
    assert torch.equal(row, copy)


def test_results_can_be_resized_and_changed_in_place(layer):
    with torch.no_grad():
        y = layer(inputs())[0]
        total = y.sum()
        y.resize_(2 * STEPS, BATCH, UNITS)
        assert torch.allclose(y[:STEPS].sum(), total)
        y.mul_(0).add_(1)
        assert y.sum() == y.numel()
        y.set_()
        assert y.numel() == 0


def test_training_steps_use_the_memory_of_those_before(layer):
    """No further page faults once warm: a step finds the memory that the last one had."""
    x = inputs().requires_grad_()

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x)[0].sum().backward()

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(5):
        step()
    before = resident()
    for _ in range(50):
        step()
    assert resident() - before < 4 << 20


def test_residuals_outlive_the_forward_and_other_threads_calls(layer):
    reference = [nn.GRU(UNITS, UNITS) for _ in range(4)]
    for each in reference:
        each.load_state_dict(layer.state_dict())
    wanted: list[torch.Tensor] = []
    with weft.disabled():
        x = inputs().requires_grad_()
        reference[0](x)[0].sum().backward()
        wanted.append(x.grad)
    found: dict[int, torch.Tensor] = {}

    def train(number: int) -> None:
        for _ in range(10):
            x = inputs().requires_grad_()
            y = reference[number](x)[0]
            with torch.no_grad():
                reference[number](torch.randn(STEPS, BATCH, UNITS))
            y.sum().backward()
            found[number] = x.grad

    threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        torch.testing.assert_close(found[number], wanted[0])


def child(y: torch.Tensor, queue: multiprocessing.Queue) -> None:
    queue.put(float(y.sum()))


def test_results_go_to_other_processes(layer):
    with torch.no_grad():
        y = layer(inputs())[0]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(y, queue))
    process.start()
    total = queue.get(timeout=120)
    process.join()
    assert total == pytest.approx(float(y.sum()), rel=1e-5)


def test_the_profiler_counts_them(layer):
    x = inputs()
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        y = layer(x)[0]
        del y
    sizes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert STEPS * BATCH * UNITS * 4 in sizes
    assert -STEPS * BATCH * UNITS * 4 in sizes


def test_small_results_are_aligned_and_each_has_its_own_memory():
    text = "program @twice(%x: f32[N]) { %y = add %x, %x return %y }"
    kept = []
    for size in [*range(20), 511, 512, 513, 1000]:
        x = torch.full((size,), float(size))
        kept += [(weft.call(text, [x])[0], 2.0 * size) for _ in range(3)]
    assert all(y.data_ptr() % 64 == 0 for y, _ in kept)
    assert all((y == value).all() for y, value in kept)


def test_small_results_can_be_freed_by_another_thread():
    cell, x = nn.GRUCell(4, 4), torch.randn(2, 4)
    with torch.no_grad():
        expected, kept = cell(x), [cell(x) for _ in range(200)]
        for _ in range(3):
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
            kept += [cell(x) for _ in range(200)]
    assert all(torch.equal(h, expected) for h in kept)


def test_the_profiler_counts_small_results():
    cell, x = nn.GRUCell(4, 4), torch.randn(3, 4)
    with torch.no_grad():
        cell(x)
        with torch.profiler.profile(profile_memory=True) as profile:
            h = cell(x)
            del h
    sizes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert 3 * 4 * 4 in sizes and -3 * 4 * 4 in sizes


def test_a_call_keeps_none_of_its_inputs(layer):
    x, h = torch.randn(2, 3, UNITS), torch.randn(1, 3, UNITS)
    cell = nn.GRUCell(UNITS, UNITS)
    tensors = [x, h, *layer.parameters(), *cell.parameters()]
    with torch.no_grad():
        before = [tensor._use_count() for tensor in tensors]
        layer(x, h), cell(x[0], h[0])
    assert [tensor._use_count() for tensor in tensors] == before
    dropped = weakref.ref(x)
    del x, tensors
    assert dropped() is None


def test_a_result_too_large_for_the_memory_is_pytorchs_error():
    text = "program @huge(%x: f32[B,1]) { %y = broadcast %x {dims = [0, 1]} : f32[B,1,1099511627776] return %y }"
    with pytest.raises(RuntimeError, match=r"(?i)memory"):
        weft.call(text, [torch.zeros(64, 1)])


def test_memory_that_nobody_uses_is_given_back():
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    layer = nn.GRU(16, 64)
    y = layer(torch.randn(256, 256, 16))[0]  # results and residuals of 100 MB
    y.sum().backward()
    del y
    before = resident()
    weft._C.trim_arena()
    assert before - resident() > 30 << 20
    assert layer(torch.randn(4, 2, 16))[0].isfinite().all()
