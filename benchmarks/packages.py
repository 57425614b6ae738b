"""Steps of a packaged GRU and LSTM beside PyTorch's and ONNX Runtime's: nanoseconds a step, one core, one sequence.

A package runs its steps from C (`run`, which calls a step for each). PyTorch and ONNX Runtime are measured in two ways:
a step a call, as a program that gets one sample at a time has to, with the state handed over in Python, and a whole
sequence in one call, which no such program can do. All take turns, and the least of each is shown, since what else runs
on the machine only adds. Results are compared before anything is timed.

With `--rtneural FOLDER`, RTNeural's sources, its table comes behind: there both are called from C++. So it does with
`--nam FOLDER`, those of NeuralAmpModelerCore. Last comes how evenly steps take their time (step_times.py); `--even`
measures that alone. With `--weights` the table is another: packages with weights as they are and with narrow ones;
with `--bytes` those whose products multiply bytes, for each target that this machine runs.

Usage: packages.py [--quick] [--even | --weights | --bytes | --rtneural FOLDER --nam FOLDER] [--write docs/packages.md]
"""

from __future__ import annotations

import argparse
import io
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import step_times
import weft
from peers import nam, nam_wavenet, rtneural
from weft import _C

MARKS = ("<!-- figures -->", "<!-- /figures -->")
EVEN_MARKS = ("<!-- even -->", "<!-- /even -->")
WEIGHT_MARKS = ("<!-- weights -->", "<!-- /weights -->")
BYTE_MARKS = ("<!-- bytes -->", "<!-- /bytes -->")
STORED = (None, "bfloat16", "float16", "int8")
BYTES = (None, "int8", "int8-dynamic")


def ort_session(module: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...]) -> object | None:
    """ONNX Runtime's session of the module, or None where it isn't installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    file = io.BytesIO()
    names = ["h", "c"][: len(state)]
    hidden = state if len(state) > 1 else state[0]
    axes = {"x": {0: "T"}}
    with weft.disabled():
        torch.onnx.export(
            module, (x, hidden), file, input_names=["x", *names], output_names=["y", *(f"{n}1" for n in names)],
            dynamic_axes=axes, dynamo=False,
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])


class Case:
    """A module with ways to run `steps` steps of it."""

    def __init__(self, kind: type[nn.RNNBase], hidden: int, folder: Path) -> None:
        torch.manual_seed(hidden)
        self.name, self.hidden = kind.__name__, hidden
        self.module = kind(1, hidden).eval()
        self.state = tuple(torch.zeros(1, 1, hidden) for _ in range(2 if kind is nn.LSTM else 1))
        self.steps = max(20, min(2000, 4_000_000 // (hidden * hidden * 4 + 4000)))
        self.x = torch.randn(self.steps, 1, 1)
        path = weft.package(self.module, self.x[:, 0], folder / f"{self.name.lower()}{hidden}")
        self.package = weft.load(path / f"lib{path.name}.so")
        many = self.x[:, 0].repeat(20, 1)  # so that the one call from Python counts for nothing
        self.ways: dict[str, Callable[[], object]] = {"package": lambda: self.package.run(many)}
        self.counts = {"package": len(many)}
        with weft.disabled():
            expected = self.module(self.x)[0][:, 0]
        assert torch.allclose(self.package.run(self.x[:, 0]), expected, atol=1e-5)
        self.ways |= {"PyTorch, a step a call": self.eager_steps, "PyTorch, a sequence": self.eager_sequence}
        self.session = ort_session(self.module, self.x, self.state)
        if self.session is not None:
            self.inputs = {name: value.numpy() for name, value in zip("hc", self.state, strict=False)}
            assert np.allclose(self.ort_sequence(), expected.numpy(), atol=1e-5)
            self.ways |= {"ONNX Runtime, a step a call": self.ort_steps, "ONNX Runtime, a sequence": self.ort_sequence}

    def eager_steps(self) -> object:
        with weft.disabled(), torch.no_grad():
            state = self.state if len(self.state) > 1 else self.state[0]
            for t in range(self.steps):
                y, state = self.module(self.x[t : t + 1], state)
        return y

    def eager_sequence(self) -> object:
        with weft.disabled(), torch.no_grad():
            return self.module(self.x)[0]

    def ort_steps(self) -> object:
        inputs, x = dict(self.inputs), self.x.numpy()
        for t in range(self.steps):
            y, *state = self.session.run(None, {"x": x[t : t + 1], **inputs})
            inputs = dict(zip("hc", state, strict=False))
        return y

    def ort_sequence(self) -> np.ndarray:
        return self.session.run(None, {"x": self.x.numpy(), **self.inputs})[0][:, 0]

    def measure(self, turns: int) -> dict[str, float]:
        """Nanoseconds a step, by way."""
        found: dict[str, list[float]] = {way: [] for way in self.ways}
        for turn in range(turns + 1):
            for way, call in self.ways.items():
                start = time.perf_counter_ns()
                call()
                if turn:
                    found[way].append((time.perf_counter_ns() - start) / self.counts.get(way, self.steps))
        return {way: min(times) for way, times in found.items()}


def table(cases: list[tuple[Case, dict[str, float]]]) -> str:
    ways = list(cases[0][1])
    lines = [f"| ns a step | {' | '.join(ways)} |", f"|---|{'---:|' * len(ways)}"]
    for case, found in cases:
        lines.append(f"| {case.name}, H {case.hidden} | {' | '.join(f'{found[way]:,.0f}' for way in ways)} |")
    return "\n".join(lines)


def peers_table(folder: Path, quick: bool) -> str:
    cases = []
    for kind in (nn.GRU, nn.LSTM):
        for hidden in (8, 32) if quick else (8, 16, 32, 64, 128, 256, 512):
            case = Case(kind, hidden, folder)
            cases.append((case, case.measure(3 if quick else 11)))
            print(case.name, hidden, {way: round(ns) for way, ns in cases[-1][1].items()}, flush=True)
    return table(cases)


def weights_row(kind: type[nn.RNNBase], hidden: int, folder: Path, turns: int) -> str:
    """Nanoseconds a step by type of weights, with how many times less time a step takes than with float32 weights."""
    torch.manual_seed(hidden)
    module, steps = kind(1, hidden).eval(), max(200, 20_000_000 // (hidden * hidden + 1000))
    x, models = torch.randn(steps, 1), {}
    for stored in STORED:
        name = f"{kind.__name__.lower()}{hidden}_{stored}"
        path = weft.package(module, x, folder / name, quantize=stored)
        models[stored] = weft.load(path / f"lib{name}.so")
        assert (models[stored].run(x[:50]) - module(x[:50])[0]).abs().max() < 0.05
    return f"| {kind.__name__}, H {hidden} | {' | '.join(in_turns(models, x, turns))} |"


def in_turns(models: dict[str | None, Any], x: Tensor, turns: int) -> list[str]:
    """The least nanoseconds that a step takes, by how models store their weights, beside those of the first."""
    least = dict.fromkeys(models, float("inf"))
    for _, stored in itertools.product(range(turns), models):
        start = time.perf_counter_ns()
        models[stored].run(x)
        least[stored] = min(least[stored], (time.perf_counter_ns() - start) / len(x))
    return [f"{ns:,.0f}" + (f" ({least[None] / ns:.2f}x)" if stored else "") for stored, ns in least.items()]


def models_of_bytes(quick: bool) -> dict[str, tuple[nn.Module, Tensor, Tensor, dict[str, int]]]:
    """By name: a model, its example, stacked inputs, and how it is packaged."""
    made = {}
    for hidden in (32, 64) if quick else (32, 64, 128, 256, 512):
        x = torch.randn(max(50, 2_000_000 // (hidden * hidden + 1000)), 1)
        made[f"GRU, H {hidden}"] = (nn.GRU(1, hidden), x, x, {})
    x = torch.randn(1, 2000, 1)
    stack = x.reshape(-1, 1, 1, 1)
    made["LSTM 1-40-1"] = (nam.Amp(40), x[:, :50], stack, {"time": 1})
    for name in () if quick else ("nano", "standard"):
        made[f"WaveNet, {name}"] = (nam_wavenet.WaveNet(name), x[:, :60].movedim(2, 1), stack, {"time": 2})
    return made


def bytes_table(folder: Path, quick: bool) -> str:
    """Nanoseconds a step, by model and target."""
    lines = ["| ns a step | target | float32 | int8 | int8-dynamic |", "|---|---|---:|---:|---:|"]
    targets = [target for target, _ in _C.package_targets() if _C.package_runs(target)]
    torch.manual_seed(0)
    for name, (module, example, x, options) in models_of_bytes(quick).items():
        for target in targets[-1:] if quick else targets:
            models = {}
            for stored in BYTES:
                prefix = f"model{len(list(folder.iterdir()))}"
                path = weft.package(module.eval(), example, folder / prefix, targets=target, quantize=stored, **options)
                models[stored] = weft.load(path / f"lib{prefix}.so")
            exact = models[None].run(x)
            for model in models.values():
                model.reset()
                assert (model.run(x) - exact).abs().max() < 0.1 * exact.abs().max(), (name, target)
            lines.append(f"| {name} | {target} | {' | '.join(in_turns(models, x, 3 if quick else 100))} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def weights_table(folder: Path, quick: bool) -> str:
    lines = ["| ns a step | float32 | bfloat16 | float16 | int8 |", f"|---|{'---:|' * 4}"]
    for kind in (nn.GRU, nn.LSTM):
        for hidden in (32, 64) if quick else (32, 64, 128, 256, 512):
            lines.append(weights_row(kind, hidden, folder, 3 if quick else 11))
            print(lines[-1], flush=True)
    return "\n".join(lines)


def machine(targets: str = f"target {_C.package_host()}") -> str:
    text = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "a CPU")
    return f"{model}, one core, {targets}, PyTorch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--even", action="store_true", help="measure only how evenly steps take their time")
    parser.add_argument(
        "--rtneural", metavar="FOLDER", type=Path, help="compare with RTNeural, whose sources are there"
    )
    parser.add_argument("--nam", metavar="FOLDER", type=Path, help="compare with NeuralAmpModelerCore")
    parser.add_argument("--weights", action="store_true", help="compare types of weights")
    parser.add_argument("--bytes", action="store_true", help="compare products of bytes, on all targets")
    parser.add_argument("--write", metavar="FILE", help="put the table between the marks in this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folder, quick = Path(folder), arguments.quick
        texts: dict[tuple[str, str], str] = {}
        if arguments.weights:
            texts[WEIGHT_MARKS] = f"{machine()}.\n\n{weights_table(folder, quick)}"
        elif arguments.bytes:
            texts[BYTE_MARKS] = f"{machine('each target')}.\n\n{bytes_table(folder, quick)}"
        elif not arguments.even:
            texts[MARKS] = compared(folder, quick, arguments.rtneural, arguments.nam)
        if not (arguments.weights or arguments.bytes):
            turns = 5 if quick else step_times.TURNS
            texts[EVEN_MARKS] = f"{machine()}.\n\n{step_times.table(folder, turns)}"
    print("\n\n".join(texts.values()))
    if arguments.write:
        path = Path(arguments.write)
        for (begin, end), text in texts.items():
            before, _, rest = path.read_text().partition(begin)
            path.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def compared(folder: Path, quick: bool, sources: Path | None, amp_sources: Path | None) -> str:
    """The tables of packages beside others; with sources of RTNeural and NeuralAmpModelerCore given, these too."""
    text = f"{machine()}.\n\n{peers_table(folder, quick)}"
    if sources:
        text += f"\n\nBoth called from C++, a step a call:\n\n{rtneural.table(sources.absolute())}"
    if amp_sources:
        text += f"\n\nBoth called from C++, a model of an amplifier:\n\n{nam.table(amp_sources.absolute())}"
        text += f"\n\nWaveNets, with so many samples a call:\n\n{nam_wavenet.table(amp_sources.absolute())}"
    return text


if __name__ == "__main__":
    main()
