"""Training steps on device "weft" beside eager PyTorch, torch.compile's inductor and backend weft on the CPU: the same
models, data and optimizer in one process, whose steps take turns; losses are compared with eager's first.

Usage: device.py [--models mlp,gru,...] [--optimizer adamw] [--threads 1] [--rounds 15] [--json FILE] [--lazy]

`--lazy` adds PyTorch's own lazy device (torch._lazy with its TorchScript backend). First: seconds until the third step
is done, which has compiled everything. Memory: what the process grew by while that peer was prepared and run.
BENCH_CPU_CLOCK=1 counts processor time, for one thread on a machine that others use. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import weft
from harness import comma_list, default_threads, new_report, use_cores
from measure import clock

Data = Callable[[], tuple[Tensor, Tensor]]
PEERS = ("eager without weft", "eager", "inductor", "backend weft", "device weft")
STEPS_A_ROUND = 8
TOLERANCE = 1e-3  # of losses, relative


class LanguageModel(nn.Module):
    def __init__(self, cell: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 128)
        self.recurrent = getattr(nn, cell)(128, 256, num_layers=2)
        self.out = nn.Linear(256, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.recurrent(self.embedding(tokens))[0])


class LoopedCell(nn.Module):
    """A loop in Python over a cell that is no module of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.rec = nn.Linear(64, 256), nn.Linear(128, 256)
        self.norm, self.out = nn.LayerNorm(128), nn.Linear(128, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], 128)
        for step in x:
            z, n = (self.inp(step) + self.rec(h)).chunk(2, -1)
            z = torch.sigmoid(z)
            h = z * h + (1 - z) * torch.tanh(self.norm(n))
        return self.out(h)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.embedding = nn.Embedding(256, 128)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.out = nn.Linear(128, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers(self.embedding(tokens)))


def mlp() -> tuple[nn.Module, Data]:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(256, 10)), lambda: (torch.randn(64, 256), torch.randint(10, (64,)))


def convolutions() -> tuple[nn.Module, Data]:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    model = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 32), nn.Flatten(), nn.Linear(512, 10))
    return model, lambda: (torch.randn(16, 3, 32, 32), torch.randint(10, (16,)))


def tokens(*sizes: int) -> Data:
    return lambda: (torch.randint(256, sizes), torch.randint(256, sizes))


MODELS: dict[str, Callable[[], tuple[nn.Module, Data]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "encoder": lambda: (Encoder(), tokens(8, 64)),
    "gru": lambda: (LanguageModel("GRU"), tokens(64, 16)),
    "lstm": lambda: (LanguageModel("LSTM"), tokens(64, 16)),
    "looped_cell": lambda: (LoopedCell(), lambda: (torch.randn(32, 16, 64), torch.randint(16, (16,)))),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


class Trainer:
    """One peer's copy of a model, a step at a time."""

    def __init__(self, peer: str, model: nn.Module, data: Data, optimizer: str) -> None:
        self.data, self.peer = data, peer
        self.device = {"device weft": "weft", "lazy": "lazy"}.get(peer, "cpu")
        self.model = copy.deepcopy(model).to(self.device)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        backend = {"inductor": "inductor", "backend weft": "weft"}.get(peer)
        self.forward = torch.compile(self.model, backend=backend) if backend else self.model
        self.steps = 0

    def step(self) -> Tensor:
        torch.manual_seed(self.steps)
        self.steps += 1
        x, y = (tensor.to(self.device) for tensor in self.data())
        loss = functional.cross_entropy(self.forward(x).flatten(0, -2), y.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.peer == "device weft":
            weft.sync()
        elif self.peer == "lazy":
            torch._lazy.mark_step()
            torch._lazy.wait_device_ops()
        return loss.detach()

    def round(self, steps: int) -> tuple[list[float], list[Tensor]]:
        losses, seconds = [], []
        for _ in range(steps):
            start = clock()
            losses.append(self.step())
            seconds.append(clock() - start)
        return seconds, losses

    def run(self, steps: int) -> tuple[list[float], list[Tensor]]:
        if self.peer != "eager without weft":
            return self.round(steps)
        with weft.disabled():
            return self.round(steps)


def measure(name: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    model, data = MODELS[name]()
    trainers, found = {}, {}
    expected: list[float] = []
    for peer in [*PEERS, *(["lazy"] if options.lazy else [])]:
        torch._dynamo.reset()
        start = clock()
        try:
            trainer = Trainer(peer, model, data, options.optimizer)
            losses = [float(loss) for loss in trainer.run(3)[1]]
        except Exception as error:
            print(f"{name}: {peer} fails: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
            continue
        expected = expected or losses
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
        if worst > TOLERANCE:
            print(f"{name}: {peer} has other losses than {PEERS[0]}, by {worst:.1e}; left out")
            continue
        trainers[peer] = trainer
        found[peer] = {"first_s": clock() - start, "samples": []}
    for _ in range(options.rounds):
        for peer, trainer in trainers.items():
            time.sleep(0.02)  # the last one's threads stop spinning
            found[peer]["samples"] += trainer.run(STEPS_A_ROUND)[0]
    for entry in found.values():
        samples = sorted(entry.pop("samples"))
        entry["median_ms"] = 1e3 * statistics.median(samples)
        entry["q1_ms"], entry["q3_ms"] = 1e3 * samples[len(samples) // 4], 1e3 * samples[-1 - len(samples) // 4]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=comma_list, default=list(MODELS))
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lazy", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := [name for name in options.models if name not in MODELS]:
        parser.error(f"--models: there is no '{unknown[0]}'; there are {', '.join(MODELS)}")
    use_cores(options.threads)
    if options.lazy:
        import torch._lazy.ts_backend

        torch._lazy.ts_backend.init()
    report = new_report({"threads": options.threads})
    print(f"{report['machine']['cpu']}, {options.threads} threads, {options.optimizer}")
    print(f"{'ms a step':13}" + "".join(f"{peer:>20}" for peer in PEERS))
    for name in options.models:
        found = measure(name, options)
        report["cases"].append({"model": name, "peers": found})
        cells = [f"{found[p]['median_ms']:.2f} ({found[p]['first_s']:.1f} s)" if p in found else "-" for p in found]
        print(f"{name:13}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
