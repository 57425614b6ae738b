"""Random shapes, Weft beside eager PyTorch: is any of them slower?

Draws recurrent modules and single cells: T from 1 to 4096, B from 1 to 512, H from 32 to 2048, one or more threads,
forward and training, float32 and bfloat16, up to two layers, one or both directions. With --wide, what else these
modules may be called with too: units from one on, packed sequences, projections, float64, float16. Weft and eager take
turns on the same module and input, and the ratio of a case is the median over the turns; a case that is three times as
fast in its first turn gets no others. A case that seems slower is measured again, longer, before it is said to be.
Results are checked: against float64, Weft's error may be no more than twice eager's, or rounding's.

Usage: sweep.py [--wide] [--cases N] [--seed N] [--threads 1,2] [--json FILE] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from harness import comma_list, default_threads, new_report, use_cores
from peers.pytorch import without_weft
from reports.report import geometric_mean, markdown_table, number
from sweep_cases import DTYPES, Case, Subject, drawn, error

# A case is slower if the ratio of eager's time to Weft's is below this, in two measurements and in another one after
# all cases.
BEYOND_NOISE = 0.95
# A first ratio this far from 1 needs no further turns, since these wouldn't change the verdict. (Eager's bfloat16 takes
# seconds a call on processors without instructions for it.)
CLEARLY_FASTER = 3
# Tolerance of rounding by dtype, relative to the largest entry: for sums in another order over that many rows.
ROUNDING = {"f32": 5e-4, "bf16": 5e-2, "f64": 1e-10, "f16": 1e-2}


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
    """The ratio of eager's time to Weft's, and the two times: medians over rounds in which they take turns, or the
    first round's if it is clear."""
    ours, eager = [], []
    for _ in range(rounds):
        ours.append(turns(subject.run, seconds))
        with without_weft():
            eager.append(turns(subject.run, seconds))
        if eager[0] > CLEARLY_FASTER * ours[0]:
            break
    return median(e / o for e, o in zip(eager, ours, strict=True)), median(ours), median(eager)


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Raises RuntimeError where Weft doesn't run the case: that would be eager beside eager."""
    import weft

    torch.set_num_threads(case.threads)
    with without_weft():
        subject = Subject(case)
        exact = subject.exact()
        eager_error = error(subject.run(), exact)
    before = weft.stats()["calls"]
    our_error = error(subject.run(), exact)
    if weft.stats()["calls"] == before:
        raise RuntimeError(f"{case}: no program of Weft ran")
    entry: dict[str, Any] = {**asdict(case), "name": str(case), "error": our_error, "eager_error": eager_error}
    entry["right"] = our_error <= max(2 * eager_error, ROUNDING[case.dtype])
    ratio, ours, eager = ratios(subject, 5, seconds)
    if ratio < BEYOND_NOISE:
        again, ours, eager = ratios(subject, 15, seconds)
        entry["first_look"], ratio = ratio, max(again, ratio)
    return entry | {"ratio": ratio, "weft_ms": 1e3 * ours, "eager_ms": 1e3 * eager}


def look_again(case: Case, entry: dict[str, Any], seconds: float) -> None:
    """Minutes later than the first looks, as other machines' load comes and goes."""
    torch.set_num_threads(case.threads)
    with without_weft():
        subject = Subject(case)
    again, ours, eager = ratios(subject, 15, seconds)
    if again > entry["ratio"]:
        entry |= {"earlier_look": entry["ratio"], "ratio": again, "weft_ms": 1e3 * ours, "eager_ms": 1e3 * eager}


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
        f"{len(entries)} cases, {len(slower)} slower than eager beyond noise (below {BEYOND_NOISE}x in three looks), "
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
    parser.add_argument("--wide", action="store_true", help="packed, stepwise, projected ... too, and fewer units")
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
    cases = drawn(options.cases, options.seed, threads, options.wide)
    chosen = [case for case in cases if options.only in f"{case} {case.mode} {case.dtype} {case.threads}"]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cases", total=len(chosen))
        for case in chosen:
            progress.update(task, description=f"{case} {case.mode} {case.dtype}")
            report["cases"].append(measure(case, options.seconds))
            progress.advance(task)
        for case, entry in zip(chosen, report["cases"], strict=True):
            if entry["ratio"] < BEYOND_NOISE:
                look_again(case, entry, options.seconds)
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
