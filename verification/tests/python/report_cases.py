"""Reports as `weft.verify` could make them, for their writers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.verification import Change, Diagnosis, OwnDtype, Place, Report, Side, Spot, Track

SCRIPT = "<script>alert(1)</script>"

RESET = Change(
    "reset_before",
    "",
    "the candidate applies the reset gate before the hidden product, not after it",
    "weft.nn.GRU(2, 1, reset_after=False)",
)
STALE = Change(
    "stale_hidden_state",
    "",
    "the candidate computes every step from the initial hidden state",
    "for t in range(steps):\n    y[t] = cell(x[t], h0)  # h0 where the last h belongs",
)


def place(step: int = 1, **fields: Any) -> Place:
    values: dict[str, Any] = {
        "layer": 0, "layer_name": "gru", "direction": "forward", "step": step, "turn": step, "quantity": "n", "row": 0,
        "unit": 2, "reference": -0.31219, "candidate": 0.11273, "bound": 3.1e-15,
    }  # fmt: skip
    return Place(**(values | fields))


def track(
    difference: Sequence[float | None], first: Place | None = None, defect: Sequence[float | None] | None = None,
    **fields: Any,
) -> Track:  # fmt: skip
    values: dict[str, Any] = {"layer": 0, "layer_name": "gru", "kind": "GRU", "direction": "forward"}
    return Track(
        **(values | fields),
        difference=difference,
        defect=difference if defect is None else defect,
        bound=[1e-15 * (1 + step % 3) for step in range(len(difference))],
        first=first,
        largest=spot_of(difference),
    )


def spot_of(difference: Sequence[float | None]) -> Spot | None:
    known = [(value, step) for step, value in enumerate(difference) if value]
    if not known:
        return None
    value, step = max(known, key=lambda each: (math.isnan(each[0]), each[0]))
    return Spot(step, 0, 2, value)


def side(path: str, **fields: Any) -> Side:
    values: dict[str, Any] = {
        "format": "pytorch", "dtype": "float32", "layers": ["gru: GRU 2 -> 1, forward, reset_after=True"],
    }  # fmt: skip
    return Side(path, **(values | fields))


def report(tracks: Sequence[Track], diagnoses: Sequence[Diagnosis] = (), **fields: Any) -> Report:
    values: dict[str, Any] = {
        "reference": side("model.pt", notes=["a state dict doesn't say whether input is batch first: it isn't"]),
        "candidate": side("other/model.keras", format="keras"),
        "input": "random, seed 0: 16 steps, batch 2, 2 inputs",
        "precision": "float64",
        "first": next((track.first for track in tracks if track.first), None),
        "own_dtype": OwnDtype("float32", 0.42492, 2.1e-6, False),
    }  # fmt: skip
    return Report(**(values | fields), tracks=tracks, diagnoses=diagnoses)


def agreeing(steps: int = 16) -> Report:
    """A report of one layer; the first step is equal bit for bit."""
    size = [0.0, *(1e-16 * (1 + 0.3 * math.sin(step)) for step in range(1, steps))]
    return report([track(size)], own_dtype=OwnDtype("float32", 1.2e-7, 2.1e-6, True))


def differing(steps: int = 16, name: str = "gru") -> Report:
    """A report that differs from step 1 on, with a diagnosis of two changes and another one as small."""
    size = [0.0, *(min(1.0, 1e-3 * 1.5 ** min(step, 50)) for step in range(1, steps))]
    found = Diagnosis(
        "all layers",
        [RESET, STALE],
        "reference",
        "The hidden state is stale from step 1 on: the candidate computes every step from the initial hidden state, "
        "and applies the reset gate before the hidden product.",
        also=[[Change("gate_order", "z, r, n instead of r, z, n", "the gates are in another order", "GRU(...)")]],
    )
    first = place(layer_name=name, turn=1)
    return report([track(size, first, layer_name=name)], [found])


def hostile() -> Report:
    """Every text that can come from a file is markup, and a terminal's escape."""
    name = f"{SCRIPT}\x1b[31m\u202e\ud800&\"'"
    change = Change("gate_order", name, name, name)
    tracks = [track([0.0, 0.5, math.nan], place(layer_name=name), layer_name=name)]
    return report(
        tracks,
        [Diagnosis(name, [change], "candidate", name, also=[[change]])],
        reference=side(name, layers=[name], notes=[name]),
        candidate=side(name, layers=[name, name], dtype=name),
        input=name,
        problems=[name],
        structure=[name],
    )


def odd() -> Report:
    """NaN, infinities, gaps, zeros alone, and numbers at the ends of float64."""
    return report(
        [
            track(
                [0.0, 1e-300, 1e300, math.nan, None, math.inf],
                place(step=3, reference=math.inf, candidate=math.nan, bound=math.inf),
            ),
            track([None] * 6, direction="reverse"),
            track([0.0] * 6, layer=1, layer_name="second"),
            track([], layer=2, layer_name="third"),
        ],
        own_dtype=OwnDtype("float16", math.nan, math.inf, False),
    )


def many() -> Report:
    """Twelve layers of two directions; one direction of layer 3 and everything after it differ."""
    tracks = []
    for layer in range(12):
        for direction in ("forward", "reverse"):
            differs = layer > 3 or (layer == 3 and direction == "reverse")
            size = [0.01 * (layer + step) if differs else 1e-16 for step in range(50)]
            first = place(step=49, turn=0, layer=layer, direction=direction, layer_name=f"encoder.{layer}")
            tracks.append(
                track(size, first if differs else None, layer=layer, layer_name=f"encoder.{layer}", direction=direction)
            )
    return report(tracks)


def mismatched() -> Report:
    """A report of sides that could not be run."""
    structure = [
        "the reference's layer 0 (l0: GRU 2 -> 1) fits the candidate's layer 0",
        "the reference's layer 1 (l1: GRU 1 -> 1) fits nothing of the candidate's",
    ]
    problems = ["the reference has 2 layers, the candidate 1"]
    return report([], problems=problems, structure=structure, own_dtype=None)


ALL = {
    "agreeing": agreeing,
    "differing": differing,
    "hostile": hostile,
    "odd": odd,
    "many": many,
    "mismatched": mismatched,
    "long": lambda: differing(10_000),
    "one step": lambda: report([track([0.5], place(step=0))]),
}
