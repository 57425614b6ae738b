"""The report at the end."""

from __future__ import annotations

import math

from .checkpoint import check_plain_load
from .run import Run


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
