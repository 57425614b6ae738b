"""What `weft.verify` found, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Side:
    """The reference or the candidate."""

    path: str  #: of the file; what the object is for one in memory
    format: str  #: pytorch, torch.export, onnx, keras, burn, flax, trace
    dtype: str  #: its own: float32, ...
    layers: Sequence[str]  #: one line a layer: "gru.weight_ih_l0: GRU 64 -> 128, both directions, reset_after=True"
    notes: Sequence[str] = ()  #: what the file doesn't say and what was assumed


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the two first differ by more than rounding explains. First: in the order in which values are computed."""

    layer: int  #: from 0
    layer_name: str  #: the reference's name of it; the candidate's if only that has names
    direction: str  #: forward, reverse, or both where only their merged result is known
    step: int  #: index into the input's time axis
    turn: int  #: the how manieth step that the direction does, from 0; step itself if it runs forward
    quantity: str  #: a gate (r, z, n; i, f, g, o), or a state (h, c), or what was recorded last (hn, cn)
    row: int  #: of the batch
    unit: int
    reference: float  #: the reference's value there, from the candidate's state before that step
    candidate: float
    bound: float  #: what rounding can make of it

    @property
    def difference(self) -> float:
        """How far the two values are from each other."""
        return abs(self.reference - self.candidate)


@dataclasses.dataclass(frozen=True)
class Spot:
    """Where h of a track is the furthest apart, each side run on from its own states."""

    step: int  #: index into the input's time axis
    row: int  #: of the batch
    unit: int
    difference: float


@dataclasses.dataclass(frozen=True)
class Track:
    """One direction of one layer, step by step in the order of time (index 0 is the first step of the input).

    Lists have T entries, the difference's the largest over rows and units, defect and bound of the one that is the
    furthest off against its bound. None where there is nothing to compare.
    """

    layer: int
    layer_name: str
    kind: str  #: GRU, LSTM, RNN
    direction: str  #: forward, reverse, or both where only their merged result is known
    difference: Sequence[float | None]  #: of h, each side run on from its own states, from the input alone
    defect: Sequence[float | None]  #: of what one step of the reference makes of the candidate's state before it
    bound: Sequence[float | None]  #: what rounding can make of that
    first: Place | None  #: None: this direction agrees
    largest: Spot | None = None  #: None: nowhere, or it isn't known by unit


@dataclasses.dataclass(frozen=True)
class Change:
    """One known difference in the form that fits."""

    name: str  #: stable: reset_before, stale_hidden_state, gate_order, ...
    detail: str  #: which: "z, r, n instead of r, z, n"; "" where there is one form only
    meaning: str  #: a sentence: "the candidate applies the reset gate before the hidden product, not after it"
    configuration: str  #: what does the same here: "weft.nn.GRU(2, 1, reset_after=False)"; or the tensor code to do it


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The smallest set of changes that makes two sides agree in `scope`."""

    scope: str  #: "all layers", "layer 0", "layer 1, reverse"
    changes: Sequence[Change]  #: one or two; empty: none of the known differences explains it
    side: str  #: which side is to be changed so: "reference" (so changed it does what the candidate does), "candidate"
    sentence: str  #: all of it as prose: "the hidden state is stale from step 1 on: ..."
    also: Sequence[Sequence[Change]] = ()  #: other sets as small that do it too


@dataclasses.dataclass(frozen=True)
class OwnDtype:
    """Both run in the dtype that they are stored in."""

    dtype: str
    difference: float  #: largest, of the outputs
    bound: float  #: what rounding can make of it, there; infinite where rounding is amplified without limit
    agrees: bool


@dataclasses.dataclass(frozen=True)
class Results:
    """Everything that was found."""

    reference: Side
    candidate: Side
    input: str  #: "random, seed 0: 16 steps, batch 2, 64 inputs"; the path of a file
    precision: str  #: in which the sides were compared: float64; of a trace its own dtype
    tracks: Sequence[Track]
    first: Place | None  #: of all tracks; None: they agree
    diagnoses: Sequence[Diagnosis] = ()
    own_dtype: OwnDtype | None = None
    problems: Sequence[str] = ()  #: differences that need no run: another number of layers, other sizes
    structure: Sequence[str] = ()  #: if these are of structure: which layers fit which; those that do were compared

    @property
    def agrees(self) -> bool:
        return self.first is None and not self.problems
