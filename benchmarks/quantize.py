"""What weights of 8 bits cost in accuracy and gain in time: `weft.quantize` on two tasks, and single sequences.

python benchmarks/quantize.py                    # train both models (a few minutes), then the tables
python benchmarks/quantize.py --steps 50         # a look
python benchmarks/quantize.py --no-accuracy      # the times alone
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from language_model.text import Streams, load_text
from language_model.training import Config, held_out_streams, loss_of, new_training, train_step, validate

CARRIES = (torch.float32, torch.bfloat16)


def language_model(cell: str, steps: int) -> None:
    """Bits a character of the language model of `make run` on the text held out."""
    text = load_text()
    training = new_training(Config(cell=cell), len(text.characters))
    data = Streams(text.train, training.config.batch, training.config.length)
    for _ in range(steps):
        train_step(training, loss_of, data)
    held_out = held_out_streams(text, training.config)
    bits = [validate(training, held_out) / math.log(2)]
    model = training.model
    for carry in CARRIES:
        training.model = Casting(weft.quantize(model, carry=carry), model)
        bits.append(validate(training, held_out) / math.log(2))
    print(f"language model, {cell}, {steps} steps, bits a character: {row(bits, 4)}", flush=True)


class Casting(nn.Module):
    """The language model around a recurrence whose results may be of a lower type."""

    def __init__(self, quantized: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.quantized, self.zero_state = quantized, model.zero_state

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self.quantized.rnn(self.quantized.embedding(x), state)
        return self.quantized.linear(y.float()), state


def utterances(count: int, classes: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Filterbank-like sequences [T, count, 40]: a word is a sequence of smooth spectra, spoken at a tempo of its own,
    by a speaker with a gain for each band, in noise."""
    steps, bands = 60, classes.shape[2]
    words = torch.randint(len(classes), (count,), generator=generator)
    tempo = 0.75 + 0.5 * torch.rand(count, 1, generator=generator)
    place = (torch.arange(steps) / steps * tempo * classes.shape[1]).clamp(0, classes.shape[1] - 1.001)
    low, part = place.long(), place.frac().unsqueeze(-1)
    spectra = classes[words]
    rows = torch.arange(count).unsqueeze(1)
    x = spectra[rows, low] * (1 - part) + spectra[rows, (low + 1).clamp(max=classes.shape[1] - 1)] * part
    x = x + 0.5 * torch.randn(count, 1, bands, generator=generator) + 2.0 * torch.randn(x.shape, generator=generator)
    return x.transpose(0, 1).contiguous(), words


class Classifier(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(40, 96, 2, bidirectional=True)
        self.out = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(x)
        return self.out(y.float().mean(0))


def speech(steps: int) -> None:
    """Words recognised by two bidirectional LSTM layers."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randn(60, 6, 40, generator=generator)
    classes = nn.functional.avg_pool1d(classes, 5, 1, 2)
    torch.manual_seed(0)
    model = Classifier(len(classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        x, words = utterances(64, classes, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), words).backward()
        optimizer.step()
    tests = [utterances(250, classes, generator) for _ in range(16)]
    models = [model, *(weft.quantize(model, carry=carry) for carry in CARRIES)]
    with torch.no_grad():
        right = [sum(int((m(x).argmax(1) == words).sum()) for x, words in tests) / 4000 for m in models]
    print(f"synthetic speech, {steps} steps, share of words recognised: {row(right, 4)}", flush=True)


def row(values: list[float], digits: int) -> str:
    names = ["float32", *(f"int8, carry {str(carry).removeprefix('torch.')}" for carry in CARRIES)]
    return "; ".join(f"{name} {value:.{digits}f}" for name, value in zip(names, values, strict=True))


def median_time(call: Callable[[], object], seconds: float = 0.4) -> float:
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def times() -> None:
    """One sequence: a step by itself, and a step within a long sequence."""
    print(f"one sequence, {torch.get_num_threads()} threads: microseconds a step, float32 / int8 (ratio)")
    for kind in (nn.GRU, nn.LSTM):
        for size in (256, 512, 1024, 2048):
            module = kind(size, size)
            quantized = weft.quantize(module)
            parts = []
            with torch.no_grad():
                for steps in (1, 256):
                    x = torch.randn(steps, 1, size)
                    plain = 1e6 * median_time(partial(module, x)) / steps
                    eight = 1e6 * median_time(partial(quantized, x)) / steps
                    parts.append(f"T {steps}: {plain:.1f} / {eight:.1f} ({plain / eight:.1f}x)")
            print(f"  {kind.__name__} H {size}: " + ", ".join(parts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="of training, of each model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--accuracy", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    times()
    if options.accuracy:
        for cell in ("gru", "lstm"):
            language_model(cell, options.steps)
        speech(options.steps)


if __name__ == "__main__":
    main()
