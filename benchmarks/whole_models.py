"""Whole models: training steps, or forwards, on device "weft" beside eager PyTorch, torch.compile's inductor and
backend weft on the CPU, with weft and without: the same models, data and optimizer in one process, whose steps take
turns; losses are compared with eager's first.

Usage: whole_models.py [--models mlp,gru,...] [--mode forward] [--optimizer adamw] [--threads 1] [--rounds 15]
                       [--peers eager,inductor] [--json FILE]

The peer "lazy" is PyTorch's own lazy device (torch._lazy with its TorchScript backend). In brackets: seconds until the
third step is done, which has compiled everything. Inductor without weft unrolls recurrent layers; it is given up after
a minute and a half. BENCH_CPU_CLOCK=1 counts processor time, for one thread on a machine that others use. Nothing here
is asserted.
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
from harness import comma_list, default_threads, new_report, refuse_unknown, use_cores
from measure import clock
from models import MODELS, Data
from peers.pytorch import alarm

PEERS = ("eager without weft", "inductor without weft", "eager", "inductor", "backend weft", "device weft")
BACKENDS = {"inductor": "inductor", "inductor without weft": "inductor", "backend weft": "weft"}
STEPS_A_ROUND = 8
TOLERANCE = 1e-3  # of losses, relative
BUDGET = 90  # seconds of a peer's first steps

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


class Trainer:
    """One peer's copy of a model, a step at a time."""

    def __init__(self, peer: str, model: nn.Module, data: Data, options: argparse.Namespace) -> None:
        self.data, self.peer, self.mode = data, peer, options.mode
        self.device = {"device weft": "weft", "lazy": "lazy"}.get(peer, "cpu")
        self.model = copy.deepcopy(model).to(self.device)
        self.optimizer = OPTIMIZERS[options.optimizer](self.model.parameters())
        backend = BACKENDS.get(peer)
        self.forward = torch.compile(self.model, backend=backend) if backend else self.model
        self.steps = 0

    def step(self) -> Tensor:
        torch.manual_seed(self.steps)
        self.steps += 1
        x, y = (tensor.to(self.device) for tensor in self.data())
        with torch.inference_mode(self.mode == "forward"):
            loss = functional.cross_entropy(self.forward(x).flatten(0, -2), y.flatten())
        if self.mode == "training":
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
        if not self.peer.endswith("without weft"):
            return self.round(steps)
        with weft.disabled(), torch._dynamo.config.patch(allow_rnn=True):
            return self.round(steps)


def measure(name: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    model, data = MODELS[name]()
    trainers, found = {}, {}
    expected: list[float] = []
    for peer in options.peers:
        torch._dynamo.reset()
        start = clock()
        try:
            with alarm(BUDGET):
                trainer = Trainer(peer, model, data, options)
                losses = [float(loss) for loss in trainer.run(3)[1]]
        except TimeoutError:
            print(f"{name}: {peer} took over {BUDGET} s to compile; left out")
            continue
        except Exception as error:
            print(f"{name}: {peer} fails: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
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


def cell(entry: dict[str, float] | None) -> str:
    return f"{entry['median_ms']:.2f} ({entry['first_s']:.1f} s)" if entry else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=comma_list, default=list(MODELS))
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mode", choices=("training", "forward"), default="training")
    parser.add_argument("--peers", type=comma_list, default=list(PEERS), help=f"of {', '.join(PEERS)}, lazy")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    refuse_unknown(parser, options, {"models": MODELS, "peers": (*PEERS, "lazy")})
    use_cores(options.threads)
    if "lazy" in options.peers:
        import torch._lazy.ts_backend

        torch._lazy.ts_backend.init()
    report = new_report({"threads": options.threads})
    print(f"{report['machine']['cpu']}, {options.threads} threads, {options.mode}, {options.optimizer}")
    print(f"{'ms a step':13}" + "".join(f"{peer:>23}" for peer in options.peers))
    for name in options.models:
        found = measure(name, options)
        report["cases"].append({"model": name, "peers": found})
        print(f"{name:13}" + "".join(f"{cell(found.get(peer)):>23}" for peer in options.peers), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
