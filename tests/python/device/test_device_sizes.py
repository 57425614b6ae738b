"""Lengths that differ from step to step on the device, where a program depends on them: as sizes, as arguments, as
numbers, in what a decomposition does."""

from __future__ import annotations

import random
import sys

import pytest
import torch
from size_cases import FEATURES, LONGEST, PLACES, PROGRAMS, ROWS, SIZES
from torch import Tensor, nn

import weft


def _counts() -> tuple[int, int]:
    counts = weft.device.stats()
    return counts["records"], counts["programs"]


def _checked(run, length: int, table: Tensor | None, seed: int) -> None:
    x = torch.randn(ROWS, length, FEATURES, generator=torch.Generator().manual_seed(seed))
    tables = [] if table is None else [table]
    expected = run(x, length, *tables)
    actual = run(x.to("weft"), length, *[each.to("weft") for each in tables])
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_lengths(name):
    run, table = PROGRAMS[name]
    records, programs = _counts()
    for seed, length in enumerate([17, 43, 9, 31, 60, 10, 25, 44]):
        _checked(lambda x, n, *tables: run(x, n, *tables).sin(), length, table, seed)
    assert _counts()[0] - records <= 3
    assert _counts()[1] - programs <= 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", PLACES)
def test_a_size_as_an_argument_is_never_a_wrong_one(place, size):
    """Two lengths suggest an expression; a program for it must not be found at other lengths where it is wrong."""
    rng = random.Random(f"{place} {size}")
    for seed in range(7):
        length = rng.randint(2, LONGEST)
        _checked(lambda x, n: PLACES[place](x, SIZES[size](n)), length, None, seed)


def test_a_number_of_features_has_code_of_its_own():
    """A number may also be a length of the data: sound is [batch, channels, time]. Then it has no code of its own."""
    torch.manual_seed(0)
    layer = nn.Conv1d(2, 3, 5, padding=2)
    on_device = nn.Conv1d(2, 3, 5, padding=2).to("weft")
    on_device.load_state_dict(layer.state_dict())
    records, _ = _counts()
    for length in [17, 43, 9, 31, 60, 10, 25, 44]:
        x = torch.randn(ROWS, 2, length)
        torch.testing.assert_close(on_device(x.to("weft")).tanh().cpu(), layer(x).tanh(), rtol=1e-4, atol=1e-5)
    assert _counts()[0] - records <= 4


def test_what_cannot_be_widened_is_not_tried_with_each_further_size():
    def run(x, n):
        return x[:, : n.bit_length()].sin().sum(1)

    tried = weft.device.stats()["widenings"]
    for seed, length in enumerate([17, 43, 9, 31, 60, 10, 25, 44, 19, 45, 11, 33, 61, 12, 27, 46]):
        _checked(run, length, None, seed)
    assert weft.device.stats()["widenings"] - tried <= 4


def _transformer(dropout: float) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=dropout, batch_first=True, activation="gelu")
    return nn.Sequential(nn.Embedding(11, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 5))


def test_sizes_not_seen_before_run_no_python_of_pytorchs():
    """Many of PyTorch's Meta functions are in Python: in a training step of new sizes they took most of the time."""
    on_device, on_cpu = _transformer(0.0).to("weft"), _transformer(0.0)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (on_device, on_cpu)]
    seen: set[str] = set()
    shapes = ("_meta_registrations", "_decomp", "_refs", "_prims")

    def watch(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and any(f"torch/{each}" in name for each in shapes):
            seen.add(f"{name.rpartition('torch/')[2]}: {frame.f_code.co_name}")

    for rows, length in [(2, 7), (3, 9), (4, 12), (5, 17), (2, 23)]:
        ids = torch.arange(rows * length).reshape(rows, length) % 11
        losses = []
        seen.clear()
        for model, optimizer in zip((on_device, on_cpu), optimizers, strict=True):
            x = ids.to(next(model.parameters()).device)
            if model is on_device:
                sys.setprofile(watch)
            try:
                loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten() % 5)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            finally:
                sys.setprofile(None)
            losses.append(loss.detach().cpu())
        weft.sync()
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
    assert not seen, seen
