"""What a step does to autograd: its derivative is that of the graph which PyTorch's autograd has of it."""

from __future__ import annotations

import os
import warnings

import gradient_cases as cases
import pytest
import torch

import weft

COUNT = int(os.environ.get("WEFT_RANDOM_GRADIENTS", "200"))
PARTS = 8


def fallbacks() -> int:
    return sum(weft.stats()["fallbacks"].values())


@pytest.mark.parametrize("part", range(PARTS))
def test_random_steps(part):
    compiled = tried = 0
    for seed in range(part, COUNT, PARTS):
        step = cases.make(seed)
        try:
            expected = cases.derivatives(cases.loop, step, 3)
        except RuntimeError:  # PyTorch's autograd can't derive it either
            continue
        before = fallbacks()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = cases.derivatives(weft.scan, step, 3)
        tried += 1
        compiled += fallbacks() == before
        for what, ours, theirs in zip(("values", "gradients", "second derivatives"), found, expected, strict=True):
            assert ours or (what == "second derivatives" and " hook " in repr(step)), step
            for a, b in zip(ours, theirs, strict=bool(ours)):
                scale = 1 + float(b.abs().max())
                torch.testing.assert_close(
                    a / scale, b / scale, rtol=1e-5, atol=1e-5 if "float32" in repr(step) else 1e-7,
                    msg=lambda m, s=seed, w=what, p=step: f"{w} of seed {s}: {p}\n{m}",
                )
    assert compiled >= 0.6 * tried, (compiled, tried)
