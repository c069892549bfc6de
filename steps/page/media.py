"""Embeds plots in the page and links to films beside it."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

INLINE_BUDGET_BYTES = 24 * 2**20
"""The largest total size of plots in one page. Further plots are linked by their relative path,
which also works when the page is opened as a file.
"""

BLUE = "#0072b2"
DARK = {
    "fill: #1c2733": "fill:#e6ebf1",
    "fill: #5f6b7a": "fill:#9aa7b5",
    "stroke: #5f6b7a": "stroke:#9aa7b5",
    "stroke: #1c2733": "stroke:#e6ebf1",
    "stroke: #d5dbe3": "stroke:#2b3541",
    "fill: #ffffff": "fill:none",
    "fill: #ffffff; opacity": "fill:#151c25",
    f"fill: {BLUE}": "fill:#56b4e9",
    f"stroke: {BLUE}": "stroke:#56b4e9",
}
"""The colours of `steps/figures/style.py`, as matplotlib writes them -> the colours on a dark page.
Both blues are Okabe and Ito's.
"""


LABELLED_DARK = {before: after for before, after in DARK.items() if BLUE not in before}
"""Where colours tell labels apart, each stays what it is: the exchanged blue is another label's."""
DESCRIPTION = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)


@dataclass(frozen=True)
class Plot:
    """One plot: its embedded image, and relative links to its files (empty if missing). caption: what
    the drawing says about itself, if it does.
    """

    name: str
    source: str
    png: str
    svg: str
    pdf: str = ""
    caption: str = ""


class Plots:
    """Embeds plots until the budget is spent, and links to the later ones."""

    def __init__(
        self,
        root: Path,
        budget_bytes: int = INLINE_BUDGET_BYTES,
        dark: Mapping[str, str] = DARK,
    ) -> None:
        self._root = root
        self._left = budget_bytes
        self._dark = dark

    def get(self, folder: str, name: str) -> Plot | None:
        """The plot `folder`/plots/`name`; None if it was not made."""
        return self.at(f"{folder}/plots", name)

    def at(self, folder: str, name: str) -> Plot | None:
        """The plot `folder`/`name`, by a path relative to the page; None if it was not made."""
        links = {
            kind: quote(f"{folder}/{name}.{kind}")
            for kind in ("png", "svg", "pdf")
            if (self._root / folder / f"{name}.{kind}").is_file()
        }
        if not links.keys() & {"png", "svg"}:
            return None
        svg = _content(self._root / folder / f"{name}.svg") if "svg" in links else ""
        said = DESCRIPTION.search(svg)
        return Plot(
            name,
            self._inline(svg) or links.get("svg") or links["png"],
            links.get("png", ""),
            links.get("svg", ""),
            links.get("pdf", ""),
            html.unescape(said[1]) if said else "",
        )

    def _inline(self, svg: str) -> str:
        if not svg:
            return ""
        # Base64: a data URI of plain SVG would have to escape every #, % and quote.
        encoded = base64.b64encode(on_dark_pages(svg, self._dark).encode()).decode()
        if len(encoded) > self._left:
            return ""
        self._left -= len(encoded)
        return f"data:image/svg+xml;base64,{encoded}"


def _content(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def on_dark_pages(svg: str, colours: Mapping[str, str] = DARK) -> str:
    """The drawing with its colours exchanged if the reader's system is dark. The file on the disk
    stays as it is.
    """
    rules = "".join(
        f'[style*="{before}"]{{{after}!important}}' for before, after in colours.items()
    )
    return svg.replace("</style>", f"@media (prefers-color-scheme: dark){{{rules}}}</style>", 1)
