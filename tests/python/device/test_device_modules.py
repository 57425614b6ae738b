"""Modules that move to device weft and back."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn


class Tied(nn.Module):
    """An embedding that is the output layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.cell = nn.GRU(4, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.cell(self.embedding(x))[0])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    x = torch.arange(6, device=device).view(3, 2)
    nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def values(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("made", ["before", "after"])
def test_tied_parameters_stay_tied_and_in_the_optimizer(made: str) -> None:
    found = {}
    for device in ("cpu", "weft"):
        torch.manual_seed(0)
        model = Tied()
        model.embedding.weight.note = "kept"  # type: ignore[attr-defined]
        optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9) if made == "before" else None
        model.to(device)
        optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
        assert model.output.weight is model.embedding.weight
        assert model.embedding.weight.note == "kept"
        for _ in range(3):
            step(model, optimizer, device)
        found[device] = values(model)
        model.cpu()
        assert model.output.weight is model.embedding.weight
        assert all(torch.equal(mine, old) for mine, old in zip(values(model), found[device], strict=True))
    torch.testing.assert_close(found["weft"], found["cpu"])


@pytest.mark.parametrize("why", ["gradient", "graph", "subclass"])
def test_tied_parameters_that_others_hold(why: str) -> None:
    """A parameter that can't be exchanged is made anew, once."""
    model = Tied()
    loss = None
    if why == "subclass":
        kind = type("Mine", (nn.Parameter,), {})
        model.embedding.weight = model.output.weight = kind(torch.randn(7, 4))
    else:
        loss = model(torch.arange(6).view(3, 2)).sum()
        if why == "gradient":
            loss.backward()
    before = values(model)
    model.to("weft")
    assert model.output.weight is model.embedding.weight and model.output.weight.device.type == "weft"
    assert len(list(model.parameters())) == 5
    assert all(torch.equal(mine, old) for mine, old in zip(values(model), before, strict=True))
    if why == "gradient":
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_gradients_and_frozen_parameters_move_too() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    model(torch.ones(1, 3)).sum().backward()
    weight = model.weight
    model.to("weft")
    assert model.weight is weight and weight.device.type == "weft" and not model.bias.requires_grad
    assert weight.grad is not None and weight.grad.device.type == "weft"
    assert weight.grad.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert model.to_empty(device="cpu").weight.device.type == "cpu"


def test_other_moves_are_pytorchs() -> None:
    model = nn.Linear(3, 2)
    weight = model.weight
    assert model.double().weight is weight and weight.dtype == torch.float64
    assert not torch.__future__.get_swap_module_params_on_conversion()
    lazy = nn.LazyLinear(2).to("weft")
    assert lazy(torch.ones(1, 3, device="weft")).shape == (1, 2)


def test_modules_that_move_in_several_threads() -> None:
    """Each module keeps its parameters, and no thread notices that another moves a module."""
    barrier = threading.Barrier(6)
    faults: list[str] = []

    def moves() -> None:
        for _ in range(50):
            model = Tied()
            kept, names = list(model.parameters()), list(model.state_dict())
            barrier.wait()
            for device in ("weft", "cpu"):
                model.to(device)
                if any(mine is not old for mine, old in zip(model.parameters(), kept, strict=True)):
                    faults.append(f"another parameter on {device}")
            if list(model.state_dict()) != names or model.output.weight is not model.embedding.weight:
                faults.append("parameters that were one are two")

    def loads() -> None:
        model, state = Tied(), Tied().state_dict()
        for _ in range(50):
            barrier.wait()
            for _ in range(10):
                model.load_state_dict(state)  # has weak references to its weights, so it can't be swapped
                if torch.__future__.get_swap_module_params_on_conversion():
                    faults.append("swap_module_params_on_conversion is set")

    def watched(run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:
            faults.append(repr(error))
            barrier.abort()

    threads = [threading.Thread(target=watched, args=(run,)) for run in [moves] * 4 + [loads] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert not torch.__future__.get_swap_module_params_on_conversion()
