"""Trains a policy with a memory, packages it, and lets it hold a bearing in a C loop at 10 kHz.

    python examples/packages/policy/run.py

trains for a minute, and leaves in out/policy the package and the program `loop`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from packages.policy.model import Policy, cost_of, episode, episodes, train

from packages import toolchain

HERE = Path(__file__).resolve().parent
#: How far the package's currents and values may be from the PyTorch policy's, which are about 1.
BOUND = 1e-4


def build(output: Path) -> Path:
    """The program, linked with the package in `output`/policy."""
    package = output / "policy"
    flags = (f"-I{package}", str(package / "libpolicy.a"), "-lm")
    return toolchain.build(output / "loop", [HERE / "loop.c"], *flags)


def replay(policy: Policy, seen: Tensor) -> Tensor:
    """The PyTorch policy's answers to measurements [T, 2]: currents and values, [T, 2]."""
    with torch.no_grad():
        said = weft.scan(policy.step, policy.start(), seen)[1]
    return torch.stack([said["current"], said["value"]], 1)


def run(
    output: Path, seconds: float = 60.0, most: int | None = None, steps: int = 100_000, rate: int = 10_000
) -> dict[str, float]:
    """Runs the whole example. Returns the figures by name: `untrained` and `trained` costs of the same episodes,
    `difference` of the package's currents and values from PyTorch's, `off`, how far the bearing is from its place, and
    in nanoseconds `step_median`, `step_999`, `step_max`, and with a rate `late_median`, ..."""
    toolchain.check_tools(toolchain.compiler()[0])
    torch.manual_seed(0)
    policy = Policy()
    tried = episodes(64, 60, torch.Generator().manual_seed(2))
    figures = {"untrained": cost_of(episode(policy, *tried)).mean().item()}
    losses = train(policy, seconds, most)
    figures["trained"] = cost_of(episode(policy, *tried)).mean().item()
    print(
        f"{len(losses)} batches of training, cost {figures['untrained']:.3f} before and {figures['trained']:.4f} after"
    )
    weft.package(policy.step, (policy.start(), torch.zeros(2)), output / "policy")

    noise = torch.randn(steps, generator=torch.Generator().manual_seed(3))
    (output / "noise.raw").write_bytes(noise.numpy().tobytes())
    said = toolchain.run([build(output), output / "noise.raw", output / "trace.raw", str(rate)]).decode()
    print(said, end="")
    trace = torch.from_numpy(np.fromfile(output / "trace.raw", np.float32)).reshape(steps, 4)
    figures["difference"] = (trace[:, 2:] - replay(policy, trace[:, :2])).abs().max().item()
    first, *times = said.splitlines()
    figures["off"] = float(first.split()[-1])
    for line in times:
        words = line.split()
        figures |= {f"{words[0]}_{name}": float(words[at]) for name, at in (("median", 2), ("999", 6), ("max", 9))}
    print(f"currents and values at most {figures['difference']:.1e} from PyTorch")
    if figures["difference"] > BOUND:
        raise RuntimeError(f"the package is {figures['difference']} from PyTorch, which is more than {BOUND}")
    return figures


def main() -> None:
    options = toolchain.command_line(__doc__, "policy", 60.0).parse_args()
    torch.set_num_threads(1)
    run(options.output, options.seconds)


if __name__ == "__main__":
    main()
