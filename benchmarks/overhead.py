"""What Weft costs where there is nothing to gain: its import, a call of one step, and weft.scan of a few steps.

Usage: overhead.py     prints a table; nothing here is asserted, since the times are a few microseconds
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import weft
from weft._capture.record import record
from weft._control.scan_call import Call

HIDDEN = 32
IMPORT = """
import time, torch
start = time.perf_counter()
import weft
print(1e3 * (time.perf_counter() - start))
"""


def import_milliseconds(runs: int = 7) -> float:
    """The median time of `import weft` in a process that has imported torch."""
    outputs = (subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True) for _ in range(runs))
    return statistics.median(float(output.stdout) for output in outputs)


def microseconds(*candidates: Callable[[], object], rounds: int = 41, calls: int = 100) -> list[float]:
    """The median time of a call, by candidate. Candidates take turns, so that a disturbance meets all of them."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for run, measured in zip(candidates, times, strict=True):
            run()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            measured.append((time.perf_counter() - start) / calls * 1e6)
    return [statistics.median(measured) for measured in times]


def calls_of(kind: str) -> dict[str, Callable[[], object]]:
    """A forward call and a training step at T = 1, B = 1."""
    module = getattr(nn, kind)(HIDDEN, HIDDEN)
    x = torch.randn(1, HIDDEN) if kind.endswith("Cell") else torch.randn(1, 1, HIDDEN)

    def forward() -> object:
        with torch.no_grad():
            return module(x)

    def training() -> None:
        outputs = module(x)
        while isinstance(outputs, tuple):
            outputs = outputs[0]
        outputs.sum().backward()

    return {"forward": forward, "training": training}


def operator_calls() -> dict[str, Callable[[], object]]:
    """The functions that PyTorch's modules call, for one step at H = 16, which is next to nothing to compute."""
    units = 16
    x, h, c = (torch.randn(1, 1, units) for _ in range(3))
    row, state, cell = x[0], h[0], c[0]
    gru, lstm = ([torch.randn(gates * units, units) for _ in "ih"] for gates in (3, 4))
    for weights in (gru, lstm):
        weights += [torch.randn(len(weights[0])) for _ in "ih"]
    options = (True, 1, 0.0, False, False, False)
    return {
        "gru": lambda: torch._VF.gru(x, h, gru, *options),
        "gru_cell": lambda: torch._VF.gru_cell(row, state, *gru),
        "lstm": lambda: torch._VF.lstm(x, (h, c), lstm, *options),
        "lstm_cell": lambda: torch._VF.lstm_cell(row, (state, cell), *lstm),
    }


def print_operator_calls() -> None:
    """The operator's share of a call: without a module's Python, without autograd, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print("\nthe functions of torch._VF in inference mode, T = 1, B = 1, H = 16, 1 thread, microseconds a call")
    with torch.inference_mode():
        for name, run in operator_calls().items():
            (median,) = microseconds(run, calls=1000)
            print(f"{name:20}{median:8.2f}")
    torch.set_num_threads(threads)


def on_pytorch(run: Callable[[], object]) -> Callable[[], object]:
    def disabled() -> object:
        weft._C.enter_disabled()
        try:
            return run()
        finally:
            weft._C.exit_disabled()

    return disabled


def gru_step() -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """A GRU step written out: 16 operations."""
    from_x, from_h = nn.Linear(64, 3 * 128), nn.Linear(128, 3 * 128)

    def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rx, zx, nx = from_x(x).chunk(3, -1)
        rh, zh, nh = from_h(h).chunk(3, -1)
        r, z = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
        n = torch.tanh(nx + r * nh)
        h = n + z * (h - n)
        return h, h

    return step


def print_scans() -> None:
    """weft.scan of short sequences beside the plain loop."""
    step, h = gru_step(), torch.zeros(8, 128)
    print("\nweft.scan of a GRU step written out, B = 8, H = 128, microseconds a call")
    print(f"{'':20}{'weft':>8}{'loop':>8}{'weft/loop':>12}")
    for grad in (False, True):
        for length in (1, 2, 4, 8, 16):
            xs = torch.randn(length, 8, 64)

            def loop(xs: torch.Tensor = xs) -> torch.Tensor:
                carry, ys = h, []
                for x in xs:
                    carry, y = step(carry, x)
                    ys.append(y)
                return torch.stack(ys)

            def scan(xs: torch.Tensor = xs) -> torch.Tensor:
                return weft.scan(step, h, xs)[1]

            with torch.set_grad_enabled(grad):
                torch.testing.assert_close(scan(), loop())
                ours, eager = microseconds(scan, loop, rounds=15, calls=40)
            name = f"T = {length}" + (", with gradients" if grad else "")
            print(f"{name:20}{ours:8.1f}{eager:8.1f}{ours / eager:12.2f}")


def print_recording() -> None:
    """The time to record a step and find its program, beside one eager execution of the step."""
    step, h, xs = gru_step(), torch.zeros(8, 128), torch.randn(4, 8, 64)
    call = Call.of("weft.scan", step, h, xs, length=None, reverse=False, dim=0)
    with torch.no_grad():
        weft.scan(step, h, xs)
        find, recording, eager = microseconds(call.find, lambda: record(call.function()), lambda: step(h, xs[0]))
    print(f"\nthe step: recorded in {recording:.1f} us, found in {find:.1f}; run by PyTorch in {eager:.1f}")


def main() -> None:
    print(f"import weft: {import_milliseconds():.0f} ms beyond import torch")
    print(f"\nT = 1, B = 1, H = {HIDDEN}, {torch.get_num_threads()} threads, microseconds a call")
    print(f"{'':20}{'weft':>8}{'eager':>8}{'weft/eager':>12}")
    for kind in ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"):
        for mode, run in calls_of(kind).items():
            ours, eager = microseconds(run, on_pytorch(run))
            print(f"{kind + ' ' + mode:20}{ours:8.1f}{eager:8.1f}{ours / eager:12.2f}")
    print_operator_calls()
    print_scans()
    print_recording()


if __name__ == "__main__":
    main()
