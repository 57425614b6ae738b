"""What is said and drawn at the end."""

from __future__ import annotations

import math
from pathlib import Path

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
    """Two panels, loss and speed over steps, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    training = run.training
    path: Path = run.options.out / "char_lm.png"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    steps = range(1, training.step + 1)
    name = run.options.backend
    left.plot(steps, training.losses, color="tab:blue", alpha=0.8, linewidth=0.9, label=f"training, {name}")
    if eager and eager.step > first:
        span = range(first + 1, eager.step + 1)
        left.plot(
            span, eager.losses[first:], color="tab:orange", linestyle="--", linewidth=0.9, label="training, eager"
        )
        right.plot(span, [v / 1e3 for v in eager.speeds[first:]], color="tab:orange", linewidth=0.9, label="eager")
    if training.validations:
        left.plot(
            *zip(*training.validations, strict=True), color="tab:red", marker="o", markersize=3, label="validation"
        )
    right.plot(steps, [v / 1e3 for v in training.speeds], color="tab:blue", linewidth=0.9, label=name)
    left.set(xlabel="step", ylabel="loss (nats per character)", title="Loss")
    right.set(xlabel="step", ylabel="thousand characters per second", title="Training speed", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    pyplot.close(figure)
    return path
