"""Reports as text, JSON and a page; the page in a real browser too."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import jsonschema
import pytest
from explain_cases import SCRIPT, room, two_breaks
from PIL import Image
from report_pages import Page, check_needs_nothing_else, chromium, needs_browser

from weft.explanation import Report
from weft.explanation._report import records as _records
from weft.explanation._report import style
from weft.explanation._report.records import Measured, Results
from weft.explanation._report.text import measured, seconds, size

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMA = json.loads((DOCS / "explain.schema.json").read_text())


def nothing() -> Results:
    return Results("weft explain x.py", "2.13.0", "a machine", True, [], [])


CASES = {"two": two_breaks, "hostile": lambda: two_breaks(SCRIPT), "nothing": nothing}
EVERY = pytest.mark.parametrize("name", CASES)


# Text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.00 µs"),
        (2e-3, "2.00 ms"),
        (-2.5e-5, "−25.0 µs"),
        (12.345, "12.3 s"),
        (0.5, "500 ms"),
        (1e-8, "0.01 µs"),
    ],
)
def test_times_have_the_unit_that_suits_them(value: float, expected: str) -> None:
    assert seconds(value) == expected


def test_sizes_and_intervals() -> None:
    assert [size(count) for count in (0, 999, 8192, 3_000_000, None)] == ["0 B", "999 B", "8.2 kB", "3.0 MB", "–"]
    assert measured(Measured(2e-3, 1e-3, 3e-3)) == "2.00 ms (1.00 ms to 3.00 ms)"
    assert measured(None) == "not measured"


def test_the_text_says_what_breaks_what_it_costs_and_what_to_write() -> None:
    text = Report(two_breaks()).text(100)
    assert text.startswith("2 distinct graph breaks, 3 graphs\n")
    for part in (
        "compiled  10.0 ms (9.90 ms to 10.1 ms) a step, 3 graphs, 6 kernels, 8.2 kB moved",
        "1. 2.00 ms (1.80 ms to 2.60 ms) a step, 20 % of the step", "/p/model.py:7 in forward: print(x)",
        "       -print(x)\n       +pass", "2. no gain known", "not tried: does not fit",
        "compiled anew: forward (/p/model.py:5), 1.50 s", "note: a note",
        "PyTorch's compiler warned of 2 things: no more code for forward; again\n",
    ):  # fmt: skip
        assert part in text, part


@EVERY
def test_only_printable_characters_reach_the_terminal(name: str) -> None:
    assert "".join(Report(CASES[name]()).text(80).splitlines()).isprintable()


def test_color_adds_escapes_alone() -> None:
    plain, colored = (Report(two_breaks()).text(90, color=color) for color in (False, True))
    assert "\x1b[" in colored and "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_the_code_in_the_page_of_documentation_runs() -> None:
    document = (DOCS / "explain.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", document, re.S)
    code = "def example():\n" + "".join(f"    {line}\n" for line in block.splitlines())
    exec(code + "example()", {})


# JSON


@EVERY
def test_the_json_is_what_the_schema_says(name: str) -> None:
    found = json.loads(Report(CASES[name]()).json())
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(strict(SCHEMA)).validate(found)


def strict(schema: object) -> object:
    """Every property must be described and every field must be a property."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        assert schema["required"] == list(schema["properties"])
        assert all("description" in field for field in schema["properties"].values())
        schema = schema | {"additionalProperties": False}
    return {key: strict(value) for key, value in schema.items()}


def test_the_schema_has_every_field_and_can_refuse() -> None:
    kinds = {name.lower(): kind for name, kind in vars(_records).items() if dataclasses.is_dataclass(kind)}
    root = kinds.pop("results")
    assert set(SCHEMA["$defs"]) == set(kinds)
    for name, kind in [("", root), *kinds.items()]:
        described = SCHEMA["$defs"][name] if name else SCHEMA
        assert set(described["properties"]) == {field.name for field in dataclasses.fields(kind)}, name
    validator = jsonschema.Draft202012Validator(SCHEMA)
    found = json.loads(Report(two_breaks()).json())
    for change in ({"version": 2}, {"interrupted": "no"}, {"subjects": [{}]}, {"notes": None}):
        assert not validator.is_valid(found | change), change


# The page


@EVERY
def test_the_page_is_well_formed_and_needs_nothing_else(name: str) -> None:
    check_needs_nothing_else(Report(CASES[name]()).html())


def test_the_page_shows_what_a_program_says_as_it_is() -> None:
    text = Report(two_breaks(SCRIPT)).html()
    assert "<script" not in text.lower() and "\x1b" not in text and "\u202e" not in text
    assert "".join(Page(text).texts).count("<script>alert") >= 15


def test_the_page_has_the_time_line_the_bars_and_the_cost_beside_the_line() -> None:
    page = Page(Report(two_breaks()).html())
    shown = "".join(page.texts)
    for part in (
        "2 distinct graph breaks, 3 graphs", "10.0 ms a step, 8.00 ms with all changes", "2.00 ms", "20 % of the step",
        "1.80 ms to 2.60 ms", "print(x)", "after breaks, 5.00 ms, 50%", "s = x.mean().item()", "not known",
        "size mismatch", "the end of the function",
        "torch._dynamo, 2 times", "no more code for forward\n  line 5",
    ):  # fmt: skip
        assert part in shown, part
    kinds = [attributes.get("class") for tag, attributes in page.elements if tag == "rect"]
    assert kinds[:7] == ["rest", "graph", "gap", "graph", "gap", "graph", "rest"]


# In a browser


@needs_browser
@pytest.mark.parametrize(("colors", "scheme"), [(style.LIGHT, 1), (style.DARK, 0)], ids=["light", "dark"])
def test_the_browser_draws_graphs_and_gaps_where_they_were(colors: dict[str, str], scheme: int, tmp_path: Path) -> None:
    page = Report(two_breaks()).html()
    place = room(page, tmp_path, 900)
    window = f"--window-size=900,{place['height']}"
    said = chromium(page, tmp_path, window, f"--blink-settings=preferredColorScheme={scheme}", "--screenshot=page.png")
    assert "CONSOLE" not in said, said
    picture = Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("RGB")
    left, top, width, height = place["box"]
    for part, kind in ((0.15, "graph"), (0.4, "gap"), (0.65, "graph"), (0.75, "gap"), (0.85, "graph"), (0.95, "rest")):
        pixel = picture.getpixel((round(left + part * width), round(top + height / 2)))
        wanted = tuple(int(colors[kind][i : i + 2], 16) for i in (1, 3, 5))
        assert all(abs(a - b) <= 12 for a, b in zip(pixel, wanted, strict=True)), (part, kind, pixel)
    corner = tuple(int(colors["page"][i : i + 2], 16) for i in (1, 3, 5))
    assert picture.getpixel((2, 2)) == corner


@needs_browser
@pytest.mark.parametrize("name", ["two", "hostile"])
def test_the_page_fits_a_phone(name: str, tmp_path: Path) -> None:
    assert room(Report(CASES[name]()).html(), tmp_path, 500)["wide"] <= 0
