"""Trains a noise suppressor, packages it, and compares it as a stream and in C with the whole model.

    python examples/packages/denoiser/run.py

trains for a minute, and leaves in out/denoiser the package and the program `denoise`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from packages.denoiser.model import HOP, Denoiser, noisy, signal_to_noise, speech, train

from packages import toolchain

HERE = Path(__file__).resolve().parent
#: How far the stream's and the package's samples may be from the whole model's, of a full scale of 1.
BOUND = 1e-5


def build(output: Path) -> Path:
    """The program, linked with the package in `output`/denoiser."""
    package = output / "denoiser"
    flags = (f"-I{package}", str(package / "libdenoiser.a"))
    return toolchain.build(output / "denoise", [HERE / "denoise.c"], *flags)


def run(output: Path, seconds: float = 60.0, most: int | None = None) -> dict[str, float]:
    """Runs the whole example. Returns the figures by name: `stream_difference` and `difference`, the stream's and the
    package's largest from the whole model; `gain_N`, decibels of signal to noise gained where N were given;
    `microseconds` a frame."""
    toolchain.check_tools(toolchain.compiler()[0])
    torch.manual_seed(0)
    model = Denoiser()
    losses = train(model, seconds, most)
    print(f"{len(losses)} batches of training, the last ten's loss {sum(losses[-10:]) / len(losses[-10:]):.2f} dB")
    example = torch.randn(1, 20 * HOP)
    weft.package(model.eval(), example, output / "denoiser", time=1)
    program = build(output)

    generator = torch.Generator().manual_seed(2)
    clean = speech(4.096, 8, generator)
    figures: dict[str, float] = {}
    for decibels in (0.0, 5.0, 10.0):
        x = noisy(clean, torch.full((len(clean),), decibels), generator)
        with torch.no_grad():
            figures[f"gain_{decibels:.0f}"] = (signal_to_noise(model(x), clean) - decibels).mean().item()
    x = x[:1]
    with torch.no_grad():
        whole = model(x)
    stream = weft.stream(model, example)
    parts = torch.cat([stream.run(part) for part in x.split(7 * stream.chunk, 1)], 1)
    found, said = toolchain.pipe(program, x[0])
    figures["stream_difference"] = (parts - whole).abs().max().item()
    figures["difference"] = (found - whole[0]).abs().max().item()
    figures["microseconds"] = float(said.split(",")[1].split()[0])
    print(f"{said}, with {sum(p.numel() for p in model.parameters()):,} parameters")
    gains = ", ".join(f"{n} dB: {figures[f'gain_{n}']:+.1f} dB" for n in (0, 5, 10))
    print(f"signal to noise of new sounds gained at {gains}")
    print(f"from the whole model at most: stream {figures['stream_difference']:.1e}, C {figures['difference']:.1e}")
    for name in ("stream_difference", "difference"):
        if figures[name] > BOUND:
            raise RuntimeError(f"{name} is {figures[name]}, which is more than {BOUND}")
    return figures


def main() -> None:
    options = toolchain.command_line(__doc__, "denoiser", 60.0).parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds)


if __name__ == "__main__":
    main()
