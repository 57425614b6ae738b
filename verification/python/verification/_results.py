"""The results of `weft.verify`, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Side:
    """The reference or the candidate."""

    path: str  #: the file's path; for an object in memory a description
    format: str  #: pytorch, torch.export, onnx, keras, burn, flax, trace
    dtype: str  #: its own: float32, ...
    layers: Sequence[str]  #: one line a layer: "gru.weight_ih_l0: GRU 64 -> 128, both directions, reset_after=True"
    notes: Sequence[str] = ()  #: what the file doesn't say and what was assumed


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the two sides first differ by more than rounding explains, in the order in which values are computed."""

    layer: int  #: from 0
    layer_name: str  #: the reference's name of the layer; the candidate's if only that has names
    direction: str  #: forward, reverse, or both where only their merged result is known
    step: int  #: index into the input's time axis
    #: the number of the step in the order of its direction, from 0; `step` itself if the direction runs forward
    turn: int
    quantity: str  #: a gate (r, z, n; i, f, g, o), or a state (h, c), or what was recorded last (hn, cn)
    row: int  #: of the batch
    unit: int
    reference: float  #: the reference's value there, computed from the candidate's state before that step
    candidate: float
    bound: float  #: how far rounding can move the value

    @property
    def difference(self) -> float:
        """The distance of the two values."""
        return abs(self.reference - self.candidate)


@dataclasses.dataclass(frozen=True)
class Spot:
    """Where h differs most in a track, if each side runs on from its own states."""

    step: int  #: index into the input's time axis
    row: int  #: of the batch
    unit: int
    difference: float


@dataclasses.dataclass(frozen=True)
class Track:
    """One direction of one layer, by step in the order of time (index 0 is the first step of the input).

    Lists have T entries. A difference is the largest over rows and units; defect and bound are those of the element
    with the largest ratio of the two. None where there is nothing to compare.
    """

    layer: int
    layer_name: str
    kind: str  #: GRU, LSTM, RNN
    direction: str  #: forward, reverse, or both where only their merged result is known
    difference: Sequence[float | None]  #: of h, where each side computes all steps from its own states
    defect: Sequence[float | None]  #: of one step of the reference from the candidate's state before it
    bound: Sequence[float | None]  #: how far rounding can move that
    first: Place | None  #: None: this direction agrees
    largest: Spot | None = None  #: None: nowhere, or not known by unit


@dataclasses.dataclass(frozen=True)
class Change:
    """One known difference, in a form that fits."""

    name: str  #: stable name: reset_before, stale_hidden_state, gate_order, ...
    detail: str  #: the form: "z, r, n instead of r, z, n"; "" where there is only one
    meaning: str  #: a sentence: "the candidate applies the reset gate before the hidden product, not after it"
    #: a module that does the same: "weft.nn.GRU(2, 1, reset_after=False)"; or the tensor code to do it
    configuration: str


@dataclasses.dataclass(frozen=True)
class Untried:
    """Sets of known differences that a search left out when it reached its budget."""

    changes: int  #: of a set: 1, 2 or 3
    left: int  #: sets left out
    all: int  #: of so many
    names: Sequence[str]  #: of known differences: each set left out has one of them


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The smallest set of changes that makes two sides agree in `scope`."""

    scope: str  #: "all layers", "layer 0", "layer 1, reverse"
    changes: Sequence[Change]  #: one or two; empty: none of the known differences explains it
    side: str  #: the side to be changed so: "reference" (with the changes it does what the candidate does), "candidate"
    sentence: str  #: all changes as prose: "the hidden state is stale from step 1 on: ..."
    also: Sequence[Sequence[Change]] = ()  #: other sets of as few changes that do it too
    untried: Sequence[Untried] = ()  #: what the search left out; empty: its budget was enough


@dataclasses.dataclass(frozen=True)
class OwnDtype:
    """Both sides, run in the dtype in which they are stored."""

    dtype: str
    difference: float  #: the largest difference of the outputs
    bound: float  #: how far rounding can move the outputs there; infinite where rounding is amplified without limit
    agrees: bool


@dataclasses.dataclass(frozen=True)
class Results:
    """All that was found."""

    reference: Side
    candidate: Side
    input: str  #: "random, seed 0: 16 steps, batch 2, 64 inputs"; the path of a file
    precision: str  #: the precision of the comparison: float64; for a trace its own dtype
    tracks: Sequence[Track]
    first: Place | None  #: the first of all tracks; None: the sides agree
    diagnoses: Sequence[Diagnosis] = ()
    own_dtype: OwnDtype | None = None
    budget: float = 10.0  #: of the searches, in seconds of a processor; counted as work, not as time
    problems: Sequence[str] = ()  #: differences that need no run: another number of layers, other sizes
    #: if the problems are structural: which layers fit which; the ones that fit were compared
    structure: Sequence[str] = ()

    @property
    def agrees(self) -> bool:
        return self.first is None and not self.problems
