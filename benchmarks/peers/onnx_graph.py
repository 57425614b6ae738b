"""Recurrent layers as an ONNX model: weights are initialisers, so that a runtime may rearrange them once."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case, Data

# ONNX's gate order, as indices into PyTorch's: z r n of r z n, and i o f g of i f g o.
GATE_ORDER = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2), "rnn": (0,)}
OPERATORS = {"gru": "GRU", "lstm": "LSTM", "rnn": "RNN"}


def reordered(case: Case, value: np.ndarray) -> np.ndarray:
    blocks = np.split(value, case.gates)
    return np.concatenate([blocks[gate] for gate in GATE_ORDER[case.cell]])


def weights_of(case: Case, data: Data, layer: int) -> dict[str, np.ndarray]:
    """A layer's constants by name, each [directions, ...]."""
    found: dict[str, list[np.ndarray]] = {"w": [], "r": [], "b": []}
    for direction in range(case.directions):
        first = 4 * (layer * case.directions + direction)
        w_ih, w_hh, b_ih, b_hh = (reordered(case, weight.numpy()) for weight in data.weights[first : first + 4])
        found["w"].append(w_ih)
        found["r"].append(w_hh)
        found["b"].append(np.concatenate([b_ih, b_hh]))
    return {f"{name}_{layer}": np.stack(values) for name, values in found.items()}


def layer_nodes(case: Case, layer: int, firsts: list[str], lasts: list[str]) -> list[Any]:
    """The nodes of one layer: from x_<layer> and a first state to x_<layer + 1>, with its directions side by side, and
    a last state."""
    from onnx import helper

    recurrence = helper.make_node(
        OPERATORS[case.cell],
        [f"x_{layer}", f"w_{layer}", f"r_{layer}", f"b_{layer}", "", *firsts],
        [f"directions_{layer}", *lasts],
        hidden_size=case.hidden,
        direction="bidirectional" if case.directions > 1 else "forward",
        **({"linear_before_reset": 1} if case.cell == "gru" else {}),
    )
    if case.directions == 1:
        return [recurrence, helper.make_node("Squeeze", [f"directions_{layer}", "one"], [f"x_{layer + 1}"])]
    swapped = helper.make_node("Transpose", [f"directions_{layer}"], [f"swapped_{layer}"], perm=[0, 2, 1, 3])
    return [recurrence, swapped, helper.make_node("Reshape", [f"swapped_{layer}", "side_by_side"], [f"x_{layer + 1}"])]


def all_nodes(case: Case, firsts: list[str], lasts: list[str]) -> list[Any]:
    """The nodes of the model: from x, h0 (and c0) to y, h_n (and c_n); with several layers states are split and
    joined."""
    from onnx import helper

    layers = range(case.layers)
    if case.layers == 1:
        nodes = layer_nodes(case, 0, firsts, lasts)
    else:
        nodes = [helper.make_node("Split", [name], [f"{name}_{layer}" for layer in layers], axis=0) for name in firsts]
        for layer in layers:
            nodes += layer_nodes(case, layer, *([f"{name}_{layer}" for name in names] for names in (firsts, lasts)))
        nodes += [helper.make_node("Concat", [f"{name}_{layer}" for layer in layers], [name], axis=0) for name in lasts]
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [{"x_0": "x", f"x_{case.layers}": "y"}.get(name, name) for name in names]
    return nodes


def model_of(case: Case, data: Data) -> bytes:
    """Serialised, of fixed sizes; of one call of one step if the case is streaming.

    Inputs x [T, B, I], h0 [layers * directions, B, H] and, for LSTM, c0; outputs y [T, B, directions * H], h_n and c_n.
    """
    from onnx import TensorProto, helper, numpy_helper

    firsts, lasts = ["h0", "c0"][: len(data.states)], ["h_n", "c_n"][: len(data.states)]
    steps = 1 if case.streaming else case.steps
    together = np.array([steps, case.batch, case.directions * case.hidden], dtype=np.int64)
    one = np.array([1], dtype=np.int64)
    constants = {"one": one} if case.directions == 1 else {"side_by_side": together}
    for layer in range(case.layers):
        constants |= weights_of(case, data, layer)

    def declared(name: str, *sizes: int) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)

    state = (case.layers * case.directions, case.batch, case.hidden)
    graph = helper.make_graph(
        all_nodes(case, firsts, lasts),
        "layers",
        [declared("x", steps, case.batch, case.inputs), *(declared(name, *state) for name in firsts)],
        [
            declared("y", steps, case.batch, case.directions * case.hidden),
            *(declared(name, *state) for name in lasts),
        ],
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
