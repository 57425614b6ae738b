"""Pages of reports: their elements, and how a real browser shows them."""

from __future__ import annotations

import html
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium isn't installed (scripts/setup.sh installs it)")


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in the right order, and collects them."""

    VOID = ("meta", "link", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]


def check_needs_nothing_else(text: str) -> Page:
    """Checks that the page is well formed, loads nothing and runs nothing; returns its elements."""
    page = Page(text)
    assert not {tag for tag, _ in page.elements} & {"script", "img", "iframe", "object"}
    for tag, attributes in page.elements:
        assert not any(key.startswith("on") or key == "src" for key in attributes), (tag, attributes)
        assert attributes.get("href") in (None, "data:,")
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert text.encode("utf-8")
    return page


def chromium(page: str, folder: Path, *arguments: str) -> str:
    """Output and errors; what the page's console said is among the errors."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            f"--user-data-dir={folder}/profile", *arguments, f"file://{folder}/page.html",
        ],
        capture_output=True, text=True, timeout=120, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def measured(page: str, folder: Path, width: int, expressions: dict[str, str]) -> dict[str, Any]:
    """What these expressions of JavaScript are in a copy of the page, in a window of that width. Beside them: `wide`,
    the columns by which the page is too wide, and `height`."""
    known = {
        "wide": "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        "height": "document.documentElement.scrollHeight",
    }
    members = ", ".join(f"{name}: {text}" for name, text in (known | expressions).items())
    script = f"<script>const found = JSON.stringify({{{members}}}); document.body.textContent = found;</script>"
    unlocked = re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", script + "</body>")
    out = chromium(unlocked, folder, f"--window-size={width},1000", "--dump-dom")
    found = re.search(r"<body>(\{.*\})\s*</body>", out)
    assert found, out
    return json.loads(html.unescape(found[1]))
