"""Two faults in one GRU of two inputs and one hidden unit, and what is left when one of them is mended.

Both look like noise: the reset gate before the hidden product instead of after it, and every step from the initial
hidden state instead of the last one.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from fault_cases import trace_of
from faulty_cells import Faults, Numbers, run

import weft
from weft.formats import Direction, Layer, Trace

BOTH = Faults(reset_side=True, stale="all")
ONLY_STALE = Faults(stale="all")
ONLY_RESET = Faults(reset_side=True)


@pytest.fixture(params=[False, True], ids=["zeros", "h0"])
def has_state(request) -> bool:
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request) -> str:
    return request.param


def right_layers(units: int = 1) -> list[Layer]:
    generator = torch.Generator().manual_seed(3)

    def weights(*shape: int) -> torch.Tensor:
        return 2 * torch.rand(*shape, generator=generator) - 1

    direction = Direction(weights(3 * units, 2), weights(3 * units, units), weights(3 * units), weights(3 * units))
    return [Layer("gru", "GRU", [direction])]


def recorded(faults: Faults, has_state: bool, dtype: str, units: int = 1) -> Trace:
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((8, 3, 2)).astype(np.float32)
    h0 = numbers.standard_normal((1, 3, units)).astype(np.float32) if has_state else None
    answer = run(right_layers(units), x, h0, faults=faults, number=Numbers(dtype))
    return trace_of(x, h0, None, answer, getattr(torch, dtype))


def names(report) -> list[list[str]]:
    (diagnosis,) = report.diagnoses
    return [[change.name for change in changes] for changes in (diagnosis.changes, *diagnosis.also)]


def test_both_faults_are_named_together(has_state: bool, dtype: str) -> None:
    report = weft.verify(right_layers(), recorded(BOTH, has_state, dtype))
    assert not report.agrees and report.first.step == 0
    # Of one unit W_hn (r h) is r (W_hn h), so that only the bias shows which side of it the reset gate is on.
    assert sorted(names(report)[0]) == ["reset_before", "stale_hidden_state"]
    configuration = "\n".join(change.configuration for change in report.diagnoses[0].changes)
    assert "weft.nn.GRU(2, 1, reset_after=False)" in configuration


def test_with_the_first_mended_step_0_agrees_and_the_state_is_stale(has_state: bool, dtype: str) -> None:
    report = weft.verify(right_layers(), recorded(ONLY_STALE, has_state, dtype))
    assert not report.agrees
    assert report.first.step == 1 and report.first.layer == 0 and report.first.direction == "forward"
    (track,) = report.tracks
    assert track.defect[0] <= track.bound[0] and track.difference[0] <= track.bound[0]
    assert all(defect > 10 * bound for defect, bound in zip(track.defect[1:3], track.bound[1:3], strict=True))
    assert names(report)[0] == ["stale_hidden_state"]
    for written in (str(report), report.html(), json.loads(report.json())["diagnoses"][0]["sentence"]):
        assert "hidden state is stale from step 1 on" in " ".join(written.split())


def test_with_the_second_mended_the_first_is_left(has_state: bool, dtype: str) -> None:
    report = weft.verify(right_layers(), recorded(ONLY_RESET, has_state, dtype))
    assert not report.agrees
    assert names(report)[0] == ["reset_before"]


def test_with_both_mended_all_steps_agree(has_state: bool, dtype: str) -> None:
    report = weft.verify(right_layers(), recorded(Faults(), has_state, dtype))
    assert report.agrees and not report.diagnoses
    (track,) = report.tracks
    assert len(track.defect) == 8
    assert all(defect <= bound for defect, bound in zip(track.defect, track.bound, strict=True))


def test_so_configured_it_agrees() -> None:
    """The module that the diagnosis tells to write does the same as the candidate."""
    trace = recorded(ONLY_RESET, True, "float32", units=4)
    layers = right_layers(4)
    report = weft.verify(layers, trace)
    assert names(report)[0] == ["reset_before"]
    module = eval(report.diagnoses[0].changes[0].configuration, {"weft": weft})
    (direction,) = layers[0].directions
    state = {"weight_ih_l0": direction.weight_x, "weight_hh_l0": direction.weight_h,
             "bias_ih_l0": direction.bias_x, "bias_hh_l0": direction.bias_h}  # fmt: skip
    module.load_state_dict(state)
    assert weft.verify(module, trace).agrees
    assert not weft.verify(layers, module).agrees


def test_more_units_tell_the_faults_apart(has_state: bool) -> None:
    """With more units no other pair of faults fits."""
    report = weft.verify(right_layers(5), recorded(BOTH, True, "float64", units=5))
    assert names(report) == [["reset_before", "stale_hidden_state"]]
