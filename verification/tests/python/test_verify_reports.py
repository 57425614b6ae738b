"""What `weft.verify` found, written as text, JSON and a page; the page in a real browser too."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from pathlib import Path

import jsonschema
import pytest
import report_cases
from PIL import Image
from report_pages import Page, check_needs_nothing_else, chromium, measured, needs_browser

from weft.verification import _plots, _style
from weft.verification._html import to_html
from weft.verification._json import to_json
from weft.verification._text import to_text

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs/verify.schema.json").read_text())
EVERY = pytest.mark.parametrize("name", report_cases.ALL)


# Text


def test_the_first_line_of_the_text_says_it() -> None:
    assert to_text(report_cases.agreeing(), 80).startswith("agree: at every step")
    first = to_text(report_cases.differing(), 100).splitlines()[0]
    assert first == "differ: first at step 1, layer 0 (gru), forward: new value n"
    mismatched = to_text(report_cases.mismatched(), 80)
    assert mismatched.startswith("differ in structure: the reference has 2 layers, the candidate 1\n")
    assert "the reference's layer 1 (l1: GRU 1 -> 1) fits nothing of the candidate's" in mismatched


def test_the_text_says_where_why_and_what_to_write() -> None:
    text = to_text(report_cases.differing(), 100)
    for part in (
        "-0.31219", "0.11273", "(row 0, unit 2)", "1.4e+14 times what rounding explains",
        "all layers: reset_before + stale_hidden_state", "stale from step 1 on",
        "weft.nn.GRU(2, 1, reset_after=False)", "    y[t] = cell(x[t], h0)",
        "or: gate_order (z, r, n instead of r, z, n)",
        "model.pt (pytorch, float32)", "note: a state dict doesn't say", "own dtype", "0.425 apart at most",
    ):  # fmt: skip
        assert part in text, part


def test_the_texts_plot_has_a_column_a_step_and_marks_the_first_that_differs() -> None:
    lines = to_text(report_cases.differing(), 100).splitlines()
    rows = [line.split("│")[1] for line in lines if "│" in line]
    marks = "\n".join(rows)
    # Difference and defect are the same here; the first is exactly 0 and has the lowest row for itself.
    assert marks.count("◆") == 16 and marks.count("─") == 16
    assert rows[-1].strip() == "◆" and rows[-1][0] == "◆"
    (under,) = [line for line in lines if line.endswith("^ first differs: step 1")]
    highest = min(index for index, row in enumerate(rows) if "◆" in row)
    assert rows[highest].rstrip()[-1] == "◆", "the last step differs the most"
    second = next(row for row in rows[:-1] if len(row) > 4 and row[4] == "◆")
    assert under.index("^") == lines[next(i for i, x in enumerate(lines) if second in x)].index("│") + 1 + 4


@pytest.mark.parametrize("width", [40, 80, 200])
@EVERY
def test_the_text_keeps_to_its_width(name: str, width: int) -> None:
    report = report_cases.ALL[name]()
    written = {line.strip() for d in report.diagnoses for c in d.changes for line in c.configuration.splitlines()}
    for line in to_text(report, width).splitlines():
        assert len(line) <= width or line.strip() in written or name == "hostile", line
    assert len(to_text(report, width).splitlines()) < 75


def test_the_text_of_many_layers_is_one_screen_with_those_that_differ_first() -> None:
    text = to_text(report_cases.many(), 120)
    assert len(text.splitlines()) < 40
    assert text.index("layer 3 (encoder.3), reverse, by step") < text.index("layer 4 (encoder.4), forward: differs")
    assert "and 10 more that differ" in text
    (agreeing,) = [line for line in text.splitlines() if "every step by itself agrees" in line]
    assert "layer 0 (encoder.0), forward" in agreeing


def test_numbers_that_are_none() -> None:
    text = to_text(report_cases.odd(), 120)
    assert re.search(r"reference +inf\n +candidate +NaN", text) and "NaN,inf │" in text
    assert "rounding is amplified without limit: differ" in text


@EVERY
def test_only_printable_characters_reach_the_terminal(name: str) -> None:
    assert "".join(to_text(report_cases.ALL[name](), 80).splitlines()).isprintable()


def test_color_adds_escapes_alone() -> None:
    plain, colored = (to_text(report_cases.differing(), 90, color=color) for color in (False, True))
    assert "\x1b[" in colored and "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


# Parts of plots


def test_columns_hold_the_largest_of_all_their_steps() -> None:
    values = [float(step % 97) for step in range(1000)]
    values[123], values[456] = math.inf, math.nan
    columns = _plots.columns(report_cases.track(values), 64)
    assert len(columns) == 64 and columns[0].first == 0 and columns[-1].last == 999
    for before, column in itertools.pairwise(columns):
        assert column.first == before.last + 1
    for column in columns:
        part = values[column.first : column.last + 1]
        if 456 in range(column.first, column.last + 1):
            assert math.isnan(column.difference)
        else:
            assert column.difference == max(part)


@pytest.mark.parametrize("most", [2, 5, 10])
def test_ticks_are_few_and_even(most: int) -> None:
    for steps in (1, 2, 7, 10, 99, 10_000):
        ticks = _plots.step_ticks(steps, most)
        assert 1 <= len(ticks) <= most and ticks[0] == 0 and ticks[-1] < steps
    scale = _plots.Scale(-17, 3, True, True)
    ticks = scale.ticks(most)
    assert len(ticks) <= most and len({b - a for a, b in itertools.pairwise(ticks)}) <= 1


# JSON


@EVERY
def test_the_json_is_what_the_schema_says(name: str) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} isn't JSON")

    report = report_cases.ALL[name]()
    found = json.loads(to_json(report), parse_constant=refuse)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(strict(SCHEMA)).validate(found)
    assert found["version"] == 1 and found["agrees"] is report.agrees
    assert [len(track["difference"]) for track in found["tracks"]] == [len(t.difference) for t in report.tracks]


def strict(schema: object) -> object:
    """Every property must be described and every field must be a property."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        assert schema["required"] == list(schema["properties"])
        assert all("description" in field for field in schema["properties"].values() if "const" not in field)
        schema = schema | {"additionalProperties": False}
    return {key: strict(value) for key, value in schema.items()}


def test_the_schema_can_refuse() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    found = json.loads(to_json(report_cases.differing()))
    for change in (
        {"version": 2}, {"agrees": "no"}, {"first": {}}, {"tracks": [{}]}, {"input": None},
        {"own_dtype": found["own_dtype"] | {"bound": "infinite"}},
    ):  # fmt: skip
        assert not validator.is_valid(found | change), change
    for name in found:
        assert not validator.is_valid({key: value for key, value in found.items() if key != name}), name


def test_what_json_lacks_is_written_as_strings() -> None:
    found = json.loads(to_json(report_cases.odd()))
    assert found["tracks"][0]["difference"] == [0.0, 1e-300, 1e300, "NaN", None, "Infinity"]
    place = found["first"]
    assert (place["reference"], place["candidate"], place["difference"]) == ("Infinity", "NaN", "NaN")
    assert found["own_dtype"] == {"dtype": "float16", "difference": "NaN", "bound": "Infinity", "agrees": False}


# The page


@EVERY
def test_the_page_is_well_formed_and_needs_nothing_else(name: str) -> None:
    page = check_needs_nothing_else(to_html(report_cases.ALL[name]()))
    for path in page.all("path"):
        assert re.fullmatch(r"[MLHVhvZ\d. -]*", path["d"]), "a path holds something other than numbers"


def test_the_page_escapes_what_files_say() -> None:
    text = to_html(report_cases.hostile())
    assert "<script" not in text.lower() and "\x1b" not in text and "\u202e" not in text
    shown = "".join(Page(text).texts)
    assert shown.count(report_cases.SCRIPT) >= 15, "every place that has a name shows it, as it is"


@EVERY
def test_the_page_has_a_plot_for_every_direction(name: str) -> None:
    report = report_cases.ALL[name]()
    page = Page(to_html(report))
    plots = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    assert len(plots) == sum(bool(track.difference) for track in report.tracks)
    assert len(page.all("tr")) == (1 + len(report.tracks) if report.tracks else 0)


def test_the_page_says_where_why_and_what_to_write() -> None:
    shown = "".join(Page(to_html(report_cases.differing())).texts)
    for part in (
        "They differ", "stale from step 1 on", "reset_before", "weft.nn.GRU(2, 1, reset_after=False)",
        "    y[t] = cell(x[t], h0)", "gate_order (z, r, n instead of r, z, n)", "first differs: step 1", "0, equal",
        "step 15\ndifference 0.438", "model.pt", "other/model.keras", "Note: a state dict",
    ):  # fmt: skip
        assert part in shown, part
    assert "Times what rounding explains" in shown and "step 15, row 0, unit 2" in shown
    agreeing = "".join(Page(to_html(report_cases.agreeing())).texts)
    header = agreeing[agreeing.index("They agree") : agreeing.index("Step by step")]
    assert "at most 1.3 × 10−16 apart, where 3 × 10−15 is allowed" in header and "(step 14, row 0, unit 2)" in header
    mismatched = "".join(Page(to_html(report_cases.mismatched())).texts)
    assert "They differ in structure" in mismatched and "fits the candidate's layer 0" in mismatched


def test_the_page_has_one_legend() -> None:
    for name in ("agreeing", "many"):
        keys = [each for each in Page(to_html(report_cases.ALL[name]())).all("div") if each.get("class") == "key"]
        assert len(keys) == 1, name


def test_a_layer_without_a_name_has_none() -> None:
    report = report_cases.differing(name="")
    for text in (to_text(report, 80), to_html(report)):
        assert "layer 0, forward" in text and "root" not in text.split("</style>")[-1] and "()" not in text


def test_long_sequences_make_no_long_page() -> None:
    assert len(to_html(report_cases.differing(10_000))) < 150_000
    assert len(to_html(report_cases.many())) < 400_000


# In a browser

WIDTH = 900
#: The places of a page's plots, and the pairs of labels on their axes that overlap.
PLOTS = {
    "boxes": """[...document.querySelectorAll('.plot > svg')].map(svg => {
      const box = svg.getBoundingClientRect();
      return [box.left, box.top + scrollY, box.width, box.height];
    })""",
    "overlaps": """[...document.querySelectorAll('.xs, .ys')].flatMap(axis => {
      const spans = [...axis.children].map(span => [span.textContent, span.getBoundingClientRect()]);
      return spans.flatMap(([a, x]) => spans.filter(([b, y]) =>
        a < b && x.left < y.right && y.left < x.right && x.top < y.bottom && y.top < x.bottom).map(([b]) => [a, b]));
    })""",
}


def painted(picture: Image.Image, box: list[float], color: str) -> list[tuple[int, int]]:
    """The pixels of that color in the box, relative to its upper left corner."""
    left, top, width, height = (round(value) for value in box)
    wanted = tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))
    part = picture.crop((left, top, left + width, top + height))
    return [
        (x, y)
        for y in range(part.height)
        for x in range(part.width)
        if all(abs(a - b) <= 12 for a, b in zip(part.getpixel((x, y)), wanted, strict=True))
    ]


@needs_browser
@pytest.mark.parametrize(("colors", "scheme"), [(_style.LIGHT, 1), (_style.DARK, 0)], ids=["light", "dark"])
def test_the_browser_draws_the_plots(colors: dict[str, str], scheme: int, tmp_path: Path) -> None:
    size = [0.0, *(1e-3 for _ in range(11)), *(1e-9 for _ in range(12))]
    defect = [0.0, *(1e-6 for _ in range(23))]
    first = report_cases.place()
    report = report_cases.report([report_cases.track(size, first, defect), report_cases.track(size, first, defect)])
    page = to_html(report)
    room = measured(page, tmp_path, WIDTH, PLOTS)
    assert len(room["boxes"]) == 2
    window = f"--window-size={WIDTH},{room['height']}"
    said = chromium(page, tmp_path, window, f"--blink-settings=preferredColorScheme={scheme}", "--screenshot=page.png")
    assert "CONSOLE" not in said, said
    picture = Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("RGB")
    assert picture.size == (WIDTH, room["height"])
    for box in room["boxes"]:
        lines = {name: painted(picture, box, colors[name]) for name in ("difference", "defect", "bound")}
        width, height = box[2:]
        for name, pixels in lines.items():
            assert len(pixels) > 100, name
            assert min(x for x, _ in pixels) < 0.1 * width and max(x for x, _ in pixels) > 0.9 * width, name

        def middle(name: str, begin: float, end: float) -> float:
            ys = sorted(y for x, y in lines[name] if begin * width < x < end * width)  # noqa: B023
            return ys[len(ys) // 2] / height  # noqa: B023

        # 1e-3 is above 1e-6 is above 1e-9, each as far from the next; the bound is below; what is 0 is at the floor.
        high, low, own = middle("difference", 0.1, 0.4), middle("difference", 0.6, 0.9), middle("defect", 0.1, 0.9)
        assert high < own < low < middle("bound", 0.6, 0.9)
        assert own == pytest.approx((high + low) / 2, abs=0.02)
        assert max(y for x, y in lines["difference"] if x < 0.03 * width) > 0.93 * height


@needs_browser
@pytest.mark.parametrize("name", ["odd", "hostile", "long"])
def test_the_page_fits_a_phone_and_labels_keep_apart(name: str, tmp_path: Path) -> None:
    room = measured(to_html(report_cases.ALL[name]()), tmp_path, 500, PLOTS)
    assert room["wide"] <= 0 and room["overlaps"] == [] and room["boxes"]


@needs_browser
def test_the_console_would_be_heard(tmp_path: Path) -> None:
    """The test above relies on this. And a script that got into the page would not run."""
    script = "<script>undefined_function()</script></body>"
    page = to_html(report_cases.agreeing())
    unlocked = re.sub(r"<meta http-equiv=[^>]*>", "", page)
    assert "undefined_function is not defined" in chromium(unlocked.replace("</body>", script), tmp_path, "--dump-dom")
    said = chromium(page.replace("</body>", script), tmp_path, "--dump-dom")
    assert "undefined_function is not defined" not in said and "Content Security Policy" in said
