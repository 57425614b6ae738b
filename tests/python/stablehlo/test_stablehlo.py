"""Programs as StableHLO, run by jaxlib's CPU client, against the same programs run by Weft."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rnn_cases import KINDS, make
from stablehlo_cases import GROUPS, Case
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils import _pytree as pytree

import weft
from weft import _C
from weft._base.dtypes import DTYPES as NAMES
from weft._stablehlo.write import StableHLO
from weft._stablehlo.xla import Executable

pytest.importorskip("jaxlib")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from cells.zoo import CELLS, Size


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry; dtype and shape must agree, and whole numbers be equal."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    scale = expected.abs().max().item() if expected.numel() else 0.0
    return (found.double() - expected.double()).abs().max().item() / (scale or 1.0) if expected.numel() else 0.0


def check_by_xla(hlo: StableHLO, outputs: list[Tensor], bound: float) -> None:
    """Compares results and gradients of inputs that require grad, by XLA, with these outputs and autograd's
    gradients."""
    cotangents = [torch.randn_like(v) if v.is_floating_point() else torch.zeros_like(v) for v in outputs]
    found = hlo.compile()([*hlo.inputs, *cotangents])
    smooth = [i for i, value in enumerate(outputs) if value.is_floating_point()]
    wanted = [hlo.inputs[i] for i in hlo.gradients]
    gradients = torch.autograd.grad(
        [outputs[i] for i in smooth], wanted, [cotangents[i] for i in smooth], allow_unused=True, materialize_grads=True
    )
    expected = [*(value.detach() for value in outputs), *gradients]
    assert len(found) == len(expected)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert distance(one, other) <= bound, f"result {i}"


def check_module(function: Callable[..., Any], *arguments: Any, bound: float) -> None:
    hlo = weft.stablehlo(function, *arguments, gradients=True)
    check_by_xla(hlo, pytree.tree_leaves(function(*arguments)), bound)


@pytest.mark.parametrize("name", CELLS)
def test_cell(name: str) -> None:
    torch.manual_seed(3)
    example = CELLS[name](Size(5, 3, 6)).to(torch.float64)
    if example.module is not None:
        example.module.eval()
    example = example.mapped(lambda value: value.detach().requires_grad_())
    keys = list(example.inputs)
    check_module(lambda *a: example.function(**dict(zip(keys, a, strict=True))), *example.inputs.values(), bound=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_module(kind: str) -> None:
    torch.manual_seed(4)
    case = make(kind, layers=2, bidirectional=True, dtype=torch.float64)
    assert case.h0 is not None
    check_module(case.module, case.x, case.h0, bound=1e-12)


#: By dtype: how far XLA's functions are from PyTorch's, relative to the number.
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-13}


def packed(lengths: list[int], sorted_: bool = True) -> rnn.PackedSequence:
    x = torch.randn(len(lengths), max(lengths), 4)
    return rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=sorted_)


@pytest.mark.parametrize("lengths", [[5, 3, 2], [4, 4], [2, 6, 1, 6]])
@pytest.mark.parametrize(
    "layer",
    [
        nn.GRU(4, 6, 2, bidirectional=True),
        nn.LSTM(4, 6, 2, bidirectional=True, proj_size=3),
        nn.LSTM(4, 6, bias=False, dropout=0.0),
        nn.RNN(4, 6),
        nn.RNN(4, 6, nonlinearity="relu", bidirectional=True),
    ],
    ids=str,
)
def test_a_recurrent_layer_on_a_packed_sequence(layer: nn.RNNBase, lengths: list[int]) -> None:
    """Its lengths are part of the text, which takes the data alone; sorted or not, with a first state or without."""
    torch.manual_seed(0)
    sequence = packed(lengths, lengths == sorted(lengths, reverse=True))
    hlo = weft.stablehlo(layer, sequence, gradients=True)
    assert hlo.inputs[0] is sequence.data
    check_by_xla(hlo, of_packed(layer, sequence), 1e-5)
    if not isinstance(layer, nn.LSTM):
        first = torch.randn(layer.num_layers * (1 + layer.bidirectional), len(lengths), 6, requires_grad=True)
        check_by_xla(weft.stablehlo(layer, sequence, first, gradients=True), of_packed(layer, sequence, first), 1e-5)


def of_packed(layer: nn.RNNBase, *arguments: Any) -> list[Tensor]:
    """The layer's results in eager mode, of a packed one the data."""
    output, state = layer(*arguments)
    return [output.data, *pytree.tree_leaves(state)]


@pytest.mark.parametrize("lengths", [[5, 3, 2], [3, 5, 2]])
def test_packing_within_the_function(lengths: list[int]) -> None:
    layer, known = nn.GRU(4, 6, batch_first=True), torch.tensor(lengths)

    def tagger(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sequence = rnn.pack_padded_sequence(x, known, batch_first=True, enforce_sorted=False)
        y, h = layer(sequence)
        return *rnn.pad_packed_sequence(y, batch_first=True, padding_value=-3.0, total_length=7), h

    x = torch.randn(3, 6, 4)
    hlo = weft.stablehlo(tagger, x, gradients=True)
    leaf = x.clone().requires_grad_()
    y, found, h = tagger(leaf)
    assert found.tolist() == lengths and known.tolist() == lengths
    layer.zero_grad()
    (y.sum() + h.sum()).backward()
    results = hlo.compile()([*hlo.inputs, torch.ones_like(y), torch.zeros(3, dtype=torch.int64), torch.ones_like(h)])
    assert torch.equal(results[1], found)
    for one, other in ((results[0], y), (results[2], h)):
        assert distance(one, other.detach()) < 1e-6
    wanted = {id(hlo.inputs[i]): result for i, result in zip(hlo.gradients, results[3:], strict=True)}
    for parameter in layer.parameters():
        assert parameter.grad is not None and distance(wanted[id(parameter)], parameter.grad) < 1e-5


def test_what_is_not_known_of_a_packed_sequence_is_said() -> None:
    layer = nn.GRU(4, 6, 2, dropout=0.5)

    def lengths_given(x: Tensor, lengths: Tensor) -> Tensor:
        return layer(rnn.pack_padded_sequence(x, lengths, batch_first=True))[1]

    with pytest.raises(RuntimeError, match="known lengths are part of the text"):
        weft.stablehlo(lengths_given, torch.randn(2, 3, 4), torch.tensor([3, 2]))
    with pytest.raises(RuntimeError, match="with dropout on a PackedSequence: call eval"):
        weft.stablehlo(layer, packed([3, 2]))
    known = torch.tensor([3, 9])
    with pytest.raises(RuntimeError, match="a length is 9, but the sequences have 3 steps"):
        weft.stablehlo(lambda x: rnn.pack_padded_sequence(x, known, True, False).data, torch.randn(2, 3, 4))


def run_plainly(case: Case) -> list[Tensor]:
    """Runs the program by XLA as it is written: no pass has simplified an op away."""
    types = [_C.Type(NAMES[tensor.dtype], [(size, ()) for size in tensor.shape]) for tensor in case.inputs]
    text = _C.write_stablehlo(_C.Program(case.text), types or None, None, False)
    return Executable(text, "cpu")(case.inputs)


@pytest.mark.parametrize("group", GROUPS)
def test_ops(group: str) -> None:
    torch.manual_seed(5)
    for case in GROUPS[group]():
        found, expected = run_plainly(case), weft.call(case.text, case.inputs)
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            bound = BOUNDS.get(other.dtype, 0.0)
            name = lambda text, case=case, i=i: f"{case.name}, result {i}: {text}"  # noqa: E731
            torch.testing.assert_close(one, other, rtol=bound, atol=bound / 20, equal_nan=True, msg=name)


def test_every_op_with_a_lowering_has_a_case() -> None:
    texts = "\n".join(case.text for group in GROUPS.values() for case in group())
    present = set(re.findall(r"= (\w+)", texts))
    assert {op for op, becomes in _C.stablehlo_ops() if becomes} - present == {"extern"}


def test_gradients_of_a_ragged_scan() -> None:
    """Cotangents of what all steps read are sums over the rows that each step has."""
    torch.manual_seed(6)
    text = """program @packed(%x: f64[N,4], %sizes: i64[T], %h0: f64[B,5], %w: f64[4,5], %u: f64[5,5], %b: f64[5]) {
      %hT, %ys = scan REVERSE length T ragged(%sizes, B, N) carry(%h = %h0) xs(%xt = %x) {
        %p = matmul %xt, %w
        %q = matmul %h, %u
        %s = add %p, %q
        %all = broadcast %b {dims = [1]} : f64[B,5]
        %z = add %s, %all
        %n = tanh %z
        yield carry(%n) ys(%n)
      } : f64[B,5], f64[N,5]
      return %hT, %ys
    }"""
    shapes = [(12, 4), (4,), (5, 5), (4, 5), (5, 5), (5,)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    inputs[1] = torch.tensor([5, 4, 2, 1])
    for direction in ("", "reverse"):
        program = text.replace("REVERSE", direction)
        check_by_xla(weft.stablehlo(program, *inputs, gradients=True), weft.call(program, inputs), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_types(dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    case = make("LSTM", dtype=dtype)
    check_module(case.module, case.x, case.h0, bound=BOUNDS[dtype] * 4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"padding": 2, "dilation": 2},
        {"groups": 3},
        {"stride": 2, "padding": 1, "groups": 3},
        {"stride": (3, 1), "padding": (0, 1)},
        {"bias": False},
    ],
    ids=str,
)
def test_convolution(options: dict[str, Any]) -> None:
    torch.manual_seed(8)
    layer = torch.nn.Conv2d(6, 9, (3, 2), dtype=torch.float64, **options)
    check_module(layer, torch.randn(2, 6, 9, 8, dtype=torch.float64, requires_grad=True), bound=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"stride": 2}, {"padding": 2, "dilation": 2}, {"groups": 3, "padding": 1},
        {"stride": (3, 1), "output_padding": (2, 0), "groups": 3}, {"stride": 3, "output_padding": 1, "bias": False},
    ],
    ids=str,
)  # fmt: skip
def test_transposed_convolution(options: dict[str, Any]) -> None:
    torch.manual_seed(8)
    layer = torch.nn.ConvTranspose2d(6, 9, (3, 2), dtype=torch.float64, **options)
    check_module(layer, torch.randn(2, 6, 5, 4, dtype=torch.float64, requires_grad=True), bound=1e-12)


POOLINGS = {
    "whole windows": (functional.avg_pool2d, (2, 3, 8, 7), {"kernel_size": 2}),
    "padded": (functional.avg_pool2d, (2, 3, 7, 8), {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1}),
    "padding left out": (
        functional.avg_pool2d,
        (1, 2, 5, 6),
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    ),
    "divisor": (functional.avg_pool2d, (1, 1, 5, 5), {"kernel_size": 3, "stride": 1, "divisor_override": 5}),
    "no batch": (functional.avg_pool2d, (3, 4, 4), {"kernel_size": 2, "ceil_mode": True}),
    "three dims": (functional.avg_pool3d, (2, 3, 4, 5, 6), {"kernel_size": 2, "padding": (1, 0, 1)}),
    "adaptive": (functional.adaptive_avg_pool2d, (2, 3, 7, 8), {"output_size": (3, 4)}),
    "adaptive, three dims": (functional.adaptive_avg_pool3d, (2, 3, 4, 6, 2), {"output_size": (2, 3, 1)}),
    "adaptive, windows that differ": (functional.adaptive_avg_pool3d, (2, 2, 5, 7, 3), {"output_size": (3, 4, 2)}),
}


@pytest.mark.parametrize("name", POOLINGS)
def test_average_pooling(name: str) -> None:
    torch.manual_seed(8)
    pool, sizes, options = POOLINGS[name]
    x = torch.randn(sizes, dtype=torch.float64, requires_grad=True)
    check_module(lambda x: pool(x * 2, **options), x, bound=1e-12)


def test_average_pooling_of_a_short_type_sums_in_float32() -> None:
    x = torch.randn(2, 3, 16, 16).bfloat16()
    hlo = weft.stablehlo(lambda x: functional.avg_pool2d(x, 8), x)
    (found,) = hlo.compile()(hlo.inputs)
    torch.testing.assert_close(found, functional.avg_pool2d(x.float(), 8).bfloat16(), rtol=8e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("function", "sizes", "message"),
    [
        (lambda x: functional.avg_pool2d(x, 2, ceil_mode=True), (1, 1, 5, 5), "ceil_mode adds windows"),
        (lambda x: functional.adaptive_max_pool2d(x, 3, return_indices=True), (1, 4, 4), "indices have no lowering"),
        (lambda x: torch.cdist(x, x, p=3.0), (4, 3), "neither 1 nor 2"),
        (lambda x: torch.ops.aten.slice_copy(x, 0, 0, 4, 2), (4, 3), "leaves out elements"),
    ],
)
def test_calls_without_ops(function: Callable[..., Any], sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        weft.stablehlo(function, torch.rand(sizes))


INDEX = torch.tensor([[0, 2, 2, 4], [1, 1, 1, 1], [3, 0, 3, 0]])
#: (x [3, 4]) -> a tensor, without gradients.
SCATTERED = {
    "sum": lambda x: torch.ones(4, 5).scatter_reduce(1, INDEX, x, "sum"),
    "mean of the rest": lambda x: torch.ones(3, 5).scatter_reduce(-1, INDEX, x, "mean", include_self=False),
    "mean": lambda x: x[:, :2].repeat(1, 3).scatter_reduce(1, INDEX, x, "mean"),
    "greatest": lambda x: torch.zeros(5, 4).scatter_reduce(0, INDEX, x, "amax"),
    "greatest of the rest": lambda x: torch.full((5, 4), 9.0).scatter_reduce(0, INDEX, x, "amax", include_self=False),
    "least": lambda x: torch.zeros(3, 5).scatter_reduce(1, INDEX[:, :2], x, "amin"),
    "least of the rest": lambda x: torch.zeros(3, 5).scatter_reduce(1, INDEX, x, "amin", include_self=False),
    "rows": lambda x: torch.ones(2, 4).index_reduce(0, torch.tensor([1, 0, 1]), x, "amax"),
    "columns": lambda x: torch.ones(3, 6).index_reduce(1, torch.tensor([5, 2, 2, 0]), x, "mean", include_self=False),
    "integers": lambda x: torch.zeros(3, 5).long().scatter_reduce(1, INDEX, (x * 9).long(), "amin"),
    "integers without a sign": lambda x: torch.full((3, 5), 7, dtype=torch.uint8).scatter_reduce(
        1, INDEX, (x > 0).byte(), "amin", include_self=False
    ),
    "least of the least": lambda x: torch.full((3, 5), torch.iinfo(torch.int32).min, dtype=torch.int32).scatter_reduce(
        1, INDEX, (x * 9).int(), "amin"
    ),
    "adaptive max": lambda x: functional.adaptive_max_pool2d(x[None], (2, 3)),
    "adaptive max of one dim": lambda x: functional.adaptive_max_pool1d(x[None], 3),
    "adaptive max of three": lambda x: functional.adaptive_max_pool3d(x[None, None, None] * 2, (1, 2, 3)),
    "pdist": lambda x: functional.pdist(x),
    "pdist of a row": lambda x: functional.pdist(x[:1]),
    "pdist, p 1": lambda x: functional.pdist(x, 1.0),
    "split_copy": lambda x: torch.split_copy(x, 3, 1)[1],
    "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [1, 2], 0)[1],
}


@pytest.mark.parametrize(
    ("function", "said", "instead"),
    [
        (lambda x: torch.as_strided_copy(x, (3, 2), (6, 1), 1), "as_strided_copy: ", "x.unfold(dim, size, step)"),
        (lambda x: x.as_strided((3, 2), (6, 1)) * 2, "as_strided: ", "x.reshape(-1)[index]"),
        (lambda x: x.as_strided_scatter(x[:2, :2], (2, 2), (6, 1)), "as_strided_scatter: ", "index_copy"),
        (lambda x: torch.ops.aten.resize(x, [2, 3]), "resize: ", "x.reshape(-1)[:n].reshape(sizes)"),
        (lambda x: (x * 2).resize_(2, 3), "resize_: ", "torch.nn.functional.pad"),
    ],
)
def test_what_reads_memory_by_its_order_says_what_to_do(
    function: Callable[[Tensor], Tensor], said: str, instead: str
) -> None:
    """The program stands for inputs of any strides, so that an offset in memory means nothing to it."""
    with pytest.raises(RuntimeError, match=re.escape(said)) as failed:
        weft.stablehlo(function, torch.randn(4, 6))
    assert instead in str(failed.value)


def test_what_to_do_in_place_of_reading_memory_by_its_order() -> None:
    x = torch.randn(4, 6)
    index = torch.tensor([[1, 2], [7, 8], [13, 14]])
    for function, wanted in (
        (lambda x: x.reshape(-1)[index], torch.as_strided_copy(x, (3, 2), (6, 1), 1)),
        (lambda x: x.reshape(-1)[:6].reshape(2, 3), torch.ops.aten.resize(x, [2, 3])),
        (
            lambda x: x.reshape(-1).index_copy(0, index.reshape(-1), torch.ones(6)).reshape(4, 6),
            x.as_strided_scatter(torch.ones(3, 2), (3, 2), (6, 1), 1),
        ),
    ):
        hlo = weft.stablehlo(function, x)
        torch.testing.assert_close(hlo.compile()(hlo.inputs), [wanted])


def test_scattered_and_windows_that_differ() -> None:
    torch.manual_seed(2)
    x = torch.randn(3, 4)
    with torch.no_grad():
        hlo = weft.stablehlo(lambda x: [function(x) for function in SCATTERED.values()], x)
    for found, (name, function) in zip(hlo.compile()(hlo.inputs), SCATTERED.items(), strict=True):
        torch.testing.assert_close(found, function(x), msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("sizes", [((5, 3), (4, 3)), ((2, 1, 3), (2, 4, 3)), ((2, 3, 4, 1), (2, 3, 2, 1))])
def test_distances(p: float, sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    torch.manual_seed(9)
    a, b = (torch.randn(each, dtype=torch.float64, requires_grad=True) for each in sizes)
    mode = "donot_use_mm_for_euclid_dist"
    check_module(lambda a, b: torch.cdist(a, b, p, compute_mode=mode), a, b, bound=1e-12)


def test_distances_of_equal_rows() -> None:
    x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    hlo = weft.stablehlo(lambda x: torch.cdist(x, torch.ones(3, 2, dtype=torch.float64)), x, gradients=True)
    found = hlo.compile()([*hlo.inputs, torch.ones(3, 3, dtype=torch.float64)])
    assert all(torch.equal(each, torch.zeros_like(each)) for each in found)


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: torch.ops.aten.select_copy(x, 0, 1),
        lambda x: torch.ops.aten.select_copy(x, -1, -2),
        lambda x: torch.ops.aten.slice_copy(x, 1, 1, 3),
        lambda x: torch.ops.aten.slice_copy(x, -1, -3, 100),
        lambda x: torch.ops.aten.slice_copy(x, 0, 2, 1),
        lambda x: torch.ops.aten.view_copy(x, [-1]),
        lambda x: torch.ops.aten.permute_copy(x, [2, 0, 1]),
    ],
)
def test_copies_of_views(copy: Callable[[Tensor], Tensor]) -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    hlo = weft.stablehlo(lambda x: copy(x + 1), x)
    (found,) = hlo.compile()(hlo.inputs)
    torch.testing.assert_close(found, copy(x + 1), rtol=0, atol=0)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_sorting(dtype: torch.dtype, descending: bool) -> None:
    """With elements that are equal, and some that are not numbers."""
    torch.manual_seed(9)
    x = torch.randint(0, 5, (4, 7, 3)).to(dtype)
    if dtype.is_floating_point:
        x[0, 2], x[1, 0, 1], x[2, 3] = math.nan, -math.inf, -0.0

    def sorts(x: Tensor) -> list[Tensor]:
        top = torch.topk(x, 3, -2, largest=descending).values
        return [*torch.sort(x, dim=1, stable=True, descending=descending), torch.sort(x, -1, descending)[0], top]

    hlo = weft.stablehlo(sorts, x)
    for found, expected in zip(hlo.compile()(hlo.inputs), sorts(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("wanted", ["weight", "input"])
def test_parts_of_a_convolutions_gradient(wanted: str, bias: bool) -> None:
    torch.manual_seed(9)
    layer = torch.nn.Conv1d(4, 6, 3, groups=2, bias=bias, dtype=torch.float64).requires_grad_(wanted == "weight")
    x = torch.randn(2, 4, 7, dtype=torch.float64, requires_grad=wanted == "input")
    check_module(layer, x, bound=1e-12)


@pytest.mark.parametrize("upper", [False, True])
def test_linear_systems(upper: bool) -> None:
    torch.manual_seed(9)
    a = torch.randn(2, 4, 4, dtype=torch.float64)
    a = (a @ a.mT + torch.eye(4, dtype=torch.float64)).requires_grad_()
    b = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)

    def solved(a: Tensor, b: Tensor) -> list[Tensor]:
        factor = torch.linalg.cholesky(a, upper=upper)
        right = torch.linalg.solve_triangular(factor, b.mT, upper=upper, left=False)
        unit = torch.linalg.solve_triangular(factor, b, upper=upper, unitriangular=True)
        return [factor, torch.cholesky_solve(b, factor, upper=upper), right, unit]

    check_module(solved, a, b, bound=1e-12)


def test_random_numbers_are_inputs() -> None:
    torch.manual_seed(10)
    dropout = torch.nn.Dropout(0.5)
    hlo = weft.stablehlo(lambda x: dropout(x) * 2, torch.ones(64, 3))
    (found,) = hlo.compile()(hlo.inputs)
    assert len(hlo.inputs) == 2 and set(found.unique().tolist()) == {0.0, 4.0}


def test_donated_inputs_stay_the_callers() -> None:
    text = "program @step(%p: f32[N], %g: f32[N]) {\n %q = sub %p, %g\n return %q in %p\n}"
    inputs = [torch.full((5,), 3.0), torch.ones(5)]
    hlo = weft.stablehlo(text, *inputs)
    assert "%arg0: tensor<5xf32> {tf.aliasing_output = 0 : i32}" in hlo.text
    assert torch.equal(hlo.compile()(inputs)[0], torch.full((5,), 2.0))
    assert torch.equal(inputs[0], torch.full((5,), 3.0))


def test_counts() -> None:
    """A loop with a product and a tanh counts each once, and each fusion of XLA's once."""
    text = """program @loop(%h0: f32[8,16], %u: f32[16,16]) {
      %h = scan length 10 carry(%h = %h0) xs() {
        %a = matmul %h, %u
        %b = tanh %a
        %c = mul %b, %b
        yield carry(%c) ys()
      } : f32[8,16]
      return %h
    }"""
    hlo = weft.stablehlo(text)
    counts = hlo.count()
    assert counts.operations["dot"] == counts.operations["tanh"] == counts.operations["while"] == 1
    assert counts.total == sum(counts.operations.values())
    in_text = re.findall(r"= \S+ fusion\(", hlo.compile().hlo())
    assert counts.fusions == len(in_text) >= 1
    assert counts.fusions + counts.operations["dot"] <= counts.kernels <= counts.total


SQUARE = "program @square(%x: f32[T]) {\n %y = mul %x, %x\n return %y\n}"
MATRIX, DOUBLES = torch.ones(2, 2), torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "takes a program's text, a module or a function, not int", (3,)),
        (TypeError, "the inputs of a program are tensors, not int", (SQUARE, 3)),
        (TypeError, "a tensor of torch.complex64", (SQUARE, torch.zeros(3, dtype=torch.complex64))),
        (RuntimeError, "line 1, column 1: expected 'program', but found 'nonsense'", ("nonsense",)),
        (RuntimeError, r"the size T of input f32\[T\] of program @square is no number: give inputs", (SQUARE,)),
        (RuntimeError, r"input 0 'x' of program @square must be f32\[T\], but got f32\[2,2\]", (SQUARE, MATRIX)),
        (RuntimeError, r"input 0 of program @square must be f32\[T\], but got f64\[3\]", (SQUARE, DOUBLES)),
        (RuntimeError, "program @square takes 1 inputs, but got 2", (SQUARE, torch.ones(3), torch.ones(3))),
        (RuntimeError, "aten.linalg_qr.default.* has no lowering", (lambda x: torch.linalg.qr(x)[1], MATRIX)),
        (RuntimeError, "needs the value of a tensor", (lambda x: x * x.sum().item(), torch.ones(3))),
        (RuntimeError, "weft.stablehlo: the function failed: division by zero", (lambda x: 1 / 0, torch.ones(3))),
    ],
)  # fmt: skip
def test_wrong_use(error: type[Exception], message: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=message):
        weft.stablehlo(*arguments)


def test_gradients_of_nothing() -> None:
    with pytest.raises(RuntimeError, match="gradients=True needs an input that requires grad"):
        weft.stablehlo(SQUARE, torch.ones(3), gradients=True)


def test_an_unknown_platform() -> None:
    with pytest.raises(RuntimeError, match="Unknown backend nowhere"):
        weft.stablehlo(SQUARE, torch.ones(3)).compile("nowhere")


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match="compiling StableHLO needs the package jax"):
        weft.stablehlo(SQUARE, torch.ones(3)).count()
