"""Learns a guitar amplifier, packages it, and plays a sound through it in C++ and in an LV2 plug-in.

    python examples/packages/amp/run.py

trains for a minute, and leaves in out/amp the package, the program `player`, the plug-in `amp.lv2` and the sounds.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from packages.amp.model import RATE, Amp, circuit, error_to_signal, guitar, train

from packages import toolchain

HERE = Path(__file__).resolve().parent
#: How far the package's samples may be from the PyTorch model's, of a full scale of 1.
BOUND = 2e-5


def wav(samples: Tensor, is_float: bool = True, rate: int = RATE, channels: int = 1) -> bytes:
    """A WAV file with these samples, [T], in each channel."""
    values = samples if is_float else (samples * 32768).round().clamp(-32768, 32767).short()
    data = values.repeat_interleave(channels).numpy().tobytes()
    width = 4 if is_float else 2
    form = struct.pack(
        "<HHIIHH", 3 if is_float else 1, channels, rate, rate * width * channels, width * channels, 8 * width
    )
    parts = [b"RIFF", struct.pack("<I", 36 + len(data)), b"WAVEfmt ", struct.pack("<I", 16), form, b"data"]
    return b"".join([*parts, struct.pack("<I", len(data)), data])


def samples_of(file: bytes) -> Tensor:
    """The samples of a WAV file as wav() writes it, [T]."""
    is_float = struct.unpack("<H", file[20:22]) == (3,)
    found = torch.from_numpy(np.frombuffer(file[44:], np.float32 if is_float else np.int16).copy())
    return found if is_float else found.float() / 32768


def build_player(output: Path) -> Path:
    """The program, linked with the package in `output`/amp."""
    package = output / "amp"
    sources = [HERE / "player.cpp", HERE / "wav.cpp"]
    return toolchain.build(output / "player", sources, f"-I{package}", str(package / "libamp.a"))


def build_plugin(output: Path) -> tuple[Path, Path] | None:
    """Builds the plug-in's library in its folder, and the host that tries it; None if LV2's header isn't installed."""
    try:
        toolchain.run([*toolchain.compiler(), "-fsyntax-only", "-x", "c", "-"], b"#include <lv2/core/lv2.h>\n")
    except RuntimeError:
        return None
    bundle, package = output / "amp.lv2", output / "amp"
    flags = ("-shared", "-fPIC", "-fvisibility=hidden", f"-I{package}", str(package / "libamp.a"))
    plugin = toolchain.build(bundle / "amp.so", [HERE / "plugin.c"], *flags)
    for file in ("manifest.ttl", "amp.ttl"):
        shutil.copy(HERE / file, bundle)
    return plugin, toolchain.build(output / "host", [HERE / "host.c"], "-ldl")


def run(output: Path, seconds: float = 60.0, most: int | None = None, hidden: int = 40) -> dict[str, float]:
    """Runs the whole example. Returns the figures by name: `trained_error` and `package_error`, parts of the signal;
    `difference`, the package's largest from the PyTorch model; `speed`, times real time."""
    toolchain.check_tools(toolchain.compiler()[0], toolchain.compiler(is_cpp=True)[0])
    torch.manual_seed(0)
    model = Amp(hidden)
    losses = train(model, seconds, most)
    print(f"{len(losses)} pieces of training, the last ten's loss {sum(losses[-10:]) / len(losses[-10:]):.4f}")
    weft.package(model.eval(), torch.randn(1, 64, 1), output / "amp", time=1)

    x = guitar(5.0, 1, torch.Generator().manual_seed(2))
    wanted, x = circuit(x)[:, 0], x[:, 0]
    with torch.no_grad():
        expected = model(x[None, :, None])[0, :, 0]
    (output / "guitar.wav").write_bytes(wav(x))
    said = toolchain.run([build_player(output), output / "guitar.wav", output / "amplified.wav"]).decode()
    found = samples_of((output / "amplified.wav").read_bytes())
    figures = {
        "trained_error": error_to_signal(expected, wanted).item(),
        "package_error": error_to_signal(found, wanted).item(),
        "difference": (found - expected).abs().max().item(),
        "speed": float(said.split(":")[1].split()[0]),
    }
    print(said, end="")
    print(
        f"error to signal {figures['package_error']:.4%} (PyTorch {figures['trained_error']:.4%}, without the network "
        f"{error_to_signal(x, wanted).item():.0%}), at most {figures['difference']:.1e} from PyTorch"
    )
    if figures["difference"] > BOUND:
        raise RuntimeError(f"the package is {figures['difference']} from PyTorch, which is more than {BOUND}")
    built = build_plugin(output)
    if built is None:
        print("no plug-in: LV2's header is not installed (Debian has it in lv2-dev)")
        return figures
    (output / "guitar.raw").write_bytes(x.numpy().tobytes())
    print(toolchain.run([built[1], built[0], output / "guitar.raw", output / "amplified.raw"]).decode(), end="")
    if (output / "amplified.raw").read_bytes() != found.numpy().tobytes():
        raise RuntimeError("the plug-in gives other bits than the player")
    return figures


def main() -> None:
    parser = toolchain.command_line(__doc__, "amp", 60.0)
    parser.add_argument("--hidden", type=int, default=40, help="units of the LSTM")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds, hidden=options.hidden)


if __name__ == "__main__":
    main()
