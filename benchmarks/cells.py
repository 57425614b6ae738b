"""Cells through weft.scan and what a user has today, side by side: the cells of examples/cells, one run.

Peers: a loop in Python over PyTorch's operations, the same with its step compiled by torch.compile, the whole loop
compiled by torch.compile (which unrolls it), and jax.lax.scan. Every result is checked against the loop's before it is
timed; repetitions are interleaved. Next to a cell whose loop is made of matrix products stands the built-in nn.GRU or
nn.LSTM on Weft, its time scaled by the ratio of multiply-adds (multiply_adds in cell_cases.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from cases import Case, Data
from cell_cases import SIZES, CellCase, cotangents_of, example_of, multiply_adds, torch_call
from harness import ROOT, comma_list, default_threads, interleaved, new_report, refuse_unknown, skipped, use_cores
from measure import distance_of_norms, summary
from pages import replaced
from peers import Prepared, Result, SkipCase
from peers.cells import Compiled, JaxScan, Loop, Weft, as_loop, in_python
from peers.pytorch import Weft as BuiltIn
from reports.cell_report import markdown, print_report

MODES = ("forward", "training")
PEERS = ("weft", "loop", "compiled_step", "compiled_loop", "jax")
# For float32 sums in another order, relative to the norms of tensors. Not entry by entry: where an activation has a
# kink (relu, the g of minGRU) an entry that rounding puts on its other side has another derivative.
TOLERANCE = 1e-3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=comma_list, default=list(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--modes", type=comma_list, default=list(MODES), help=f"of {', '.join(MODES)}")
    parser.add_argument("--peers", type=comma_list, default=list(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repetitions")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each peer in a round")
    parser.add_argument("--cpu", action="store_true", help="one thread, and its processor time in place of the wall's")
    parser.add_argument("--budget", type=float, default=60, help="seconds that torch.compile is given for a cell")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--table", type=Path, help="a Markdown file to write the table into, between its markers")
    options = parser.parse_args()
    if options.cpu:
        options.threads = 1
        os.environ["BENCH_CPU_CLOCK"] = "1"
    refuse_unknown(parser, options, {"cells": SIZES, "modes": MODES, "peers": PEERS})
    return options


def make_peers(options: argparse.Namespace) -> list[Any]:
    makers = {
        "weft": Weft,
        "loop": Loop,
        "compiled_step": lambda: Compiled("step", options.budget),
        "compiled_loop": lambda: Compiled("loop", options.budget),
        "jax": JaxScan,
    }
    return [makers[name]() for name in options.peers]


def reference(case: CellCase, cotangents: list[Any]) -> Result:
    """The loop's result. For a case that is too long for the loop, Weft's result, after Weft's result of a shorter case
    was compared with the loop's."""

    def of_loop(case: CellCase, cotangents: list[Any]) -> Result:
        return as_loop(torch_call(case, example_of(case), cotangents)).result()

    short = case.shortened()
    if short == case:
        return of_loop(case, cotangents)
    with in_python():
        fewer = cotangents_of(example_of(short))
    difference = distance_of_norms(of_loop(short, fewer), Weft().prepare(short, fewer).result())
    if difference > TOLERANCE:
        raise SkipCase(f"WRONG: differs from the loop by {difference:.2g}")
    return Weft().prepare(case, cotangents).result()


Checked = tuple[Prepared | None, dict[str, Any]]


def prepare(peer: Any, case: CellCase, cotangents: list[Any], expected: Result) -> Checked:
    """The peer, ready to be timed, and what is known so far; None and the reason if that isn't possible."""
    start = time.perf_counter()
    prepared, entry = None, {}
    try:
        prepared = peer.prepare(case, cotangents)
        if not (case.random and peer.name.startswith("compiled")):  # eval mode would compile anew
            found = prepared.result()
            entry["difference"] = distance_of_norms(expected, found)
        else:
            prepared.run()
    except Exception as error:
        return None, skipped(error)
    entry["cold_s"] = getattr(prepared, "compile_seconds", time.perf_counter() - start)
    if entry.get("difference", 0) > TOLERANCE:
        prepared.close()
        return None, {**entry, "skipped": f"WRONG: differs from the loop by {entry['difference']:.2g}"}
    return prepared, entry | ({"note": prepared.note} if prepared.note else {})


def built_in(case: CellCase) -> tuple[Prepared, dict[str, Any]] | None:
    """nn.GRU or nn.LSTM on Weft at the cell's batch, steps and width, and the share of its multiply-adds."""
    like = multiply_adds(case)
    if like is None:
        return None
    cell, share = like
    layer = Case(cell, case.mode, case.size.batch, case.size.steps, case.size.width, case.size.width)
    return BuiltIn().prepare(layer, Data(layer)), {"cell": cell, "multiply_adds": share}


def run_case(case: CellCase, peers: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    short = case.shortened()
    if short != case:
        cotangents = [torch.randn(case.size.steps, case.size.batch, generator=torch.Generator().manual_seed(1))]
    else:
        with in_python():
            cotangents = cotangents_of(example_of(case))
    try:
        expected = reference(case, cotangents)
    except SkipCase as reason:
        return {"weft": skipped(reason)}
    entries: dict[str, Any] = {}
    ready: dict[str, Prepared] = {}
    for peer in peers:
        if peer.name == "loop" and short != case:
            with in_python():
                fewer = cotangents_of(example_of(short))
            ready[peer.name] = peer.prepare(short, fewer)
            entries[peer.name] = {"scaled_from_steps": short.size.steps}
            continue
        prepared, entries[peer.name] = prepare(peer, case, cotangents, expected)
        if prepared is not None:
            ready[peer.name] = prepared
    like = built_in(case)
    if like is not None:
        ready["built_in"], entries["built_in"] = like
    samples = interleaved(ready, options.rounds, options.seconds)
    for name, prepared in ready.items():
        factor = case.size.steps / entries[name].get("scaled_from_steps", case.size.steps)
        entries[name] |= summary([factor * sample for sample in samples[name]])
        prepared.close()
    gc.collect()
    return entries


def first_calls(cells: list[str]) -> dict[str, Any]:
    """What the first call of each cell costs beyond later ones, each measured in a process of its own."""
    found = {}
    for cell in cells:
        command = [sys.executable, str(ROOT / "benchmarks" / "cell_first_call.py"), cell]
        done = subprocess.run(command, capture_output=True, text=True)
        failed = {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
        found[cell] = json.loads(done.stdout) if done.returncode == 0 else failed
    return found


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    use_cores(options.threads)
    report = new_report({"threads": options.threads, "cpu_clock": options.cpu}) | {"budget_s": options.budget}
    peers = make_peers(options)
    cases = [CellCase(name, mode, SIZES[name]) for name in options.cells for mode in options.modes]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cells", total=len(cases))
        for case in cases:
            progress.update(task, description=str(case))
            entry = {"cell": case.name, "mode": case.mode, "shape": case.shape, "peers": run_case(case, peers, options)}
            report["cases"].append(entry)
            if options.json:  # as far as it is: a run takes the better part of an hour
                options.json.write_text(json.dumps(report, indent=1) + "\n")
            progress.advance(task)
    if "weft" in options.peers:
        report["first_calls"] = first_calls(options.cells)
    print_report(report, console)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.table:
        options.table.write_text(replaced(options.table.read_text(), markdown(report), "`make bench-cells`"))
    return 1 if any("WRONG" in str(entry["peers"].get("weft")) for entry in report["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
