"""The first step of a search: `python -m steps.plan_search study.yaml --outdir results/search`.

Reads the study's file, checks its experiment as `prepare` will and the search, writes down what they are, and
outputs the lanes in which trials are proposed. Bad input fails here, before a GPU pod exists and before
anything is written. The same again goes on with the search, also with more trials; another one is refused.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from config import pipeline
from config.ending import end
from config.errors import BadInput, WrongDirectory
from config.outdir import check_outdir
from config.resolve import resolve
from config.strict_yaml import dump
from config.study import Search
from config.study.search import trial_name
from config.study.workflow_parameters import OF_SEARCH
from steps.command.main import guarded, write_outputs
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.experiment import difference
from steps.directory.files import make_and_probe, write_if_changed
from steps.directory.layout import ExperimentDirectory
from steps.directory.search import SearchDirectory, refuse_too_large
from steps.directory.study import read_asked, write_cells
from steps.plan import asked, check_games, plan_parser
from steps.prepare import claimed
from steps.search.journal import Journal, require_optuna

MAY_CHANGE = ("trials", "parallel", "then", "plots")
"""Keys of a search that may differ when it goes on."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    stop = StopRequest()
    stop.install()
    arguments = plan_parser("steps.plan_search", __doc__ or "").parse_args(argv)
    return guarded("plan-search", lambda: plan_search(arguments, stop))


def plan_search(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Check the whole search, then write what it is."""
    study, outdir, _ = asked(arguments, OF_SEARCH)
    search = study.search
    if search is None:
        raise BadInput(
            "the file has no key 'search'; allowed: workflows/manifests/study.yaml for it"
        )
    require_optuna()
    refuse_too_large(study, search)
    directory = SearchDirectory(check_outdir(outdir, os.environ.get("STORAGE") or None))
    (preset,) = study.cells
    resolved = resolve(preset.algorithm, preset.given)
    check_games([preset], {preset.name: resolved})
    refuse_another(directory, study.document)
    make_and_probe(directory.root)
    with claimed(ExperimentDirectory(directory.root), owner.from_environment(), stop):
        refuse_another(directory, study.document)
        journal = Journal(directory, search, higher_is_better=resolved.measure.higher_is_better)
        refuse_trials_under_way(directory, journal, stop)
        write_if_changed(directory.study_yaml, dump(study.document))
        write_cells(directory, study.cells)
        print(_said(search, journal))
    write_outputs({pipeline.LANES: json.dumps([str(lane) for lane in range(search.parallel)])})
    return 0


def refuse_another(directory: SearchDirectory, document: Mapping[str, Any]) -> None:
    """Raise `WrongDirectory` if the directory has another search, whose trials cannot be compared with those
    of this one, and `BadInput` if it has a study.
    """
    if not directory.study_yaml.exists():
        return
    before = read_asked(directory).document
    if "search" not in before:
        raise BadInput(f"{directory.root} is the directory of a study; choose another outdir")
    found = difference(_kept(before), _kept(document), left="in the directory", right="now")
    if found:
        raise WrongDirectory(
            f"the directory belongs to another search: {found}; choose another outdir"
        )


def refuse_trials_under_way(
    directory: SearchDirectory, journal: Journal, stop: StopRequest
) -> None:
    """Raise `WrongDirectory` if a trial belongs to another workflow that lives: the search itself gives no
    sign of life while its trials are trained.
    """
    me = owner.from_environment()
    for trial in journal.trials():
        path = directory.experiment(trial_name(trial.number)).owner_json
        if trial.has_ended or not path.exists():
            continue
        present = owner.read_owner(path)
        if me is None or present is None or present.uid != me.uid:
            owner.check(path, None, on_wait=stop.check)


def _kept(document: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the trials: not how many there are, nor where they lie."""
    search = {key: value for key, value in document["search"].items() if key not in MAY_CHANGE}
    kept = {key: value for key, value in document.items() if key not in ("outdir", "search")}
    return {**kept, "search": search}


def _said(search: Search, journal: Journal) -> str:
    trials = journal.trials()
    ended = sum(one.has_ended for one in trials)
    return (
        f"{search.trials} trials in {search.parallel} lanes, {ended} of them have ended and "
        f"{len(trials) - ended} are under way"
    )


if __name__ == "__main__":
    end(main())
