"""What the training examples say at their end: how well they learned, and how many steps a second they train.

Where Weft is at work (`weft run examples/tagger.py`), the same steps are timed without it too.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

TURNS, SECONDS = 3, 0.3


def report(accuracy: float, of_what: str, train_step: Callable[[], object]) -> None:
    """Prints two lines. `train_step` takes a step of the training, which goes on for a second or two."""
    print(f"accuracy {accuracy:.1%} of {of_what}")
    weft: Any = sys.modules.get("weft")
    if weft is None:
        print(f"{speed(train_step):.1f} steps a second without Weft; `weft run {sys.argv[0]}` times both")
        return
    ours, plain = [], []
    for _ in range(TURNS):  # in turns, so that what else the machine does disturbs both alike
        ours.append(speed(train_step))
        with weft.disabled():
            plain.append(speed(train_step))
    with_weft, without = statistics.median(ours), statistics.median(plain)
    print(f"{with_weft:.1f} steps a second with Weft, {without:.1f} without: {with_weft / without:.2f} times as fast")


def speed(train_step: Callable[[], object]) -> float:
    """Steps a second, after one that isn't timed."""
    train_step()
    start, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - start < SECONDS:
        train_step()
        steps += 1
    return steps / (time.perf_counter() - start)


@contextlib.contextmanager
def evaluation(model: Any) -> Iterator[None]:
    """Without gradients and dropout, and back to training behind it."""
    import torch

    model.eval()
    with torch.no_grad():
        yield
    model.train()
