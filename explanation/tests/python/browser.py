"""Pages in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium isn't installed (scripts/setup.sh installs it)")
#: Goes into a copy of the page and says where the time line is, and whether all fits.
MEASURE = """<script>
const box = document.querySelector('.line').getBoundingClientRect();
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const out = JSON.stringify({box: [box.left, box.top + scrollY, box.width, box.height], wide,
  height: document.documentElement.scrollHeight});
document.body.textContent = out;
</script>"""


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


def room(page: str, folder: Path, width: int) -> dict[str, Any]:
    unlocked = re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", MEASURE + "</body>")
    out = chromium(unlocked, folder, f"--window-size={width},1000", "--dump-dom")
    found = re.search(r"<body>(\{.*\})\s*</body>", out)
    assert found, out
    return json.loads(html.unescape(found[1]))
