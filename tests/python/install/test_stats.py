"""weft.stats(): one place for all counters, as a dict and as a text."""

from __future__ import annotations

import json

import torch
from torch import nn

import weft


def test_nothing_met():
    weft.reset_stats()
    assert weft.stats().is_empty
    assert "no recurrent layer was met" in str(weft.stats())
    nn.GRU(4, 5)(torch.randn(3, 2, 4))
    assert not weft.stats().is_empty
    assert "1 calls" in str(weft.stats())
    assert "all that came to Weft ran in its machine code" in str(weft.stats())


def test_a_fallback_stands_in_the_text():
    weft.reset_stats()
    weft.while_loop(lambda x: x.sum() < 3, lambda x: x + torch.rand_like(x), torch.zeros(3))
    (reason,) = weft.stats()["fallbacks"]
    assert f"       1 {reason}" in str(weft.stats()).splitlines()
    assert "all that came to Weft" not in str(weft.stats())


def test_the_backends_counters():
    torch.compiler.reset()
    weft.reset_stats()
    torch.compile(nn.GRU(4, 5), backend="weft")(torch.randn(3, 2, 4))[0].sum().backward()
    counts = weft.stats()["backend"]
    assert (counts["frames"], counts["graphs"], counts["calls"]) == (1, 2, 2)
    assert "backend: 1 frames" in str(weft.stats())
    weft.reset_stats()
    counts = weft.stats()["backend"]
    assert counts.pop("not_rolled") == {}
    assert set(counts.values()) == {0}


def test_the_devices_counters():
    weft.reset_stats()
    before = weft.device.stats()
    x = torch.randn(4, 3).to("weft")
    for _ in range(2):
        float((x.exp() + 1).sum())
    counts = weft.stats()["device"]
    assert counts["compiled_batches"] + counts["plain_batches"] == 2
    ((place, count),) = counts["ran_at_once"]["aten::_local_scalar_dense"].items()
    assert place.startswith("test_stats.py:") and count == 2
    assert counts["records"] == weft.device.stats()["records"] - before["records"]
    weft.reset_stats()
    assert weft.stats()["device"]["ran_at_once"] == {}


def test_as_json():
    assert json.loads(json.dumps(weft.stats())) == weft.stats()
