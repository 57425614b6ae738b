"""How evenly a package's steps take their time: the slowest beside the median, from C."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch
from torch import nn

import weft

STEPS, TURNS = 2000, 50
MODELS = {"GRU, H 32": (nn.GRU, 32), "GRU, H 128": (nn.GRU, 128), "LSTM, H 64": (nn.LSTM, 64)}
HEAD = """\
| ns a step | median | 99.9 % | slowest | slowest, each step's least of {turns} | that beside their median |
|---|---:|---:|---:|---:|---:|"""


def table(folder: Path, turns: int = TURNS) -> str:
    """A row a model. The sequence has loud parts, silence and subnormal numbers."""
    program = folder / "step_times"
    rows = [HEAD.format(turns=turns)]
    torch.manual_seed(0)
    x = torch.randn(STEPS, 1)
    x[500:1000], x[1000:1100], x[1100:1200] = 0, 1e-40, 50 * x[1100:1200]
    (folder / "x.raw").write_bytes(x.numpy().tobytes())
    for name, (kind, hidden) in MODELS.items():
        path = weft.package(kind(1, hidden).eval(), x, folder / f"even{hidden}")
        if not program.exists():
            source = Path(__file__).with_name("step_times.c")
            subprocess.run(["cc", "-O2", f"-I{path}", str(source), "-o", str(program), "-ldl"], check=True)
        words = [str(program), str(path / f"lib{path.name}.so"), f"{path.name}_model", str(STEPS), str(turns)]
        said = subprocess.run([*words, str(folder / "x.raw")], capture_output=True, text=True, check=True).stdout
        median, most, slowest, least_median, least_slowest = map(int, said.split())
        even = f"{least_slowest:,} | {least_slowest / least_median:.2f}x"
        rows.append(f"| {name} | {median:,} | {most:,} | {slowest:,} | {even} |")
    return "\n".join(rows)
