"""What weights of 8 bits cost in accuracy and gain in time: `weft.quantize` and torch.ao on a language model and two
speech-like tasks, and single sequences.

python benchmarks/quantize.py                    # times, then four models are trained (a few minutes) and tested
python benchmarks/quantize.py --steps 50         # a look
python benchmarks/quantize.py --no-accuracy      # the times alone; --no-times: the accuracy alone
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import weft
from harness import processor
from speech import Classifier, Labeller, Phones, spoken_phones, spoken_words, word_classes

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
    training.model = Casting(by_torch_ao(model), model)
    with weft.disabled():
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


def speech(
    name: str, model: nn.Module, steps: int, batch: int, tested: int, draw: Callable[[int], tuple[Tensor, Tensor]]
) -> None:
    """The share of labels recognised after training on batches of `draw(count)`: (x, labels), sequences and what they
    say. Tests `tested` batches of 125."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        x, labels = draw(batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
    tests = [draw(125) for _ in range(tested)]
    asked = sum(labels.numel() for _, labels in tests)

    def share(of: nn.Module) -> float:
        return sum(int((of(x).argmax(-1) == labels).sum()) for x, labels in tests) / asked

    with torch.no_grad():
        shares = [share(model), *(share(weft.quantize(model, carry=carry)) for carry in CARRIES)]
        with weft.disabled():
            shares.append(share(by_torch_ao(model)))
    print(f"{name}, {steps} steps, share of {asked} labels recognised: {row(shares, 4)}", flush=True)


def words(steps: int) -> None:
    """Words recognised by two bidirectional LSTM layers."""
    generator = torch.Generator().manual_seed(0)
    classes = word_classes(generator)
    torch.manual_seed(0)
    speech("words", Classifier(len(classes)), steps, 64, 32, lambda count: spoken_words(count, classes, generator))


def phones(steps: int) -> None:
    """The phone of each frame by two LSTM layers."""
    generator = torch.Generator().manual_seed(0)
    language = Phones.make(generator)
    torch.manual_seed(0)
    model = Labeller(len(language.loudness))
    speech("phones", model, steps, 32, 8, lambda count: spoken_phones(count, language, generator))


def by_torch_ao(model: nn.Module) -> nn.Module:
    """A copy whose recurrent layers torch.ao has quantized: activations too, at each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao says that it is deprecated
        return torch.ao.quantization.quantize_dynamic(model, {nn.GRU, nn.LSTM}, dtype=torch.qint8)


def row(values: list[float], digits: int) -> str:
    names = ["float32", *(f"int8, carry {str(carry).removeprefix('torch.')}" for carry in CARRIES), "torch.ao"]
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
    """Times for one sequence: of a single step, and of a step within a long sequence."""
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
    parser.add_argument("--times", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{processor()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}", flush=True)
    if options.times:
        times()
    if options.accuracy:
        for cell in ("gru", "lstm"):
            language_model(cell, options.steps)
        words(options.steps)
        phones(options.steps // 2)


if __name__ == "__main__":
    main()
