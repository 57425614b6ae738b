"""Tables from compare.py's results: on the terminal, and as Markdown for docs/figures/performance.md."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

TITLES = {
    "weft": "Weft",
    "eager": "eager",
    "inductor": "Inductor",
    "xla": "XLA:CPU",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "onednn": "oneDNN",
}


# How a reason begins when a peer broke.
BROKEN = "FAILED"


def median(case: dict[str, Any], peer: str) -> float | None:
    """Milliseconds; None if the peer was left out, or its result is wrong: no ratio uses it then."""
    entry = case["peers"].get(peer, {})
    return None if entry.get("wrong") else entry.get("median_ms")


def fastest_peer(case: dict[str, Any]) -> tuple[float, str] | None:
    """The least time of a peer other than Weft whose result is right, and this peer's name."""
    found = [(median(case, peer), peer) for peer in case["peers"] if peer != "weft"]
    return min(((time, peer) for time, peer in found if time is not None), default=None)


def best_peer(case: dict[str, Any]) -> float | None:
    found = fastest_peer(case)
    return found[0] if found else None


def name_of(case: dict[str, Any]) -> str:
    dtype = case.get("dtype", "float32")
    return f"{case['cell']} {case['shape']} {case['mode']}" + ("" if dtype == "float32" else f" {dtype}")


def ratio(reference: float | None, ours: float | None) -> float | None:
    return reference / ours if reference is not None and ours is not None else None


def geometric_mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def worst(report: dict[str, Any], count: int = 20) -> list[str]:
    """The cases in which Weft has the least lead over the best of its peers, a line each, the worst first."""
    found = [(ratio(best_peer(case), median(case, "weft")), case) for case in report["cases"]]
    ordered = sorted((pair for pair in found if pair[0] is not None), key=lambda pair: pair[0])
    return [worst_line(lead, case) for lead, case in ordered[:count]]


def worst_line(lead: float, case: dict[str, Any]) -> str:
    ours, theirs = median(case, "weft"), fastest_peer(case)
    share = ratio(case.get("limit_ms"), ours)
    beside = f"{TITLES[theirs[1]]} {number(theirs[0])}" if theirs else "-"
    of_limit = "" if share is None else f", {percent(share)} of the limit"
    return f"{times(lead)} {name_of(case)}: {number(ours)} ms, {beside}{of_limit}"


def groups(report: dict[str, Any]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Cases by cell and mode (with the type, if it isn't float32), in the order measured."""

    def key(case: dict[str, Any]) -> tuple[str, str]:
        dtype = case.get("dtype", "float32")
        return case["cell"], case["mode"] if dtype == "float32" else f"{case['mode']}, {dtype}"

    order = {entry: position for position, entry in reversed(list(enumerate(map(key, report["cases"]))))}
    ordered = sorted(report["cases"], key=lambda case: order[key(case)])
    return [(cell, mode, list(cases)) for (cell, mode), cases in groupby(ordered, key)]


def summarise(report: dict[str, Any]) -> list[dict[str, Any]]:
    """For each cell and mode how many times faster Weft is, as geometric means over the shapes."""
    return [
        {
            "cell": cell,
            "mode": mode,
            "over_eager": geometric_mean([ratio(median(case, "eager"), median(case, "weft")) for case in cases]),
            "over_best_peer": geometric_mean([ratio(best_peer(case), median(case, "weft")) for case in cases]),
            "of_limit": geometric_mean([ratio(case["limit_ms"], median(case, "weft")) for case in cases]),
        }
        for cell, mode, cases in groups(report)
    ]


def number(value: float | None) -> str:
    """Three digits, never with an exponent."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def cell_text(entry: dict[str, Any]) -> str:
    """The median, how far the middle half of the samples reaches from its middle, in percent, and whether the result is
    wrong."""
    if "median_ms" not in entry:
        return BROKEN if entry.get("skipped", "").startswith(BROKEN) else "-"
    half = (entry["q3_ms"] - entry["q1_ms"]) / 2
    wrong = " wrong" if entry.get("wrong") else ""
    return f"{number(entry['median_ms'])} ±{100 * half / entry['median_ms']:.0f}%{wrong}"


def megabytes(entry: dict[str, Any]) -> str:
    peak = entry.get("peak_bytes")
    return "-" if peak is None else f"{peak / 2**20:.0f}"


def rows(cases: list[dict[str, Any]], peers: list[str]) -> list[list[str]]:
    """One row for each shape: the limit, the time of each, Weft's share of the limit and its lead, memory of Weft and
    eager."""
    return [
        [
            case["shape"],
            number(case["limit_ms"]),
            *(cell_text(case["peers"].get(peer, {})) for peer in peers),
            percent(ratio(case["limit_ms"], median(case, "weft"))),
            times(ratio(median(case, "eager"), median(case, "weft"))),
            times(ratio(best_peer(case), median(case, "weft"))),
            " / ".join(megabytes(case["peers"].get(peer, {})) for peer in ("weft", "eager")),
        ]
        for case in cases
    ]


def header(peers: list[str]) -> list[str]:
    return ["shape", "limit", *(TITLES[peer] for peer in peers), "of limit", "vs eager", "vs best", "MB Weft / eager"]


def peers_of(cases: list[dict[str, Any]]) -> list[str]:
    """The peers that ran, or failed, on at least one of the cases, in the fixed order."""
    return [peer for peer in TITLES if any(cell_text(case["peers"].get(peer, {})) != "-" for case in cases)]


def once_each(found: dict[str, list[str]]) -> list[str]:
    """Remarks about cases: each once, with the first case that it is about."""
    more = {what: f" and {len(where) - 1} more" if len(where) > 1 else "" for what, where in found.items()}
    return [f"{what} ({where[0]}{more[what]})" for what, where in found.items()]


def reasons(report: dict[str, Any]) -> list[str]:
    """Why peers were left out, each reason once."""
    found: dict[str, list[str]] = {}
    for case in report["cases"]:
        for peer, entry in case["peers"].items():
            reason = entry.get("skipped")
            if reason and reason != "runs inference only":
                found.setdefault(f"{TITLES[peer]}: {reason}", []).append(name_of(case))
    return once_each(found)


def wrong_lines(report: dict[str, Any]) -> list[str]:
    """Every result that is off float64's by more than rounding."""
    return [
        f"{TITLES[peer]}, {name_of(case)}: off by {100 * entry['error']:.2g} % of the largest entry"
        for case in report["cases"]
        for peer, entry in case["peers"].items()
        if entry.get("wrong")
    ]


def failures(report: dict[str, Any]) -> bool:
    """Whether Weft gave a wrong result or none, anywhere."""
    entries = [case["peers"].get("weft", {}) for case in report["cases"]]
    return any(entry.get("wrong") or entry.get("skipped", "").startswith(BROKEN) for entry in entries)


def compile_lines(report: dict[str, Any]) -> list[str]:
    """A line a cell and number of steps."""
    lines = []
    for cell, by_steps in report.get("compile", {}).items():
        for steps, found in by_steps.items():
            if "error" in found:
                lines.append(f"{cell}, T = {steps}: {found['error']}")
                continue
            forward, training = found["forward"], found["training"]
            lines.append(
                f"{cell}, T = {steps}: forward {forward['compile_ms']:.0f} ms, forward and backward "
                f"{training['compile_ms']:.0f} ms (first training call {training['first_call_ms']:.0f} ms, "
                f"warm {training['warm_call_ms']:.2g} ms)"
            )
    return lines


def duration(milliseconds: float) -> str:
    return f"{number(milliseconds)} ms" if milliseconds < 1000 else f"{number(milliseconds / 1000)} s"


def first_result_lines(report: dict[str, Any]) -> list[str]:
    """A line a peer: how long a case takes to its first result, making ready and compiling included."""
    lines = []
    for peer, title in TITLES.items():
        entries = (case["peers"].get(peer, {}) for case in report["cases"])
        found = sorted(entry["cold_ms"] for entry in entries if "cold_ms" in entry)
        if found:
            middle = found[len(found) // 2]
            lines.append(f"{title}: {duration(middle)} ({duration(found[0])} to {duration(found[-1])})")
    return lines


def summary_lines(report: dict[str, Any]) -> list[str]:
    return [
        f"{entry['cell'].upper()} {entry['mode']}: {times(entry['over_eager'])} eager, "
        f"{times(entry['over_best_peer'])} the best peer of each shape, {percent(entry['of_limit'])} of the limit"
        for entry in report["summary"]
    ]


def print_report(report: dict[str, Any], console: Console) -> None:
    console.print("[bold]The least leads over the best peer[/bold]")
    for line in worst(report):
        console.print(f"  {line}", highlight=False, markup=False)
    for cell, mode, cases in groups(report):
        peers = peers_of(cases)
        table = Table(
            title=f"{cell.upper()} {mode}, ms: median ± half the width of the middle half", title_justify="left"
        )
        for name in header(peers):
            table.add_column(name, justify="left" if name == "shape" else "right")
        for row in rows(cases, peers):
            table.add_row(*row)
        console.print(table)
    for title, lines in (
        ("Wrong, beside float64, and so in no ratio", wrong_lines(report)),
        ("Left out", reasons(report)),
        ("Cold compile, cache off", compile_lines(report)),
        ("To the first result: the median case (the least to the most)", first_result_lines(report)),
        ("Geometric means, times faster", summary_lines(report)),
    ):
        if lines:
            console.print(f"[bold]{title}[/bold]")
            for line in lines:
                console.print(f"  {line}", highlight=False, markup=False)


def markdown_table(header: list[str], body: list[list[str]], left: int = 1) -> list[str]:
    """The lines of a Markdown table; the first `left` columns are aligned to the left, the others to the right."""
    rule = "|---" * left + "|---:" * (len(header) - left) + "|"
    return [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in body)]


def markdown(report: dict[str, Any]) -> str:
    """The section of docs/figures/performance.md."""
    machine = report["machine"]
    found = report["versions"]
    dtypes = dict.fromkeys(case.get("dtype", "float32") for case in report["cases"])
    versions = ", ".join(f"{name} {version}" for name, version in found.items() if name != "weft")
    parts = [
        f"{machine['cpu']}, {machine['threads']} threads, {', '.join(dtypes)}; {versions}; commit {report['commit']}, "
        f"{report['date']}. Milliseconds: medians of interleaved repetitions, ± half the width of the middle half of "
        "the samples. MB: what the process grows by at the peak of a warm call."
    ]
    if machine["calibration"]:
        measured = machine["calibration"]
        parts.append(
            f"The limit is {machine['threads']} x {measured['fma_f32_flops'] / 1e9:.0f} GF/s of multiply-adds, or the "
            f"caches' bandwidth where that is the narrower (L2 {measured['l2_bandwidth'] / 1e9:.0f}, L3 "
            f"{measured['l3_bandwidth'] / 1e9:.0f} GB/s a core), as measured in the same run."
        )
    for cell, mode, cases in groups(report):
        peers = peers_of(cases)
        parts.append(f"**{cell.upper()}, {mode}**")
        parts.append("\n".join(markdown_table(header(peers), rows(cases, peers))))
    for title, lines in (
        ("Geometric means over the shapes, how many times faster:", summary_lines(report)),
        ("Compiling a one-layer cell, cold, without the cache:", compile_lines(report)),
        (
            "To the first result, compiling included; the median case (the least to the most):",
            first_result_lines(report),
        ),
        ("Wrong, beside float64, and so in no ratio:", wrong_lines(report)),
        ("Left out:", reasons(report)),
    ):
        if lines:
            parts.append("\n".join([title, "", *(f"- {line}" for line in lines)]))
    return "\n\n".join(parts)
