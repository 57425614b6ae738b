"""Packages the amplifier of examples/packages/amp and plays a sound through it in Rust.

    python examples/packages/rust/run.py

trains for ten seconds, and leaves in out/rust the package and the program `pipe`. Needs rustc.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
    # The wrapper has more than this program uses.
    options = ["--edition", "2021", "-O", "-D", "warnings", "-A", "dead_code"]
    toolchain.run([toolchain.tool("rustc"), *options, HERE / "main.rs", *link])
    return program


def play(program: Path, x: Tensor) -> tuple[Tensor, str]:
    """What the program makes of samples, [T], and what it says."""
    done = subprocess.run([str(program)], input=x.numpy().tobytes(), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pipe ends with status {done.returncode}: {done.stderr.decode()}")
    return torch.from_numpy(np.frombuffer(done.stdout, np.float32).copy()), done.stderr.decode().strip()


def run(output: Path, seconds: float = 10.0, most: int | None = None, hidden: int = 40) -> float:
    """All of it; how far the program's samples are from the PyTorch model's at most."""
    toolchain.check_tools("rustc")
    torch.manual_seed(0)
    model = Amp(hidden)
    train(model, seconds, most)
    weft.package(model.eval(), torch.randn(1, 64, 1), output / "amp", time=1)
    x = guitar(1.0, 1, torch.Generator().manual_seed(2))[:, 0]
    found, said = play(build(output), x)
    with torch.no_grad():
        difference: float = (found - model(x[None, :, None])[0, :, 0]).abs().max().item()
    print(f"{said}\nat most {difference:.1e} from PyTorch")
    if difference > BOUND:
        raise RuntimeError(f"the program is {difference} from PyTorch, which is more than {BOUND}")
    return difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of training")
    parser.add_argument("--output", type=Path, default=Path("out/rust"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds)


if __name__ == "__main__":
    main()
