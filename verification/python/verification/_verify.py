"""`weft.verify`: two implementations on one input, the first difference, and what explains it.

Here the sides are read and brought to one form; what is compared and how is in verification/verify.
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

from weft import formats
from weft.formats import FormatError, Layer, Source, Trace
from weft.verification import _C, _sides
from weft.verification._biases import settled
from weft.verification._findings import diagnoses_of, first_of, merged, side_of, tracks_of
from weft.verification._own_dtype import own_dtype
from weft.verification._pairs import Pair, paired
from weft.verification._recording import recording_of
from weft.verification._report import Report
from weft.verification._results import Diagnosis, OwnDtype, Track
from weft.verification._search import explained
from weft.verification._sides import Input, Side


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
    budget: float = 10.0,
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
        budget: of the search for known differences, in seconds of a processor. Counted as work, so that the answer
            doesn't depend on the machine. What was left untried is in `report.diagnoses[...].untried`.

    Returns:
        A report; `str` of it is its text, `report.agrees` the verdict.

    Raises:
        FormatError (a ValueError): a side or an input that can't be read or doesn't fit, a budget that isn't positive.
            One line.
        TypeError: a side that is something else.
    """
    if not 0 < budget < math.inf:
        raise FormatError(f"the budget should be a positive number of seconds, got: {budget}")
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
    first, second = sources
    assert first is not None and second is not None
    traces = [source for source in (first, second) if source.trace is not None]
    if traces:
        trace = traces[0].trace
        assert trace is not None
        if input is not None and traces[0].format != "function":
            raise FormatError("a trace brings its own input; leave out input")
        return _against_trace(first, second, trace, budget)
    return _two_models(first, second, given, random, steps, batch, budget)


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
    if x.dim() == 2:  # without a batch dim
        x = x.unsqueeze(1)
        states = {name: arrays[name] for name in ("h0", "c0") if name in arrays}
        arrays |= {name: state.unsqueeze(-2) for name, state in states.items()}
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
    if not -(2**63) <= seed < 2**63:
        raise FormatError(f"the seed should be a number of 64 bits, got: {seed}")
    inputs = layers[0].input_size
    x = torch.randn(steps, batch, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    # Numbers that are exact in all dtypes here, so that both sides get the same ones in any dtype.
    x = x.to(torch.bfloat16).double()
    return Input(x, None, None, f"random, seed {seed}: {steps} steps, batch {batch}, {inputs} inputs")


def trace_of(layers: Sequence[Layer], seed: int, steps: int, batch: int) -> Trace:
    """The layers' results on a random input, in float64: for an implementation that can't be run here.

    Raises:
        FormatError: a layer isn't fed by the one before it.
    """
    use = _random_input(layers, seed, steps, batch)
    last = layers[-1]
    try:
        recording = _C.record_layers(_sides.engine(layers), use.x.numpy())
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


def _two_models(
    reference: Source, candidate: Source, given: Input | None, seed: int, steps: int, batch: int, budget: float
) -> Report:
    pairs, problems, structure = paired(reference.layers, candidate.layers)
    tracks: list[Track] = []
    diagnoses: list[Diagnosis] = []
    own: list[OwnDtype] = []
    label = ""
    notes: list[str] = []
    left = budget
    for index, pair in enumerate(pairs):
        use = given if index == 0 and given is not None else None
        if use is not None and use.x.shape[2] != pair.reference[0].input_size:
            raise FormatError(
                f"x has {use.x.shape[2]} inputs; {pair.reference[0].called} takes {pair.reference[0].input_size}"
            )
        use = use or _random_input(pair.reference, seed + index, *(given.x.shape[:2] if given else (steps, batch)))
        label = label or use.label
        pair = Pair(
            pair.start,
            _sides.with_states(pair.reference, use.h0, use.c0),
            _sides.with_states(pair.candidate, use.h0, use.c0),
        )
        exact, rounded = settled(pair)
        notes += rounded
        share = left / (len(pairs) - index)
        new_tracks, new_diagnoses, rest = _compare_models(exact, use, share)
        left += rest - share
        tracks += new_tracks
        diagnoses += new_diagnoses
        if (result := own_dtype(pair, use)) is not None:
            own.append(result)
    side = side_of(candidate)
    return Report(
        reference=side_of(reference),
        candidate=dataclasses.replace(side, notes=[*side.notes, *notes]),
        input=label or "none, since no layer of one fits the other's",
        precision="float64",
        tracks=tracks,
        first=first_of(tracks),
        diagnoses=merged(diagnoses, {"reference": reference.layers, "candidate": candidate.layers}),
        budget=budget,
        own_dtype=max(own, key=lambda each: (not each.agrees, each.difference), default=None),
        problems=problems,
        structure=structure,
    )


def _compare_models(pair: Pair, input: Input, budget: float) -> tuple[list[Track], list[Diagnosis], float]:
    """Also what is left of the budget."""
    x = input.x.numpy()
    ours, theirs = _sides.engine(pair.reference), _sides.engine(pair.candidate)
    recording = _C.record_layers(theirs, x)
    tracks = tracks_of(_C.compare_layers(ours, recording), pair.reference, pair.start)
    if all(track.first is None for track in tracks):
        return tracks, [], budget
    return tracks, *explained(pair, ours, theirs, recording, x, budget)


# A side with weights against a trace --------------------------------------------------------------------------------


def _against_trace(reference: Source, candidate: Source, trace: Trace, budget: float) -> Report:
    known, side = (reference, "reference") if reference.layers else (candidate, "candidate")
    other = candidate if side == "reference" else reference
    layers = _sides.with_states(known.layers, trace.h0, trace.c0)
    recording = recording_of(layers, trace)
    ours = _sides.engine(layers)
    raw = _C.compare_layers(ours, recording)
    tracks = tracks_of(raw, layers, 0, exchanged=side == "candidate")
    diagnoses: list[Diagnosis] = []
    if any(track.first is not None for track in tracks):
        diagnoses = diagnoses_of(_C.diagnose_layers(ours, recording, budget)[0], layers, 0, side)
    label = f"of {other.path}: {trace.x.shape[0]} steps, batch {trace.x.shape[1]}, {trace.x.shape[2]} inputs"
    return Report(
        reference=side_of(reference, len(layers)),
        candidate=side_of(candidate, len(layers)),
        input=label,
        precision=str(trace.y.dtype).removeprefix("torch."),
        tracks=tracks,
        first=first_of(tracks),
        diagnoses=merged(diagnoses, {side: layers}),
        budget=budget,
    )
