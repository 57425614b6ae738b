"""RTNeural beside packages: both called from C++, a step a call, in one process that takes turns.

RTNeural (https://github.com/jatinchowdhury18/RTNeural) has one back end a program. Each is compiled for this processor
as its documentation says, with sizes known to the compiler; one that doesn't compile here is left out.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

import weft

HIDDEN = (8, 16, 32, 64)
KINDS = {"gru": nn.GRU, "lstm": nn.LSTM}
BACK_ENDS = {"Eigen": ("EIGEN", 32), "xsimd": ("XSIMD", 64), "STL": ("STL", 32)}
SOURCE = r"""
#include <RTNeural/RTNeural.h>
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gru8/weft_model.h"

using Clock = std::chrono::steady_clock;
constexpr int kSteps = 4000, kTurns = 15;

template <typename Step>
void least(double& best, Step step) {
  const auto start = Clock::now();
  for (int t = 0; t < kSteps; ++t) step(t);
  best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kSteps);
}

template <int H, bool kGru>
void compare(const std::string& folder) {
  using Layer = std::conditional_t<kGru, RTNeural::GRULayerT<float, 1, H>, RTNeural::LSTMLayerT<float, 1, H>>;
  auto* peer = new RTNeural::ModelT<float, 1, H, Layer>;
  const std::string name = (kGru ? "gru" : "lstm") + std::to_string(H);
  nlohmann::json weights;
  std::ifstream(folder + "/" + name + ".json") >> weights;
  if constexpr (kGru) RTNeural::torch_helpers::loadGRU<float>(weights, "", peer->template get<0>());
  else RTNeural::torch_helpers::loadLSTM<float>(weights, "", peer->template get<0>());
  void* library = dlopen((folder + "/" + name + "/lib" + name + ".so").c_str(), RTLD_NOW);
  const weft_model* model = ((const weft_model* (*)())dlsym(library, (name + "_model").c_str()))();
  const size_t align = model->state_align;
  void* state = aligned_alloc(align, (model->state_bytes + align - 1) / align * align);
  std::vector<float> x(kSteps), theirs(kSteps * H), ours(kSteps * H);
  for (int t = 0; t < kSteps; ++t) x[t] = std::sin(0.37f * t) * std::cos(0.011f * t);
  double peer_ns = INFINITY, our_ns = INFINITY, error = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    peer->reset();
    least(peer_ns, [&](int t) {
      alignas(64) float in[16] = {x[t]};
      peer->forward(in);
      std::copy_n(peer->getOutputs(), H, &theirs[t * H]);
    });
    model->reset(state);
    least(our_ns, [&](int t) {
      const void* inputs[] = {&x[t]};
      void* outputs[] = {&ours[t * H]};
      model->step(state, inputs, outputs);
    });
  }
  for (int i = 0; i < kSteps * H; ++i) error = std::max(error, double(std::fabs(ours[i] - theirs[i])));
  std::printf("%s %g %g %g\n", name.c_str(), peer_ns, our_ns, error);
}

int main(int, char** arguments) {
  const std::string folder = arguments[1];
  compare<8, true>(folder), compare<16, true>(folder), compare<32, true>(folder), compare<64, true>(folder);
  compare<8, false>(folder), compare<16, false>(folder), compare<32, false>(folder), compare<64, false>(folder);
}
"""
#: Releases of xsimd before 9 have other names for it.
OLD_XSIMD = """
#include <xsimd/xsimd.hpp>
#if XSIMD_VERSION_MAJOR < 9
namespace xsimd { template <class T, class A> T reduce_add(const batch<T, A>& x) { return hadd(x); } }
#endif
"""


def write_models(folder: Path) -> None:
    for name, kind in KINDS.items():
        for hidden in HIDDEN:
            torch.manual_seed(hidden)
            module = kind(1, hidden).eval()
            weft.package(module, torch.randn(5, 1), folder / f"{name}{hidden}")
            weights = {key: value.tolist() for key, value in module.state_dict().items()}
            (folder / f"{name}{hidden}.json").write_text(json.dumps(weights))


def build(sources: Path, folder: Path, back_end: str) -> Path | None:
    """The program for a back end; None where it doesn't compile."""
    macro, alignment = BACK_ENDS[back_end]
    (folder / "rtneural.cpp").write_text(SOURCE)
    (folder / "old_xsimd.h").write_text(OLD_XSIMD)
    program = folder / back_end
    flags = ["-std=c++17", "-O3", "-march=native", "-ffast-math", "-DNDEBUG", f"-DRTNEURAL_USE_{macro}=1"]
    flags += [f"-DRTNEURAL_DEFAULT_ALIGNMENT={alignment}", *(["-include", "old_xsimd.h"] if macro == "XSIMD" else [])]
    modules = sources / "modules"  # the repository has Eigen there; a checkout with its submodule, xsimd too
    include = [sources, modules / "json", modules, modules / "Eigen", modules / "xsimd" / "include"]
    include += ["/usr/include/eigen3", folder]
    paths = [word for each in include for word in ("-I", str(each))]
    command = ["g++", *flags, *paths, "rtneural.cpp", "-ldl", "-o", str(program)]
    return program if subprocess.run(command, cwd=folder, capture_output=True).returncode == 0 else None


def table(sources: Path) -> str:
    """The nanoseconds that a step takes with each back end, and with packages. Raises AssertionError where results
    differ."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder)
        programs = {back_end: build(sources, folder, back_end) for back_end in BACK_ENDS}
        for back_end, program in programs.items():
            if program is None:
                continue
            for line in subprocess.check_output([program, folder], text=True).splitlines():
                model, peer, ours, error = line.split()
                assert float(error) < 1e-5, line
                found.setdefault(model, {})[back_end] = float(peer), float(ours)
    ways = [back_end for back_end, program in programs.items() if program is not None]
    lines = [f"| ns a step | package | {' | '.join(f'RTNeural, {w}' for w in ways)} | package beside the best |"]
    lines.append(f"|---|{'---:|' * (len(ways) + 2)}")
    for model, by_way in found.items():
        ours, best = min(each[1] for each in by_way.values()), min(each[0] for each in by_way.values())
        title = f"{'GRU' if model.startswith('gru') else 'LSTM'}, H {model.lstrip('grulstm')}"
        peers = " | ".join(f"{by_way[w][0]:.0f}" for w in ways)
        lines.append(f"| {title} | {ours:.0f} | {peers} | {best / ours:.2f}x |")
    return "\n".join(lines)
