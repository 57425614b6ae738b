"""Packages whose products multiply bytes: the same integers on every target, and what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bytes_oracle
import package_checks
import packaged
import pytest
import test_package_chunks
import torch
from torch import Tensor, nn
from torch.nn import functional

import weft
from weft import _C
from weft._command_line import main

QUANTIZE = "int8-dynamic"


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def outputs_of(
    step: package_checks.StepFunction,
    init: Any,
    xs: Tensor,
    shape: tuple[int, ...],
    target: str,
    factory: pytest.TempPathFactory,
) -> Tensor:
    """The outputs of a package's steps, natively or under an emulator."""
    path = factory.mktemp("packages") / "model"
    folder = weft.package(step, (init, xs[0]), path, targets=target, quantize=QUANTIZE)
    if target in packaged.NATIVE_BYTES:
        return packaged.loaded(folder, factory).run(xs)
    (found,) = packaged.run(folder, target, [xs], len(xs), {"y": (torch.float32, shape)})
    return found


def assert_bits(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(123.0), expected.nan_to_num(123.0))


# Rows, columns and sizes in front: odd ones, of more than one vector, of a loop of vectors, of sums of more than 2^24.
SHAPES = [
    (16, 32, ()),
    (17, 35, (1,)),
    (31, 33, (3,)),
    (64, 40, ()),
    (100, 70, (2, 3)),
    (257, 33, (2,)),
    (1043, 129, ()),
    (16, 200, (0,)),
]


def stack_of(shape: tuple[int, ...]) -> Tensor:
    """Steps of ordinary numbers, zeros, tiny, subnormal, large ones, one that rounds to ties, and not finite ones."""
    xs = torch.randn(9, *shape)
    xs[1] = 0
    xs[2] *= 1e-33
    xs[3] *= 1e-40
    xs[4] *= 1e30
    xs[5] = (torch.arange(xs[5].numel()).reshape(shape) % 254 - 126.5).clamp(-127, 127)
    xs[5, ..., 0] = 127
    for step, value in ((6, float("nan")), (7, float("inf")), (8, -float("inf"))):
        xs[step].reshape(-1)[-1:] = value
    return xs


@pytest.mark.parametrize("target", [*packaged.NATIVE_BYTES, *packaged.MACHINES_BYTES])
def test_products_have_the_same_bits_everywhere(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(1)
    shapes = SHAPES if target in packaged.NATIVE_BYTES else SHAPES[1:5]
    for rows, columns, front in shapes:
        layer, xs = nn.Linear(rows, columns), stack_of((*front, rows))
        layer.weight[2] = 0
        layer.weight[0] *= 1e-6  # a row that one scale for all would lose

        def step(h: Tensor, x: Tensor, layer: nn.Linear = layer) -> tuple[Tensor, Tensor]:
            y = layer(x)
            return torch.relu(y), y

        expected = bytes_oracle.linear(xs, layer.weight, layer.bias)
        init = torch.zeros(*front, columns)
        assert_bits(outputs_of(step, init, xs, (*front, columns), target, tmp_path_factory), expected)
        if 0 in front:
            continue
        finite = xs[:6]
        error = (expected[:6] - layer(finite)).abs()
        assert (error <= bytes_oracle.bound(finite, layer.weight)).all()
        assert expected[6:].isnan().reshape(3, -1, columns)[:, -1].all()  # no number where one isn't finite
        assert expected[6:].reshape(3, -1, columns)[:, :-1].isfinite().all()  # other rows know nothing of it


def test_small_products_keep_their_activations(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Products of less than 16 rows or 32 columns are those of int8 weights."""
    torch.manual_seed(2)
    for rows, columns in ((15, 40), (40, 31), (1, 64)):
        layer, xs = nn.Linear(rows, columns), torch.randn(5, rows)

        def step(h: Tensor, x: Tensor, layer: nn.Linear = layer) -> tuple[Tensor, Tensor]:
            return h, layer(x)

        found = {}
        for quantize in ("int8", QUANTIZE):
            path = tmp_path_factory.mktemp("packages") / "model"
            folder = weft.package(step, (torch.zeros(1), xs[0]), path, targets=packaged.NATIVE[-1], quantize=quantize)
            found[quantize] = packaged.loaded(folder, tmp_path_factory).run(xs)
        assert torch.equal(found["int8"], found[QUANTIZE])


def test_one_operand_of_products_of_both_kinds(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One that multiplies bytes and one with too few columns for it, in one nest."""
    torch.manual_seed(13)
    wide, narrow, xs = torch.randn(40, 33), torch.randn(10, 33), torch.randn(5, 33)

    def step_of(product: Any) -> package_checks.StepFunction:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            y = product(x, wide)[3:13] * product(x, narrow) + h
            return y, y

        return step

    (expected,) = package_checks.carry_and_outputs(step_of(bytes_oracle.linear), torch.zeros(10), xs, 5)[1]
    for target in packaged.NATIVE_BYTES:
        found = outputs_of(step_of(functional.linear), torch.zeros(10), xs, (10,), target, tmp_path_factory)
        package_checks.assert_close(found, expected)


@pytest.mark.parametrize("rows", [1 << 17, (1 << 17) + 1])
def test_sums_that_32_bits_just_hold(rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All products are 127 * 127. Products of more rows keep their activations."""
    weight, xs = torch.ones(32, rows), torch.ones(2, rows)
    weight[1], xs[1, ::2] = -1, -1

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h, functional.linear(x, weight)

    expected = xs.sum(1, keepdim=True) * weight[:, 0]
    for target in packaged.NATIVE_BYTES:
        found = outputs_of(step, torch.zeros(1), xs, (32,), target, tmp_path_factory)
        package_checks.assert_close(found, expected, 1e-5)


def gates(w: dict[str, Tensor], h: Tensor, x: Tensor, product: Any) -> tuple[Tensor, Tensor]:
    """Products in all places: of parts, in slices, by both ways of lying, two of one operand, of views, and where no
    block of columns has them."""
    both = product(torch.cat([x, h], -1), w["both"].t())
    both = both + product(torch.cat([x[None], h[None]], -1), w["both"].t())[0]
    all_gates = product(h, w["gates"])
    a, b = all_gates[..., :33], all_gates[..., 33:]
    focus = torch.sigmoid(product(h, w["focus"]))[..., 3:5].sum()
    turned = product(h[1:].flip(0), w["turned"])
    h = torch.relu(both + a * focus + b) * 0.5 + torch.cat([turned, turned[:1]])
    h = h / (1 + h.abs().amax())
    rows = product(h[:32].reshape(2, 16), w["rows"])
    return h, rows.transpose(0, 1) * x[:2]


@pytest.mark.parametrize("target", [*packaged.NATIVE_BYTES, "aarch64", "aarch64-dotprod", "cortex-m4", "riscv64"])
def test_products_in_all_places(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(3)
    sizes = {"both": (38, 33), "gates": (66, 33), "focus": (40, 33), "turned": (32, 32), "rows": (34, 16)}
    w = {name: torch.randn(*size) / 5 for name, size in sizes.items()}
    init, xs = torch.randn(33) / 3, torch.randn(8, 5)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return gates(w, h, x, functional.linear)

    def expected_step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return gates(w, h, x, bytes_oracle.linear)

    (expected,) = package_checks.carry_and_outputs(expected_step, init, xs, 8)[1]
    found = outputs_of(step, init, xs, (34, 2), target, tmp_path_factory)
    (exact,) = package_checks.carry_and_outputs(step, init, xs, 8)[1]
    # The first step's integers are the oracle's. Later a rounding in f32 may send one to its neighbour.
    package_checks.assert_close(found[:1], expected[:1], 5e-6)
    package_checks.assert_close(found, expected, 0.02)
    assert (exact - found).abs().max() > 1e-4  # the rounding is seen
    package_checks.assert_close(found, exact, 0.1)


@pytest.mark.parametrize("target", packaged.NATIVE_BYTES)
def test_products_read_one_at_a_time(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Products whose columns are rows of their reader: they belong to no block of columns."""
    torch.manual_seed(4)
    w, rows, xs = torch.randn(20, 34), torch.randn(34, 20), torch.randn(6, 20)

    def step_of(product: Any) -> package_checks.StepFunction:
        def step(s: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            s = s / 2 + product(x, w.t()).unsqueeze(-1) * x - product(x, rows).unsqueeze(-1)
            return s, s

        return step

    init = torch.zeros(34, 20)
    (expected,) = package_checks.carry_and_outputs(step_of(bytes_oracle.linear), init, xs, 6)[1]
    found = outputs_of(step_of(functional.linear), init, xs, (34, 20), target, tmp_path_factory)
    package_checks.assert_close(found, expected)


def gru_step(module: nn.GRU, h: Tensor, x: Tensor) -> Tensor:
    a = bytes_oracle.linear(x, module.weight_ih_l0, module.bias_ih_l0).chunk(3, -1)
    b = bytes_oracle.linear(h, module.weight_hh_l0, module.bias_hh_l0).chunk(3, -1)
    r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
    n = torch.tanh(a[2] + r * b[2])
    return n + z * (h - n)


def lstm_step(module: nn.LSTM, h: Tensor, c: Tensor, x: Tensor) -> Tensor:
    i, f, g, o = (
        bytes_oracle.linear(x, module.weight_ih_l0, module.bias_ih_l0)
        + bytes_oracle.linear(h, module.weight_hh_l0, module.bias_hh_l0)
    ).chunk(4, -1)
    return torch.sigmoid(o) * torch.tanh(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))


@pytest.mark.parametrize("target", packaged.NATIVE_BYTES)
@pytest.mark.parametrize("hidden", [16, 37, 64, 150, 700])
def test_each_step_of_layers(hidden: int, target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """From the same state the integers are the same, so that a step is within float32's rounding of the oracle's."""
    torch.manual_seed(hidden)
    for make, inputs, rows in ((nn.GRU, 1, ()), (nn.GRU, 20, (3,)), (nn.LSTM, 18, ())):
        module, x = make(inputs, hidden), torch.randn(6, *rows, inputs)
        path = tmp_path_factory.mktemp("packages") / "model"
        folder = weft.package(module, x, path, targets=target, quantize=QUANTIZE)
        model = packaged.loaded(folder, tmp_path_factory)
        for each in x:
            state = [value.clone() for value in model.state.values()]
            expected = (gru_step if make is nn.GRU else lstm_step)(module, *state, each)
            package_checks.assert_close(model.step(each), expected.reshape(*rows, hidden), 3e-6)
        model.reset()
        whole = model.run(x)
        package_checks.assert_close(whole, module(x)[0], 0.03)
        model.reset()
        assert torch.equal(torch.stack([model.step(each) for each in x]), whole)


@pytest.mark.parametrize("target", packaged.MACHINES_BYTES)
def test_layers_on_other_machines(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(6)
    for module in (nn.GRU(3, 20, 2), nn.LSTM(17, 33)):
        x = torch.randn(6, 2, module.input_size)
        path = tmp_path_factory.mktemp("packages") / "model"
        folder = weft.package(module, x, path, targets=target, quantize=QUANTIZE)
        (found,) = packaged.run(folder, target, [x], 6, {"y": (torch.float32, (2, module.hidden_size))})
        package_checks.assert_close(found, module(x)[0], 0.03)


MODELS = {
    "16 channels": lambda: test_package_chunks.Wave(16, (1, 2, 4, 8, 64)),
    "19 channels": lambda: test_package_chunks.Wave(19, (1, 3, 7), kernel=2),
    "70 channels": lambda: test_package_chunks.Wave(70, (2, 11), kernel=4),
    "mixed": test_package_chunks.Mixed,
    "separable": test_package_chunks.Separable,
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_chunks(name: str, batch: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Calls of many steps have the bits of steps; each target's outputs are close to those in float32."""
    torch.manual_seed(7)
    model, x = MODELS[name]().eval(), torch.randn(batch, 1, 200)
    package_checks.check_model_in_chunks(tmp_path_factory, model, x, packaged.NATIVE_BYTES, QUANTIZE, 0.1)


@pytest.mark.parametrize("target", [*packaged.NATIVE_BYTES, *packaged.MACHINES_BYTES])
def test_models_without_functions_have_the_same_bits(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Convolutions and ReLU: one step's rounding to integers follows another's, and no target differs."""
    torch.manual_seed(8)
    model = nn.Sequential(nn.Conv1d(18, 40, 2), nn.ReLU(), nn.Conv1d(40, 36, 1), nn.ReLU(), nn.Conv1d(36, 32, 1))
    x = torch.randn(1, 18, 40)
    path = tmp_path_factory.mktemp("packages") / "model"
    xs = x.movedim(2, 0).unsqueeze(-1).contiguous()
    outputs = []
    for each in ("x86-64" if "x86-64" in packaged.NATIVE else packaged.NATIVE[0], target):
        folder = weft.package(model.eval(), x, path, time=2, targets=each, quantize=QUANTIZE)
        if each in packaged.NATIVE_BYTES:
            outputs.append(packaged.loaded(folder, tmp_path_factory).run(xs))
        else:
            outputs += packaged.run(folder, each, [xs], 40, {"y": (torch.float32, (1, 32, 1))})
    assert torch.equal(*outputs)
    package_checks.assert_close(outputs[0][1:, 0, :, 0].t(), model(x)[0], 0.05)


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / f"{folder.name}.json").read_text())


def test_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(9)
    module, x = nn.GRU(3, 16), torch.randn(4, 3)
    narrow = weft.package(module, x, tmp_path / "narrow", quantize="int8")
    folder = weft.package(module, x, tmp_path / "bytes", quantize=QUANTIZE)
    assert facts(folder)["weights"] == {"stored_as": QUANTIZE, "count": 48 * 19, "bytes": 48 * 19 + 2 * 48 * 4}
    assert list(facts(folder)["targets"]) == [_C.package_host(True)]
    assert "int8" in (folder / "bytes.h").read_text() and "activations" in (folder / "bytes.h").read_text()
    if packaged.NATIVE_BYTES and (narrow / "libnarrow.so").exists():
        saved = weft.load(narrow / "libnarrow.so").save()
        with pytest.raises(RuntimeError, match="not one of this model"):
            weft.load(folder / "libbytes.so").restore(saved)
    torch.save(module.state_dict(), tmp_path / "model.pt")
    words = ["package", str(tmp_path / "model.pt"), "-o", str(tmp_path / "told"), "--quantize"]
    assert main([*words, QUANTIZE]) == 0 and facts(tmp_path / "told")["weights"]["stored_as"] == QUANTIZE
    assert main([*words, "int8-dynamc"]) == 2
    assert QUANTIZE in capsys.readouterr().err


def test_what_is_refused(tmp_path: Path) -> None:
    module, x = nn.GRU(3, 20), torch.randn(5, 3)
    with pytest.raises(ValueError, match=r"got 'int8-dynamik'.*int8-dynamic"):
        weft.package(module, x, tmp_path / "m", quantize="int8-dynamik")
    with pytest.raises(RuntimeError, match=r"quantize='int8-dynamic' .* weights \[60, 3\] of float64"):
        weft.package(nn.GRU(3, 20).double(), x.double(), tmp_path / "m", quantize=QUANTIZE)
    with pytest.raises(RuntimeError, match=r"quantize='int8-dynamic' .* the step has no product by constant weights"):
        weft.package(lambda h, x: (h + x, h), (torch.zeros(3), torch.zeros(3)), tmp_path / "m", quantize=QUANTIZE)
    module.weight_hh_l0.data[1, 2] = float("nan")
    with pytest.raises(RuntimeError, match=r"quantize='int8-dynamic': .* elements that are not finite"):
        weft.package(module, x, tmp_path / "m", quantize=QUANTIZE)
    assert not (tmp_path / "m").exists()


def test_a_library_chooses_the_best(tmp_path: Path) -> None:
    if dict(_C.package_targets())[_C.package_host()] != "x86_64":
        pytest.skip("only x86-64 has several")
    torch.manual_seed(10)
    module, x = nn.GRU(2, 20), torch.randn(5, 2)
    targets = [name for name, architecture in _C.package_targets() if architecture == "x86_64"]
    for several in (targets, targets[:3], [targets[0], targets[-1]], targets[::-1]):
        folder = weft.package(module, x, tmp_path / "several", targets=several, quantize=QUANTIZE)
        best = [name for name in targets if name in several and _C.package_runs(name)][-1]
        assert weft.load(folder / "libseveral.so").target == best


def test_a_gru_fits_a_small_microcontroller(tmp_path: Path) -> None:
    """64 units on a Cortex-M4: less than 24 KB of flash and 2 KB of memory."""
    torch.manual_seed(11)
    folder = weft.package(nn.GRU(1, 64), torch.randn(3, 1), tmp_path / "amp", targets="cortex-m4", quantize=QUANTIZE)
    assert facts(folder)["targets"]["cortex-m4"]["state_bytes"] < 2048
    package_checks.check_flash(folder / "amp.cortex-m4.o", 24 * 1024)


INSTRUCTIONS = {
    "x86-64": "pmaddwd",
    "x86-64-v3": "vpmaddubsw",
    "x86-64-v3-avxvnni": "vpdpbusd",
    "x86-64-v4": "vpmaddubsw",
    "x86-64-v4-vnni": "vpdpbusd",
    "aarch64": "sadalp",
    "aarch64-dotprod": "sdot",
    "aarch64-macos": "sdot",
    "cortex-m4": "smlad",
    "cortex-m7": "smlad",
    "cortex-m7-f64": "smlad",
    "cortex-m33": "smlad",
    "wasm32": "i32x4.dot_i16x8_s",
    "riscv64": "mul",
    "x86-64-v3-macos": "vpmaddubsw",
    "x86-64-v3-windows": "vpmaddubsw",
}


def test_every_target_has_its_instruction(tmp_path: Path) -> None:
    """And none needs a function of a library: the packager refuses an object that names one."""
    torch.manual_seed(12)
    targets = [name for name, _ in _C.package_targets()]
    folder = weft.package(
        nn.LSTM(3, 19), torch.randn(3, 3), tmp_path / "m", targets=targets, quantize=QUANTIZE, assembly=True
    )
    for target, instruction in INSTRUCTIONS.items():
        assert instruction in (folder / f"m.{target}.s").read_text(), target
    assert set(INSTRUCTIONS) == set(targets)
