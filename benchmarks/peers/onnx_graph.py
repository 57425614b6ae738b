"""A recurrent layer as an ONNX model: weights are initialisers, so that a runtime may rearrange them once."""

from __future__ import annotations

import numpy as np

from cases import Case, Data

# ONNX's gate order, as indices into PyTorch's: z r n of r z n, and i o f g of i f g o.
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2), "rnn": (0,)}
OPERATORS = {"gru": "GRU", "lstm": "LSTM", "rnn": "RNN"}


def model_of(case: Case, data: Data) -> bytes:
    """Serialised, of fixed sizes.

    Inputs x [T, B, I], h0 [1, B, H] and, for LSTM, c0; outputs y [T, B, H], h_n and c_n.
    """
    from onnx import TensorProto, helper, numpy_helper

    def reordered(value: np.ndarray) -> np.ndarray:
        blocks = np.split(value, case.gates)
        return np.concatenate([blocks[gate] for gate in GATE_ORDER[case.cell]])

    w_ih, w_hh, b_ih, b_hh = (reordered(weight.numpy()) for weight in data.weights)
    constants = {
        "w": w_ih[None],
        "r": w_hh[None],
        "b": np.concatenate([b_ih, b_hh])[None],
        "directions": np.array([1], dtype=np.int64),
    }
    lasts = ["h_n", "c_n"][: len(data.states)]
    firsts = ["h0", "c0"][: len(data.states)]
    attributes = {"linear_before_reset": 1} if case.cell == "gru" else {}
    layer = helper.make_node(
        OPERATORS[case.cell],
        ["x", "w", "r", "b", "", *firsts],
        ["y_directions", *lasts],
        hidden_size=case.hidden,
        **attributes,
    )
    squeeze = helper.make_node("Squeeze", ["y_directions", "directions"], ["y"])

    def declared(name: str, *sizes: int) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)

    state = (1, case.batch, case.hidden)
    graph = helper.make_graph(
        [layer, squeeze],
        "layer",
        [declared("x", case.steps, case.batch, case.inputs), *(declared(name, *state) for name in firsts)],
        [declared("y", case.steps, case.batch, case.hidden), *(declared(name, *state) for name in lasts)],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def inputs_of(data: Data) -> dict[str, np.ndarray]:
    """The arguments of a call by name."""
    states = zip(("h0", "c0"), data.states, strict=False)
    return {"x": data.x.numpy(), **{name: state.numpy() for name, state in states}}


def names_of(data: Data) -> list[str]:
    """The outputs of a call, in order."""
    return ["y", "h_n", "c_n"][: 1 + len(data.states)]
