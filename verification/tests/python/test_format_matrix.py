"""Every format converted to every other, saved and run by the frameworks; see verification/scripts/format_matrix.py."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

for package in ("onnxruntime", "keras", "flax"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("format_matrix", ROOT / "verification" / "scripts" / "format_matrix.py")
assert spec is not None and spec.loader is not None
matrix = importlib.util.module_from_spec(spec)
spec.loader.exec_module(matrix)

#: The most that float32 rounding changes outputs in [-1, 1] in five steps, with room for each framework's own tanh.
TOLERANCE = 4e-6


@pytest.mark.parametrize("kind", matrix.KINDS)
@pytest.mark.parametrize("source", matrix.SOURCES)
def test_a_row_of_the_matrix(source, kind):
    sizes = matrix.Sizes(steps=5, batch=2, inputs=3, units=4)
    for case in matrix.KINDS[kind]:
        found = matrix.differences(source, case, sizes, list(matrix.DESTINATIONS))
        assert list(found) == list(matrix.DESTINATIONS)
        assert max(found.values()) < TOLERANCE, (case, found)


def test_the_table_in_the_document_is_whole_and_within_rounding():
    rows = re.findall(r"^\| ([\w.]+) \| ([\w.]+) \|(.*)\|$", (ROOT / "docs" / "formats.md").read_text(), re.M)
    wanted = [(source, destination) for source in matrix.SOURCES for destination in matrix.DESTINATIONS]
    rows = [row for row in rows if row[:2] in wanted]
    assert [row[:2] for row in rows] == wanted
    for _, _, cells in rows:
        values = [float(cell.strip(" *")) for cell in cells.split("|")]
        assert len(values) == len(matrix.KINDS) and max(values) < 1e-5


def test_a_fault_shows_in_the_matrix(monkeypatch):
    """A reader that swaps two gates is seen in every destination."""
    read = matrix.formats.read

    def wrong(path, format=None, options=None):
        source = read(path, format, options)
        if format == "onnx":
            for d in source.layers[0].directions:
                r, z, n = d.weight_h.chunk(3)
                d.weight_h = torch.cat([z, r, n])
        return source

    monkeypatch.setattr(matrix.formats, "read", wrong)
    found = matrix.differences("onnx", ("GRU", 1, 1), matrix.Sizes(5, 2, 3, 4), list(matrix.DESTINATIONS))
    assert min(found.values()) > 100 * TOLERANCE
