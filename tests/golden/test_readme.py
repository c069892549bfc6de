"""The README says what the code says."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from config.algorithms import ALGORITHMS
from config.described import parameters
from config.given import from_assignments
from config.resolve import resolve
from config.tables import parameter_tables, preset_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_parameter_stands_once_and_every_algorithm_has_its_presets() -> None:
    """What all experiments have is not repeated for each algorithm."""
    tables = parameter_tables(list(ALGORITHMS))
    own_tables = {title: table for title, table in tables.items() if title.startswith("`")}
    shared = "\n".join(table for title, table in tables.items() if title not in own_tables)
    for algorithm in ALGORITHMS:
        (own,) = (table for title, table in own_tables.items() if f"`{algorithm}`" in title)
        for info in parameters(algorithm):
            is_own = info.section == "hyperparameters"
            assert (f"\n| `{info.name}` |" in shared) != is_own
            assert (f"\n| `{info.name}` |" in own) == is_own
        assert "\n| `steps` |" in preset_table(algorithm)


def test_every_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert named
    assert named <= targets


def commands() -> list[list[str]]:
    """The words of every command in its blocks, without what is only said of them."""
    blocks = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in blocks.splitlines()]


def test_every_experiment_that_it_starts_is_one() -> None:
    """`argo submit` of a manifest that exists, or the command, with parameters that go together."""
    seen = []
    for words in commands():
        if words[:2] == ["argo", "submit"]:
            assert (ROOT / words[2]).is_file()
            algorithm = Path(words[2]).stem
        elif words[:3] == ["python", "-m", "workflows.submit"] and words[3] in ALGORITHMS:
            algorithm = words[3]
        else:
            continue
        pairs = itertools.pairwise(words)
        given = from_assignments(value for option, value in pairs if option == "-p")
        if not given["game"].startswith("maze:"):  # which tests/unit/test_readme_environment.py has
            resolve(algorithm, given)
            seen.append((words[0], algorithm))
    both = itertools.product(("argo", "python"), ("ppo", "impala", "alphazero"))
    assert set(both) == set(seen)


def test_every_local_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
