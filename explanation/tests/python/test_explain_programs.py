"""Reports of programs as people write them: fine-tuning, an agent, speech; looked at in a browser."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from explain_cases import HERE, in_process, room
from PIL import Image
from report_pages import chromium, needs_browser

from weft.explanation import Report
from weft.explanation._report import files, style

#: The breaks of each program and subject, in the order in which they are met; hidden ones last.
BREAKS = {
    "fine_tune": {"Classifier": ['log.warning("loss %s", loss)', "if loss > 4:"]},
    "agent": {
        "act": ["if ended.any():", "if logits.max().item() > 1e6:", "if logits.max().item() > 1e6:"],
        "learn": [],
    },
    "speech": {"Recognizer": ["spoken = torch.unique_consecutive(best)", "return scores, spoken[spoken != 0]"]},
}


@pytest.fixture(scope="module", params=BREAKS)
def explained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any], Path]:
    file = tmp_path_factory.mktemp("reports") / "report.json"
    words = ["--seconds", "0.3", "--rounds", "3", "--format", "json", "--output", file]
    status, _, err = in_process(None, *words, HERE / "programs" / f"{request.param}.py", "eager")
    assert status == 0, err
    return request.param, json.loads(file.read_text()), file


def test_the_breaks_are_those_of_the_program(explained: tuple[str, dict[str, Any], Path]) -> None:
    name, report, _ = explained
    found = {each["name"]: [broken["source"] for broken in each["breaks"]] for each in report["subjects"]}
    assert found == BREAKS[name]
    assert all("programs" in broken["file"] for each in report["subjects"] for broken in each["breaks"])


def test_every_way_to_run_a_step_was_timed(explained: tuple[str, dict[str, Any], Path]) -> None:
    _, report, _ = explained
    for subject in report["subjects"]:
        runs = {run["name"]: run for run in subject["runs"]}
        assert {"compiled", "eager", "lazy"} <= set(runs)
        assert all(run["seconds"] is not None for run in runs.values()), runs
        assert runs["lazy"]["note"] == "", "on the device the results are the same"


@needs_browser
@pytest.mark.parametrize(("colors", "scheme"), [(style.LIGHT, 1), (style.DARK, 0)], ids=["light", "dark"])
def test_the_page_looks_as_it_should(
    explained: tuple[str, dict[str, Any], Path], colors: dict[str, str], scheme: int, tmp_path: Path
) -> None:
    _, report, file = explained
    page = Report(files.read(str(file))).html()
    place = room(page, tmp_path, 900)
    assert place["wide"] <= 0
    window = f"--window-size=900,{place['height']}"
    said = chromium(page, tmp_path, window, f"--blink-settings=preferredColorScheme={scheme}", "--screenshot=page.png")
    assert "CONSOLE" not in said, said
    picture = Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("RGB")
    left, top, width, height = (round(value) for value in place["box"])
    line = picture.crop((left, top, left + width, top + height))
    events = report["subjects"][0]["timeline"]
    for kind, part in (
        (
            "graph",
            sum(each["end"] - each["begin"] for each in events if each["graph"] is not None and not each["backward"]),
        ),
        ("back", sum(each["end"] - each["begin"] for each in events if each["graph"] is not None and each["backward"])),
        ("gap", sum(each["end"] - each["begin"] for each in events if each["broken_by"] is not None)),
    ):
        wanted = tuple(int(colors[kind][i : i + 2], 16) for i in (1, 3, 5))
        row = [line.getpixel((x, height // 2)) for x in range(width)]
        share = sum(all(abs(a - b) <= 12 for a, b in zip(pixel, wanted, strict=True)) for pixel in row) / width
        assert share == pytest.approx(part / events[-1]["end"], abs=0.06), kind
