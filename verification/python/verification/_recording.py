"""A trace in the form that verification/verify compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from weft import formats
from weft._base.dtypes import DTYPES
from weft.formats import FormatError, Layer, Trace
from weft.verification import _C


def recording_of(layers: Sequence[Layer], trace: Trace) -> Any:
    """The trace by layers and directions; nothing is known of layers before the last."""
    x, y = trace.x, trace.y
    if 0 in x.shape[:2]:
        raise FormatError(f"the trace's x has shape {list(x.shape)}; at least one step and row is expected")
    if x.shape[2] != layers[0].input_size:
        raise FormatError(f"the trace's x has {x.shape[2]} inputs; {layers[0].called} takes {layers[0].input_size}")
    last = layers[-1]
    if y.shape[2] != last.output_size:
        raise FormatError(f"the trace's y has {y.shape[2]} columns; {last.called} gives {last.output_size}")
    if not y.is_floating_point() or y.dtype not in DTYPES:
        raise FormatError(f"the trace's y is of {y.dtype}; float64, float32, float16 or bfloat16 is expected")
    empty: dict[str, Any] = {"h": None, "c": None, "gates": [], "hn": None, "cn": None}
    recorded = [[dict(empty) for _ in layer.directions] for layer in layers]
    concatenated = last.merge == "concat" or len(last.directions) == 1
    if concatenated:
        for direction, part in zip(recorded[-1], y.split(last.directions[0].output_size, dim=2), strict=True):
            direction["h"] = _numpy(part)
    _add_gates(recorded[-1][0], last, trace)
    _add_last_states(recorded, layers, trace)
    merged = None if concatenated else _numpy(y)
    try:
        return _C.recording(_numpy(x), recorded, merged, DTYPES[y.dtype])
    except RuntimeError as error:
        raise FormatError(str(error)) from None


def _add_gates(recorded: dict[str, Any], layer: Layer, trace: Trace) -> None:
    names = formats.GATES[layer.kind] if layer.kind != "RNN" else ()
    gates = dict(trace.gates)
    if (joint := gates.pop("gates", None)) is not None:
        if joint.shape[2] != len(names) * layer.hidden_size:
            raise FormatError(
                f"the trace's gates have {joint.shape[2]} columns; {layer.called}, a {layer.kind} of "
                f"{layer.hidden_size} units, has {', '.join(names) or 'no gates'}: {len(names) * layer.hidden_size}"
            )
        gates |= dict(zip(names, joint.chunk(len(names), dim=2), strict=True))
    known = (*names, "c") if layer.kind == "LSTM" else names
    for name, value in gates.items():
        if name not in known:
            has = ", ".join(known) or "none"
            raise FormatError(f"the trace has a gate {name}; {layer.called}, a {layer.kind}, has {has}")
        if value.shape[2] != layer.hidden_size:
            raise FormatError(f"the trace's {name} has {value.shape[2]} units; {layer.called} has {layer.hidden_size}")
    recorded["gates"] = [_numpy(gates[name]) if name in gates else None for name in names]
    recorded["c"] = _numpy(gates["c"]) if "c" in gates else None


def _add_last_states(recorded: list[list[dict[str, Any]]], layers: Sequence[Layer], trace: Trace) -> None:
    flat = [direction for layer in recorded for direction in layer]
    sizes = [direction.output_size for layer in layers for direction in layer.directions]
    cells = [layer.hidden_size for layer in layers for _ in layer.directions]
    for name, state, wanted in (("hn", trace.hn, sizes), ("cn", trace.cn, cells)):
        if state is None:
            continue
        if name == "cn" and layers[0].kind != "LSTM":
            raise FormatError(f"the trace has cn, and a {layers[0].kind} has no cell state")
        parts = [state] if state.dim() == 2 else list(state.unbind(0))
        if len(parts) not in (1, len(flat)) or (len(parts) == 1 and len(flat) > 1 and len(layers[-1].directions) > 1):
            raise FormatError(f"the trace's {name} has shape {list(state.shape)}; [{len(flat)}, B, H] is expected")
        # A single state stands for the last layer's.
        for direction, part, size in zip(flat[-len(parts) :], parts, wanted[-len(parts) :], strict=True):
            if part.shape[1] != size:
                raise FormatError(f"the trace's {name} has {part.shape[1]} units; {size} are expected")
            direction[name] = _numpy(part)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().contiguous().numpy()
