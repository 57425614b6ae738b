"""NeuralAmpModelerCore's WaveNet beside packages: both called from C++, in chunks of several lengths.

A WaveNet of NeuralAmpModelerCore is two arrays of layers with dilated causal convolutions; these are the sizes that its
trainer names "standard", "lite", "feather" and "nano". It is compiled in both ways that its sources have: with Eigen's
products, and with its own for these numbers of channels (`NAM_USE_INLINE_GEMM`). The quicker of both counts.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

ALL = [2**i for i in range(10)]
SPLIT = ([2**i for i in range(7)], [128, 256, 512, *(2**i for i in range(10))])
#: by name: channels of both arrays, and their dilations
SIZES = {
    "standard": ((16, 8), (ALL, ALL)),
    "lite": ((12, 6), SPLIT),
    "feather": ((8, 4), SPLIT),
    "nano": ((4, 2), SPLIT),
}
CHUNKS = (1, 16, 64, 256)
SOURCE = r"""
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "NAM/activations.h"
#include "NAM/dsp.h"
#include "NAM/get_dsp.h"
#include "weft_model.h"

using Clock = std::chrono::steady_clock;
constexpr int kSteps = 8192, kTurns = 15;

template <typename Steps>
void least(double& best, Steps steps) {
  const auto start = Clock::now();
  steps();
  best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kSteps);
}

int main(int, char** arguments) {
  const std::string folder = arguments[1], name = arguments[2];
  const bool fast = std::string(arguments[3]) == "fast";
  if (fast) nam::activations::Activation::enable_fast_tanh();
  else nam::activations::Activation::disable_fast_tanh();
  void* library = dlopen((folder + "/" + name + "/lib" + name + ".so").c_str(), RTLD_NOW);
  const weft_model* model = ((const weft_model* (*)())dlsym(library, (name + "_model").c_str()))();
  const size_t align = model->state_align;
  void* state = aligned_alloc(align, (model->state_bytes + align - 1) / align * align);
  std::vector<double> x(kSteps), theirs(kSteps);
  std::vector<float> single(kSteps), ours(kSteps), zeros(kSteps);
  for (int t = 0; t < kSteps; ++t) x[t] = single[t] = std::sin(0.37f * t) * std::cos(0.011f * t);
  for (int i = 4; arguments[i] != nullptr; ++i) {
    const int chunk = std::stoi(arguments[i]);
    std::unique_ptr<nam::DSP> peer = nam::get_dsp(std::filesystem::path(folder + "/" + name + ".nam"));
    double peer_ns = INFINITY, our_ns = INFINITY, error = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      peer->Reset(48000, chunk);  // and runs zeros until nothing changes
      least(peer_ns, [&] {
        for (int t = 0; t < kSteps; t += chunk) {
          double *in[] = {&x[t]}, *out[] = {&theirs[t]};
          peer->process(in, out, chunk);
        }
      });
      const auto run = [&](const float* from) {
        for (int t = 0; t < kSteps; t += chunk) {
          const void* inputs[] = {from + t};
          void* outputs[] = {&ours[t]};
          model->run(state, inputs, outputs, chunk);
        }
      };
      model->reset(state);
      run(zeros.data());
      least(our_ns, [&] { run(single.data()); });
    }
    for (int t = 0; t < kSteps; ++t) error = std::max(error, std::fabs(ours[t] - theirs[t]));
    std::printf("%d %g %g %g\n", chunk, peer_ns, our_ns, error);
  }
}
"""


class Layer(nn.Module):
    """A dilated convolution, to which the model's input is added, with a residual connection from the layer's own
    input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mixin, self.out = nn.Conv1d(1, channels, 1, bias=False), nn.Conv1d(channels, channels, 1)

    def forward(self, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, channels, T] and [B, 1, T] to the next layer's input and what goes to the head."""
        z = torch.tanh(self.conv(nn.functional.pad(y, (self.past, 0))) + self.mixin(x))
        return y + self.out(z), z


class Array(nn.Module):
    """Layers, and a head that adds up what they have found."""

    def __init__(self, inputs: int, channels: int, head: int, dilations: list[int], bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, channels, 1, bias=False)
        self.layers = nn.ModuleList([Layer(channels, dilation) for dilation in dilations])
        self.head = nn.Conv1d(channels, head, 1, bias=bias)

    def forward(self, y: Tensor, x: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        y = self.first(y)
        for layer in self.layers:
            y, z = layer(y, x)
            total = z if total is None else total + z
        return y, self.head(total)


class WaveNet(nn.Module):
    """An amplifier's model, [B, 1, T] to [B, 1, T]."""

    def __init__(self, name: str) -> None:
        super().__init__()
        (wide, narrow), (first, second) = SIZES[name]
        self.arrays = nn.ModuleList([Array(1, wide, narrow, first, False), Array(wide, narrow, 1, second, True)])
        self.scale = 0.02

    def forward(self, x: Tensor) -> Tensor:
        y, total = x, None
        for array in self.arrays:
            y, total = array(y, x, total)
        return self.scale * total

    def weights(self) -> list[float]:
        """In the order of a .nam file."""
        return [*torch.cat([each.flatten() for each in self.parameters()]).tolist(), self.scale]

    def config(self) -> dict[str, object]:
        """As a .nam file has it."""
        layers = [
            {
                "input_size": array.first.in_channels,
                "condition_size": 1,
                "head_size": array.head.out_channels,
                "channels": array.first.out_channels,
                "kernel_size": 3,
                "dilations": [layer.past // 2 for layer in array.layers],
                "activation": "Tanh",
                "gated": False,
                "head_bias": array.head.bias is not None,
            }
            for array in self.arrays
        ]
        return {"layers": layers, "head": None, "head_scale": self.scale}


def write_model(name: str, folder: Path) -> None:
    torch.manual_seed(len(name))
    module = WaveNet(name).eval()
    weft.package(module, torch.randn(1, 1, 60), folder / name, time=2)
    file = {"version": "0.5.0", "architecture": "WaveNet", "config": module.config(), "weights": module.weights()}
    (folder / f"{name}.nam").write_text(json.dumps(file))


def build(sources: Path, folder: Path) -> list[str]:
    """The programs that measure, one for each way to compile the peer."""
    include = [sources, sources / "Dependencies" / "eigen", sources / "Dependencies" / "nlohmann"]
    headers = Path(weft.__file__).parent / "_packages"
    paths = [word for each in (*include, "/usr/include/eigen3", headers) for word in ("-I", str(each))]
    files = [str(each) for each in sorted((sources / "NAM").rglob("*.cpp"))]
    flags = ["-std=c++20", "-O3", "-march=native", "-ffast-math", "-DNDEBUG", "-DNAM_ENABLE_A2_FAST"]
    (folder / "nam.cpp").write_text(SOURCE)
    programs = []
    for name, own in (("nam_eigen", []), ("nam_own", ["-DNAM_USE_INLINE_GEMM"])):
        command = ["g++", *flags, *own, *paths, "nam.cpp", *files, "-ldl", "-o", name]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        programs.append(str(folder / name))
    return programs


def table(sources: Path, names: tuple[str, ...] = tuple(SIZES)) -> str:
    """The nanoseconds that a sample takes. Raises AssertionError where results differ by more than tanh's error."""
    lines = [
        "| ns a sample | a call's samples | package | NAM, tanh of the C library | NAM, fast tanh |",
        "|---|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        programs = build(sources, folder)
        for name in names:
            write_model(name, folder)
            found: dict[tuple[str, int], list[float]] = {}
            for tanh in ("exact", "fast"):
                for program in programs:
                    command = [program, str(folder), name, tanh, *map(str, CHUNKS)]
                    for line in subprocess.check_output(command, text=True).splitlines():
                        chunk, peer, ours, error = line.split()
                        assert float(error) < (1e-5 if tanh == "exact" else 2e-3), line
                        found.setdefault((tanh, int(chunk)), []).append(float(peer))
                        found.setdefault(("ours", int(chunk)), []).append(float(ours))
            for chunk in CHUNKS:
                least = min(found["ours", chunk])
                peers = [min(found[tanh, chunk]) for tanh in ("exact", "fast")]
                others = " | ".join(f"{each:.0f} ({each / least:.2f}x)" for each in peers)
                lines.append(f"| WaveNet, {name} | {chunk} | {least:.0f} | {others} |")
    return "\n".join(lines)
