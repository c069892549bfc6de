"""How Sphinx builds the documentation: `make docs` writes it to docs/_build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import reference_pages  # noqa: E402
import result_tables  # noqa: E402

from config import VERSION  # noqa: E402

project = "rl-training-dag"
copyright = "the authors of rl-training-dag"
version = release = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "reference/generated"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"rl-training-dag {VERSION}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

# Docstrings mark names with single backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Types of other projects, whose documentation the build does not fetch.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|torch|pandas|pd|gymnasium|collections|pathlib|typing)\..*")
]
autodoc_default_options = {"members": True}


def plain_asterisks(_app: Sphinx, *described: Any) -> None:
    """Keep `[T, B, *shape]` in a docstring from beginning emphasis; the lines are changed in place."""
    lines: list[str] = described[-1]
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Sphinx) -> None:
    """Write the generated parts of the pages before Sphinx looks for them."""
    generated = DOCS / "reference" / "generated"
    app.connect("builder-inited", lambda _: reference_pages.write(generated))
    app.connect("builder-inited", lambda _: result_tables.write(generated))
    app.connect("autodoc-process-docstring", plain_asterisks)
