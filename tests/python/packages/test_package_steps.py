"""Packages of steps: what they compute beside PyTorch, natively and under emulators, and what can't be packaged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import packaged
import pytest
import torch
from package_checks import EMULATED, MICROCONTROLLERS, StepFunction, assert_close, carry_and_outputs, check_step
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import weft
from weft import _C
from weft._packages.folder import Contents, Object, write
from weft._packages.steps import Step

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.zoo import CELLS, Size


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


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
        check_step(tmp_path_factory, step, init, xs, steps, targets, 1e-5)
        raise StopIteration

    monkeypatch.setattr(weft, "scan", scan)
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
    "tan": torch.tan,
    "atan": torch.atan,
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


@pytest.mark.parametrize("target", [*packaged.NATIVE, *EMULATED, *MICROCONTROLLERS])
def test_functions(target: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All functions in one step: each result is within a few units in the last place of PyTorch's, at the edges too."""
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

    expected = carry_and_outputs(step, torch.zeros(1), (xs.double(), ys.double()), steps)[1]
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
        cancels = name in CANCELLING or (name == "logaddexp" and target in MICROCONTROLLERS)
        absolute = 1e-6 if cancels else 1e-38
        close = torch.isclose(y.double(), wanted, rtol=6e-7, atol=absolute)
        wrong = ~(close | (y == rounded) | (y.isnan() & rounded.isnan()))
        x1, x2, is_, should_be = (each[wrong][:3].tolist() for each in (xs, ys, y, rounded))
        assert not wrong.any(), f"{name}({x1}, {x2}) = {is_}, not {should_be}"


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
    check_step(tmp_path_factory, movement_step, carry, torch.randn(9, 5), 9, [target])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(8)
    w, u, b = torch.randn(9, 4).to(dtype), torch.randn(9, 9).to(dtype) / 3, torch.randn(9).to(dtype)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(functional.linear(x, w, b) + functional.linear(h, u))
        return h, h * 2

    tolerance = {torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    check_step(
        tmp_path_factory,
        step,
        torch.zeros(2, 9, dtype=dtype),
        torch.randn(5, 2, 4).to(dtype),
        5,
        [*packaged.NATIVE, "aarch64", *(["cortex-m4"] if dtype.itemsize == 2 else [])],
        tolerance,
    )


def embedding_step(h: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    h = torch.tanh(h + TABLE[x])
    return h, (h, x // 3)


TABLE = torch.arange(40.0).reshape(8, 5) / 40


def test_an_index_outside_its_table_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_step(
        tmp_path_factory, embedding_step, torch.zeros(5), torch.tensor([0, 7, 3]), 3, [*packaged.NATIVE, "aarch64"]
    )
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
    with pytest.raises(RuntimeError, match=r"on cortex-m4 the step needs __muldf3"):
        weft.package(lambda c, x: (c, x * x), (x.double(), x.double()), tmp_path / "m", targets="cortex-m4")
    place = r"\(test_package_steps.py:\d+: return carry, torch.linalg.eigvalsh\(x\) *# here\)"
    with pytest.raises(RuntimeError, match=rf"'extern' \(aten._linalg_eigh.default\(.*\)\) {place}, which can't"):
        weft.package(decomposed, (x, x @ x.T), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def decomposed(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return carry, torch.linalg.eigvalsh(x)  # here


def test_a_loop_in_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(16)
    w = torch.randn(6, 6) / 3

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return weft.scan(lambda h, _: (torch.tanh(h @ w + x), h), h, None, 3)

    init, xs = torch.zeros(6), torch.randn(8, 6)
    folder = weft.package(step, (init, xs[0]), tmp_path_factory.mktemp("packages") / "model")
    with weft.disabled():
        _, (expected,) = carry_and_outputs(step, init, xs, 8)
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
    compiled = step.model("model")
    objects = {target: Object(**compiled.compile(target)) for target in packaged.NATIVE}
    path = tmp_path_factory.mktemp("packages") / "model"
    write(path, Contents("model", step, objects, compiled.outputs()))
    model, h = packaged.loaded(path, tmp_path_factory), torch.zeros(4)
    for x in torch.randn(6, 4):
        assert_close(model.step(x), h)
        h = h + x if x.sum() > 0 else h.tanh()


def test_sizes_of_zero_and_no_inputs(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return carry + 1, torch.cat([x, x + 1]) * carry

    check_step(tmp_path_factory, step, torch.zeros(()), torch.zeros(3, 0), 3, packaged.NATIVE)
    folder = weft.package(lambda c, x: (c * 0.5, c), (torch.ones(2, 3), None), tmp_path_factory.mktemp("p") / "model")
    model = packaged.loaded(folder, tmp_path_factory)
    assert model.inputs == [] and model.run(steps=0).shape == (0, 2, 3)
    assert torch.equal(model.run(steps=3)[2], torch.full((2, 3), 0.25))


def test_outputs_may_be_missing(tmp_path: Path) -> None:
    def without(h: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        return h * 0.5 + x, (None, {"y": h + x, "none": None})

    folder = weft.package(without, (torch.zeros(3), torch.ones(3)), tmp_path / "model")
    assert [output["name"] for output in json.loads((folder / "model.json").read_text())["outputs"]] == ["y[1]['y']"]


def test_results_that_are_constants(tmp_path_factory: pytest.TempPathFactory) -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        return h + x, (torch.arange(3), torch.arange(6).view(2, 3).t(), torch.ones(2), torch.arange(0), x, h, x)

    folder = weft.package(step, (torch.zeros(3), torch.ones(3)), tmp_path_factory.mktemp("p") / "model")
    model, h = packaged.loaded(folder, tmp_path_factory), torch.zeros(3)
    for x in torch.randn(3, 3):
        h, expected = step(h, x)
        for found, wanted in zip(model.step(x), expected, strict=True):
            assert torch.equal(found, wanted)
    folder = weft.package(lambda h, x: (torch.arange(3), h), (torch.zeros(3).long(), None), folder.parent / "other")
    assert packaged.loaded(folder, tmp_path_factory).run(steps=3).tolist() == [[0, 0, 0], [0, 1, 2], [0, 1, 2]]


def test_what_pytorch_computes_from_parameters_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Is computed once, when the step is packaged, whatever it is."""
    torch.manual_seed(0)
    m, large, unused = torch.randn(5, 5) * 0.3, torch.randn(40, 40) + 8 * torch.eye(40), torch.randn(6, 6)
    turning = nn.utils.parametrizations.orthogonal(nn.Linear(5, 5, bias=False))

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        torch.linalg.svd(unused)
        values, vectors = torch.linalg.eigh(m + m.T)
        h = turning(h) @ torch.linalg.matrix_exp(m - m.T) + torch.cat([torch.linalg.inv(large)[0, :4], values[:1]])
        return 0.5 * h + x, h @ (vectors * values.abs().sqrt()) @ vectors.T

    check_step(tmp_path_factory, step, torch.zeros(2, 5), torch.randn(20, 2, 5), 20, packaged.NATIVE, 1e-5)

    def alone(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return h + x, torch.linalg.matrix_exp(m) * torch.linalg.eigvalsh(m + m.T)

    check_step(tmp_path_factory, alone, torch.zeros(2), torch.randn(3, 2), 3, packaged.NATIVE, 1e-5)
