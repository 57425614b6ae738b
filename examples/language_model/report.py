"""What is said and drawn at the end."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from .checkpoint import check_plain_load, write_atomically
from .run import Run
from .training import Training


def report(run: Run) -> None:
    s, say = run.summary, run.say
    bits = s["validation_loss"] / math.log(2)
    say(f"\n{s['backend']}: {s['steps']} steps, {s['characters_per_second'] / 1e3:.1f}k characters/s")
    say(f"loss at step {s['step']}: {s['loss']:.4f} nats, validation {s['validation_loss']:.4f} ({bits:.2f} bits)")
    if "graphs" in s:
        graphs = f"{s['graphs']} graph{'s' if s['graphs'] != 1 else ''}"
        own = f"; weft's programs for it took {s['weft_compile_seconds'] * 1e3:.0f} ms"
        say(f"compiled: {graphs}, {s['graph_breaks']} breaks, {s['compile_seconds']:.2f} s in all{own}")
    if "ratio" in s:
        eager = s["eager_characters_per_second"] / 1e3
        say(f"eager PyTorch, {s['eager_steps']} of these steps: {eager:.1f}k characters/s")
        say(f"ratio: {s['backend']} is {s['ratio']:.2f} times as fast as eager")
        say(f"largest difference of the losses: {s['largest_loss_difference']:.1e}")
    say(f"\ncheckpoint {run.checkpoint}: {check_plain_load(run.checkpoint, run.training.config, run.without_weft)}")


def plot(run: Run, eager: Training | None, first: int) -> Path:
    """Loss and speed over steps, under the result, as PNG. Thin lines are single steps, thick ones medians of them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    training = run.training
    path: Path = run.options.out / "char_lm.png"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    figure.suptitle(result(run), fontsize=13)
    name = run.options.backend
    with_median(left, training.losses, 0, "tab:blue", f"training, {name}")
    with_median(right, [v / 1e3 for v in training.speeds], 0, "tab:blue", name)
    if eager and eager.step > first:
        with_median(left, eager.losses[first:], first, "tab:orange", "training, eager", "--")
        with_median(right, [v / 1e3 for v in eager.speeds[first:]], first, "tab:orange", "eager")
        if eager.step < training.step:
            for axes in (left, right):
                axes.axvline(eager.step, color="tab:orange", linestyle=":", linewidth=1)
            right.annotate(
                f"eager stopped here, after {run.options.compare_seconds:g} s",
                (eager.step, 0.02),
                (4, 0),
                xycoords=right.get_xaxis_transform(),
                textcoords="offset points",
                color="tab:orange",
                fontsize=9,
            )
    if training.validations:
        left.plot(
            *zip(*training.validations, strict=True), color="tab:red", marker="o", markersize=3, label="validation"
        )
    left.set(xlabel="step", ylabel="loss (nats per character)")
    right.set(xlabel="step", ylabel="thousand characters per second", ylim=(0, None))
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    pyplot.close(figure)
    return path


def result(run: Run) -> str:
    """What came out, in one line."""
    s = run.summary
    bits = f"{s['validation_loss'] / math.log(2):.2f} bits per character in validation after {s['step']} steps"
    if "ratio" not in s:
        return f"{s['backend']}: {s['characters_per_second'] / 1e3:.0f}k characters per second, {bits}"
    speeds = f"{s['characters_per_second'] / 1e3:.0f}k against {s['eager_characters_per_second'] / 1e3:.0f}k"
    return f"{s['backend']} is {s['ratio']:.1f} times as fast as eager: {speeds} characters per second\n{bits}"


def with_median(axes: Any, values: list[float], first: int, color: str, label: str, style: str = "-") -> None:
    """The values of the steps after `first`, and the median of fifteen around each."""
    steps, around = range(first + 1, first + len(values) + 1), 7
    medians = [statistics.median(values[max(0, i - around) : i + around + 1]) for i in range(len(values))]
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.6)
    axes.plot(steps, medians, color=color, linestyle=style, linewidth=1.6, label=label)
