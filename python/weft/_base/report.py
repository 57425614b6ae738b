"""What reports have in common: their text for terminals, and the frame and style of their pages."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

#: All text from a file or a program is escaped; in addition this policy keeps everything from being loaded or run.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

#: Colors by role, for light and dark backgrounds. Roles differ in lightness too, not in hue alone.
LIGHT = {
    "page": "#faf9f6", "card": "#ffffff", "ink": "#1d1c1a", "quiet": "#65615a", "edge": "#e2ded6", "code": "#f3f1ec",
    "grid": "#e9e6df", "bad": "#a83800", "bad-back": "#fdeee3", "good": "#00578f", "good-back": "#e5f1fa",
}  # fmt: skip
DARK = {
    "page": "#161513", "card": "#1f1e1b", "ink": "#eceae4", "quiet": "#a39e94", "edge": "#36332e", "code": "#292723",
    "grid": "#302e29", "bad": "#ffa06b", "bad-back": "#38231a", "good": "#7cc4f5", "good-back": "#162c3d",
}  # fmt: skip

_RULES = """*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
  "Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1,h2,h3,p,dl,dd,ul,ol,figure{margin:0;padding:0}
h1{font-size:2.1rem;line-height:1.15;letter-spacing:-.02em;font-weight:680}
code,pre{font-family:var(--fixed);font-size:.9em}
code{overflow-wrap:anywhere}
.verdict{padding:1.5rem 1.6rem;border-radius:14px}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;margin:0 0 1rem;min-width:0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;border-bottom:1px solid var(--edge)}
tr:last-child td{border-bottom:0}
th{color:var(--quiet);font-weight:500;font-size:.82rem}
th.right,td.right{text-align:right}
.key{display:flex;flex-wrap:wrap;font-size:.86rem;color:var(--quiet)}
footer{margin-top:2.5rem;color:var(--quiet);font-size:.86rem}
@media print{.card,.verdict{break-inside:avoid}}
"""
_NARROW = "main{padding:1rem .8rem 3rem}h1{font-size:1.6rem}.verdict,.card{padding:1rem}"


def printable(text: str) -> str:
    """The text with escapes in place of characters that a terminal or a page would obey rather than show: control
    characters, changes of the direction of writing, half characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def painted(text: str, code: str) -> str:
    """The text between ANSI escapes; `code` as in "1" for bold, "33" for yellow."""
    return f"\033[{code}m{text}\033[0m"


def escaped(text: str) -> str:
    """The text as HTML that shows it: printable, without tags and entities of its own."""
    return html.escape(printable(text))


def escaped_lines(text: str) -> str:
    """A text of several lines as HTML."""
    return "\n".join(map(escaped, text.split("\n")))


def style(light: Mapping[str, str], dark: Mapping[str, str], rules: str, narrow: tuple[str, str]) -> str:
    """A page's CSS.

    Args:
        light, dark: all colors by role, LIGHT and DARK among them; rules use them as var(--role).
        rules: the page's own, which come after the common ones.
        narrow: the width below which a screen is narrow, and the page's own rules for it.
    """

    def variables(colors: Mapping[str, str]) -> str:
        return ";".join(f"--{name}:{color}" for name, color in colors.items())

    fixed = '--fixed:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'
    width, own = narrow
    return (
        f"\n:root{{color-scheme:light dark;{variables(light)};{fixed}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{variables(dark)}}}}}\n{_RULES}{rules}"
        f"@media (max-width:{width}){{{_NARROW}\n{own}}}\n"
    )


def page(title: str, css: str, body: Sequence[str]) -> str:
    """A self-contained page, without network and scripts, ready to be written to a file in UTF-8.

    Args:
        title: HTML (escaped).
        body: pieces of HTML; empty ones are left out.
    """
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{title}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>",
            *filter(None, body),
            "</main>\n</body>\n</html>\n",
        ]
    )
