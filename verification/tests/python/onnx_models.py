"""ONNX models of one node, and models run by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft import formats

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper = onnx.helper

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def node_model(kind, *, size=3, units=4, directions=1, batch=2, steps=5, bias=True, peepholes=False, state=False,
               lengths=None, **attributes):  # fmt: skip
    """A model of one node with random weights, by hand."""
    rng = np.random.default_rng(0)
    g = GATES[kind]

    def array(name, *shape):
        return onnx.numpy_helper.from_array(rng.uniform(-0.7, 0.7, shape).astype(np.float32), name)

    given = {
        "W": array("W", directions, g * units, size),
        "R": array("R", directions, g * units, units),
        "B": array("B", directions, 2 * g * units) if bias else None,
        "lens": onnx.numpy_helper.from_array(np.array(lengths, np.int32), "lens") if lengths else None,
        "h0": array("h0", *state_shape(directions, batch, units, attributes)) if state else None,
        "c0": array("c0", *state_shape(directions, batch, units, attributes)) if state and kind == "LSTM" else None,
        "P": array("P", directions, 3 * units) if peepholes else None,
    }
    names = ["x", *(name if value is not None else "" for name, value in given.items())]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        kind, names, ["y"],
        hidden_size=units, direction=attributes.pop("direction", "bidirectional" if directions == 2 else "forward"),
        **attributes,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, ["T", "B", size])],
        [helper.make_tensor_value_info("y", 1, [None] * 4)],
        [value for value in given.values() if value is not None],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 14)])


def state_shape(directions, batch, units, attributes):
    return (batch, directions, units) if attributes.get("layout") else (directions, batch, units)


def run_onnx(model, *inputs):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return [torch.from_numpy(y) for y in session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})]


def read_model(tmp_path, model, **options):
    path = tmp_path / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return formats.read(path, **options)
