"""weft.load: states, what is refused and in which words."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from package_checks import assert_close
from torch import nn

import weft


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(12)
    one = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "one") / "libone.so")
    two = weft.load(weft.package(nn.GRU(1, 8), torch.randn(3, 1), tmp_path / "two") / "libtwo.so")
    first = one.step(torch.ones(1))
    saved = one.save()
    assert not torch.equal(one.step(torch.ones(1)), first)
    one.reset()
    assert torch.equal(one.step(torch.ones(1)), first)
    with pytest.raises(RuntimeError, match="not one of this model"):
        two.restore(saved)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.restore(saved[:-1])
    one.restore(saved)
    assert list(one.state) == ["carry['h'][0]"]
    ctypes.memset(one._state, 0, 16)
    with pytest.raises(RuntimeError, match="not one of this model"):
        one.step(torch.ones(1))


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    model = weft.load(weft.package(nn.GRU(3, 8), torch.randn(3, 3), tmp_path / "fine") / "libfine.so")
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float32\[4\]"):
        model.step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"the model takes x: float32\[3\], but got float64\[3\]"):
        model.step(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"takes 1 inputs \(x: float32\[3\]\), but got 2"):
        model.step(torch.zeros(3), torch.zeros(3))
    with pytest.raises(RuntimeError, match="has no function other_model"):
        weft.load(tmp_path / "fine" / "libfine.so", "other")
    with pytest.raises(OSError, match=r"cannot open"):
        weft.load(tmp_path / "libnone.so")
    (tmp_path / "libtext.so").write_text("no library")
    with pytest.raises(OSError, match=f"weft.load: {tmp_path / 'libtext.so'}: "):
        weft.load(tmp_path / "libtext.so")


def test_restoring_anything(tmp_path: Path) -> None:
    """Bytes of any kind are another model's, or a state that goes on."""
    torch.manual_seed(20)
    model = weft.load(weft.package(nn.LSTM(1, 5), torch.randn(3, 1), tmp_path / "any") / "libany.so")
    saved = model.save()
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        size = int(torch.randint(0, 2 * len(saved), (), generator=generator))
        data = bytes(torch.randint(0, 256, (size,), generator=generator).tolist())
        with pytest.raises(RuntimeError, match="not one of this model"):
            model.restore(data)
        if size >= len(saved):
            model.restore(saved[:8] + data[8 : len(saved)])
            assert model.step(torch.ones(1)).shape == (5,)


def test_a_package_that_is_written_again_is_loaded_again(tmp_path: Path) -> None:
    for seed in (21, 22):
        torch.manual_seed(seed)
        module, x = nn.GRU(2, 5), torch.randn(4, 2)
        model = weft.load(weft.package(module, x, tmp_path / "again") / "libagain.so")
        assert_close(model.run(x), module(x)[0])
