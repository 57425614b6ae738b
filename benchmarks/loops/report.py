"""What becomes of the corpus under torch.compile(backend="weft"): which loops are scans, why others aren't, whether
numbers and gradients are eager mode's, what the first call costs and how fast it is then.

Usage: report.py [--only PART] [--steps T,T,...] [--rounds N] [--json FILE]

    --only     loops whose names have this in them
    --steps    lengths, 8,50,200 by default; each is tried anew, then two further lengths, one and three steps longer
    --rounds   timed calls of each kind, 9 by default; 0 times none
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

import weft
from loops.corpus import INPUT, LOOPS
from measure import median_ms
from weft import backend

BATCH = 16


@dataclasses.dataclass
class Result:
    loop: str
    steps: int
    rolled: int = 0  #: scans
    left: str = ""  #: why something is left
    error: str = ""  #: what differs from eager mode; empty if nothing does
    first: float = 0.0  #: seconds of the first forward and backward
    weft: float = 0.0  #: of these, without Dynamo's
    other_lengths: float = 0.0  #: seconds of the first calls of two further lengths, together
    times: dict[str, float] = dataclasses.field(default_factory=dict)  #: ms

    @property
    def is_rolled(self) -> bool:
        return self.rolled > 0 and not self.left


def compare(eager: nn.Module, compiled: nn.Module, x: Tensor) -> str:
    """The differences between both modules' results and gradients, as a text; "" if there are none. Computes in
    float32, since float64 would cost another compilation; the tolerance has room for rounding errors that grow with the
    steps."""
    found = []
    for model in (eager, compiled):
        torch.manual_seed(1)
        model.zero_grad()
        given = x.clone().requires_grad_()
        result = model(given)
        (result * torch.linspace(0.5, 1.5, result.numel()).view(result.shape)).mean().backward()
        parts = {"result": result.detach(), "x": given.grad}
        parts |= {name: p.grad for name, p in model.named_parameters()}
        parts |= dict(model.named_buffers())
        found.append({name.replace("_orig_mod.", ""): value for name, value in parts.items()})
    wrong = []
    for name, value in found[0].items():
        other = found[1][name]
        if (value is None) != (other is None):
            wrong.append(f"{name}: a gradient is missing")
        elif value is not None and (off := float((value - other).abs().max() / (value.abs().max() + 1e-6))) > 2e-3:
            wrong.append(f"{name} is off by {off:.1e}")
    return "; ".join(wrong)


def examine(name: str, steps: int, rounds: int) -> Result:
    torch.manual_seed(0)
    torch._dynamo.reset()
    eager = LOOPS[name]()
    compiled = torch.compile(copy.deepcopy(eager), backend="weft")
    result, before = Result(name, steps), backend.stats.seconds
    weft.reset_stats()
    try:
        x = torch.randn(BATCH, steps, INPUT)
        start = time.perf_counter()
        compiled(x).sum().backward()
        result.first = time.perf_counter() - start
        result.weft = backend.stats.seconds - before
        compiled.load_state_dict({f"_orig_mod.{key}": value for key, value in eager.state_dict().items()})
        result.error = compare(eager, compiled, x)
        if rounds:
            result.times = measure(eager, compiled, x, rounds)
        for more in (1, 3):
            other = torch.randn(BATCH, steps + more, INPUT)
            start = time.perf_counter()
            wrong = compare(eager, compiled, other)
            result.other_lengths += time.perf_counter() - start
            if wrong:
                result.error += f" (T {steps + more}: {wrong})"
    except Exception as error:
        result.error = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    counts = weft.stats()["backend"]
    result.rolled = counts["rolled"]
    result.left = "; ".join(f"{place}: {why}" for place, reasons in counts["not_rolled"].items() for why in reasons)
    return result


def measure(eager: nn.Module, compiled: nn.Module, x: Tensor, rounds: int) -> dict[str, float]:
    def forward(model: nn.Module) -> None:
        with torch.no_grad():
            model(x)

    def training(model: nn.Module) -> None:
        model(x).sum().backward()

    return {
        f"{kind.__name__}, {which}": median_ms(lambda kind=kind, model=model: kind(model), rounds, warm_up=1)
        for kind in (forward, training)
        for which, model in (("eager", eager), ("weft", compiled))
    }


def row(result: Result) -> str:
    state = "rolled" if result.is_rolled else result.left or "no loop found"
    right = "yes" if not result.error else result.error
    cells = [result.loop, str(result.steps), state, right, f"{result.first:.1f}", f"{result.weft:.1f}"]
    cells.append(f"{result.other_lengths:.1f}")
    for kind in ("forward", "training"):
        ms = [result.times.get(f"{kind}, {which}", 0.0) for which in ("eager", "weft")]
        cells.append(f"{ms[0]:.1f} / {ms[1]:.2f} = {ms[0] / ms[1]:.1f}" if ms[1] else "")
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "| loop | T | state | right | first call s | of it Weft's s | two more lengths s | forward ms, eager / weft | "
    "training ms, eager / weft |\n|" + " --- |" * 9
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", default="8,50,200")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    given = parser.parse_args()
    warnings.simplefilter("ignore", weft.FallbackWarning)
    print(HEADER)
    results = []
    for name in LOOPS:
        if given.only not in name:
            continue
        for steps in map(int, given.steps.split(",")):
            results.append(examine(name, steps, given.rounds))
            print(row(results[-1]), flush=True)
    good = {r.loop for r in results} - {r.loop for r in results if not r.is_rolled or r.error}
    print(f"\n{len(good)} of {len({r.loop for r in results})} loops are scans at every length and right")
    if given.json:
        Path(given.json).write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1))


if __name__ == "__main__":
    main()
