"""Loops of packages, as their users train them: in eager mode, and under torch.compile(backend="weft").

Usage: packages.py [STEPS [BATCH]]     prints a table; 50 steps of 16 rows by default. Packages that aren't installed
                                       (snntorch, neuralhydrology) are left out. Milliseconds are CPU time of a thread.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from measure import median_ms

INPUT, HIDDEN, OUTPUT, CALLS = 24, 64, 10, 15


def leaky() -> nn.Module:
    import snntorch

    class Net(nn.Module):
        """Two layers of leaky integrate and fire neurons."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.fire = nn.Linear(INPUT, HIDDEN), snntorch.Leaky(beta=0.9)
            self.output, self.fire_last = nn.Linear(HIDDEN, OUTPUT), snntorch.Leaky(beta=0.9)

        def forward(self, x: Tensor) -> Tensor:
            mem, mem_last = self.fire.init_leaky(), self.fire_last.init_leaky()
            found = []
            for step in range(x.shape[0]):
                spikes, mem = self.fire(self.hidden(x[step]), mem)
                _, mem_last = self.fire_last(self.output(spikes), mem_last)
                found.append(mem_last)
            return torch.stack(found)

    return Net()


def slstm() -> nn.Module:
    import snntorch

    class Net(nn.Module):
        """Two layers of spiking LSTMs. Where inputs are as many as units: the package forgets the state otherwise."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = snntorch.SLSTM(INPUT, INPUT), snntorch.SLSTM(INPUT, INPUT)

        def forward(self, x: Tensor) -> Tensor:
            (syn, mem), (syn_last, mem_last) = self.first.init_slstm(), self.second.init_slstm()
            found = []
            for step in range(x.shape[0]):
                spikes, syn, mem = self.first(x[step], syn, mem)
                _, syn_last, mem_last = self.second(spikes, syn_last, mem_last)
                found.append(mem_last)
            return torch.stack(found)

    return Net()


def custom_lstm() -> nn.Module:
    from neuralhydrology.modelzoo.customlstm import CustomLSTM
    from neuralhydrology.utils.config import Config

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            names = [f"x{i}" for i in range(INPUT)]
            self.names = names
            self.model = CustomLSTM(
                Config(
                    {
                        "model": "customlstm", "hidden_size": HIDDEN, "initial_forget_bias": 3, "output_dropout": 0.0,
                        "head": "regression", "output_activation": "linear", "target_variables": ["y"],
                        "dynamic_inputs": names, "loss": "MSE", "predict_last_n": 1, "seq_length": 1,
                    }
                )
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            inputs = {name: column for name, column in zip(self.names, x.transpose(0, 1).split(1, 2), strict=True)}
            found = self.model({"x_d": inputs})
            return found["y_hat"] + found["c_n"].mean() + found["i"].mean()

    return Net()


LOOPS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "snntorch.Leaky, two layers": ("snntorch", leaky),
    "snntorch.SLSTM, two layers": ("snntorch", slstm),
    "neuralhydrology's CustomLSTM": ("neuralhydrology", custom_lstm),
}


def train(function: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    result = function(x)
    (result * torch.linspace(0.5, 1.5, result.numel()).view(result.shape)).mean().backward()
    return [result.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def off(found: list[Tensor], wanted: list[Tensor]) -> float:
    assert len(found) == len(wanted)
    return max(float((a - b).abs().max() / (b.abs().max() + 1e-6)) for a, b in zip(found, wanted, strict=True))


def rows(steps: int, batch: int) -> Iterator[str]:
    for name, (package, make) in LOOPS.items():
        if importlib.util.find_spec(package) is None:
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        weft.reset_stats()
        model, x = make(), torch.randn(steps, batch, INPUT)
        compiled: Any = torch.compile(model, backend="weft")
        start = time.perf_counter()
        train(compiled, model, x)
        first = time.perf_counter() - start
        error = off(train(compiled, model, x), train(model, model, x))
        eager = median_ms(lambda m=model, x=x: train(m, m, x), CALLS, warm_up=1)
        ours = median_ms(lambda c=compiled, m=model, x=x: train(c, m, x), CALLS, warm_up=1)
        counted = weft.stats()["backend"]
        state = f"{counted['rolled']} scans" if not counted["not_rolled"] else str(counted["not_rolled"])
        times = f"{eager:.1f} / {ours:.2f} = {eager / ours:.1f}"
        yield f"| {name} | {steps} | {state} | {error:.0e} | {first:.1f} | {times} |"


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:]]
    steps, batch = [*given, 50, 16][:2] if len(given) != 1 else (given[0], 16)
    warnings.simplefilter("ignore", weft.FallbackWarning)
    print("| loop | T | state | off by | first call s | training ms, eager / weft |\n|" + " --- |" * 6)
    for row in rows(steps, batch):
        print(row, flush=True)


if __name__ == "__main__":
    main()
