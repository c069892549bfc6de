"""README and documentation say what the code says. `make docs` checks their links among each other."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest

from config.algorithms import ALGORITHMS
from config.described import parameters
from config.given import from_assignments
from config.resolve import resolve
from config.tables import parameter_tables, preset_table
from steps.command.repeats import MOST_FAILURES, MOST_KILLS
from workflows.dag.pods import LONGEST_WAIT, TRAINING_RETRIES
from workflows.dag.render import STUDY

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "containers/kubernetes/README.md", *sorted(ROOT.glob("docs/**/[a-z]*.md"))]
PAGES = [page for page in PAGES if not {"generated", "_build"} & set(page.parts)]
TEXTS = {page.relative_to(ROOT): page.read_text(encoding="utf-8") for page in PAGES}
WRITTEN_BY_THE_READER = ("maze:", "line:")


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


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert {line.partition("#")[0].strip() for line in lines} >= {"make run", "make test"}


def test_every_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    text = "\n".join(TEXTS.values())
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE))
    assert named
    assert named <= targets


def test_what_resuming_says_of_retries_is_so() -> None:
    text = " ".join(TEXTS[Path("docs/resuming.md")].split())
    assert LONGEST_WAIT == "1m"
    assert f"up to {TRAINING_RETRIES:,} more times, with pauses of up to one minute" in text
    assert f"failed {MOST_FAILURES} times or was killed {MOST_KILLS} times in a row" in text


def test_resuming_names_every_algorithm_whose_length_may_be_fixed() -> None:
    names = {"ppo-lstm": "recurrent PPO", "async-sac": "asynchronous SAC", "alphazero": "AlphaZero"}
    cells = re.findall(
        r"^\| ([^|]*) \| [^|]*`anneal_learning_rate", TEXTS[Path("docs/resuming.md")], re.M
    )
    named = {name for cell in cells for name in cell.split(", ")}
    assert named == {names.get(name, name.upper()) for name in ALGORITHMS}


def commands() -> list[list[str]]:
    """The words of every command in the pages' blocks, without what is only said of them."""
    text = "\n".join(TEXTS.values())
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if re.match("(argo submit|python -m) ", line)]
    return [shlex.split(line, comments=True) for line in lines]


def test_every_experiment_that_is_started_is_one() -> None:
    """`argo submit` of a manifest that exists, or the command, with parameters that go together."""
    seen = []
    for words in commands():
        if words[:2] == ["argo", "submit"] and words[2].startswith("workflows/"):
            assert (ROOT / words[2]).is_file()
            algorithm = Path(words[2]).stem
            if algorithm == STUDY:
                continue  # its file is the reader's
        elif words[:3] == ["python", "-m", "workflows.submit"] and words[3] in ALGORITHMS:
            algorithm = words[3]
        else:
            continue
        pairs = itertools.pairwise(words)
        given = from_assignments(value for option, value in pairs if option == "-p")
        if not given.get("game", "").startswith(WRITTEN_BY_THE_READER):
            resolve(algorithm, given)
            seen.append((words[0], algorithm))
    both = itertools.product(("argo", "python"), ("ppo", "impala", "alphazero"))
    assert set(both) <= set(seen)


def test_no_page_has_the_name_of_one_that_sphinx_writes_itself() -> None:
    """Sphinx would write its own over it without a warning, as it did over a page named search.md."""
    own = {"docs/search.md", "docs/genindex.md", "docs/py-modindex.md"}
    assert not own & {str(path) for path in TEXTS}


@pytest.mark.parametrize("page", TEXTS, ids=str)
def test_every_local_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", TEXTS[page])
    files = [link for link in links if "://" not in link]
    assert [link for link in files if not (ROOT / page.parent / link).exists()] == []
