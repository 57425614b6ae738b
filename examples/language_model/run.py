"""A run: training with a backend until something ends it, and the same steps in eager PyTorch."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .checkpoint import save
from .progress import Interrupt, Progress
from .text import Streams, Text
from .training import Training, held_out_streams, loss_of, recent, steady_speed, train_step, validate


@dataclasses.dataclass
class Run:
    options: argparse.Namespace
    text: Text
    training: Training
    weft: Any  #: the module, or None for plain PyTorch
    interrupt: Interrupt
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        folder: Path = self.options.out
        return folder / "char_lm.pt"

    def without_weft(self) -> Any:
        return self.weft.disabled() if self.weft else contextlib.nullcontext()

    def say(self, line: str) -> None:
        print(line, flush=True)


def until_done(run: Run, steps: int | None, seconds: float | None, training: Training) -> Iterator[None]:
    start = time.perf_counter()
    while not run.interrupt.signal:
        if steps is not None and training.step >= steps:
            return
        if seconds is not None and time.perf_counter() - start >= seconds:
            return
        yield


def train(run: Run) -> None:
    """Trains with the chosen backend until steps, seconds or a signal end it, and leaves a checkpoint."""
    options, training = run.options, run.training
    config = training.config
    loss_fn = loss_of if options.backend == "eager" else torch.compile(loss_of, backend=options.backend, fullgraph=True)
    data = Streams(run.text.train, config.batch, config.length)
    held_out = held_out_streams(run.text, config)
    first, saved = training.step, time.perf_counter()
    weft_seconds = run.weft.stats()["compile_seconds"] if run.weft else 0.0
    with Progress(options.backend, options.steps, options.seconds) as progress:
        for _ in until_done(run, options.steps, options.seconds, training):
            train_step(training, loss_fn, data)
            if run.weft and training.step == first + 1:
                run.summary["weft_compile_seconds"] = run.weft.stats()["compile_seconds"] - weft_seconds
            if training.step % options.validate_every == 0:
                validate(training, held_out)
            note = f"loss {recent(training.losses, 20):.3f}  {recent(training.speeds, 20) / 1e3:.1f}k characters/s"
            if training.validations:
                note += f"  validation {training.validations[-1][1]:.3f}"
            progress.update(training.step, note)
            if time.perf_counter() - saved > 15.0:  # for the kill that can't be caught
                save(training, run.text.characters, run.checkpoint)
                saved = time.perf_counter()
    if not training.validations or training.validations[-1][0] != training.step:
        validate(training, held_out)
    save(training, run.text.characters, run.checkpoint)
    run.summary |= {
        "backend": options.backend,
        "steps": training.step - first,
        "step": training.step,
        "loss": recent(training.losses),
        "validation_loss": training.validations[-1][1],
        "characters_per_second": steady_speed(training, first),
    }


def compare_with_eager(run: Run, start: Training) -> Training:
    """The same steps from the same state in PyTorch without weft, as many as take `--compare-seconds`."""
    first = start.step
    data = Streams(run.text.train, start.config.batch, start.config.length)
    with run.without_weft(), Progress("eager", run.training.step, run.options.compare_seconds) as progress:
        for _ in until_done(run, run.training.step, run.options.compare_seconds, start):
            train_step(start, loss_of, data)
            note = f"loss {recent(start.losses, 20):.3f}  {recent(start.speeds, 20) / 1e3:.1f}k characters/s"
            progress.update(start.step, note)
    if start.step > first:
        pairs = zip(run.training.losses[first:], start.losses[first:], strict=False)
        speed = steady_speed(start, first)
        run.summary |= {
            "eager_steps": start.step - first,
            "eager_characters_per_second": speed,
            "ratio": run.summary["characters_per_second"] / speed,
            "largest_loss_difference": max(abs(a - b) for a, b in pairs),
        }
    return start


def compile_counts() -> dict[str, Any]:
    """Dynamo's own counts in this process: graphs, and seconds from the first byte code to the compiled function."""
    from torch._dynamo import utils

    return {
        "graphs": utils.counters["stats"]["unique_graphs"],
        "graph_breaks": sum(utils.counters["graph_break"].values()),
        "compile_seconds": utils.calculate_time_spent().get("total_wall_time", 0.0),
    }
