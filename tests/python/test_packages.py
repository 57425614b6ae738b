"""Packages: what they compute beside PyTorch, natively and under emulators, and that they need nothing of anybody."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import weft
import weft.nn
from weft import _C
from weft._command_line import main
from weft._packages.folder import Contents, Object, write
from weft._packages.steps import Step

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from cells.zoo import CELLS, Size

EMULATED = ["aarch64", "riscv64"]
StepFunction = Callable[[Any, Any], tuple[Any, Any]]


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def loop(step: StepFunction, init: Any, xs: Any, steps: int) -> tuple[Any, list[Tensor]]:
    """In plain PyTorch: the last carry, and the leaves of ys stacked."""
    carry, ys = init, []
    for t in range(steps):
        carry, y = step(carry, pytree.tree_map(lambda x, t=t: x[t], xs))
        ys.append([leaf for leaf in pytree.tree_leaves(y) if leaf is not None])
    return carry, [torch.stack(column) for column in zip(*ys, strict=True)]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if not expected.is_floating_point():
        assert torch.equal(found, expected)
        return
    nan = expected.isnan()
    assert torch.equal(found.isnan(), nan)
    finite = expected.isfinite()
    assert torch.equal(found[~finite & ~nan], expected[~finite & ~nan])
    scale = max(expected[finite].abs().max().item() if finite.any() else 0.0, 1e-3)
    assert (
        (found[finite].double() - expected[finite].double()).abs().max().item() <= tolerance * scale
        if finite.any()
        else True
    )


def check(
    factory: pytest.TempPathFactory,
    step: StepFunction,
    init: Any,
    xs: Any,
    steps: int,
    targets: list[str],
    tolerance: float = 2e-6,
) -> None:
    """Steps of a package of each target beside PyTorch's: outputs, and the last state."""
    expected_carry, expected = loop(step, init, xs, steps)
    x = pytree.tree_map(lambda x: x[0], xs)
    for target in targets:
        folder = factory.mktemp("packages") / "model"
        weft.package(step, (init, x), folder, targets=target)
        if target in packaged.NATIVE:
            model = packaged.loaded(folder, factory)
            found = model.run(*pytree.tree_leaves(xs), steps=steps)
            found = list(found) if isinstance(found, tuple) else [found]
            for state, leaf in zip(model.state.values(), pytree.tree_leaves(expected_carry), strict=True):
                assert_close(state, leaf, tolerance)
        else:
            described = {str(i): (y.dtype, tuple(y.shape[1:])) for i, y in enumerate(expected)}
            found = packaged.run(folder, target, pytree.tree_leaves(xs), steps, described)
        for y, wanted in zip(found, expected, strict=True):
            assert_close(y, wanted, tolerance)


MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "gru": lambda: nn.GRU(5, 32),
    "gru of 3 layers": lambda: nn.GRU(3, 7, 3),
    "gru without bias": lambda: nn.GRU(1, 8, bias=False),
    "lstm": lambda: nn.LSTM(4, 40),
    "lstm with projection": lambda: nn.LSTM(5, 20, 2, proj_size=3),
    "lstm of 128": lambda: nn.LSTM(2, 128),
    "tanh": lambda: nn.RNN(3, 17, 2),
    "relu": lambda: nn.RNN(3, 5, nonlinearity="relu"),
    "batch first": lambda: nn.GRU(3, 9, batch_first=True),
}


@pytest.mark.parametrize("rows", [None, 1, 3])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, rows: int | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)
    module, steps = MODULES[name](), 9
    x = torch.randn(*((steps,) if rows is None else (steps, rows)), module.input_size)
    given = x.transpose(0, 1) if module.batch_first and rows is not None else x
    expected = module(given)[0]
    if module.batch_first and rows is not None:
        expected = expected.transpose(0, 1)
    for target in packaged.NATIVE:
        folder = weft.package(module, given, tmp_path_factory.mktemp("packages") / "model", targets=target)
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), expected)


@pytest.mark.parametrize("target", packaged.MACHINES)
def test_modules_under_emulators(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(4)
    for module in (nn.GRU(3, 20, 2), nn.LSTM(5, 33)):
        x = torch.randn(6, 2, module.input_size)
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model", targets=target)
        width = module.hidden_size
        (found,) = packaged.run(folder, target, [x], 6, {"y": (torch.float32, (2, width))})
        assert_close(found, module(x)[0])


#: Cells that call operators for which there is no machine code.
WITH_EXTERN = {"conv_lstm": "convolution", "kalman": "cholesky"}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    example = CELLS[name](Size(7, 3, 6)).to(torch.float32)
    if example.module is not None:
        example.module.eval()
    targets = [*packaged.NATIVE, *(EMULATED if name in ("attention_decoder", "selective_ssm") else [])]

    def scan(
        step: StepFunction, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, *, dim: int = 0
    ) -> Any:
        xs = pytree.tree_map(lambda x: x.movedim(dim, 0), xs)
        steps = length or pytree.tree_leaves(xs)[0].shape[0]
        if reverse:
            xs = pytree.tree_map(lambda x: x.flip(0), xs)
        check(tmp_path_factory, step, init, xs, steps, targets, 1e-5)
        raise StopIteration

    monkeypatch.setattr(weft, "scan", scan)
    if name in WITH_EXTERN:
        with pytest.raises(RuntimeError, match=f"weft.package: the step has .*{WITH_EXTERN[name]}.*can't be packaged"):
            example()
    else:
        with pytest.raises(StopIteration):
            example()


UNARY = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "abs": torch.abs,
    "sign": torch.sign,
    "gelu": functional.gelu,
    "softplus": functional.softplus,
    "silu": functional.silu,
}
BINARY = {
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "logaddexp": torch.logaddexp,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
#: Made of others, whose roundings are large beside a small result, as they are in PyTorch.
CANCELLING = ("gelu", "softplus", "silu", "remainder")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    -0.3,
    3e-5,
    1e-20,
    20.0,
    -20.0,
    90.0,
    -90.0,
    1e10,
    float("inf"),
    float("-inf"),
    float("nan"),
]


@pytest.mark.parametrize("target", [*packaged.NATIVE, *EMULATED])
def test_functions(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All at once: each within a few units in the last place of PyTorch's, at the edges too."""
    torch.manual_seed(6)
    count = 37
    xs = torch.cat([torch.tensor(SPECIAL), torch.randn(2000) * 3, torch.rand(500) * 60 - 30, torch.randn(500) * 1e-3])
    ys = torch.cat(
        [
            torch.tensor(SPECIAL[::-1]),
            torch.randn(2000) * 3,
            torch.tensor([2.0, -3.0, 0.5, 1.0] * 125),
            torch.randn(500),
        ]
    )
    steps = len(xs) // count
    xs, ys = xs[: steps * count].reshape(steps, count), ys[: steps * count].reshape(steps, count)

    def step(carry: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, list[Tensor]]:
        a, b = x
        return carry, [*(f(a) for f in UNARY.values()), *(f(a, b) for f in BINARY.values())]

    expected = loop(step, torch.zeros(1), (xs.double(), ys.double()), steps)[1]
    folder = tmp_path_factory.mktemp("packages") / "model"
    weft.package(step, (torch.zeros(1), (xs[0], ys[0])), folder, targets=target)
    if target in packaged.NATIVE:
        found = packaged.loaded(folder, tmp_path_factory).run(xs, ys)
    else:
        found = packaged.run(
            folder, target, [xs, ys], steps, {str(i): (torch.float32, (count,)) for i in range(len(expected))}
        )
    for name, y, wanted in zip([*UNARY, *BINARY], found, expected, strict=True):
        rounded = wanted.float()
        large = (xs.abs() > 1e6) if name in ("sin", "cos") else torch.zeros_like(xs, dtype=torch.bool)
        if name in ("fmod", "remainder"):
            large = (xs / ys).abs() >= 2.0**29
        absolute = 1e-6 if name in CANCELLING else 1e-38
        close = torch.isclose(y.double(), wanted, rtol=6e-7, atol=absolute)
        wrong = ~(close | (y == rounded) | (y.isnan() & rounded.isnan()) | large)
        x1, x2, is_, should_be = (each[wrong][:3].tolist() for each in (xs, ys, y, rounded))
        assert not wrong.any(), f"{name}({x1}, {x2}) = {is_}, not {should_be}"
        assert y[large].isnan().all() or name not in ("sin", "cos")


def movement_step(carry: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
    """What moves elements: the newest row into a window of rows, and views of all kinds."""
    window = torch.cat([carry["window"][1:], x[None]])
    turned = window.t().contiguous()
    padded = functional.pad(x, (2, 3))
    scores = torch.softmax(window @ x, 0)
    mixed = scores @ window
    grid = window.reshape(2, 3, 5)
    parts = [grid.sum(1), grid.amax((0, 2)), grid.mean(), grid.flip(0)[..., :3], turned[1::2], window.flip(1)]
    after = {"window": window, "count": carry["count"] + 1, "last": torch.stack([x[0], carry["last"][0]])}
    return after, [padded, mixed, *parts, carry["count"].float() * x, x.view(1, 5).expand(3, 5).cumsum(0)[2]]


@pytest.mark.parametrize("target", [*packaged.NATIVE, *EMULATED])
def test_movement(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(7)
    carry = {"window": torch.randn(6, 5), "count": torch.tensor(3), "last": torch.zeros(2)}
    check(tmp_path_factory, movement_step, carry, torch.randn(9, 5), 9, [target])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(8)
    w, u, b = torch.randn(9, 4).to(dtype), torch.randn(9, 9).to(dtype) / 3, torch.randn(9).to(dtype)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(functional.linear(x, w, b) + functional.linear(h, u))
        return h, h * 2

    tolerance = {torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    check(
        tmp_path_factory,
        step,
        torch.zeros(2, 9, dtype=dtype),
        torch.randn(5, 2, 4).to(dtype),
        5,
        [*packaged.NATIVE, "aarch64"],
        tolerance,
    )


def embedding_step(h: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    h = torch.tanh(h + TABLE[x])
    return h, (h, x // 3)


TABLE = torch.arange(40.0).reshape(8, 5) / 40


def test_an_index_outside_its_table_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    check(tmp_path_factory, embedding_step, torch.zeros(5), torch.tensor([0, 7, 3]), 3, [*packaged.NATIVE, "aarch64"])
    folder = weft.package(
        embedding_step, (torch.zeros(5), torch.tensor(0)), tmp_path_factory.mktemp("packages") / "model"
    )
    model = packaged.loaded(folder, tmp_path_factory)
    model.step(torch.tensor(2))
    before = model.state
    for wrong in (8, -9, 1 << 40):
        with pytest.raises(RuntimeError, match="an index is outside its table"):
            model.step(torch.tensor(wrong))
    assert torch.equal(before["carry"], model.state["carry"])


def test_nothing_but_arithmetic(tmp_path: Path) -> None:
    """No function of anybody's is called, nothing but the model's name is exported, and in a process that may not call
    the system a step runs, between pages that fault."""
    torch.manual_seed(9)
    for target in packaged.NATIVE:
        folder = weft.package(nn.LSTM(3, 21, 2), torch.randn(4, 3), tmp_path / "model", targets=target)
        found = packaged.symbols(folder / f"model.{target}.o")
        assert [name for kind, name in found if kind == "U"] == []
        exported = {name for kind, name in found if kind.isupper()}
        assert exported == {"model_model", f"model_model_{target.replace('-', '_')}"}
    for target in packaged.NATIVE:
        folder = weft.package(nn.GRU(3, 21, 2), torch.randn(4, 3), tmp_path / f"real_{target[-1]}", targets=target)
        program = packaged.build(folder, packaged.FOLDER / "realtime.c", target)
        done = subprocess.run([str(program)], check=False)
        if done.returncode == 77:
            pytest.skip("there is no seccomp here")
        assert done.returncode == 0


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


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(12)
    one = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "one") / "libone.so")
    two = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "two") / "libtwo.so")
    first = one.step(torch.ones(1))
    saved = one.save()
    assert not torch.equal(one.step(torch.ones(1)), first)
    one.reset()
    assert torch.equal(one.step(torch.ones(1)), first)
    with pytest.raises(RuntimeError, match="not one of this model"):
        two.restore(saved)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.restore(saved[:-1])
    one.restore(saved)
    assert list(one.state) == ["carry['h'][0]"]
    ctypes.memset(one._state, 0, 16)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.step(torch.ones(1))


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    model = weft.load(weft.package(nn.GRU(3, 8), torch.randn(3, 3), tmp_path / "fine") / "libfine.so")
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float32\[4\]"):
        model.step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float64\[3\]"):
        model.step(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"takes 1 inputs \(x: float32\[3\]\), but got 2"):
        model.step(torch.zeros(3), torch.zeros(3))
    with pytest.raises(RuntimeError, match="has no function other_model"):
        weft.load(tmp_path / "fine" / "libfine.so", "other")
    with pytest.raises(OSError, match=r"cannot open"):
        weft.load(tmp_path / "libnone.so")
    (tmp_path / "libtext.so").write_text("no library")
    with pytest.raises(OSError, match=f"weft.load: {tmp_path / 'libtext.so'}: "):
        weft.load(tmp_path / "libtext.so")


def test_what_cannot_be_packaged(tmp_path: Path) -> None:
    x = torch.randn(3, 2)
    with pytest.raises(RuntimeError, match="bidirectional: the backward direction of a step needs all steps after it"):
        weft.package(nn.GRU(2, 3, bidirectional=True), x, tmp_path / "m")
    with pytest.raises(RuntimeError, match=r"in training, with dropout between its layers: call eval\(\)"):
        weft.package(nn.GRU(2, 3, 2, dropout=0.5), x, tmp_path / "m")
    with pytest.raises(TypeError, match=r"the example must be an input of the module, \[T, 2\]"):
        weft.package(nn.GRU(2, 3), torch.randn(3, 4), tmp_path / "m")
    with pytest.raises(ValueError, match="there is no target 'x86-64-v5'"):
        weft.package(nn.GRU(2, 3), x, tmp_path / "m", targets="x86-64-v5")
    with pytest.raises(ValueError, match="'a-b' is no name in C"):
        weft.package(nn.GRU(2, 3), x, tmp_path / "a-b")
    with pytest.raises(RuntimeError, match="the step draws random numbers"):
        weft.package(lambda c, x: (c, functional.dropout(x)), (x, x), tmp_path / "m")
    with pytest.raises(ValueError, match="must keep the carry's shapes"):
        weft.package(lambda c, x: (c[:1], x), (x, x), tmp_path / "m")
    with pytest.raises(TypeError, match=r"the example of a step is a tuple \(carry, x\)"):
        weft.package(lambda c, x: (c, x), x, tmp_path / "m")
    with pytest.raises(RuntimeError, match="in float64 packages have exp"):
        weft.package(lambda c, x: (c, torch.sin(x)), (x, x.double()), tmp_path / "m")
    with pytest.raises(RuntimeError, match=r"on cortex-m4 the step needs __extendsfdf2"):
        weft.package(lambda c, x: (c, torch.sin(x)), (x, x), tmp_path / "m", targets="cortex-m4")
    place = r"\(test_packages.py:\d+: return carry, torch.sort\(x\)\[0\] *# here\)"
    with pytest.raises(RuntimeError, match=rf"'extern' \(aten.sort.default\(%0, -1, false\)\) {place}, which can't"):
        weft.package(sorting, (x, x), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def sorting(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return carry, torch.sort(x)[0]  # here


VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "reset before": lambda: weft.nn.GRU(3, 5, 2, reset_after=False),
    "peepholes": lambda: weft.nn.LSTM(3, 9, peepholes=True),
    "layer norm": lambda: weft.nn.LSTM(3, 6, layer_norm=True, cell_clip=0.5),
    "softsign": lambda: weft.nn.RNN(3, 5, activation="softsign"),
    "all at their defaults": lambda: weft.nn.GRU(3, 4),
    "int8": lambda: weft.quantize(nn.LSTM(3, 20)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(13)
    module = VARIANTS[name]().eval()
    for rows in ((), (2,)):
        x = torch.randn(7, *rows, 3)
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), module(x)[0], 5e-6)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_cells_of_pytorch(kind: type[nn.RNNCellBase], tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(14)
    cell, x = kind(3, 7), torch.randn(5, 2, 3)
    folder = weft.package(cell, x[0], tmp_path_factory.mktemp("packages") / "model")
    model, state = packaged.loaded(folder, tmp_path_factory), None
    for t in range(5):
        state = cell(x[t], state)
        assert_close(model.step(x[t]), state[0] if isinstance(state, tuple) else state)


class Doubled(nn.GRU):
    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, h = super().forward(x, h)
        return 2 * y, h


def test_a_modules_own_forward_counts(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(15)
    doubled, hooked, x = Doubled(3, 4), nn.GRU(3, 4), torch.randn(5, 3)
    hooked.register_forward_hook(lambda module, args, result: (result[0] + 1, result[1]))
    for module in (doubled, hooked, nn.utils.parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0")):
        folder = weft.package(module, x, tmp_path_factory.mktemp("packages") / "model")
        assert_close(packaged.loaded(folder, tmp_path_factory).run(x), module(x)[0])


def test_a_loop_in_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(16)
    w = torch.randn(6, 6) / 3

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return weft.scan(lambda h, _: (torch.tanh(h @ w + x), h), h, None, 3)

    init, xs = torch.zeros(6), torch.randn(8, 6)
    folder = weft.package(step, (init, xs[0]), tmp_path_factory.mktemp("packages") / "model")
    with weft.disabled():
        _, (expected,) = loop(step, init, xs, 8)
    assert_close(packaged.loaded(folder, tmp_path_factory).run(xs), expected, 5e-6)


BRANCH = """
program @branch(%h: f32[4], %x: f32[4]) {
  %sum = reduce_sum %x {dims = [0]} : f32[]
  %zero = constant {value = 0} : f32[]
  %positive = gt %sum, %zero : bool[]
  %next = cond %positive then {
    %a = add %h, %x : f32[4]
    yield %a
  } else {
    %b = tanh %h : f32[4]
    yield %b
  } : f32[4]
  return %next, %h
}
"""


def test_a_branch_in_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(17)
    step = Step(_C.Program(BRANCH), {"h": torch.zeros(4)}, {"x": torch.zeros(4)}, [], ["y"])
    objects = {target: Object(**step.model("model").compile(target)) for target in packaged.NATIVE}
    path = tmp_path_factory.mktemp("packages") / "model"
    write(path, Contents("model", step, objects))
    model, h = packaged.loaded(path, tmp_path_factory), torch.zeros(4)
    for x in torch.randn(6, 4):
        assert_close(model.step(x), h)
        h = h + x if x.sum() > 0 else h.tanh()


def test_sizes_of_zero_and_no_inputs(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return carry + 1, torch.cat([x, x + 1]) * carry

    check(tmp_path_factory, step, torch.zeros(()), torch.zeros(3, 0), 3, packaged.NATIVE)
    folder = weft.package(lambda c, x: (c * 0.5, c), (torch.ones(2, 3), None), tmp_path_factory.mktemp("p") / "model")
    model = packaged.loaded(folder, tmp_path_factory)
    assert model.inputs == [] and model.run(steps=0).shape == (0, 2, 3)
    assert torch.equal(model.run(steps=3)[2], torch.full((2, 3), 0.25))


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


def test_restoring_anything(tmp_path: Path) -> None:
    """Bytes of any kind are another model's, or a state that goes on."""
    torch.manual_seed(20)
    model = weft.load(weft.package(nn.LSTM(1, 5), torch.randn(3, 1), tmp_path / "any") / "libany.so")
    saved = model.save()
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        size = int(torch.randint(0, 2 * len(saved), (), generator=generator))
        data = bytes(torch.randint(0, 256, (size,), generator=generator).tolist())
        with pytest.raises(RuntimeError, match="not one of this model"):
            model.restore(data)
        if size >= len(saved):
            model.restore(saved[:8] + data[8 : len(saved)])
            assert model.step(torch.ones(1)).shape == (5,)


def test_a_package_that_is_written_again_is_loaded_again(tmp_path: Path) -> None:
    for seed in (21, 22):
        torch.manual_seed(seed)
        module, x = nn.GRU(2, 5), torch.randn(4, 2)
        model = weft.load(weft.package(module, x, tmp_path / "again") / "libagain.so")
        assert_close(model.run(x), module(x)[0])
