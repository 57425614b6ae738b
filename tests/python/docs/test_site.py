"""The site of the documentation: all pages and names are in it; `make docs` builds it and has a browser look at it."""

from __future__ import annotations

import html
import importlib
import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
CHROMIUM = shutil.which("chromium")
SITE = Path(os.environ.get("WEFT_SITE", "/nowhere")).resolve()
needs_site = pytest.mark.skipif(
    CHROMIUM is None or not (SITE / "index.html").exists(), reason="`make docs` builds the site and then looks at it"
)
#: Goes into a copy of the page and reports what a reader would see of it.
LOOK = """<script>addEventListener('load', () => {
const shown = element => element.getBoundingClientRect().width > 0;
const pictures = [...document.querySelectorAll('article img')].map(picture => picture.naturalWidth);
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const captions = [...document.querySelectorAll('.sidebar-tree .caption-text')].map(each => each.textContent);
const broken = [...document.querySelectorAll('article .system-message, article .problematic')].length;
const code = [...document.querySelectorAll('article .highlight pre')].filter(shown).length;
const title = document.querySelector('article h1').textContent;
const quotes = document.querySelectorAll('dd blockquote').length;  // code that lacks its :: would be one
const names = [...document.querySelectorAll('dt.sig')].map(each => each.id);
document.body.textContent = JSON.stringify({pictures, wide, captions, broken, code, quotes, title, names});
})</script></body>"""


def test_every_page_is_in_the_contents() -> None:
    listed = re.findall(r"^(\.\./\S+|\w+)$", (ROOT / "docs/site/index.md").read_text(), re.M)
    pages = {(ROOT / "docs/site" / f"{name}.md").resolve() for name in listed}
    there = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "docs/site/index.md"}
    assert pages == there | {ROOT / "examples/cells/README.md", *ROOT.glob("examples/packages/*/README.md")}


@pytest.mark.parametrize("module", ["weft", "weft.nn", "weft.backend", "weft.verification", "weft.formats"])
def test_every_public_name_is_in_the_reference(module: str) -> None:
    page = (ROOT / "docs/site/python.md").read_text()
    known = re.findall(r"^\.\. auto\w+:: ([\w.]+)", page, re.M)
    for members in re.findall(r":members: (.+)", page):
        known += members.split(", ")
    known = [name.rpartition(".")[2] for name in known] + ["__version__", "quantize"]
    if f"automodule:: {module}\n   :members:\n" in page:
        return  # all names are there
    assert set(importlib.import_module(module).__all__) <= {*known, "nn", "stats"}


def chromium(url: str, folder: Path, *arguments: str) -> str:
    """Output and errors; what the page's console said is among the errors."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--allow-file-access-from-files", "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
            *arguments, url,
        ],
        capture_output=True, text=True, timeout=120, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def looked_at(page: str, folder: Path, width: int) -> dict[str, Any]:
    source = SITE / page
    copy = source.with_name(f"look-{width}-{source.name}")
    copy.write_text(source.read_text().replace("</body>", LOOK))
    try:
        said = chromium(f"file://{copy}", folder, f"--window-size={width},1000", "--dump-dom")
    finally:
        copy.unlink()
    assert "CONSOLE" not in said, said
    found = re.search(r"<body[^>]*>(\{.*\})\s*</body>", said, re.S)
    assert found, said
    return json.loads(html.unescape(found[1]))


CAPTIONS = ["Begin", "Guides", "From elsewhere", "Reference", "Figures", "The engine"]


@needs_site
@pytest.mark.parametrize("width", [1400, 500], ids=["screen", "phone"])
@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("README.html", "Weft"),
        ("docs/site/python.html", "Python reference"),
        ("docs/figures/performance.html", "Performance"),
        ("docs/ir.html", "The IR"),
    ],
)
def test_a_page_in_the_browser(page: str, title: str, width: int, tmp_path: Path) -> None:
    seen = looked_at(page, tmp_path, width)
    assert seen["title"].startswith(title) and seen["captions"] == CAPTIONS
    assert seen["broken"] == 0 and seen["wide"] <= 0 and seen["quotes"] == 0
    if page == "README.html":
        assert len(seen["pictures"]) == 1 and seen["pictures"][0] > 500
        fences = re.findall(r"^```", (ROOT / "README.md").read_text(), re.M)
        assert seen["code"] == len(fences) // 2 > 0
    if page == "docs/site/python.html":
        assert {"weft.scan", "weft.nn.GRU", "weft.verification.verify"} <= set(seen["names"])


@needs_site
@pytest.mark.parametrize(("scheme", "light"), [(1, True), (0, False)], ids=["light", "dark"])
def test_the_first_page_is_drawn(scheme: int, light: bool, tmp_path: Path) -> None:
    where = f"file://{SITE}/docs/site/index.html"
    said = chromium(
        where, tmp_path, "--window-size=1200,900", f"--blink-settings=preferredColorScheme={scheme}",
        "--screenshot=page.png",
    )  # fmt: skip
    assert "CONSOLE" not in said, said
    picture = Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("L")
    assert picture.size == (1200, 900)
    levels = picture.histogram()
    bright, dark = sum(levels[200:]), sum(levels[:60])
    assert (bright > 10 * dark) == light and (dark > 10 * bright) != light
    assert min(bright, dark) > 1000, "there is text on it"


@needs_site
def test_the_site_begins_at_its_index_and_has_the_headers(tmp_path: Path) -> None:
    assert "url=docs/site/index.html" in (SITE / "index.html").read_text()
    assert "Weft" in chromium(f"file://{SITE}/index.html", tmp_path, "--virtual-time-budget=2000", "--dump-dom")
    files = (SITE / "cpp" / "files.html").read_text()
    for header in ("program.h", "builder.h", "engine.h", "plan.h"):
        assert header in files
