"""What the benchmarks make of measurements: no time is asserted here."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def regress():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("regress")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in ("regress", "report"):
            sys.modules.pop(name, None)


def report_of(times: dict[str, tuple[float | None, float]], threads: int = 1):
    """A report with the milliseconds of Weft and of eager by shape."""
    cases = [
        {
            "cell": "gru",
            "mode": "forward",
            "shape": shape,
            "peers": {"weft": {} if ours is None else {"median_ms": ours}, "eager": {"median_ms": eager}},
        }
        for shape, (ours, eager) in times.items()
    ]
    return {"machine": {"threads": threads}, "cases": cases}


def test_a_slow_machine_is_no_regression(regress):
    before = report_of({"B1 T1 H8": (1.0, 2.0), "B2 T1 H8": (1.0, 3.0)})
    now = report_of({"B1 T1 H8": (2.0, 4.0), "B2 T1 H8": (2.0, 6.1)})
    assert not any(change.is_slower for change in regress.changes(before, now))


def test_the_case_that_lost_most_comes_first(regress):
    before = report_of({"B1 T1 H8": (1.0, 2.0), "B2 T1 H8": (1.0, 3.0), "B3 T1 H8": (1.0, 3.0)})
    now = report_of({"B1 T1 H8": (1.0, 2.0), "B2 T1 H8": (1.0, 1.5), "B3 T1 H8": (None, 1.0), "B4 T1 H8": (9.0, 1.0)})
    found = regress.changes(before, now)
    assert [change.case for change in found] == ["gru B2 T1 H8 forward float32", "gru B1 T1 H8 forward float32"]
    assert [change.is_slower for change in found] == [True, False]
    assert str(found[0]) == "gru B2 T1 H8 forward float32: 3.00x eager before, 1.50x now (-50 %)"


def test_runs_that_do_not_compare_are_refused(regress):
    run = report_of({"B1 T1 H8": (1.0, 2.0)})
    with pytest.raises(ValueError, match="the earlier run had 2 threads, this one has 1"):
        regress.changes(report_of({"B1 T1 H8": (1.0, 2.0)}, threads=2), run)
    with pytest.raises(ValueError, match="none of this run's cases"):
        regress.changes(report_of({"B7 T1 H8": (1.0, 2.0)}), run)
