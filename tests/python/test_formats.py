"""weft.formats: what is written is read back the same, and what can't be is refused in words."""

from __future__ import annotations

import pytest
import torch

from weft import formats


def test_a_trace_is_read_and_written(tmp_path):
    trace = formats.Trace(
        torch.randn(4, 2, 3), torch.randn(4, 2, 5), h0=torch.randn(2, 5), gates={"r": torch.rand(4, 2, 5)}
    )
    for suffix in (".npz", ".safetensors", ".pt"):
        path = tmp_path / f"trace{suffix}"
        assert formats.write(trace, path) == []
        read = formats.read(path).trace
        assert torch.equal(read.x, trace.x) and torch.equal(read.gates["r"], trace.gates["r"])
        assert torch.equal(read.h0, trace.h0) and read.c0 is None


def test_an_unknown_option_is_answered_with_those_known(tmp_path):
    path = tmp_path / "trace.npz"
    formats.write(formats.Trace(torch.randn(4, 2, 3), torch.randn(4, 2, 5)), path)
    with pytest.raises(formats.FormatError, match=r"trace files have no option 'reset'; it has none"):
        formats.read(path, options={"reset": "1"})
