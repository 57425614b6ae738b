"""Sphinx's configuration of the site: pages of the whole repository, so that their links are the files' own."""

from __future__ import annotations

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Text
from sphinx.application import Sphinx

import weft

project = "Weft"
author = "The Weft authors"
project_copyright = author
version = release = weft.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/**.md", "examples/cells/README.md", "examples/packages/*/README.md"]
exclude_patterns = [".*", "build*", "out", "src", "pytorch", "python", "tests", "tools", "verification", "explanation"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Links to files that are no pages (sources, schemas) become downloads; folders have nothing to show.
suppress_warnings = ["myst.header"]
myst_html_meta = {"description": "A compiler for recurrent networks behind PyTorch"}

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# `x` in a docstring is code, as in the pages.
default_role = "code"

html_theme = "furo"
html_title = "Weft"
html_additional_pages = {"index": "start.html"}
templates_path = ["templates"]
html_extra_path = ["../../out/doxygen"]
html_show_sourcelink = False


class WeftLexer(RegexLexer):
    """Programs of docs/ir.md."""

    name = "weft"
    tokens = {  # noqa: RUF012
        "root": [
            (r"//.*$", Comment),
            (r"%[\w.]+", Name.Variable),
            (r"@[\w.]+", Name.Function),
            (r"\b(program|return|yield|scan|cond|while|length|carry|xs|ys|reverse|body)\b", Keyword),
            (r"\b(bool|[iu]\d+|b?f\d+)\b", Keyword.Type),
            (r"-?\b\d[\d.e+-]*", Number),
            (r"[=:\[\](){},*/+-]", Operator),
            (r"\w+|\s+|.", Text),
        ]
    }


def without_types(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """What follows `Returns:` is a sentence here, colons included, where napoleon would take words for a type."""
    for number, line in enumerate(lines[:-1]):
        if line.strip() in ("Returns:", "Yields:"):
            text = lines[number + 1]
            lines[number + 1] = f"{text[: len(text) - len(text.lstrip())]}: {text.lstrip()}"


def setup(app: Sphinx) -> None:
    app.add_lexer("weft", WeftLexer)
    app.connect("autodoc-process-docstring", without_types, priority=400)  # napoleon's is 500
