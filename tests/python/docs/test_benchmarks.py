"""The reports that benchmarks make of measurements: no time is asserted here."""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import torch
import torch._dynamo

import weft  # noqa: F401  as where the peers run

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@contextlib.contextmanager
def benchmark(module: str):
    """A module of the folder, imported as its programs import it."""
    sys.path.insert(0, str(BENCHMARKS))
    before = set(sys.modules)
    try:
        yield importlib.import_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in set(sys.modules) - before:
            if str(BENCHMARKS) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


@pytest.fixture(scope="module")
def regress():
    with benchmark("reports.regress") as module:
        yield module


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


MACHINE = {
    "fma_f32_flops": 1e11, "barrier_seconds": 0.0,
    "l1_bytes": 1000, "l2_bytes": 10000, "l1_bandwidth": 1e12, "l2_bandwidth": 1e11, "l3_bandwidth": 1e10,
}  # fmt: skip


def test_what_l2_holds_needs_not_come_from_l3():
    with benchmark("cases") as cases:
        assert cases.read_seconds(1000, MACHINE) == pytest.approx(1e-9)
        assert cases.read_seconds(10000, MACHINE) == pytest.approx(1e-7)
        assert cases.read_seconds(10001, MACHINE) == pytest.approx(1e-7, rel=1e-2)  # no step at the end of L2
        assert cases.read_seconds(30000, MACHINE) == pytest.approx(1e-7 + 2e-6)


def test_the_readme_and_the_plot_have_the_numbers_of_the_page(tmp_path):
    """`make bench` writes all three, so all three agree."""
    with benchmark("pages") as pages:
        section, of_avx2 = (pages.parts(pages.PAGE.read_text(), writer)[1] for writer in pages.WRITERS.values())
        assert pages.parts(pages.README.read_text())[1] == pages.means(section, of_avx2)
    with benchmark("reports.plot") as plot:
        panels = plot.panels(section)
        plot.draw(section, tmp_path / "again.svg")
    assert len(panels) == 4 and all(len(panel.shapes) == 7 for panel in panels)
    wanted = [f"{speed:.2f}x" for panel in panels for speed in panel.speeds["Weft"]]
    for drawn in (pages.PLOT, tmp_path / "again.svg"):  # matplotlib writes each text as a comment beside its outlines
        assert re.findall(r"<!-- (\d+\.\d\dx) -->", drawn.read_text()) == wanted


def test_the_readmes_first_numbers_are_those_of_the_pages():
    readme = (BENCHMARKS.parent / "README.md").read_text()
    said = readme[readme.index("**What it brings.**") : readme.index("**What it costs.**")]

    def numbers(page: str, pattern: str) -> list[float]:
        (found,) = re.findall(pattern, (BENCHMARKS.parent / page).read_text(), re.M)
        return [float(number) for number in ([found] if isinstance(found, str) else found)]

    (gru,) = numbers("README.md", r"^- GRU training: ([\d.]+)x eager")
    (lstm,) = numbers("README.md", r"^- LSTM training: ([\d.]+)x eager")
    assert f"trains {gru:.1f} times as fast as in eager PyTorch, an LSTM layer {lstm:.2f} times" in said
    (loop,) = numbers("docs/figures/cells.md", r"^- forward: ([\d.]+)x Python loop")
    assert f"{loop:.1f} times as fast as its loop in Python" in said
    cases, slower = numbers("docs/figures/sweep.md", r"^- (\d+) cases, (\d+) slower than eager beyond noise")
    sweep = (BENCHMARKS.parent / "docs/figures/sweep.md").read_text()
    worst = min(map(float, re.findall(r" ([\d.]+)x \|$", sweep, re.M)))
    count = {0: "none was", 1: "1 was"}.get(int(slower), f"{slower:.0f} were")
    assert f"[{cases:.0f} random shapes]" in said and f"{count} slower than eager" in said
    assert f"the worst {worst:.2f}x" in said


def test_a_page_without_the_markers_is_refused():
    with benchmark("pages") as pages:
        begin = "<!-- benchmarks: begin (written by `make bench`) -->"
        assert pages.replaced(f"a\n{begin}\nold\n{pages.END}\nb", "new") == f"a\n{begin}\nnew\n{pages.END}\nb"
        for text in (f"a\n{begin}\nb", f"a\n{pages.END}\nb"):
            with pytest.raises(ValueError, match="no lines '<!-- benchmarks: begin"):
                pages.replaced(text, "new")


def test_inductor_compiles_the_layer_itself_and_not_wefts_operator():
    """Also when Weft is imported. Without Dynamo's setting allow_rnn, Dynamo would leave the layer to eager PyTorch,
    and eager PyTorch would be measured."""
    with benchmark("peers.pytorch") as peers:
        with peers.without_weft():
            assert not torch._dynamo.config.allow_rnn
        with peers.unrolling():
            assert torch._dynamo.config.allow_rnn
            graphs = []
            compiled = torch.compile(torch.nn.GRU(2, 3), backend=lambda graph, _: graphs.append(graph) or graph)
            compiled(torch.randn(2, 1, 2))
    torch._dynamo.reset()
    assert len(graphs) == 1 and "weft" not in graphs[0].code


def test_the_report_says_how_long_a_first_result_takes():
    run = report_of({"B1 T1 H8": (1.0, 2.0), "B2 T1 H8": (1.0, 3.0), "B3 T1 H8": (1.0, 3.0)})
    for case, cold in zip(run["cases"], (61_000, 48_000, 96_400), strict=True):
        case["peers"]["inductor"] = {"median_ms": 1.0, "cold_ms": cold}
    run["cases"][0]["peers"]["weft"]["cold_ms"] = 37.4
    with benchmark("reports.report") as report:
        assert report.first_result_lines(run) == [
            "Weft: 37.4 ms (37.4 ms to 37.4 ms)",
            "Inductor: 61 s (48 s to 96.4 s)",
        ]


def timed(milliseconds: float, **more):
    return {"median_ms": milliseconds, "q1_ms": milliseconds, "q3_ms": milliseconds, **more}


def report_with_wrong():
    """A report of three cases: eager wrong, another peer wrong, Weft wrong."""
    wrong = {"wrong": True, "error": 1.3}
    peers = [
        {"weft": timed(2.0), "eager": timed(1.0, **wrong), "xla": timed(3.0)},
        {"weft": timed(2.0), "eager": timed(4.0), "xla": timed(1.0, **wrong)},
        {"weft": timed(2.0, **wrong), "eager": timed(4.0)},
    ]
    shared = {"cell": "lstm", "mode": "training", "dtype": "bfloat16", "limit_ms": None}
    cases = [{**shared, "shape": f"B{1 + i} T1 H8", "peers": each} for i, each in enumerate(peers)]
    return {"machine": {"threads": 1}, "cases": cases}


def test_what_is_wrong_is_in_no_ratio_and_named_so(regress):
    run = report_with_wrong()
    with benchmark("reports.report") as report:
        eager, other, _ = run["cases"]
        assert [report.best_peer(case) for case in run["cases"]] == [3.0, 4.0, 4.0]
        (summary,) = report.summarise(run)
        assert summary["over_eager"] == pytest.approx(2.0)  # of the second case alone
        assert summary["over_best_peer"] == pytest.approx(3.0**0.5)
        rows = report.rows(run["cases"], ["weft", "eager", "xla"])
        assert rows[0][2:8] == ["2 ±0%", "1 ±0% wrong", "3 ±0%", "-", "-", "1.50x"]
        assert rows[1][2:8] == ["2 ±0%", "4 ±0%", "1 ±0% wrong", "-", "2.00x", "2.00x"]
        assert rows[2][2:8] == ["2 ±0% wrong", "4 ±0%", "-", "-", "-", "-"]
        assert report.wrong_lines(run)[0] == (
            "eager, lstm B1 T1 H8 training bfloat16: off by 1.3e+02 % of the largest entry"
        )
        assert len(report.worst(run)) == 2
        assert report.worst(run)[0] == "1.50x lstm B1 T1 H8 training bfloat16: 2 ms, XLA:CPU 3"
        assert report.failures(run)
        assert not report.failures({"cases": [eager, other]})
    assert list(regress.ratios(run)) == ["lstm B2 T1 H8 training bfloat16"]
    with benchmark("reports.plot") as plot:
        assert plot.milliseconds("1.5 ±0%") == 1.5 and plot.milliseconds("1.5 ±0% wrong") is None


def test_the_judge_is_float64_and_eager_one_of_the_judged():
    """An eager PyTorch whose gradients are off, as oneDNN's of the bfloat16 LSTM on AMX, is timed and named wrong."""
    with benchmark("compare") as compare:
        from peers.pytorch import Eager, Weft

        class Off(Eager):
            def prepare(self, case, data):
                prepared = super().prepare(case, data)
                right = prepared.result
                prepared.result = lambda: {name: 1.3 * value for name, value in right().items()}
                return prepared

        for dtype in ("float32", "bfloat16", "float16"):
            case = compare.Case("lstm", "training", 3, 5, 7, 16, dtype)
            data = compare.Data(case)
            expected = compare.exact(case, data)
            assert all(str(value.dtype) == "float64" for value in expected.values())
            for peer, is_wrong in ((Off(), True), (Eager(), False), (Weft(), False)):
                prepared, entry = compare.prepare(peer, case, data, expected, memory=False)
                assert prepared is not None and prepared.time(0)
                assert entry.get("wrong", False) is is_wrong, (dtype, entry)


def test_only_sums_that_a_peer_keeps_narrow_may_drift():
    with benchmark("check") as check:
        short, long = (check.Case("gru", "training", 1, steps, 8, 8, "bfloat16") for steps in (1, 4096))
        assert check.tolerance(short, "eager") == check.tolerance(long, "weft") == check.TOLERANCE["bfloat16"]
        assert check.tolerance(long, "eager") == 0.25
        assert check.tolerance(replace(long, mode="forward"), "eager") == check.TOLERANCE["bfloat16"]


@pytest.mark.parametrize("kind", ({"streaming": True}, {"layers": 3, "directions": 2}))
@pytest.mark.parametrize("cell", ("gru", "lstm", "rnn"))
def test_every_peer_of_the_grid_runs_or_says_why_not(cell, kind):
    with benchmark("compare") as compare:
        from peers import SkipCase

        ran = set()
        for mode in ("forward",) if "streaming" in kind else ("forward", "training"):
            case = compare.Case(cell, mode, 3, 5, 7, 16, **kind)
            data = compare.Data(case)
            expected = compare.exact(case, data)
            makers = (compare.Weft, compare.Eager, compare.Xla, compare.OnnxRuntime, compare.OpenVino, compare.OneDnn)
            for maker, threads in zip(makers, ((), (), (False,), (1,), (1,), (1,)), strict=True):
                peer = maker(*threads)
                try:
                    found = peer.prepare(case, data).result()
                except (SkipCase, ImportError):
                    continue
                assert not compare.judged(case, peer.name, expected, found).get("wrong"), (peer.name, str(case))
                ran.add(peer.name)
        assert {"weft", "eager"} <= ran and "xla" not in ran


def test_the_grid_reaches_its_corners():
    with benchmark("wide_grid") as grid:
        cases = list(grid.wide_grid(["gru", "lstm"], ["forward", "training"], ["float32", "bfloat16"]))
    assert len({str(case) for case in cases}) == len(cases) < 700
    for wanted in ("forward", "training"):
        plain = [case for case in cases if case.mode == wanted and case.is_one_layer and not case.streaming]
        for field, ends in (("steps", (1, 4096)), ("batch", (1, 512)), ("hidden", (32, 2048))):
            sizes = [getattr(case, field) for case in plain]
            assert (min(sizes), max(sizes)) == ends
        assert any(case.layers == 3 and case.directions == 2 for case in cases if case.mode == wanted)
    assert all(case.mode == "forward" and case.steps > 1 for case in cases if case.streaming)
    assert any(case.streaming and case.hidden == 2048 for case in cases)


def test_phones_last_some_frames_and_sound_as_they_are():
    with benchmark("speech") as speech:
        generator = torch.Generator().manual_seed(0)
        language = speech.Phones.make(generator)
        x, labels = speech.spoken_phones(16, language, generator)
    assert x.shape == (200, 16, 40) and labels.shape == (200, 16)
    runs = [len(run) for row in labels.T.tolist() for _, group in groupby(row[:-16]) if (run := list(group))]
    assert 4 < sum(runs) / len(runs) < 20
    power = x.exp().mean(2)
    vowels, silence = labels < len(speech.VOWELS), labels == len(language.loudness) - 1
    assert power[vowels].mean() > 1.3 * power[silence].mean()


def test_step_times_of_packages_are_told(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    with benchmark("step_times") as step_times, torch.no_grad():
        head, line, *rows = step_times.table(tmp_path, 2).splitlines()
    assert [row.split("|")[1].strip() for row in rows] == list(step_times.MODELS)
    for row in (line, *rows):
        assert row.count("|") == head.count("|")
    for row in rows:
        median, most, slowest, _ = (int(word.replace(",", "")) for word in row.split("|")[2:6])
        assert 0 < median <= most <= slowest
