"""Trains a keyword spotter, packages it for a Cortex-M4, and runs it on an emulated board.

    python examples/packages/spotter/run.py

trains for half a minute, and leaves in out/spotter the package and the image `spotter.elf`. Needs gcc-arm-none-eabi and
qemu-system-arm.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from packages.spotter.model import HOP, WORDS, Spotter, spoken, train

from packages import toolchain

HERE = Path(__file__).resolve().parent
#: How far the board's scores may be from the PyTorch model's, which are up to 10 or so.
BOUND = 1e-3
MACHINE = ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


def link(output: Path) -> Path:
    """The image: board, program and the package in `output`/spotter, and no library but the compiler's own."""
    package, image = output / "spotter", output / "spotter.elf"
    files = [HERE / "board.c", HERE / "main.c", package / "spotter.cortex-m4.o"]
    flags = ["-std=c11", "-Os", "-ffreestanding", "-fno-tree-loop-distribute-patterns", *toolchain.WARNINGS]
    linking = [f"-I{package}", "-nostdlib", f"-T{HERE / 'board.ld'}", "-Wl,--gc-sections"]
    compiler = toolchain.tool("arm-none-eabi-gcc")
    toolchain.run([compiler, *MACHINE, *flags, *map(str, files), *linking, "-lgcc", "-o", image])
    return image


def sizes(image: Path) -> dict[str, int]:
    """Bytes of the image: `flash`, with the initial values of variables, and `ram` without the stack; `weights`, a part
    of flash, and `state`, a part of ram."""
    text = toolchain.run([toolchain.tool("arm-none-eabi-size"), "-A", image]).decode()
    found = {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if line.startswith(".")}
    symbols = toolchain.run([toolchain.tool("arm-none-eabi-nm"), "-S", image]).decode().split("\n")
    named = [(int(line.split()[1], 16), line.split()[3]) for line in symbols if len(line.split()) == 4]
    return {
        "flash": found[".text"] + found.get(".ARM.exidx", 0) + found.get(".data", 0),
        "ram": found.get(".data", 0) + found.get(".bss", 0),
        "weights": sum(size for size, name in named if name.startswith("weights")),
        "state": sum(size for size, name in named if name == "state"),
    }


def emulate(image: Path) -> list[str]:
    """The program's output on an emulated board, which has the files of the image's folder.

    Raises:
        RuntimeError: it fails.
    """
    board = [toolchain.tool("qemu-system-arm"), "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]
    command = [*board, "-semihosting-config", "enable=on,target=native", "-kernel", image.name]
    done = subprocess.run(command, cwd=image.parent, capture_output=True, text=True, check=False, timeout=300)
    said = done.stderr + done.stdout
    if done.returncode != 0:
        raise RuntimeError(f"{image.name} ends with status {done.returncode}: {said.strip()}")
    return said.splitlines()


def run(output: Path, seconds: float = 30.0, most: int | None = None, count: int = 60) -> dict[str, float]:
    """Runs the whole example, with `count` new words as a test. Returns the figures by name: `accuracy` on the board,
    `difference` of its scores from PyTorch's, `stack` in bytes, and those of sizes()."""
    toolchain.check_tools("arm-none-eabi-gcc", "qemu-system-arm")
    torch.manual_seed(0)
    model = Spotter()
    losses = train(model, seconds, most)
    print(f"{len(losses)} batches of training, the last ten's loss {sum(losses[-10:]) / len(losses[-10:]):.4f}")
    weft.package(model.eval(), torch.randn(1, 30 * HOP), output / "spotter", time=1, targets="cortex-m4")
    image = link(output)

    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(len(WORDS), (count,), generator=generator)
    x = spoken(labels, generator)
    with torch.no_grad():
        expected = model(x)[:, -1]
    (output / "words.raw").write_bytes(x.numpy().tobytes())
    *words, stack = emulate(image)
    found = torch.from_numpy(np.fromfile(output / "scores.raw", np.float32)).reshape(-1, len(WORDS))
    right = [word == WORDS[label] for word, label in zip(words, labels.tolist(), strict=True)]
    figures: dict[str, float] = {
        "accuracy": sum(right) / len(right),
        "difference": (found - expected).abs().max().item(),
        "stack": int(stack.removeprefix("stack ")),
        **sizes(image),
    }
    print(
        f"{sum(right)} of {count} new words on the board, scores at most {figures['difference']:.1e} from PyTorch\n"
        f"flash {figures['flash']:,} bytes, of which {figures['weights']:,} are weights; "
        f"memory {figures['ram']:,} bytes, {figures['state']:,} of them the state; stack {figures['stack']:,} bytes"
    )
    if figures["difference"] > BOUND:
        raise RuntimeError(f"the board's scores are {figures['difference']} from PyTorch, which is more than {BOUND}")
    return figures


def main() -> None:
    options = toolchain.command_line(__doc__, "spotter", 30.0).parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds)


if __name__ == "__main__":
    main()
