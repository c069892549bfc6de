"""The README says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from config.tables import parameter_table, with_tables

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_tables_are_fresh() -> None:
    assert with_tables(README) == README, "stale: run `make manifests`"
    assert parameter_table("ppo") in README


def test_every_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert named
    assert named <= targets


def test_every_local_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
