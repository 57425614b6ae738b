"""torch.onnx.export of recurrences: ONNX's own operators, right at any length and batch, or an error in words."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.export.passes import move_to_device_pass
from torch.utils._pytree import tree_leaves

import weft

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

LAYERS = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}
SIZES = ((5, 3), (7, 2), (2, 9), (1, 1))  #: steps and batch; the first pair is exported
pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter warns of its own use of PyTorch


class Model(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        return self.module(x, *([states if len(states) == 2 else states[0]] if states else []))


def export(model: nn.Module, inputs: tuple[Tensor, ...], dims: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(model.eval(), inputs, dynamic_shapes=dims, dynamo=True, verbose=False, **options)


def check_onnx_runtime(program: Any, model: Callable[..., Any], batches: list[tuple[Tensor, ...]]) -> set[str]:
    """Checks that ONNX Runtime gives PyTorch's results; returns the operators of the file."""
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for inputs in batches:
        with weft.disabled(), torch.no_grad():
            expected = tree_leaves(model(*inputs))
        found = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        torch.testing.assert_close([torch.from_numpy(y) for y in found], expected, rtol=1e-4, atol=1e-5)
    return {node.op_type for node in program.model_proto.graph.node}


CASES = [
    ("GRU", {}),
    ("LSTM", {}),
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu"}),
    ("GRU", {"num_layers": 2, "batch_first": True, "bidirectional": True}),
    ("LSTM", {"num_layers": 2, "batch_first": True, "bidirectional": True}),
    ("RNN", {"num_layers": 2, "batch_first": True, "bidirectional": True, "nonlinearity": "relu"}),
    ("GRU", {"bidirectional": True, "bias": False}),
    ("LSTM", {"num_layers": 2, "bias": False}),
    ("RNN", {"num_layers": 2, "batch_first": True}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_layers_of_any_length_and_batch(name: str, options: dict[str, Any]) -> None:
    model = Model(LAYERS[name](4, 6, **options))
    steps, batch = Dim("T", min=1, max=99), Dim("B", min=1, max=99)
    batch_first = options.get("batch_first", False)
    batches = [(torch.randn(*(reversed(size) if batch_first else size), 4),) for size in SIZES]
    program = export(model, batches[0], [{0: batch, 1: steps} if batch_first else {0: steps, 1: batch}])
    assert name in check_onnx_runtime(program, model, batches)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_states_that_are_given(name: str) -> None:
    model = Model(LAYERS[name](4, 6, 2))
    count = 2 if name == "LSTM" else 1
    batches = [(torch.randn(*size, 4), *torch.randn(count, 2, size[1], 6).unbind()) for size in SIZES]
    steps, batch = Dim("T", min=1, max=99), Dim("B", min=1, max=99)
    program = export(model, batches[0], ({0: steps, 1: batch}, ({1: batch},) * count))
    assert name in check_onnx_runtime(program, model, batches)


def test_fixed_sizes_and_a_layer_in_the_middle() -> None:
    model = nn.Sequential(nn.Linear(4, 5), Model(nn.RNN(5, 6, batch_first=True)))
    x = torch.randn(3, 5, 4)
    assert "RNN" in check_onnx_runtime(export(model, (x,), None), model, [(x,)])


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells_with_a_free_batch(cell: type[nn.Module]) -> None:
    """The exporter has no translation for our operators, so they come apart, as without Weft."""
    model = cell(4, 6)
    batches = [(torch.randn(rows, 4),) for rows in (3, 8)]
    check_onnx_runtime(export(model, batches[0], ({0: Dim("B", min=2, max=99)},)), model, batches)


class Scanned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def step(h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            h = self.cell(v, h)
            return h, h.sin()

        return weft.scan(step, x.new_zeros(x.shape[1], 6), x)


def test_a_scan_is_onnx_scan() -> None:
    model, dims = Scanned().eval(), ({0: Dim("T", min=2, max=99), 1: Dim("B", min=2, max=99)},)
    batches = [(torch.randn(*size, 4),) for size in ((5, 3), (7, 2), (2, 9))]
    program = torch.export.export(model, batches[0], dynamic_shapes=dims, strict=True)
    assert "Scan" in check_onnx_runtime(torch.onnx.export(program, verbose=False), model, batches)
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="strict=True"):
        export(model, batches[0], dims)


def test_a_projection_is_refused() -> None:
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="no projections"):
        export(Model(nn.LSTM(4, 6, proj_size=3)), (torch.randn(5, 3, 4),), None)


def test_the_callers_translation_comes_first() -> None:
    from onnxscript import opset18 as ops

    def negated(input, hx, params, *options):  # type: ignore[no-untyped-def]
        return ops.Neg(input), ops.Identity(hx)

    table = {torch.ops.aten.gru.input: negated}
    x = torch.randn(5, 3, 4)
    program = export(Model(nn.GRU(4, 4)), (x,), None, custom_translation_table=table)
    check_onnx_runtime(program, lambda x: (-x, torch.zeros(1, 3, 4)), [(x,)])


# torch.export's decompositions, by PyTorch's table, by none and by the caller's


def own(input: Tensor, hx: Tensor, params: list[Tensor], *options: Any) -> tuple[Tensor, Tensor]:
    return (input @ params[0].t()).sin()[..., :6], hx.cos()


GRU = torch.ops.aten.gru.input
TABLES: dict[str, Callable[[], Any]] = {
    "default": lambda: None,
    "core ATen": lambda: dict(torch.export.default_decompositions().items()),
    "none": dict,
    "the caller's": lambda: {GRU: own},
    "core ATen without it": lambda: {
        op: function for op, function in torch.export.default_decompositions().items() if op is not GRU
    },
}


@pytest.mark.parametrize("table", TABLES)
def test_decomposed_at_any_length(table: str) -> None:
    model = Model(nn.GRU(4, 6))
    dims = {"x": {0: Dim("T", min=2, max=99), 1: Dim("B", min=2, max=99)}, "states": ({1: Dim("B", min=2, max=99)},)}
    batches = [(torch.randn(*size, 4), torch.randn(1, size[1], 6)) for size in ((5, 3), (7, 2), (2, 9))]
    program = torch.export.export(model, batches[0], dynamic_shapes=dims).run_decompositions(TABLES[table]())
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    assert all(isinstance(outputs[0].meta["val"].shape[dim], torch.SymInt) for dim in (0, 1))
    for inputs in batches:
        with weft.disabled():
            expected = own(*inputs, list(model.module.parameters())) if table == "the caller's" else model(*inputs)
        torch.testing.assert_close(program.module()(*inputs), expected, rtol=1e-4, atol=1e-5)


def test_what_weft_has_no_program_for_is_refused() -> None:
    """PyTorch alone would write the steps of the example, and no others, without a word."""
    program = torch.export.export(nn.GRU(4, 6), (torch.randn(5, 3, 4),), dynamic_shapes=({0: Dim("T", min=2, max=99)},))
    program = move_to_device_pass(program, "meta")
    with pytest.raises(RuntimeError, match=r"length that isn't fixed.*no program for torch.float32 on meta"):
        program.run_decompositions()
