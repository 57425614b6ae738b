"""`weft.verify` of modules of several layers: code for the whole module, and the place in it where h is furthest
apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_verify import copied, seeded, trace_of
from torch import nn

import weft
import weft.nn
from weft.formats import Layer, layers_of_module


def test_the_constructor_is_that_of_the_whole_module() -> None:
    module = seeded(nn.GRU(3, 4, 3, bidirectional=True))
    states = {f"rnn.{name}": value for name, value in module.state_dict().items()}

    def configuration(report: Any) -> list[str]:
        (diagnosis,) = report.diagnoses
        return [line.split("  #")[0] for change in diagnosis.changes for line in change.configuration.splitlines()]

    whole = "weft.nn.GRU(3, 4, num_layers=3, bidirectional=True, reset_after=False)"
    assert configuration(weft.verify(module, states, candidate_options={"reset_after": False})) == [whole]
    other = seeded(weft.nn.GRU(3, 4, 3, bidirectional=True, reset_after=False))
    other.load_state_dict(module.state_dict())
    trace = trace_of(other, torch.randn(9, 2, 3))
    report = weft.verify(module, trace)
    assert configuration(report) == [whole]
    assert report.candidate.layers[0].startswith("trace of the last of 3 layers: x [9, 2, 3]")
    assert "shows in layer 2" in report.candidate.notes[-1]
    # If one layer of three differs, no single module can be the result.
    layers = list(layers_of_module(module).layers)
    changed = [layers[0], Layer(**{**vars(layers[1]), "reset_after": False}), layers[2]]
    (diagnosis,) = weft.verify(layers, changed).diagnoses
    assert diagnosis.scope == "layer 1"
    assert diagnosis.changes[0].configuration.splitlines() == [
        "nn.GRU(3, 4, bidirectional=True)  # layer 0",
        "weft.nn.GRU(8, 4, bidirectional=True, reset_after=False)  # layer 1",
        "nn.GRU(8, 4, bidirectional=True)  # layer 2",
        "# Keras: reset_after=False; ONNX: linear_before_reset=0; Burn: reset_after False",
    ]


def test_where_h_is_the_furthest_apart() -> None:
    module = seeded(nn.GRU(3, 4))
    x = torch.randn(7, 2, 3)
    trace = trace_of(module, x)
    trace.y[5, 1, 2] += 0.5
    (track,) = weft.verify(module, trace).tracks
    spot = track.largest
    assert spot is not None and (spot.step, spot.row, spot.unit) == (5, 1, 2)
    assert spot.difference == pytest.approx(0.5, abs=1e-3) and spot.difference == max(track.difference)
    assert all(track.largest is None for track in weft.verify(module, copied(module)).tracks)
