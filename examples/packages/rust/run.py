"""Packages the amplifier of examples/packages/amp and plays a sound through it in Rust.

    python examples/packages/rust/run.py

trains for ten seconds, and leaves in out/rust the package and the program `pipe`. Needs rustc.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from packages.amp.model import Amp, guitar, train
from packages.amp.run import BOUND

from packages import toolchain

HERE = Path(__file__).resolve().parent


def build(output: Path) -> Path:
    """The program, linked with the package in `output`/amp."""
    program = output / "pipe"
    link = ["-L", str(output / "amp"), "-l", "static=amp", "-o", str(program)]
    # The wrapper has more functions than this program uses.
    options = ["--edition", "2021", "-O", "-D", "warnings", "-A", "dead_code"]
    toolchain.run([toolchain.tool("rustc"), *options, HERE / "main.rs", *link])
    return program


def run(output: Path, seconds: float = 10.0, most: int | None = None, hidden: int = 40) -> float:
    """Runs the example; returns the largest difference of the program's samples from the PyTorch model's."""
    toolchain.check_tools("rustc")
    torch.manual_seed(0)
    model = Amp(hidden)
    train(model, seconds, most)
    weft.package(model.eval(), torch.randn(1, 64, 1), output / "amp", time=1)
    x = guitar(1.0, 1, torch.Generator().manual_seed(2))[:, 0]
    found, said = toolchain.pipe(build(output), x)
    with torch.no_grad():
        difference: float = (found - model(x[None, :, None])[0, :, 0]).abs().max().item()
    print(f"{said}\nat most {difference:.1e} from PyTorch")
    if difference > BOUND:
        raise RuntimeError(f"the program is {difference} from PyTorch, which is more than {BOUND}")
    return difference


def main() -> None:
    options = toolchain.command_line(__doc__, "rust", 10.0).parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds)


if __name__ == "__main__":
    main()
