"""Where the files of a search lie. Its trials are experiments, as those of a study; the winner and the preset are
a study of their own, in `again/`.
"""

from __future__ import annotations

from pathlib import Path

from config.errors import BadInput
from config.outdir import check_outdir
from config.study import Search, Study
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.study import MOST_PODS, StudyDirectory, pods, read_asked


class SearchDirectory(StudyDirectory):
    """The directory of a search. `experiments/` contains the trials."""

    @property
    def owner_json(self) -> Path:
        """The workflow that may propose trials, see `steps.directory.owner`."""
        return ExperimentDirectory(self.root).owner_json

    @property
    def search(self) -> Path:
        """What the search itself writes."""
        return self.root / "search"

    @property
    def journal(self) -> Path:
        """Optuna's journal: every trial, what it was given and what came of it."""
        return self.search / "journal.log"

    @property
    def trials_csv(self) -> Path:
        """A row for each trial."""
        return self.search / "trials.csv"

    @property
    def figures(self) -> Path:
        """The figures of the search."""
        return self.search / "plots"

    @property
    def best_yaml(self) -> Path:
        """The parameters of the best trial, as `--presets` takes them."""
        return self.root / "best.yaml"

    @property
    def again(self) -> StudyDirectory:
        """The study of the best trials and the preset, with fresh seeds."""
        return StudyDirectory(self.root / "again")


def read_search(outdir: str, storage: str | None) -> tuple[SearchDirectory, Study, Search]:
    """The search in a directory, as it was asked for. Raises `BadInput`, and `WrongDirectory` if another
    workflow has it.
    """
    directory = SearchDirectory(check_outdir(outdir, storage))
    study = read_asked(directory)
    if study.search is None:
        raise BadInput(f"{directory.study_yaml} has no key 'search'")
    me = owner.from_environment()
    if me is not None:
        owner.take_back(directory.owner_json, me.uid)
        owner.check(directory.owner_json, me.uid)
    return directory, study, study.search


def pods_of_search(study: Study, search: Search) -> int:
    """How many pods a search has at most, without those that are repeated."""
    (resolved,) = study.resolved.values()
    members = resolved.members
    runs = resolved.experiment.runs
    beside = 0 if members is None else members.helpers + members.learners
    climb = len(search.rung_epochs(resolved.epochs)) * (runs * (1 + beside) + 1)
    of_trial = 3 + climb + (pods(resolved) if search.plots else runs)
    again = (search.then.best + 1) * (pods(resolved) // runs + 1) * search.then.runs
    return search.trials * of_trial + again


def refuse_too_large(study: Study, search: Search) -> None:
    """Raise `BadInput` for a search whose pods have no room in the status of one workflow."""
    count = pods_of_search(study, search)
    if count > MOST_PODS:
        raise BadInput(
            f"the search may have {count} pods, and the status of one workflow has room for "
            f"{MOST_PODS}; allowed: fewer trials; submitted again with more, a search goes on"
        )


def search_of(trial: ExperimentDirectory) -> str:
    """The directory of the search that a trial's directory belongs to by its place."""
    return str(trial.root.parent.parent)
