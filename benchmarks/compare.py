"""Weft and its peers side by side: the same cases, threads and data, one run.

Every result, eager PyTorch's too, is checked against float64 before it is timed; a wrong one is named so in the tables,
and stands in no ratio. Repetitions are interleaved, so that a slow minute of the machine meets all alike. The first
call, which compiles, stands apart from warm ones; memory is what the process grows by at the peak of a warm call. All
but XLA run in this process; XLA reads its flags once a process and so has its own two.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import wide_grid
from cases import CELLS, DTYPES, MODES, QUICK_SHAPES, SHAPES, Case, Data, grid, limit, parse_shape
from check import exact, judged
from harness import ROOT, comma_list, default_threads, interleaved, new_report, refuse_unknown, skipped, use_cores
from measure import resident_bytes, summary
from peers import Peer, Prepared, Result
from peers.inference import OnnxRuntime, OpenVino
from peers.onednn import OneDnn
from peers.pytorch import Eager, Inductor, Weft
from peers.xla import Xla
from reports.regress import changes
from reports.report import failures, print_report, summarise

PEERS = ("weft", "eager", "inductor", "xla", "onnxruntime", "openvino", "onednn")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a minute: GRU, three shapes, no Inductor")
    parser.add_argument(
        "--grid",
        action="store_true",
        help="half an hour, alone: T 1 to 4096, B 1 to 512, H 32 to 2048 (f32, "
        "bf16), streaming, three layers both ways; no XLA, Inductor, memory",
    )
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="every Nth case, from the Kth")
    parser.add_argument("--shapes", type=comma_list, help="such as B16T128H256,B1T64I8H512 (default: the seven)")
    parser.add_argument("--cells", type=comma_list, help=f"of {', '.join(CELLS)} (default: gru,lstm)")
    parser.add_argument("--modes", type=comma_list, default=list(MODES), help=f"of {', '.join(MODES)}")
    parser.add_argument("--dtypes", type=comma_list, help=f"of {', '.join(DTYPES)} (default: float32)")
    parser.add_argument("--peers", type=comma_list, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, help="interleaved repetitions (default: 7, quick and grid: 3)")
    parser.add_argument("--seconds", type=float, help="of each peer in a round (default: 0.3, quick: 0.1, grid: 0.05)")
    parser.add_argument("--inductor-budget", type=float, default=60, help="seconds of compile time to give up after")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--regress", type=Path, metavar="FILE", help="an earlier --json: exit 1 where Weft was faster")
    options = parser.parse_args()
    if options.grid and options.shapes:
        parser.error("--grid has shapes of its own; leave out --shapes")
    set_defaults(options)
    refuse_unknown(parser, options, {"cells": CELLS, "modes": MODES, "peers": PEERS, "dtypes": DTYPES})
    for shape in options.shapes:
        try:
            parse_shape(shape)
        except ValueError as error:
            parser.error(str(error))
    return options


def part(text: str) -> tuple[int, int]:
    """`2/10` as (2, 10)."""
    first, _, parts = text.partition("/")
    if not (first.isdecimal() and parts.isdecimal() and 1 <= int(first) <= int(parts)):
        raise argparse.ArgumentTypeError(f"'{text}' is no part; write the second of ten as 2/10")
    return int(first), int(parts)


def set_defaults(options: argparse.Namespace) -> None:
    """Sets options that weren't given, by the preset."""
    options.shapes = options.shapes or list(QUICK_SHAPES if options.quick else SHAPES)
    options.cells = options.cells or (["gru"] if options.quick else ["gru", "lstm"])
    options.dtypes = options.dtypes or (["float32", "bfloat16"] if options.grid else ["float32"])
    peers = wide_grid.PEERS if options.grid else PEERS
    options.peers = options.peers or [peer for peer in peers if not (options.quick and peer == "inductor")]
    short = (wide_grid.ROUNDS, wide_grid.SECONDS) if options.grid else (3, 0.1)
    rounds, seconds = short if options.quick or options.grid else (7, 0.3)
    options.rounds = options.rounds or rounds
    options.seconds = options.seconds or seconds


def cases_of(options: argparse.Namespace) -> list[Case]:
    if options.grid:
        cases = list(wide_grid.wide_grid(options.cells, options.modes, options.dtypes))
    else:
        cases = list(grid(options.cells, options.modes, options.shapes, options.dtypes))
    first, parts = options.part
    return cases[first - 1 :: parts]


def make_peers(options: argparse.Namespace) -> list[Peer]:
    makers = {
        "weft": Weft,
        "eager": Eager,
        "inductor": lambda: Inductor(options.inductor_budget),
        "xla": lambda: Xla(thorough=not options.quick),
        "onnxruntime": lambda: OnnxRuntime(options.threads),
        "openvino": lambda: OpenVino(options.threads),
        "onednn": lambda: OneDnn(options.threads),
    }
    return [makers[name]() for name in options.peers]


def calibrate(threads: int) -> dict[str, Any] | None:
    """The speeds of this machine's cores, caches and barriers, measured by the program built from calibrate.cpp."""
    program = ROOT / "build" / "benchmarks" / "calibrate"
    if not program.exists():
        return None
    return json.loads(subprocess.run([program, str(threads)], capture_output=True, check=True, text=True).stdout)


def compile_times(cells: list[str]) -> dict[str, Any]:
    """Compile times by cell and number of steps, each measured in a process of its own."""
    found: dict[str, Any] = {}
    for cell in cells:
        for steps in (16, 1024):
            command = [sys.executable, str(ROOT / "benchmarks" / "compile_time.py"), cell, str(steps)]
            done = subprocess.run(command, capture_output=True, text=True)
            found.setdefault(cell, {})[str(steps)] = (
                json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip().splitlines()[-1:]}
            )
    return found


def prepare(
    peer: Peer, case: Case, data: Data, expected: Result, memory: bool
) -> tuple[Prepared | None, dict[str, Any]]:
    """The peer, ready to be timed, and what is known so far; None and the reason if that isn't possible."""
    base = resident_bytes()
    start = time.perf_counter()
    try:
        prepared = peer.prepare(case, data)
        found = prepared.result()
    except Exception as error:
        return None, skipped(error)
    entry: dict[str, Any] = {"cold_ms": 1e3 * (time.perf_counter() - start)}
    entry |= judged(case, peer.name, expected, found)
    entry |= {key: value for key, value in (("variant", prepared.variant), ("note", prepared.note)) if value}
    if memory:
        entry["peak_bytes"] = prepared.peak(base)
    return prepared, entry


def run_case(case: Case, peers: list[Peer], options: argparse.Namespace) -> dict[str, Any]:
    data = Data(case)
    expected = exact(case, data)
    entries: dict[str, Any] = {}
    ready: dict[str, Prepared] = {}
    for peer in peers:
        prepared, entries[peer.name] = prepare(peer, case, data, expected, memory=not options.grid)
        if prepared is not None:
            ready[peer.name] = prepared
    samples = interleaved(ready, options.rounds, options.seconds)
    for name, prepared in ready.items():
        entries[name] |= summary(samples[name])
        prepared.close()
    gc.collect()
    return entries


def described(case: Case) -> dict[str, Any]:
    """What a report says of a case; its name is in cell, shape, mode and dtype."""
    return asdict(case) | {"shape": case.shape, "flops": case.flops}


def compare_with(path: Path, report: dict[str, Any], console: Console) -> bool:
    """Prints what changed since an earlier run; whether anything is slower beyond noise."""
    try:
        found = changes(json.loads(path.read_text()), report)
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"--regress {path}: {error}") from None
    console.print(f"[bold]Since {path}[/bold]")
    for change in found:
        console.print(f"  {change}", style="red" if change.is_slower else None, highlight=False, markup=False)
    return any(change.is_slower for change in found)


def main() -> int:
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    use_cores(options.threads)
    machine = calibrate(options.threads)
    if machine is None:
        console.print("The limit is not calibrated: `make build` makes the program that measures it.", style="yellow")
    report = new_report({"threads": options.threads, "calibration": machine})
    peers = make_peers(options)
    cases = cases_of(options)
    # Loading the peers' libraries is nobody's memory or first call.
    for mode in options.modes:
        run_case(Case("gru", mode, 2, 3, 4, 5), peers, argparse.Namespace(rounds=1, seconds=0, grid=options.grid))
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cases", total=len(cases))
        for case in cases:
            progress.update(task, description=str(case))
            entry = described(case)
            has_limit = machine is not None and case.dtype == "float32" and case.is_one_layer
            entry["limit_ms"] = 1e3 * limit(case, machine, options.threads) if has_limit else None
            start = time.perf_counter()
            entry["peers"] = run_case(case, peers, options)
            entry["wall_s"] = time.perf_counter() - start
            report["cases"].append(entry)
            progress.advance(task)
    if "weft" in options.peers:
        report["compile"] = compile_times(options.cells)
    report["summary"] = summarise(report)
    print_report(report, console)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
        console.print(f"written to {options.json}")
    slower = options.regress is not None and compare_with(options.regress, report, console)
    return 1 if failures(report) or slower else 0


if __name__ == "__main__":
    sys.exit(main())
