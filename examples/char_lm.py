"""Trains a character-level language model on text that every Python has: its own documentation (pydoc_data.topics).

    python examples/char_lm.py                      # a GRU for a minute, then the same steps in eager PyTorch
    python examples/char_lm.py --cell lstm --layers 2 --steps 500
    python examples/char_lm.py --resume out/char_lm.pt

Batches are truncated backpropagation through time: the training text is cut into `batch` streams of equal length, a
step reads the next `length` characters of each, and the hidden state is carried (without its gradient) from step to
step. At the end of the streams it starts over from zeros. Which characters a step reads thus follows from its number
alone, so a resumed run sees what an uninterrupted one would have seen. The last tenth of every topic is kept for
validation.

Ctrl-C (or SIGTERM) ends the training after the step in progress and writes the checkpoint; the exit status is 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from typing import Any

import torch
from language_model.checkpoint import resume, write_atomically
from language_model.errors import UserError
from language_model.options import check_out, parse
from language_model.plot import plot
from language_model.progress import Interrupt
from language_model.report import report
from language_model.run import Run, compare_with_eager, compile_counts, train
from language_model.text import Streams, load_text
from language_model.training import Config, Training, copy_of, new_training, sample


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error that the user can put right."""
    try:
        return prepare(parse(arguments))
    except (UserError, OSError) as error:
        print(f"char_lm: error: {error}", file=sys.stderr)
        return 2


def prepare(options: argparse.Namespace) -> int:
    check_out(options.out)
    if options.threads:
        torch.set_num_threads(options.threads)
    text = load_text()
    names = [field.name for field in dataclasses.fields(Config) if hasattr(options, field.name)]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.resume:
        training = resume(options.resume, text.characters, given)
        if options.steps is not None and options.steps <= training.step:
            raise UserError(f"--steps {options.steps}: the checkpoint is at step {training.step} already")
    else:
        training = new_training(Config(**given), len(text.characters))
    weft = import_weft(options.backend)
    Streams(text.train, training.config.batch, training.config.length)  # a batch too large is an error now, not later
    with Interrupt() as interrupt:
        run = Run(options, text, training, weft, interrupt)
        return carry_out(run)


def import_weft(backend: str) -> Any:
    if backend == "eager":
        return None
    try:
        import weft
    except ImportError as error:
        raise UserError(f"weft can't be imported ({error}): build it with `make`, or use --backend eager") from None
    return weft


def carry_out(run: Run) -> int:
    training, options = run.training, run.options
    first = training.step
    config = ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(training.config).items())
    run.say(
        f"{config}; {sum(p.numel() for p in training.model.parameters())} parameters, {torch.get_num_threads()} threads"
    )
    run.say(f"{len(run.text.train)} characters to train on, {len(run.text.validation)} to validate on")
    start = copy_of(training)
    before = None if options.backend == "eager" else compile_counts()
    train(run)
    if before:
        run.summary |= {name: value - before[name] for name, value in compile_counts().items()}
    eager = None
    if run.interrupt.signal:
        run.say(f"\nended by {signal.Signals(run.interrupt.signal).name}; go on with --resume {run.checkpoint}")
    elif options.backend != "eager" and options.compare_seconds > 0:
        eager = compare_with_eager(run, start)
    finish(run, eager, first)
    return 0


def finish(run: Run, eager: Training | None, first: int) -> None:
    report(run)
    if run.options.sample:
        text = sample(run.training.model, run.text.characters, run.options.sample)
        run.say("\n--- a sample ---\n" + text + "\n---")
    try:
        path = plot(run, eager, first)
        run.say(f"plot: {path}")
    except ImportError:
        run.say("no plot: matplotlib is not installed")
    summary = json.dumps(run.summary, indent=2) + "\n"
    write_atomically(run.options.out / "char_lm.json", lambda file: file.write_text(summary))


if __name__ == "__main__":
    sys.exit(main())
