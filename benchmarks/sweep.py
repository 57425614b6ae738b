"""Random shapes, Weft beside eager PyTorch: is any of them slower?

Draws recurrent modules and single cells: T from 1 to 4096, B from 1 to 512, H from 32 to 2048, one or more threads,
forward and training, float32 and bfloat16, up to two layers, one or both directions. Weft and eager take turns on the
same module and input, and the ratio of a case is the median over the turns; a case that is three times as fast in its
first turn gets no others. A case that seems slower is measured again, longer, before it is said to be. Results are
checked: against float64, Weft's error may be no more than twice eager's, or rounding's.

Usage: sweep.py [--cases N] [--seed N] [--threads 1,2] [--json FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from harness import comma_list, default_threads, new_report, use_cores
from peers.pytorch import without_weft
from report import geometric_mean, markdown_table, number

KINDS = ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell")
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# What counts as slower: the ratio of eager's time to Weft's below this, in both looks.
BEYOND_NOISE = 0.95
# A ratio so far from 1 after a first turn that more turns would not change what is said of it. (Eager's bfloat16 takes
# seconds a call on processors without instructions for it.)
CLEARLY_FASTER = 3
# Of rounding, by dtype, relative to the largest entry: sums in another order over as many rows as there are.
ROUNDING = {"f32": 5e-4, "bf16": 5e-2}
# Multiply-adds of a case at most, so that a turn of eager's takes less than about a second on one core.
MOST_FLOPS = 2.5e10


@dataclass(frozen=True)
class Case:
    """A module, its input [steps, batch, inputs] (a cell's: [batch, inputs]) and how it is called."""

    kind: str
    mode: str
    dtype: str
    threads: int
    batch: int
    steps: int
    inputs: int
    hidden: int
    layers: int = 1
    directions: int = 1

    @property
    def flops(self) -> float:
        weights = self.hidden * (self.inputs + self.hidden)
        weights += (self.layers - 1) * self.hidden * (self.directions + 1) * self.hidden
        gates = GATES[self.kind.removesuffix("Cell")]
        forward = 2.0 * self.steps * self.batch * self.directions * gates * weights
        return forward if self.mode == "forward" else 3 * forward

    def __str__(self) -> str:
        more = (f" {self.layers} layers" if self.layers > 1 else "") + (" both ways" if self.directions > 1 else "")
        inputs = f" I{self.inputs}" if self.inputs != self.hidden else ""
        return f"{self.kind} B{self.batch} T{self.steps}{inputs} H{self.hidden}{more}"


def draw(generator: random.Random, threads: list[int]) -> Case:
    """A case whose sizes are spread evenly over the powers of two, and are mostly none."""

    def size(low: int, high: int) -> int:
        power = generator.uniform(low, high) if generator.random() < 0.6 else generator.randint(low, high)
        return round(2**power)

    kind = generator.choices(KINDS, (6, 6, 2, 2, 2, 1))[0]
    cell = kind.endswith("Cell")
    hidden = size(5, 11)
    return Case(
        kind=kind,
        mode=generator.choice(("forward", "training")),
        dtype=generator.choice(("f32", "f32", "bf16")),
        threads=generator.choice(threads),
        batch=size(0, 9),
        steps=1 if cell else size(0, 12),
        inputs=hidden if generator.random() < 0.5 else size(0, 10),
        hidden=hidden,
        layers=1 if cell else generator.choice((1, 1, 1, 2)),
        directions=1 if cell else generator.choice((1, 1, 1, 2)),
    )


def drawn(count: int, seed: int, threads: list[int]) -> list[Case]:
    generator = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        case = draw(generator, threads)
        if case.flops <= MOST_FLOPS:
            cases.append(case)
    return cases


def leaves(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [leaf for part in found for leaf in leaves(part)]


class Subject:
    """A case's module, input and cotangents."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        options: dict[str, Any] = {"dtype": DTYPES[case.dtype]}
        shape = [case.batch, case.inputs]
        if not case.kind.endswith("Cell"):
            options |= {"num_layers": case.layers, "bidirectional": case.directions > 1}
            shape = [case.steps, *shape]
        self.case = case
        self.module: nn.Module = getattr(nn, case.kind)(case.inputs, case.hidden, **options)
        self.x = torch.randn(shape).to(DTYPES[case.dtype]).requires_grad_(case.mode == "training")
        self.cotangents = [torch.randn_like(leaf) for leaf in leaves(self.module(self.x))]

    def run(self) -> list[Tensor]:
        """The results of a forward, or the gradients of the input and of all parameters."""
        if self.case.mode == "forward":
            with torch.inference_mode():
                return leaves(self.module(self.x))
        results = leaves(self.module(self.x))
        return list(torch.autograd.grad(results, [self.x, *self.module.parameters()], self.cotangents))

    def exact(self) -> list[Tensor]:
        """The same in float64, by PyTorch."""
        other = Subject.__new__(Subject)
        other.case = self.case
        other.module = getattr(nn, self.case.kind)(**self._options()).double()
        other.module.load_state_dict(self.module.state_dict())
        other.x = self.x.detach().double().requires_grad_(self.case.mode == "training")
        other.cotangents = [cotangent.double() for cotangent in self.cotangents]
        return other.run()

    def _options(self) -> dict[str, Any]:
        case = self.case
        options: dict[str, Any] = {"input_size": case.inputs, "hidden_size": case.hidden}
        return (
            options
            if case.kind.endswith("Cell")
            else options | {"num_layers": case.layers, "bidirectional": case.directions > 1}
        )


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference of any result, relative to the largest magnitude in it."""
    worst = 0.0
    for ours, reference in zip(found, exact, strict=True):
        if not ours.isfinite().all():
            return float("inf")
        scale = reference.abs().max().item() or 1.0
        worst = max(worst, (ours.double() - reference).abs().max().item() / scale)
    return worst


def turns(run: Callable[[], object], seconds: float) -> float:
    """Seconds of a call: the mean of as many as fit."""
    run()
    start = time.perf_counter()
    calls = 0
    while True:
        run()
        calls += 1
        took = time.perf_counter() - start
        if took > seconds:
            return took / calls


def ratios(subject: Subject, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Eager's time by Weft's, and the two times; medians over rounds in which they take turns, or the first round's if
    that is clear."""
    ours, eager = [], []
    for _ in range(rounds):
        ours.append(turns(subject.run, seconds))
        with without_weft():
            eager.append(turns(subject.run, seconds))
        if eager[0] > CLEARLY_FASTER * ours[0]:
            break
    return median(e / o for e, o in zip(eager, ours, strict=True)), median(ours), median(eager)


def measure(case: Case, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(case.threads)
    with without_weft():
        subject = Subject(case)
        exact = subject.exact()
        eager_error = error(subject.run(), exact)
    our_error = error(subject.run(), exact)
    entry: dict[str, Any] = {**asdict(case), "name": str(case), "error": our_error, "eager_error": eager_error}
    entry["right"] = our_error <= max(2 * eager_error, ROUNDING[case.dtype])
    ratio, ours, eager = ratios(subject, 5, seconds)
    if ratio < BEYOND_NOISE:
        again, ours, eager = ratios(subject, 15, seconds)
        entry["first_look"], ratio = ratio, max(again, ratio)
    return entry | {"ratio": ratio, "weft_ms": 1e3 * ours, "eager_ms": 1e3 * eager}


def row(entry: dict[str, Any]) -> list[str]:
    return [
        entry["name"],
        entry["mode"],
        entry["dtype"],
        str(entry["threads"]),
        number(entry["weft_ms"]),
        number(entry["eager_ms"]),
        f"{entry['ratio']:.2f}x" + ("" if entry["right"] else " WRONG"),
    ]


HEADER = ["case", "mode", "dtype", "threads", "Weft, ms", "eager, ms", "eager / Weft"]


def summary(entries: list[dict[str, Any]]) -> list[str]:
    slower = [entry for entry in entries if entry["ratio"] < BEYOND_NOISE]
    lines = [
        f"{len(entries)} cases, {len(slower)} slower than eager beyond noise (below {BEYOND_NOISE}x in two looks), "
        f"{sum(not entry['right'] for entry in entries)} wrong"
    ]
    for mode in ("forward", "training"):
        for dtype in DTYPES:
            found = [entry["ratio"] for entry in entries if (entry["mode"], entry["dtype"]) == (mode, dtype)]
            if found:
                lines.append(f"{mode}, {dtype}: {geometric_mean(found):.2f}x eager (geometric mean of {len(found)})")
    return lines


def markdown(report: dict[str, Any]) -> str:
    machine, entries = report["machine"], sorted(report["cases"], key=lambda entry: entry["ratio"])
    return "\n".join(
        [
            "# Random shapes beside eager PyTorch",
            "",
            f"Written by `make sweep` on {report['date']}: {machine['cpu']}, {machine['cores']} cores, PyTorch "
            f"{report['versions']['torch']}, commit {report['commit']}, seed {machine['seed']}. Weft and eager take "
            "turns on the same module and input, results checked against float64; the ratio is the median over the "
            "turns (of the first alone where it is clear). The worst come first.",
            "",
            *(f"- {line}" for line in summary(entries)),
            "",
            *markdown_table(HEADER, [row(entry) for entry in entries], left=3),
            "",
        ]
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=comma_list, help="numbers of threads to draw from (default: 1,2)")
    parser.add_argument("--only", default="", help="cases whose row has this text")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    threads = sorted({min(int(count), default_threads()) for count in options.threads or ("1", "2")})
    use_cores(max(threads))
    torch.set_flush_denormal(False)  # as users have it
    import weft  # noqa: F401

    console = Console(width=None if sys.stdout.isatty() else 150)
    report = new_report({"cores": max(threads), "seed": options.seed})
    cases = drawn(options.cases, options.seed, threads)
    chosen = [case for case in cases if options.only in f"{case} {case.mode} {case.dtype} {case.threads}"]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cases", total=len(chosen))
        for case in chosen:
            progress.update(task, description=f"{case} {case.mode} {case.dtype}")
            report["cases"].append(measure(case, options.seconds))
            progress.advance(task)
    worst = sorted(report["cases"], key=lambda entry: entry["ratio"])
    console.print("\n".join(markdown_table(HEADER, [row(entry) for entry in worst[:20]], left=3)), markup=False)
    console.print("\n".join(summary(worst)), markup=False)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(report))
    return 0 if all(entry["right"] for entry in worst) else 1


if __name__ == "__main__":
    sys.exit(main())
