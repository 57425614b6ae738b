"""A package's files: what objects need and export, what C, C++, CMake and Rust make of the folder, the command."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from package_checks import assert_close
from torch import Tensor, nn

import weft
from weft import _C
from weft._command_line import main


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def test_nothing_but_arithmetic(tmp_path: Path) -> None:
    """No function of anybody's is called, and nothing but the model's name is exported."""
    torch.manual_seed(9)
    for target in packaged.NATIVE:
        folder = weft.package(nn.LSTM(3, 21, 2), torch.randn(4, 3), tmp_path / "model", targets=target)
        found = packaged.symbols(folder / f"model.{target}.o")
        assert [name for kind, name in found if kind == "U"] == []
        exported = {name for kind, name in found if kind.isupper()}
        assert exported == {"model_model", f"model_model_{target.replace('-', '_')}"}


FORMATS = {
    "aarch64-macos": "Mach-O arm64",
    "x86-64-v3-macos": "Mach-O 64-bit x86-64",
    "x86-64-v3-windows": "COFF-x86-64",
}


@pytest.mark.parametrize("target", FORMATS)
def test_objects_of_other_systems(target: str, tmp_path: Path) -> None:
    """As far as LLVM's tools tell: their format, what they export, and that they need nothing but a linker's mark."""
    folder = weft.package(nn.LSTM(3, 21, 2), torch.randn(4, 3), tmp_path / "model", targets=target)
    command = ["llvm-readobj-19", "--file-headers", "--symbols", str(folder / f"model.{target}.o")]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"Format: {FORMATS[target]}" in text
    names = subprocess.run(["llvm-nm-19", command[-1]], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {name.split()[-1] for name in names if " U " in name} <= {"_fltused"}
    getter = f"model_model_{target.replace('-', '_')}"
    assert any(name.split()[-1].removeprefix("_") == getter and " T " in name for name in names)
    listed = subprocess.run(["llvm-ar-19", "t", str(folder / "libmodel.a")], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [f"model.{target}.o"]
    # Each system's linker reads the table of symbols in its own form: BSD's is a member of this name.
    assert (b"__.SYMDEF" in (folder / "libmodel.a").read_bytes()) == target.endswith("macos")


def test_a_library_of_several_chooses(tmp_path: Path) -> None:
    torch.manual_seed(10)
    module, x = nn.GRU(2, 12), torch.randn(5, 2)
    if dict(_C.package_targets())[_C.package_host()] != "x86_64":
        pytest.skip("only x86-64 has several")
    folder = weft.package(module, x, tmp_path / "several", targets=["x86-64", "x86-64-v4", "x86-64-v3", "aarch64"])
    model = weft.load(folder / "libseveral.so")
    assert model.target == _C.package_host()
    assert_close(model.run(x), module(x)[0])
    assert {path.name for path in folder.iterdir()} >= {
        "libseveral.a",
        "libseveral-aarch64.a",
        "libseveral-aarch64.so",
        "several.aarch64.o",
    }
    facts = json.loads((folder / "several.json").read_text())
    assert list(facts["targets"]) == ["x86-64", "x86-64-v4", "x86-64-v3", "aarch64"]
    assert facts["fingerprint"] == f"{model.fingerprint:016x}"
    undefined = subprocess.run(
        ["nm", "-D", "--undefined-only", str(folder / "libseveral.so")], capture_output=True, text=True, check=True
    )
    assert undefined.stdout == ""


CPP = """
#include <cstdio>
#include "amp.hpp"
int main() {
  weft::State state(amp::model());
  if (!state.ok()) return 1;
  float x[1] = {0.5f}, y[8];
  const void* inputs[] = {x};
  void* outputs[] = {y};
  for (int t = 0; t < 3; ++t)
    if (state.step(inputs, outputs) != WEFT_OK) return 1;
  weft::State copy = state;
  if (copy.step(inputs, outputs) != WEFT_OK || state.model() != copy.model()) return 1;
  std::printf("%.9g", y[0]);
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang-19", "g++", "clang++-19"])
def test_the_folder_compiles(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    torch.manual_seed(11)
    module = nn.GRU(1, 8)
    folder = weft.package(module, torch.randn(3, 1), tmp_path / "amp")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    if "+" in compiler:
        (folder / "main.cpp").write_text(CPP)
        command = [compiler, "-std=c++17", *strict, "main.cpp", "libamp.a", "-o", "main"]
    else:
        command = [compiler, "-std=c11", *strict, "example.c", "libamp.a", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    said = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout
    if "+" in compiler:
        assert float(said) == pytest.approx(module(torch.full((4, 1), 0.5))[0][-1, 0].item(), abs=1e-6)
    else:
        expected = " ".join(f"{value:.6g}" for value in module(torch.zeros(10, 1))[0][-1].tolist())
        assert said.splitlines()[0].startswith(f"amp on {_C.package_host()}")
        numbers = [float(word) for word in said.splitlines()[1].split()[1:]]
        assert numbers == pytest.approx([float(word) for word in expected.split()], abs=1e-5)


def test_cmake_finds_it(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    folder = weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "amp")
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES C)\n"
        f"find_package(amp CONFIG REQUIRED PATHS {folder} NO_DEFAULT_PATH)\n"
        f"add_executable(main {folder}/example.c)\ntarget_link_libraries(main amp::amp)\n"
    )
    for command in (["cmake", "-B", "build"], ["cmake", "--build", "build"], ["build/main"]):
        subprocess.run(command, cwd=project, check=True, capture_output=True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(18)
    module = nn.LSTM(3, 6, 2)
    torch.save(module.state_dict(), tmp_path / "model.pt")
    folder = tmp_path / "net"
    words = ["package", str(tmp_path / "model.pt"), "-o", str(folder), "--batch", "2"]
    assert main([*words, "--target", _C.package_host(), "--target", "cortex-m4"]) == 0
    assert "a step of nn.LSTM(3, 6, num_layers=2)" in capsys.readouterr().out
    x = torch.randn(5, 2, 3)
    assert_close(weft.load(folder / "libnet.so").run(x), module(x)[0])
    assert (folder / "libnet-cortex-m4.a").exists()
    assert main([*words, "--target", "vax"]) == 2
    assert capsys.readouterr().err.startswith("weft package: there is no target 'vax'")
    torch.save(nn.GRU(3, 6, bidirectional=True).state_dict(), tmp_path / "model.pt")
    assert main(words) == 2
    assert "bidirectional" in capsys.readouterr().err


def test_rust_calls_it(tmp_path: Path) -> None:
    if shutil.which("rustc") is None:
        pytest.skip("there is no rustc")
    torch.manual_seed(19)
    module = nn.GRU(1, 8)
    folder = weft.package(module, torch.randn(3, 1), tmp_path / "amp")
    link = ["-L", str(folder), "-l", "static=amp", "-o", str(tmp_path / "caller")]
    subprocess.run(["rustc", str(packaged.FOLDER / "caller.rs"), "-Adead_code", *link], check=True)
    said = subprocess.run([tmp_path / "caller"], capture_output=True, text=True, check=True).stdout
    assert float(said) == pytest.approx(module(torch.full((4, 1), 0.5))[0][-1, 0].item(), abs=1e-6)


def test_the_header_says_what_a_call_takes_and_gives(tmp_path: Path) -> None:
    """For a model over time it also says how many steps a call takes, and how late each output is."""

    def step(carry: dict[str, Tensor], x: tuple[Tensor, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        count = carry["n"] + x[1]
        return {"n": count}, {"sum": x[0].sum(), "many": count > 3, "wide": x[0].double()[None] * 2}

    x = (torch.zeros(2, 3), torch.tensor(1))
    folder = weft.package(step, ({"n": torch.tensor(0)}, x), tmp_path / "step")
    text = (folder / "step.h").read_text()
    lines = [" ".join(line.split()[1:]) for line in text[: text.index("*/")].splitlines()]
    assert lines == [
        "step: written by Weft. One step of a trained recurrence.",
        "inputs[0] x[0] float32[2,3]",
        "inputs[1] x[1] int64[]",
        "outputs[0] y['sum'] float32[]",
        "outputs[1] y['many'] bool[]",
        "outputs[2] y['wide'] float64[1,2,3]",
        "states[0] carry['n'] int64[]",
        "",
    ]
    assert "CHUNK" not in text
    facts = json.loads((folder / "step.json").read_text())
    assert facts["outputs"][2] == {"name": "y['wide']", "dtype": "f64", "shape": [1, 2, 3]}
    described = weft.load(folder / "libstep.so").outputs
    assert [(str(each.dtype), list(each.shape)) for each in described] == [
        ("torch.float32", []),
        ("torch.bool", []),
        ("torch.float64", [1, 2, 3]),
    ]

    model = nn.Sequential(nn.Conv1d(2, 4, 4, stride=4), nn.Conv1d(4, 4, 3, padding=1)).eval()
    text = (weft.package(model, torch.zeros(1, 2, 64), tmp_path / "net", time=2, delay=4) / "net.h").read_text()
    assert text.startswith("/* net: written by Weft. A model over time; a call takes 4 of its steps.\n")
    assert " *   inputs[0]   x float32[1,2,4]\n *   outputs[0]  y float32[1,4,1], 1 elements late\n" in text
    assert "#define NET_CHUNK 4\n" in text
