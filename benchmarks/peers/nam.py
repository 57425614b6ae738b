"""NeuralAmpModelerCore's LSTM beside packages: both called from C++, in one process that takes turns.

NeuralAmpModelerCore (https://github.com/sdatkinson/NeuralAmpModelerCore) takes 64 samples a call, a package one. Its
tanh is the C library's, or with `enable_fast_tanh` a rational function within 3e-4.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import weft

HIDDEN = (16, 24, 40)
PARTS = ("lstm", "dsp", "activations", "util")
SOURCE = r"""
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "NAM/activations.h"
#include "NAM/lstm.h"
#include "amp16/weft_model.h"

using Clock = std::chrono::steady_clock;
constexpr int kSteps = 4096, kBlock = 64, kTurns = 15;

template <typename Steps>
void least(double& best, Steps steps) {
  const auto start = Clock::now();
  steps();
  best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kSteps);
}

void compare(const std::string& folder, int hidden, bool fast) {
  const std::string name = "amp" + std::to_string(hidden);
  std::vector<float> weights;
  std::ifstream file(folder + "/" + name + ".txt");
  for (float weight; file >> weight;) weights.push_back(weight);
  void* library = dlopen((folder + "/" + name + "/lib" + name + ".so").c_str(), RTLD_NOW);
  const weft_model* model = ((const weft_model* (*)())dlsym(library, (name + "_model").c_str()))();
  const size_t align = model->state_align;
  void* state = aligned_alloc(align, (model->state_bytes + align - 1) / align * align);
  if (fast) nam::activations::Activation::enable_fast_tanh();
  else nam::activations::Activation::disable_fast_tanh();
  std::vector<double> x(kSteps), theirs(kSteps);
  std::vector<float> single(kSteps), ours(kSteps);
  for (int t = 0; t < kSteps; ++t) x[t] = single[t] = std::sin(0.37f * t) * std::cos(0.011f * t);
  double peer_ns = INFINITY, our_ns = INFINITY, error = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<float> copied = weights;
    nam::lstm::LSTM peer(1, 1, 1, 1, hidden, copied, 48000);
    least(peer_ns, [&] {
      for (int t = 0; t < kSteps; t += kBlock) {
        double *in[] = {&x[t]}, *out[] = {&theirs[t]};
        peer.process(in, out, kBlock);
      }
    });
    model->reset(state);
    least(our_ns, [&] {
      for (int t = 0; t < kSteps; ++t) {
        const void* inputs[] = {&single[t]};
        void* outputs[] = {&ours[t]};
        model->step(state, inputs, outputs);
      }
    });
  }
  for (int t = 0; t < kSteps; ++t) error = std::max(error, std::fabs(ours[t] - theirs[t]));
  std::printf("%d %g %g %g\n", hidden, peer_ns, our_ns, error);
}

int main(int, char** arguments) {
  for (bool fast : {false, true})
    for (int hidden : {16, 24, 40}) compare(arguments[1], hidden, fast);
}
"""


class Amp(nn.Module):
    """An amplifier's model: an LSTM and a line, a sample a step."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(1, hidden, batch_first=True), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0])

    def weights(self) -> list[float]:
        """In the order of a .nam file: weights of input and state beside each other, biases, states, the line."""
        lstm, states = self.lstm, torch.zeros(2 * self.lstm.hidden_size)
        beside = torch.cat([lstm.weight_ih_l0, lstm.weight_hh_l0], 1).flatten()
        all_of_them = [beside, lstm.bias_ih_l0 + lstm.bias_hh_l0, states, self.out.weight.flatten(), self.out.bias]
        return torch.cat(all_of_them).tolist()


def write_models(folder: Path) -> None:
    for hidden in HIDDEN:
        torch.manual_seed(hidden)
        module = Amp(hidden).eval()
        weft.package(module, torch.randn(1, 50, 1), folder / f"amp{hidden}", time=1)
        (folder / f"amp{hidden}.txt").write_text(" ".join(f"{weight:.9g}" for weight in module.weights()))


def table(sources: Path) -> str:
    """The nanoseconds that a sample takes. Raises AssertionError where results differ by more than tanh's error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder)
        (folder / "nam.cpp").write_text(SOURCE)
        include = [sources, sources / "Dependencies" / "eigen", sources / "Dependencies" / "nlohmann"]
        paths = [word for each in (*include, "/usr/include/eigen3", folder) for word in ("-I", str(each))]
        files = [str(sources / "NAM" / f"{part}.cpp") for part in PARTS]
        flags = ["-std=c++20", "-O3", "-march=native", "-ffast-math", "-DNDEBUG"]
        command = ["g++", *flags, *paths, "nam.cpp", *files, "-ldl", "-o", "nam"]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        rows = [
            line.split() for line in subprocess.check_output(["./nam", str(folder)], cwd=folder, text=True).splitlines()
        ]
    exact, fast = rows[: len(HIDDEN)], rows[len(HIDDEN) :]
    assert all(float(row[3]) < 1e-5 for row in exact), exact
    assert all(float(row[3]) < 2e-3 for row in fast), fast
    lines = ["| ns a sample | package | NAM, tanh of the C library | NAM, fast tanh |", "|---|---:|---:|---:|"]
    for (hidden, peer, ours, _), (_, quick, again, _) in zip(exact, fast, strict=True):
        least = min(float(ours), float(again))
        others = " | ".join(f"{float(each):.0f} ({float(each) / least:.2f}x)" for each in (peer, quick))
        lines.append(f"| LSTM 1-{hidden}-1 | {least:.0f} | {others} |")
    return "\n".join(lines)
