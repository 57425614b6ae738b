"""Packages with narrow weights: what they compute beside PyTorch with the weights rounded in the same way."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import package_checks
import packaged
import pytest
import torch
from torch import Tensor, nn

import weft
from weft import _C
from weft._command_line import main

TYPES = ["int8", "bfloat16", "float16"]
BYTES = {"int8": 1, "bfloat16": 2, "float16": 2}


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def rounded(weight: Tensor, quantize: str, dim: int = 1) -> Tensor:
    """A weight as numbers of a narrow type; `dim` is the one that a product sums over."""
    if quantize != "int8":
        return weight.to(getattr(torch, quantize)).float()
    most = weight.abs().amax(dim, keepdim=True)
    scale = torch.where(most > 0, most / 127, torch.ones_like(most))
    return (weight / scale).round().clamp(-127, 127) * scale


def with_rounded_weights(module: nn.Module, quantize: str) -> nn.Module:
    made = copy.deepcopy(module)
    for name, parameter in made.named_parameters():
        if "weight" in name:
            parameter.data = rounded(parameter.data, quantize)
    return made


MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "gru": lambda: nn.GRU(5, 32),
    "gru of 2 layers": lambda: nn.GRU(3, 7, 2),
    "gru of one": lambda: nn.GRU(1, 1),
    "gru without bias": lambda: nn.GRU(1, 8, bias=False),
    "lstm with projection": lambda: nn.LSTM(5, 20, 2, proj_size=3),
    "lstm of 100": lambda: nn.LSTM(2, 100),
    "tanh": lambda: nn.RNN(3, 17, 2),
}


@pytest.mark.parametrize("quantize", TYPES)
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, quantize: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)
    module = MODULES[name]()
    module.weight_hh_l0.data[:2] *= 1e-6  # rows that one scale for all would lose
    module.weight_hh_l0.data[-1] = 0
    for rows, target in itertools.product(((), (3,)), packaged.NATIVE):
        x = torch.randn(9, *rows, module.input_size)
        expected = with_rounded_weights(module, quantize)(x)[0]
        path = tmp_path_factory.mktemp("packages") / "model"
        folder = weft.package(module, x, path, targets=target, quantize=quantize)
        model = packaged.loaded(folder, tmp_path_factory)
        found = model.run(x)
        package_checks.assert_close(found, expected)
        if quantize == "int8":
            package_checks.assert_close(found, weft.quantize(module)(x)[0])
        model.reset()
        assert torch.equal(torch.stack([model.step(each) for each in x]), found)


@pytest.mark.parametrize("target", packaged.MACHINES)
def test_modules_under_emulators(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(4)
    for module, quantize in itertools.product((nn.GRU(3, 20, 2), nn.LSTM(5, 33)), TYPES):
        x = torch.randn(6, 2, module.input_size)
        path = tmp_path_factory.mktemp("packages") / "model"
        folder = weft.package(module, x, path, targets=target, quantize=quantize)
        (found,) = packaged.run(folder, target, [x], 6, {"y": (torch.float32, (2, module.hidden_size))})
        package_checks.assert_close(found, with_rounded_weights(module, quantize)(x)[0])


def test_modules_that_have_8_bits_keep_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The weights of weft.quantize's modules are stored as the integers that they are, with scales of 1."""
    torch.manual_seed(5)
    module, x = weft.quantize(nn.LSTM(3, 20)), torch.randn(7, 3)
    path = tmp_path_factory.mktemp("packages")
    narrow, wide = (weft.package(module, x, path / name, quantize=q) for name, q in (("a", "int8"), ("b", None)))
    found = [packaged.loaded(folder, tmp_path_factory).run(x) for folder in (narrow, wide)]
    package_checks.assert_close(*found, 1e-6)
    assert facts(narrow)["weights"]["bytes"] < facts(wide)["weights"]["bytes"] / 2


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / f"{folder.name}.json").read_text())


def products(w: dict[str, Tensor], h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Products in all places: of parts, in slices, by both ways of lying, and where no block of columns has them."""
    both = torch.cat([x, h]) @ w["both"]
    gates = torch.nn.functional.linear(h, w["gates"])
    a, b = gates[:11], gates[11:]
    focus = torch.sigmoid(h @ w["focus"])  # of one column: read by each block
    h = torch.tanh(both + a * focus + (x @ w["in"]) * b) * (x @ w["in"]).amax()
    return h, (h @ w["out"]).flip(0)


@pytest.mark.parametrize("target", [*packaged.NATIVE, "aarch64", "cortex-m4"])
@pytest.mark.parametrize("quantize", TYPES)
def test_steps(quantize: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(6)
    sizes = {"both": (16, 11), "gates": (22, 11), "focus": (11, 1), "in": (5, 11), "out": (11, 3)}
    w = {name: torch.randn(*size) / 3 for name, size in sizes.items()}
    near = {name: rounded(each, quantize, 1 if name == "gates" else 0) for name, each in w.items()}
    init, xs = torch.randn(11) / 3, torch.randn(8, 5)
    expected = package_checks.carry_and_outputs(lambda h, x: products(near, h, x), init, xs, 8)[1]
    path = tmp_path_factory.mktemp("packages") / "model"
    folder = weft.package(lambda h, x: products(w, h, x), (init, xs[0]), path, targets=target, quantize=quantize)
    if target in packaged.NATIVE:
        found = [packaged.loaded(folder, tmp_path_factory).run(xs)]
    else:
        found = packaged.run(folder, target, [xs], 8, {"y": (torch.float32, (3,))})
    package_checks.assert_close(found[0], expected[0], 5e-6)
    far = package_checks.carry_and_outputs(lambda h, x: products(w, h, x), init, xs, 8)[1][0]
    assert (far - found[0]).abs().max() > 1e-4  # the rounding is seen


@pytest.mark.parametrize("target", [*packaged.NATIVE, "aarch64", "cortex-m4"])
@pytest.mark.parametrize("quantize", TYPES)
def test_products_read_one_at_a_time(quantize: str, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A product whose columns are rows of its reader: it belongs to no block of columns."""
    torch.manual_seed(11)
    w, rows = torch.randn(5, 4), torch.randn(4, 5)
    near, near_rows = rounded(w, quantize, 0), rounded(rows, quantize)

    def step_of(w: Tensor, rows: Tensor) -> package_checks.StepFunction:
        def step(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            s = torch.tanh(s / 2 + (x @ w).unsqueeze(-1) * x - (x @ rows.t()).unsqueeze(-1))
            return s, s

        return step

    init, xs = torch.zeros(4, 5), torch.randn(6, 5)
    (expected,) = package_checks.carry_and_outputs(step_of(near, near_rows), init, xs, 6)[1]
    path = tmp_path_factory.mktemp("packages") / "model"
    folder = weft.package(step_of(w, rows), (init, xs[0]), path, targets=target, quantize=quantize)
    if target in packaged.NATIVE:
        found = packaged.loaded(folder, tmp_path_factory).run(xs)
    else:
        (found,) = packaged.run(folder, target, [xs], 6, {"y": (torch.float32, (4, 5))})
    package_checks.assert_close(found, expected)


@pytest.mark.parametrize("quantize", TYPES)
def test_models_over_time(quantize: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv1d(3, 8, 1), nn.ReLU(), nn.Conv1d(8, 5, 1)).eval()
    xs = torch.randn(1, 3, 20)
    folder = weft.package(model, xs, tmp_path_factory.mktemp("packages") / "model", time=2, quantize=quantize)
    found = packaged.loaded(folder, tmp_path_factory).run(xs.movedim(2, 0).unsqueeze(-1).contiguous())
    package_checks.assert_close(found.squeeze(-1).movedim(0, 2), with_rounded_weights(model, quantize)(xs))


def test_sizes_of_zero(tmp_path_factory: pytest.TempPathFactory) -> None:
    w = torch.zeros(0, 4)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(h + 1 + x @ w)
        return h, h

    for quantize in TYPES:
        path = tmp_path_factory.mktemp("packages") / "model"
        try:
            folder = weft.package(step, (torch.zeros(4), torch.zeros(0)), path, quantize=quantize)
        except RuntimeError as error:  # a product of nothing may have become zeros
            assert "no product by constant weights" in str(error)
            continue
        expected = torch.tanh(torch.tanh(torch.ones(4)) + 1)
        package_checks.assert_close(packaged.loaded(folder, tmp_path_factory).run(torch.zeros(2, 0))[1], expected)


def test_what_is_said_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(8)
    module, x = nn.GRU(3, 16), torch.randn(4, 3)
    plain = weft.package(module, x, tmp_path / "plain")
    assert facts(plain)["weights"] == {"stored_as": "as given", "count": 48 * 19, "bytes": 4 * 48 * 19}
    prints = {facts(plain)["fingerprint"]}
    for quantize in TYPES:
        folder = weft.package(module, x, tmp_path / quantize, quantize=quantize)
        scales = 2 * 48 * 4 if quantize == "int8" else 0
        said = {"stored_as": quantize, "count": 48 * 19, "bytes": BYTES[quantize] * 48 * 19 + scales}
        assert facts(folder)["weights"] == said
        assert f"stored as {quantize}" in (folder / f"{quantize}.h").read_text()
        prints.add(facts(folder)["fingerprint"])
    assert len(prints) == 4
    with pytest.raises(RuntimeError, match="not one of this model"):
        weft.load(tmp_path / "int8" / "libint8.so").restore(weft.load(plain / "libplain.so").save())
    torch.save(module.state_dict(), tmp_path / "model.pt")
    words = ["package", str(tmp_path / "model.pt"), "-o", str(tmp_path / "told"), "--quantize"]
    assert main([*words, "bfloat16"]) == 0 and facts(tmp_path / "told")["weights"]["stored_as"] == "bfloat16"
    assert main([*words, "int4"]) == 2
    assert "invalid choice: 'int4'" in capsys.readouterr().err


def test_what_is_refused(tmp_path: Path) -> None:
    module, x = nn.GRU(3, 4), torch.randn(5, 3)
    with pytest.raises(
        ValueError, match=r"should be one of 'int8', 'int8-dynamic', 'bfloat16', 'float16' or None, got 'int4'"
    ):
        weft.package(module, x, tmp_path / "m", quantize="int4")
    with pytest.raises(ValueError, match=r"quantize should be one of .* or None, got torch.int8"):
        weft.package(module, x, tmp_path / "m", quantize=torch.int8)
    with pytest.raises(
        RuntimeError, match=r"quantize='int8' .* weights \[12, 3\] of float64: give it a model of float32"
    ):
        weft.package(copy.deepcopy(module).double(), x.double(), tmp_path / "m", quantize="int8")
    with pytest.raises(RuntimeError, match=r"quantize='float16' .* the step has no product by constant weights"):
        weft.package(lambda h, x: (h + x, h), (torch.zeros(3), torch.zeros(3)), tmp_path / "m", quantize="float16")
    for value, quantize, match in (
        (float("nan"), "int8", "elements that are not finite"),
        (float("inf"), "bfloat16", "elements that are not finite"),
        (7e4, "float16", "a weight of 70000, which is more than float16 holds: take bfloat16"),
        (3.4e38, "bfloat16", "more than bfloat16 holds: scale the layer"),
    ):
        module.weight_hh_l0.data[1, 2] = value
        with pytest.raises(RuntimeError, match=match):
            weft.package(module, x, tmp_path / "m", quantize=quantize)
    assert not (tmp_path / "m").exists()


def test_a_gru_fits_a_small_microcontroller(tmp_path: Path) -> None:
    """64 units with weights of 8 bits on a Cortex-M4: less than 24 KB of flash and 2 KB of memory."""
    torch.manual_seed(9)
    folder = weft.package(nn.GRU(1, 64), torch.randn(3, 1), tmp_path / "amp", targets="cortex-m4", quantize="int8")
    assert facts(folder)["targets"]["cortex-m4"]["state_bytes"] < 2048
    package_checks.check_flash(folder / "amp.cortex-m4.o", 24 * 1024)


def test_no_target_needs_a_library(tmp_path: Path) -> None:
    """Conversions are instructions or arithmetic: the packager refuses an object that names a function of others."""
    torch.manual_seed(10)
    targets = [name for name, _ in _C.package_targets()]
    for quantize in TYPES:
        folder = weft.package(nn.LSTM(3, 9), torch.randn(3, 3), tmp_path / "m", targets=targets, quantize=quantize)
        for target in packaged.NATIVE:
            assert [name for kind, name in packaged.symbols(folder / f"m.{target}.o") if kind == "U"] == []
        packaged.symbols.cache_clear()
