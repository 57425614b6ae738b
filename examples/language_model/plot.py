"""The plot at the end: loss and speed over steps, with the result as its title."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from .checkpoint import write_atomically
from .run import Run
from .training import Training

#: Curves are medians of this many parts of a run: one step is noise, of the data and of the machine.
PARTS = 50


def medians(values: list[float], first: int, width: int) -> tuple[list[float], list[float]]:
    """Medians of `width` values each, from step first + 1 on, with the middle step of each."""
    parts = [values[begin : begin + width] for begin in range(first, len(values), width)]
    middles = [first + number * width + (len(part) + 1) / 2 for number, part in enumerate(parts)]
    return middles, [statistics.median(part) for part in parts]


def title(summary: dict[str, Any], cell: str) -> str:
    """The result in one sentence."""
    bits = summary["validation_loss"] / math.log(2)
    result = f"{cell.upper()}: {bits:.2f} bits a character after {summary['step']} steps"
    if "ratio" in summary:
        result += f", {summary['ratio']:.1f} times as fast on {summary['backend']} as in eager PyTorch"
    return result


def draw_run(axes: Any, values: list[float], first: int, width: int, name: str) -> None:
    """Every step as a faint line, medians as a strong one; eager's dashed, as the losses of both are the same."""
    color, style = ("tab:orange", "--") if name == "eager" else ("tab:blue", "-")
    axes.plot(range(first + 1, len(values) + 1), values[first:], color=color, alpha=0.18, linewidth=0.7)
    axes.plot(*medians(values, first, width), color=color, linestyle=style, linewidth=1.8, label=name)


def plot(run: Run, eager: Training | None, first: int) -> Path:
    """Writes char_lm.png: two panels, loss and speed over the steps from `first` on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    training, name = run.training, run.options.backend
    path: Path = run.options.out / "char_lm.png"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    width = max(1, (training.step - first) // PARTS)
    for axes, kind, scale in ((left, "losses", 1.0), (right, "speeds", 1e-3)):
        for trained, label in ((training, name), (eager, "eager")):
            if trained and trained.step > first:
                values = [scale * value for value in getattr(trained, kind)]
                draw_run(axes, values, first, width, label)
    if training.validations:
        left.plot(
            *zip(*training.validations, strict=True), color="tab:red", marker="o", markersize=3, label="validation"
        )
    if eager and first < eager.step < training.step:
        for axes in (left, right):
            axes.axvline(eager.step, color="tab:orange", linestyle=":", linewidth=1)
        right.annotate(
            f" eager stopped after {eager.step - first} steps\n (--compare-seconds)",
            (eager.step, recent_speed(eager, first, width)), va="center", color="tab:orange", fontsize=8,
        )  # fmt: skip
    left.set(xlabel="step", ylabel="nats per character", title="Loss")
    right.set(xlabel="step", ylabel="thousand characters per second", title="Speed", ylim=(0, None))
    for axes in (left, right):
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(title(run.summary, training.config.cell))
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    pyplot.close(figure)
    return path


def recent_speed(training: Training, first: int, width: int) -> float:
    """The last median speed, in thousands."""
    return medians(training.speeds, first, width)[1][-1] / 1e3
