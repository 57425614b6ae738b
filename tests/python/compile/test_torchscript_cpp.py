"""A scripted module loaded by a program in C++ (docs/torchscript.md): on PyTorch's kernels, and on Weft's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import weft

PROGRAM = """
#include <dlfcn.h>
#include <torch/script.h>
#include <cstdio>

int main(int argc, char** argv) {
  if (argc > 2 && dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) == nullptr) return std::printf("%s\\n", dlerror()), 1;
  c10::InferenceMode guard;
  torch::jit::Module module = torch::jit::load(argv[1]);
  for (int64_t steps : {5, 9}) {
    at::Tensor y = module.forward({torch::arange(steps * 12).reshape({3, steps, 4}) / 50.0}).toTensor();
    std::printf("%.5f\\n", y.to(torch::kDouble).sum().item<double>());
  }
}
"""
TORCH = Path(torch.__path__[0])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6, 2, batch_first=True)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(self.gru(x)[0])[0]


@pytest.mark.skipif(os.environ.get("WEFT_SWEEP") != "all", reason="compiles with PyTorch's headers: make nightly")
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_loaded_without_an_interpreter(tmp_path: Path) -> None:
    model = Model().eval()
    torch.jit.script(model).save(str(tmp_path / "model.pt"))
    with weft.disabled(), torch.no_grad():
        inputs = [torch.arange(steps * 12).reshape(3, steps, 4) / 50.0 for steps in (5, 9)]
        expected = [model(x).double().sum().item() for x in inputs]
    (tmp_path / "main.cpp").write_text(PROGRAM)
    include = [f"-I{TORCH / path}" for path in ("include", "include/torch/csrc/api/include")]
    libraries = [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu"]
    command = ["g++", "-std=c++20", "main.cpp", *include, *libraries, "-lc10", "-ldl", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)

    def run(*arguments: str, **environment: str) -> list[float]:
        done = subprocess.run(
            ["./main", "model.pt", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [float(line) for line in done.stdout.split()]

    assert run() == pytest.approx(expected, abs=1e-3)
    python = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("INSTSONAME"))
    if python.suffix == ".a" or not python.exists():
        pytest.skip("this Python has no shared library")
    dump = tmp_path / "dump"
    dump.mkdir()
    module = str(Path(weft._C.__file__))
    assert run(module, LD_PRELOAD=str(python), WEFT_DUMP=str(dump)) == pytest.approx(expected, abs=1e-3)
    assert any(dump.iterdir()), "Weft's kernels have not run"
