"""The command line."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import UserError
from .training import CELLS, Config

BACKENDS = ("weft", "eager", "inductor")


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(message)


def positive(kind: type, zero: bool = False) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value > 0 or (zero and value == 0)) or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive {'whole ' if kind is int else ''}number")
        return value

    return convert


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description="Trains a character-level language model on Python's documentation.")
    number: dict[str, Any] = {"type": positive(int), "metavar": "N"}
    defaults = Config()
    parser.add_argument("--cell", choices=sorted(CELLS), help=f"the recurrence ({defaults.cell})")
    parser.add_argument("--layers", **number, help=f"recurrent layers ({defaults.layers})")
    parser.add_argument("--width", **number, help=f"units of a layer ({defaults.width})")
    parser.add_argument("--batch", **number, help=f"streams read at once ({defaults.batch})")
    parser.add_argument("--length", **number, help=f"characters of a step in a stream ({defaults.length})")
    parser.add_argument("--seed", type=positive(int, zero=True), metavar="N", help=f"of the weights ({defaults.seed})")
    parser.add_argument("--backend", choices=BACKENDS, default="weft", help="what compiles the step (weft)")
    parser.add_argument("--steps", **number, help="train up to this step instead of for --seconds")
    parser.add_argument("--seconds", type=positive(float), help="train for so long (60, without --steps)")
    parser.add_argument("--compare-seconds", type=positive(float, zero=True), default=20.0, metavar="S",
                        help="at most so long for the same steps in eager PyTorch; 0 leaves them out (20)")  # fmt: skip
    parser.add_argument("--validate-every", **number, default=100, help="steps from validation to validation (100)")
    parser.add_argument("--sample", type=positive(int, zero=True), default=400, metavar="N", help="characters to write")
    parser.add_argument("--threads", **number, help="of PyTorch and weft")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="checkpoint, plot, summary (out/)")
    parser.add_argument("--resume", type=Path, metavar="PATH", help="go on from this checkpoint")
    options = parser.parse_args(arguments)
    if options.steps is None and options.seconds is None:
        options.seconds = 60.0
    return options


def check_out(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror}") from None
