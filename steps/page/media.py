"""Embeds plots in the page and links to films beside it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

INLINE_BUDGET_BYTES = 24 * 2**20
"""The largest total size of plots in one page. Further plots are linked by their relative path,
which also works when the page is opened as a file.
"""

DARK = {
    "fill: #1c2733": "fill:#e6ebf1",
    "fill: #5f6b7a": "fill:#9aa7b5",
    "stroke: #5f6b7a": "stroke:#9aa7b5",
    "stroke: #1c2733": "stroke:#e6ebf1",
    "stroke: #d5dbe3": "stroke:#2b3541",
    "fill: #ffffff": "fill:none",
    "fill: #ffffff; opacity": "fill:#151c25",
    "fill: #0072b2": "fill:#56b4e9",
    "stroke: #0072b2": "stroke:#56b4e9",
}
"""The colours of `steps/figures/style.py`, as matplotlib writes them -> the colours on a dark page.
Both blues are Okabe and Ito's.
"""


@dataclass(frozen=True)
class Plot:
    """One plot: its embedded image, and relative links to its files (empty if missing)."""

    name: str
    source: str
    png: str
    svg: str


class Plots:
    """Embeds plots until the budget is spent, and links to the later ones."""

    def __init__(self, root: Path, budget_bytes: int = INLINE_BUDGET_BYTES) -> None:
        self._root = root
        self._left = budget_bytes

    def get(self, folder: str, name: str) -> Plot | None:
        """The plot `folder`/plots/`name`; None if it was not made."""
        stem = f"{folder}/plots/{name}"
        links = {
            kind: f"{stem}.{kind}"
            for kind in ("png", "svg")
            if (self._root / f"{stem}.{kind}").is_file()
        }
        if not links:
            return None
        source = self._inline(links["svg"]) if "svg" in links else ""
        return Plot(
            name,
            source or links.get("svg") or links["png"],
            links.get("png", ""),
            links.get("svg", ""),
        )

    def _inline(self, link: str) -> str:
        try:
            content = (self._root / link).read_text()
        except (OSError, UnicodeDecodeError):
            return ""
        # Base64: a data URI of plain SVG would have to escape every #, % and quote.
        encoded = base64.b64encode(on_dark_pages(content).encode()).decode()
        if len(encoded) > self._left:
            return ""
        self._left -= len(encoded)
        return f"data:image/svg+xml;base64,{encoded}"


def on_dark_pages(svg: str) -> str:
    """The drawing with its colours exchanged if the reader's system is dark. The file on the disk
    stays as it is.
    """
    rules = "".join(f'[style*="{before}"]{{{after}!important}}' for before, after in DARK.items())
    return svg.replace("</style>", f"@media (prefers-color-scheme: dark){{{rules}}}</style>", 1)
