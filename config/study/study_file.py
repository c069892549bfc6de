"""Reads a study from its file.

```yaml
outdir: results/gae
runs: 5
algorithms: [ppo, a2c, {ppo: {gae_lambda: 1}, label: "PPO, λ = 1"}]
games: [cartpole, acrobot, lunarlander]
parameters: {normalise_rewards: true}
grid: {learning_rate: [0.0003, 0.001]}
compare: {baseline: ppo, scores: {lunarlander: [-200, 250]}}
```

A value that stands later in this list replaces an earlier one: presets, `parameters`, a game's own,
an algorithm's own, `variants`, `grid`, `-p`. Everything is checked: the file's form, every name, and
every experiment as `config.resolve` checks it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from config.errors import BadInput
from config.located import Located
from config.outdir import check_outdir_text
from config.parameters import Parameter
from config.resolved import Resolved
from config.strict_yaml import dump
from config.study.axes import MOST_CELLS, read_axes
from config.study.cells import Cell, checked, plan, read_exclusions, without_excluded
from config.study.compared import (
    AdaptiveRuns,
    Baseline,
    compare_document,
    given_runs,
    read_compare,
    read_runs,
    refuse_undecidable,
    score_ranges,
)
from config.study.labels import REPLACED
from config.study.search import KEY as SEARCH
from config.study.search import Search
from config.study.search_section import read_search, refuse_beside, refuse_unresolved

LARGEST_BYTES = 64 * 1024
"""Of a study's file, which a workflow passes on as one parameter."""
AT_ONCE = "parallel_experiments"
REQUIRED = ("outdir", "runs", "algorithms", "games")
BY_KEY = ("outdir", "runs")
"""Keys of the study that `-p` may also give."""
KEYS = (*REQUIRED, AT_ONCE, "parameters", "grid", "variants", "exclude", "compare", SEARCH)
ACTIVE = Parameter(AT_ONCE, int, None, "experiments at once", low=1, high=MOST_CELLS)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Many experiments that are compared.

    outdir: the study's directory. cells: the experiments, label by label in the order of the file.
    resolved: their parameters by the names of the cells. baseline: what the others are compared with.
    scores: for games that have scores, the values of the measure that are score 0 and score 1. runs: the
    number of runs of each experiment; if it is adaptive, each cell begins with one group and the workflow
    adds the others. parallel_experiments: how many are active at once; None if the study does not say.
    document: the study as it was understood, with what `-p` gave; `read_study` makes the same study of it.
    search: None if all experiments are known in advance; otherwise the only cell is what the file says
    without the searched values.
    """

    outdir: str
    cells: tuple[Cell, ...]
    resolved: Mapping[str, Resolved]
    baseline: Baseline | None
    scores: Mapping[str, tuple[float, float]]
    runs: int | AdaptiveRuns
    parallel_experiments: int | None
    document: Mapping[str, Any]
    search: Search | None = None


def read_text(path: Path) -> str:
    """The text of a study's file; of one that is too large only enough to be refused. Raises `BadInput`."""
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None


def read_study(text: str, source: str, given: Mapping[str, str] = MappingProxyType({})) -> Study:
    """Read and check a study. Raises `BadInput` with one line.

    source: the file's name in messages. given: the values of `-p`, which hold for all experiments;
    `outdir` and `runs` replace the study's own, and an empty value means the file's.
    """
    _refuse_text(text, source)
    root = Located.of(text, source)
    entries = root.entries("the study", KEYS)
    over = {name: value for name, value in given.items() if name in BY_KEY and value}
    _refuse_missing(root, entries, over)
    if SEARCH in entries:
        refuse_beside(entries)
    outdir = _outdir(entries, over)
    runs = given_runs(over["runs"]) if "runs" in over else read_runs(entries["runs"])
    at_once = _at_once(entries)
    of_all = {name: value for name, value in given.items() if name not in BY_KEY}
    axes = read_axes(entries).with_given(of_all)
    exclusions = read_exclusions(entries["exclude"], axes) if "exclude" in entries else []
    planned = without_excluded(plan(axes, _at_first(runs)), exclusions)
    experiments = checked(planned)
    cells = tuple(one.cell for one in planned)
    played = list({one.cell.game: one.played for one in planned}.values())
    baseline, scores = read_compare(entries.get("compare"), cells, played)
    refuse_undecidable(runs, baseline, cells, entries.get("runs", root))
    search = None
    if SEARCH in entries:
        search = _search(entries, cells, experiments, runs, of_all)
    document = {
        "outdir": outdir,
        "runs": runs.document() if isinstance(runs, AdaptiveRuns) else runs,
        **({} if at_once is None else {AT_ONCE: at_once}),
        **axes.document(),
        **({"exclude": [dict(one.values) for one in exclusions]} if exclusions else {}),
        **compare_document(baseline, scores),
        **({SEARCH: search.document()} if search else {}),
    }
    _refuse_size(dump(document), f"{source} with all that it means")
    return Study(
        outdir=outdir,
        cells=cells,
        resolved={one.cell.name: found for one, found in zip(planned, experiments, strict=True)},
        baseline=baseline,
        scores=score_ranges(played, experiments, scores),
        runs=runs,
        parallel_experiments=at_once,
        document=document,
        search=search,
    )


def _search(
    entries: Mapping[str, Located],
    cells: Sequence[Cell],
    experiments: Sequence[Resolved],
    runs: int | AdaptiveRuns,
    given: Mapping[str, str],
) -> Search:
    """Read the search of a study's file. given: what `-p` says of all trials. Raises `BadInput`."""
    node = entries[SEARCH]
    if len(cells) > 1:
        raise node.refused(
            f"a search in a file of {len(cells)} experiments; allowed: one algorithm and one game, and a "
            "file for each search"
        )
    if isinstance(runs, AdaptiveRuns):
        raise entries["runs"].refused("runs of a trial cannot grow; allowed: a number of runs")
    search = read_search(node, cells[0], experiments[0])
    for name in search.parameters:
        if given.get(name):
            raise BadInput(f"parameter {name!r} is searched, so -p cannot set it for all trials")
    refuse_unresolved(node, search, cells[0])
    return search


def with_other_values(
    document: Mapping[str, Any], value_of: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """A study's document with other values of the parameters in it, wherever they stand. value_of: the
    new value, by the parameter's name and its value; keys of `exclude` count as parameters.
    """

    def changed(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value_of(name, value) for name, value in settings.items()}

    def own(entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        return {
            key: changed(value) if isinstance(value, Mapping) else value
            for key, value in entry.items()
        }

    whole = dict(document)
    for key in ("algorithms", "games"):
        whole[key] = [own(entry) for entry in document[key]]
    if "parameters" in document:
        whole["parameters"] = changed(document["parameters"])
    if "grid" in document:
        whole["grid"] = {
            name: [value_of(name, value) for value in axis]
            for name, axis in document["grid"].items()
        }
    if "variants" in document:
        whole["variants"] = own(document["variants"])
    if "exclude" in document:
        whole["exclude"] = [changed(entry) for entry in document["exclude"]]
    return whole


def _refuse_text(text: str, source: str) -> None:
    """Raise `BadInput` for a text that a workflow cannot pass on as it is."""
    _refuse_size(text, source)
    for found in REPLACED:
        if found in text:
            line = text[: text.index(found)].count("\n") + 1
            raise BadInput(
                f"{source}: line {line}: {found!r} is not allowed in a study: Argo or Kubernetes "
                "would replace it"
            )


def _refuse_size(text: str, source: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_BYTES:
        raise BadInput(f"{source}: {size} bytes; allowed: {LARGEST_BYTES}")


def _refuse_missing(
    root: Located, entries: Mapping[str, Located], given: Mapping[str, str]
) -> None:
    """Raise `BadInput` for a study without a key that it needs."""
    missing = [key for key in REQUIRED if key not in entries and key not in given]
    if missing:
        raise root.refused(f"the study has no {' and no '.join(missing)}")


def _outdir(entries: Mapping[str, Located], given: Mapping[str, str]) -> str:
    if "outdir" in given:
        check_outdir_text(given["outdir"])
        return given["outdir"]
    node = entries["outdir"]
    outdir = node.text("outdir")
    with node.named():
        check_outdir_text(outdir)
    return outdir


def _at_once(entries: Mapping[str, Located]) -> int | None:
    if AT_ONCE not in entries:
        return None
    node = entries[AT_ONCE]
    with node.named():
        count: int = ACTIVE.parse(node.value)
    return count


def _at_first(runs: int | AdaptiveRuns) -> int:
    """The number of runs with which each experiment begins."""
    return runs.group if isinstance(runs, AdaptiveRuns) else runs
