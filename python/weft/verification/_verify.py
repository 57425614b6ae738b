"""`weft.verify`: two implementations on one input, the first difference, and what explains it.

Here the sides are read and brought to one form; what is compared and how is in src/verify.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import _C, formats
from weft.formats import FormatError, Layer, Source, Trace
from weft.verification import _changes, _report, _sides
from weft.verification._own_dtype import own_dtype
from weft.verification._pairs import Pair, paired
from weft.verification._report import Diagnosis, Place, Report, Track
from weft.verification._sides import Input, Side
from weft.verification._weights import differing


def verify(
    reference: Side,
    candidate: Side,
    *,
    input: str | os.PathLike[str] | Tensor | np.ndarray | Mapping[str, Any] | None = None,
    random: int = 0,
    steps: int = 16,
    batch: int = 2,
    reference_format: str | None = None,
    candidate_format: str | None = None,
    reference_options: Mapping[str, Any] | None = None,
    candidate_options: Mapping[str, Any] | None = None,
) -> Report:
    """Runs the recurrent layers of two sides on the same input and finds where they part, and why.

    A difference counts when it is more than rounding can make: the bound is computed, step by step, from the numbers at
    hand (docs/verify.md). Two sides with weights are compared in float64 and then in the dtype that they are stored in;
    a trace is compared in its own.

    Args:
        reference, candidate: each a path (of any format that `weft.formats.read` knows), an nn.Module, a state dict, a
            trace (a dict or `weft.formats.Trace` with x [T, B, I] and y [T, B, H]), a function from x [T, B, I] (and
            h0, c0, where the input has them) to y, or layers. One of the two has weights.
        input: x [T, B, I], as an array, a dict with x and maybe h0, c0 ([B, H] or [layers*directions, B, H]), or a file
            of such. A trace brings its own.
        random: the seed of a random input where there is none: x normal, `steps` by `batch`, no initial states.
        reference_format, candidate_format, reference_options, candidate_options: `format` and `options` of
            `weft.formats.read`.

    Returns:
        A report; `str` of it is its text, `report.agrees` the verdict.

    Raises:
        FormatError (a ValueError): a side or an input that can't be read or doesn't fit. One line.
        TypeError: a side that is something else.
    """
    sources = [
        _sides.source_of(reference, reference_format, reference_options),
        _sides.source_of(candidate, candidate_format, candidate_options),
    ]
    given = _input_of(input)
    weights = next((source for source in sources if source is not None and source.layers), None)
    if weights is None:
        raise FormatError(
            "one of the two sides must have weights; a trace or a function can only be compared with such"
        )
    for index, side in enumerate((reference, candidate)):
        if sources[index] is None:
            shared = given or _random_input(weights.layers, random, steps, batch)
            trace = _sides.traced(side, shared, _sides.dtype_of(weights.layers))  # type: ignore[arg-type]
            name = getattr(side, "__qualname__", type(side).__name__)
            sources[index] = Source(f"{name}(x)", "function", [], trace)
            given = None if input is None else given
    first, second = sources
    assert first is not None and second is not None
    traces = [source for source in (first, second) if source.trace is not None]
    if traces:
        trace = traces[0].trace
        assert trace is not None
        if input is not None and traces[0].format != "function":
            raise FormatError("a trace brings its own input; leave out input")
        return _against_trace(first, second, trace)
    return _two_models(first, second, given, random, steps, batch)


def _input_of(input: Any) -> Input | None:
    if input is None:
        return None
    if isinstance(input, str | os.PathLike):
        arrays, label = formats.read_arrays(input), str(input)
    elif isinstance(input, Mapping):
        arrays, label = {str(k): _sides.as_tensor(v, str(k)) for k, v in input.items()}, "given"
    else:
        arrays, label = {"x": _sides.as_tensor(input, "x")}, "given"
    if "x" not in arrays:
        raise FormatError(
            f"{label}: the input should have x [T, B, I]; it has {', '.join(list(arrays)[:5]) or 'nothing'}"
        )
    x = arrays["x"]
    if x.dim() != 3 or 0 in x.shape[:2]:
        raise FormatError(f"{label}: x has shape {list(x.shape)}; [T, B, I] with at least one step and row is expected")
    if x.is_complex():
        raise FormatError(f"{label}: x is of {x.dtype}; real numbers are expected")
    for name in ("h0", "c0"):
        state = arrays.get(name)
        if state is not None and (state.dim() not in (2, 3) or state.shape[-2] != x.shape[1]):
            raise FormatError(f"{label}: {name} has shape {list(state.shape)}; [{x.shape[1]}, H] is expected")
    sizes = f"{x.shape[0]} steps, batch {x.shape[1]}, {x.shape[2]} inputs"
    return Input(x.double(), arrays.get("h0"), arrays.get("c0"), f"{label}: {sizes}")


def _random_input(layers: Sequence[Layer], seed: int, steps: int, batch: int) -> Input:
    if steps < 1 or batch < 1:
        raise FormatError(f"steps and batch should be positive, got: {steps} and {batch}")
    inputs = layers[0].input_size
    x = torch.randn(steps, batch, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    # Numbers that every dtype here can hold, so that both sides are given the same ones whatever they compute in.
    x = x.to(torch.bfloat16).double()
    return Input(x, None, None, f"random, seed {seed}: {steps} steps, batch {batch}, {inputs} inputs")


def trace_of(layers: Sequence[Layer], seed: int, steps: int, batch: int) -> Trace:
    """What the layers make of a random input, in float64: for an implementation that can't be run here.

    Raises:
        FormatError: layers of which one isn't fed by the one before it.
    """
    use = _random_input(layers, seed, steps, batch)
    last = layers[-1]
    try:
        recording = _C.record_layers(_engine(layers), use.x.numpy())
    except RuntimeError as error:
        raise FormatError(f"the layers can't be run one after the other: {error}") from None
    shape = (steps, batch, last.directions[0].output_size)
    parts = [torch.tensor(recording.h(len(layers) - 1, d)).view(shape) for d in range(len(last.directions))]
    return Trace(use.x, _merge(parts, last.merge))


def _merge(parts: list[Tensor], merge: str) -> Tensor:
    if len(parts) == 1 or merge == "concat":
        return torch.cat(parts, -1)
    first, second = parts
    return {"sum": first + second, "mul": first * second, "ave": (first + second) / 2}[merge]


# Two sides with weights ---------------------------------------------------------------------------------------------


def _two_models(reference: Source, candidate: Source, given: Input | None, seed: int, steps: int, batch: int) -> Report:
    pairs, problems = paired(reference.layers, candidate.layers)
    tracks: list[Track] = []
    diagnoses: list[Diagnosis] = []
    own: list[_report.OwnDtype] = []
    label = ""
    for index, pair in enumerate(pairs):
        use = given if index == 0 and given is not None else None
        if use is not None and use.x.shape[2] != pair.reference[0].input_size:
            raise FormatError(
                f"x has {use.x.shape[2]} inputs; {pair.reference[0].name} takes {pair.reference[0].input_size}"
            )
        use = use or _random_input(pair.reference, seed + index, *(given.x.shape[:2] if given else (steps, batch)))
        label = label or use.label
        pair = Pair(
            pair.start,
            _sides.with_states(pair.reference, use.h0, use.c0),
            _sides.with_states(pair.candidate, use.h0, use.c0),
        )
        new_tracks, new_diagnoses = _compare_models(pair, use)
        tracks += new_tracks
        diagnoses += new_diagnoses
        if (result := own_dtype(pair, use)) is not None:
            own.append(result)
    return Report(
        reference=_side(reference),
        candidate=_side(candidate),
        input=label,
        precision="float64",
        tracks=tracks,
        first=_first(tracks),
        diagnoses=_merged(diagnoses, len(reference.layers)),
        own_dtype=max(own, key=lambda each: (not each.agrees, each.difference), default=None),
        problems=problems,
    )


def _compare_models(pair: Pair, input: Input) -> tuple[list[Track], list[Diagnosis]]:
    x = input.x.numpy()
    ours, theirs = _engine(pair.reference), _engine(pair.candidate)
    recording = _C.record_layers(theirs, x)
    tracks = _tracks(_C.compare_layers(ours, recording), pair.reference, pair.start)
    if all(track.first is None for track in tracks):
        return tracks, []
    diagnoses = _diagnoses(_C.diagnose_layers(ours, recording), pair.reference, pair.start, "reference", len(x))
    if any(not diagnosis.changes for diagnosis in diagnoses):
        # What the candidate has and the reference lacks, a bias for instance, no change of the reference can show.
        other = _C.diagnose_layers(theirs, _C.record_layers(ours, x))
        turned = _diagnoses(other, pair.candidate, pair.start, "candidate", len(x))
        explained = {diagnosis.scope: diagnosis for diagnosis in turned if diagnosis.changes}
        diagnoses = [each if each.changes else explained.get(each.scope, each) for each in diagnoses]
    return tracks, [each if each.changes else _with_weights(each, pair) for each in diagnoses]


def _with_weights(diagnosis: Diagnosis, pair: Pair) -> Diagnosis:
    """Of what no known difference explains: which parameters differ."""
    index = int(diagnosis.scope.split(",")[0].removeprefix("layer ")) - pair.start
    found = differing(pair.reference[index], pair.candidate[index])
    weights = f"parameters differ: {'; '.join(found)}" if found else "the parameters are the same"
    return dataclasses.replace(diagnosis, sentence=f"{diagnosis.sentence}; {weights}")


# A side with weights against a trace --------------------------------------------------------------------------------


def _against_trace(reference: Source, candidate: Source, trace: Trace) -> Report:
    known, side = (reference, "reference") if reference.layers else (candidate, "candidate")
    other = candidate if side == "reference" else reference
    layers = _sides.with_states(known.layers, trace.h0, trace.c0)
    recording = _recording(layers, trace)
    ours = _engine(layers)
    raw = _C.compare_layers(ours, recording)
    tracks = _tracks(raw, layers, 0, exchanged=side == "candidate")
    diagnoses: list[Diagnosis] = []
    if any(track.first is not None for track in tracks):
        diagnoses = _diagnoses(_C.diagnose_layers(ours, recording), layers, 0, side, trace.x.shape[0])
    label = f"of {other.path}: {trace.x.shape[0]} steps, batch {trace.x.shape[1]}, {trace.x.shape[2]} inputs"
    return Report(
        reference=_side(reference),
        candidate=_side(candidate),
        input=label,
        precision=str(trace.y.dtype).removeprefix("torch."),
        tracks=tracks,
        first=_first(tracks),
        diagnoses=_merged(diagnoses, len(layers)),
    )


def _recording(layers: Sequence[Layer], trace: Trace) -> Any:
    """The trace by layers and directions: of all but the last layer nothing is known."""
    x, y = trace.x, trace.y
    if x.shape[2] != layers[0].input_size:
        raise FormatError(f"the trace's x has {x.shape[2]} inputs; {layers[0].name} takes {layers[0].input_size}")
    last = layers[-1]
    if y.shape[2] != last.output_size:
        raise FormatError(f"the trace's y has {y.shape[2]} columns; {last.name} gives {last.output_size}")
    if y.dtype not in _sides.DTYPES:
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
        return _C.recording(_numpy(x), recorded, merged, _sides.DTYPES[y.dtype])
    except RuntimeError as error:
        raise FormatError(str(error)) from None


def _add_gates(recorded: dict[str, Any], layer: Layer, trace: Trace) -> None:
    names = formats.GATES[layer.kind] if layer.kind != "RNN" else ()
    for name, value in trace.gates.items():
        known = (*names, "c") if layer.kind == "LSTM" else names
        if name not in known:
            raise FormatError(
                f"the trace has a gate {name}; {layer.name}, a {layer.kind}, has {', '.join(known) or 'none'}"
            )
        if value.shape[2] != layer.hidden_size:
            raise FormatError(f"the trace's {name} has {value.shape[2]} units; {layer.name} has {layer.hidden_size}")
    recorded["gates"] = [_numpy(trace.gates[name]) if name in trace.gates else None for name in names]
    recorded["c"] = _numpy(trace.gates["c"]) if "c" in trace.gates else None


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
        # One state of several layers' is the last one's.
        for direction, part, size in zip(flat[-len(parts) :], parts, wanted[-len(parts) :], strict=True):
            if part.shape[1] != size:
                raise FormatError(f"the trace's {name} has {part.shape[1]} units; {size} are expected")
            direction[name] = _numpy(part)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().contiguous().numpy()


# From what src/verify says to a report ------------------------------------------------------------------------------


def _engine(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    return [_sides.for_engine(layer) for layer in layers]


def _direction_name(layer: Layer, direction: int) -> str:
    if direction > 1:
        return "both"
    return "reverse" if layer.directions[direction].reverse else "forward"


def _tracks(raw: list[dict[str, Any]], layers: Sequence[Layer], start: int, exchanged: bool = False) -> list[Track]:
    tracks = []
    for each in raw:
        if all(math.isnan(value) for value in each["defect"]):
            continue  # a layer of which nothing was recorded
        layer = layers[each["layer"]]
        direction = _direction_name(layer, each["direction"])
        first = each["first"]
        place = None
        if first is not None:
            values = (first["layers"], first["recorded"])
            values = values[::-1] if exchanged else values
            place = Place(
                layer=start + each["layer"],
                layer_name=layer.name,
                direction=direction,
                step=first["step"],
                turn=first["turn"],
                quantity=first["quantity"],
                row=first["row"],
                unit=first["unit"],
                reference=values[0],
                candidate=values[1],
                bound=first["bound"],
            )
        tracks.append(
            Track(
                layer=start + each["layer"],
                layer_name=layer.name,
                kind=layer.kind,
                direction=direction,
                difference=_numbers(each["drift"]),
                defect=_numbers(each["defect"]),
                bound=_numbers(each["bound"]),
                first=place,
            )
        )
    return tracks


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _first(tracks: Sequence[Track]) -> Place | None:
    places = [track.first for track in tracks if track.first is not None]
    return min(places, key=lambda place: (place.turn, place.layer), default=None)


def _diagnoses(
    raw: list[dict[str, Any]], layers: Sequence[Layer], start: int, side: str, steps: int
) -> list[Diagnosis]:
    who = "the candidate" if side == "reference" else "the reference"
    result = []
    for each in raw:
        layer = layers[max(each["layer"], 0)]
        scope = "all layers" if each["layer"] < 0 else f"layer {start + each['layer']}"
        if each["direction"] >= 0:
            scope += f", {_direction_name(layer, each['direction'])}"

        def texts(changes: Sequence[tuple[str, str]], layer: Layer = layer) -> list[_report.Change]:
            return [_changes.change(name, detail, who, layer, steps) for name, detail in changes]

        changes = texts(each["changes"])
        sentence = _changes.sentence(changes, who)
        result.append(Diagnosis(scope, changes, side, sentence, [texts(other) for other in each["also"]]))
    return result


def _merged(diagnoses: list[Diagnosis], layers: int) -> list[Diagnosis]:
    """One for all layers where each layer has the same."""
    whole = len(diagnoses) == layers > 1 and all(", " not in each.scope for each in diagnoses)
    keys = {(each.side, tuple((change.name, change.detail) for change in each.changes)) for each in diagnoses}
    if whole and len(keys) == 1:
        return [dataclasses.replace(diagnoses[0], scope="all layers")]
    if layers == 1:  # "all layers" of one
        return [dataclasses.replace(each, scope=each.scope.replace("all layers", "layer 0")) for each in diagnoses]
    return diagnoses


def _side(source: Source) -> _report.Side:
    if source.trace is not None:
        trace = source.trace
        shapes = f"x {list(trace.x.shape)}, y {list(trace.y.shape)}"
        extra = [name for name in ("h0", "c0", "hn", "cn") if getattr(trace, name) is not None] + sorted(trace.gates)
        lines, dtype = [", ".join([f"trace: {shapes}", *extra])], trace.y.dtype
    else:
        lines, dtype = [_sides.describe(layer) for layer in source.layers], _sides.dtype_of(source.layers)
    return _report.Side(source.path, source.format, str(dtype).removeprefix("torch."), lines, source.notes)
