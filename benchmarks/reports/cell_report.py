"""Tables from cells.py's results: on the terminal, and as Markdown for docs/figures/cells.md."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from reports.report import BROKEN, cell_text, geometric_mean, markdown_table, median, number, percent, ratio, times

TITLES = {
    "weft": "Weft",
    "loop": "Python loop",
    "compiled_step": "step compiled",
    "compiled_loop": "loop compiled",
    "jax": "jax.lax.scan",
}


def best_peer(case: dict[str, Any]) -> float | None:
    """The least time of all peers but Weft."""
    known = [median(case, peer) for peer in TITLES if peer != "weft"]
    return min((time for time in known if time is not None), default=None)


def of_built_in(case: dict[str, Any]) -> float | None:
    """The built-in layer's time for as many multiply-adds, as a share of the cell's."""
    like = case["peers"].get("built_in")
    if like is None or "median_ms" not in like:
        return None
    return ratio(like["median_ms"] * like["multiply_adds"], median(case, "weft"))


def text(entry: dict[str, Any]) -> str:
    """The time; in place of one, why there is none."""
    if "median_ms" in entry:
        return ("~" if "scaled_from_steps" in entry else "") + cell_text(entry)
    why = entry.get("skipped", "")
    if why.split(":")[0] in BROKEN:
        return why.split(":")[0]
    return "over budget" if "over " in why else "-"


def built_in_text(case: dict[str, Any]) -> str:
    like = case["peers"].get("built_in")
    if like is None or "median_ms" not in like:
        return "-"
    return f"{number(like['median_ms'] * like['multiply_adds'])} ({like['cell'].upper()} x {like['multiply_adds']:.2f})"


def modes_of(report: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(case["mode"] for case in report["cases"]))


def peers_of(report: dict[str, Any]) -> list[str]:
    return [peer for peer in TITLES if any(peer in case["peers"] for case in report["cases"])]


def header(peers: list[str]) -> list[str]:
    return ["cell", "shape", *(TITLES[peer] for peer in peers), "vs best", "vs jax", "built-in, scaled", "of it"]


def rows(report: dict[str, Any], mode: str, peers: list[str]) -> list[list[str]]:
    return [
        [
            case["cell"],
            case["shape"],
            *(text(case["peers"].get(peer, {})) for peer in peers),
            times(ratio(best_peer(case), median(case, "weft"))),
            times(ratio(median(case, "jax"), median(case, "weft"))),
            built_in_text(case),
            percent(of_built_in(case)),
        ]
        for case in report["cases"]
        if case["mode"] == mode
    ]


def means(report: dict[str, Any], mode: str) -> str:
    cases = [case for case in report["cases"] if case["mode"] == mode]
    found = []
    for peer in peers_of(report):
        if peer == "weft":
            continue
        mean = geometric_mean([ratio(median(case, peer), median(case, "weft")) for case in cases])
        if mean is not None:
            found.append(f"{times(mean)} {TITLES[peer]}")
    best = geometric_mean([ratio(best_peer(case), median(case, "weft")) for case in cases])
    return f"{mode}: {', '.join(found)}; {times(best)} the best of each cell"


def first_call_rows(report: dict[str, Any]) -> list[list[str]]:
    found = []
    for cell, entry in report.get("first_calls", {}).items():
        if "error" in entry:
            found.append([cell, entry["error"], *[""] * 5])
            continue
        row = [cell]
        for mode in ("forward", "training"):
            row += [number(entry[f"{mode}_ms"]), str(entry[f"{mode}_programs"]), str(entry[f"{mode}_compiled_again"])]
        found.append(row)
    return found


FIRST_CALL_HEADER = ["cell", "forward, ms", "programs", "again", "training, ms", "programs", "again"]


def compile_rows(report: dict[str, Any]) -> list[list[str]]:
    """Seconds until a peer's first result, by cell and mode."""
    peers = [peer for peer in peers_of(report) if peer not in ("weft", "loop")]

    def seconds(entry: dict[str, Any]) -> str:
        return number(entry["cold_s"]) if "cold_s" in entry else text(entry)

    return [
        [f"{case['cell']}, {case['mode']}", *(seconds(case["peers"].get(peer, {})) for peer in peers)]
        for case in report["cases"]
    ]


def reasons(report: dict[str, Any]) -> list[str]:
    """Why peers were left out, except for their compile time."""
    return [
        f"{case['cell']}, {case['mode']}, {TITLES[peer]}: {entry['skipped']}"
        for case in report["cases"]
        for peer, entry in case["peers"].items()
        if "skipped" in entry and "over " not in entry["skipped"]
    ]


def print_report(report: dict[str, Any], console: Console) -> None:
    peers = peers_of(report)
    for mode in modes_of(report):
        table = Table(title=f"{mode}, ms: median ± half the width of the middle half", title_justify="left")
        for position, name in enumerate(header(peers)):
            table.add_column(name, justify="left" if position < 2 else "right")
        for row in rows(report, mode, peers):
            table.add_row(*row)
        console.print(table)
    if report.get("first_calls"):
        table = Table(title="first call less later ones, cold, without the cache", title_justify="left")
        for name in FIRST_CALL_HEADER:
            table.add_column(name, justify="right")
        for row in first_call_rows(report):
            table.add_row(*row)
        console.print(table)
    for line in (*reasons(report), *(means(report, mode) for mode in modes_of(report))):
        console.print(line)


def markdown(report: dict[str, Any]) -> str:
    """The section of docs/figures/cells.md."""
    machine, peers = report["machine"], peers_of(report)
    known = ", ".join(f"{name} {report['versions'][name]}" for name in ("torch", "jax") if name in report["versions"])
    lines = [
        f"{machine['cpu']}, {machine['threads']} threads, float32; {known}; commit {report['commit']}, "
        f"{report['date']}{', processor time' if machine['cpu_clock'] else ''}. "
        "Milliseconds: medians of interleaved repetitions, ± half the width of the middle half of the samples."
    ]
    for mode in modes_of(report):
        lines += ["", f"**{mode.capitalize()}**", "", *markdown_table(header(peers), rows(report, mode, peers), 2)]
    lines += ["", "Geometric means over the cells, how many times faster Weft is than", ""]
    lines += [f"- {means(report, mode)}" for mode in modes_of(report)]
    if reasons(report):
        lines += ["", "Left out:", "", *(f"- {line}" for line in reasons(report))]
    if report.get("first_calls"):
        lines += ["", "**What a new cell costs**: its first call less its later ones, cold, without the object cache;"]
        lines += ["the programs compiled; the programs compiled again by another T and another B.", ""]
        lines += markdown_table(FIRST_CALL_HEADER, first_call_rows(report))
    compiled = [TITLES[peer] for peer in peers if peer not in ("weft", "loop")]
    if compiled:
        lines += ["", f"**What the peers' first call costs**, seconds; at most {report['budget_s']:.0f} are given.", ""]
        lines += markdown_table(["cell", *compiled], compile_rows(report))
    return "\n".join(lines)
