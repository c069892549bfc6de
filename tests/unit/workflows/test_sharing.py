"""A learner and its actors on a machine of a few processors: they run at the same time."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from config.actors import ActorSettings
from config.cluster import Requests, load_cluster
from config.errors import BadInput
from config.resolve import resolve
from config.workers import WorkerSettings
from workflows import submit
from workflows.local.language.quantities import quantity
from workflows.sharing import experiments_that_fit, fitted, how_shared, with_gpus

DEFAULTS = load_cluster()
CLUSTER = replace(DEFAULTS, gpu=replace(DEFAULTS.gpu, requests=Requests(cpu="1")))
"""With round numbers: a learner asks for one processor, an actor for a quarter."""


@pytest.mark.parametrize(
    ("processors", "actors", "runs"),
    [(2, 2, 1), (2, 4, 1), (3, 2, 2), (16, 2, 2), (16, 64, 1), (1, 2, 1), (0.5, 8, 1), (2, 64, 1)],
)
def test_all_that_is_active_at_once_has_room(processors: float, actors: int, runs: int) -> None:
    changed = fitted(CLUSTER, ActorSettings(actors=actors), processors)
    assert changed.parallelism_with_actors == runs
    learner, actor = (quantity(pool.requests.cpu) for pool in (changed.gpu, changed.actor))
    assert runs * (learner + actors * actor) <= processors
    assert learner > 0 and actor > 0


@pytest.mark.parametrize(
    ("processors", "gpus", "experiments"),
    [(0.5, 0, 1), (2, 0, 1), (3, 0, 1), (6, 0, 2), (64, 0, 21), (64, 1, 1), (64, 4, 2)],
)
def test_all_runs_of_the_experiments_that_are_active_at_once_have_room(
    processors: float, gpus: int, experiments: int
) -> None:
    """Here a run asks for one processor and a half and, where there are some, for one GPU."""
    two = ActorSettings(actors=2)
    changed = fitted(CLUSTER, two, processors)
    if gpus == 1:
        changed = replace(changed, parallelism_with_actors=1)
    assert experiments_that_fit(changed, two, Fraction(1), processors, gpus) == experiments


def test_a_machine_that_is_large_enough_changes_nothing() -> None:
    four = ActorSettings(actors=4)
    assert fitted(CLUSTER, four, 64) == CLUSTER
    assert how_shared(CLUSTER, four, 2) == ""
    assert how_shared(CLUSTER, four, 1) == (
        "a learner and 4 actors ask for 2 processors, this machine has 1: they share them"
    )
    assert how_shared(CLUSTER, WorkerSettings(workers=4), 1).startswith("a trainer and 4 workers")


def test_further_learners_need_as_much_as_the_first() -> None:
    several = ActorSettings(actors=4, learners=3)
    changed = fitted(CLUSTER, several, 2)
    learner, actor = (quantity(pool.requests.cpu) for pool in (changed.gpu, changed.actor))
    assert 3 * learner + 4 * actor <= 2 < 3 * quantity(CLUSTER.gpu.requests.cpu)
    assert fitted(CLUSTER, several, 4) == fitted(CLUSTER, ActorSettings(actors=12), 4)
    assert how_shared(CLUSTER, several, 2).startswith(
        "3 learners and 4 actors ask for 4 processors"
    )


@pytest.mark.parametrize(
    ("learners", "each", "here", "runs"),
    [(1, 1, 2, 2), (2, 1, 0, 2), (2, 0, 1, 2), (2, 1, 2, 1), (2, 1, 3, 1), (2, 1, 4, 2)],
)
def test_learners_of_one_run_do_not_wait_for_gpus_that_another_run_holds(
    learners: int, each: int, here: int, runs: int
) -> None:
    resolved = resolve("impala", {"learners": str(learners), "gpus": str(each)})
    assert CLUSTER.parallelism_with_actors == 2
    assert with_gpus(CLUSTER, resolved, here).parallelism_with_actors == runs


def test_learners_that_can_never_all_have_their_gpus_are_refused() -> None:
    resolved = resolve("impala", {"learners": "2"})
    with pytest.raises(
        BadInput, match="the learners' 2 GPUs and actor_gpus=0 are more than the 1 "
    ):
        with_gpus(CLUSTER, resolved, 1)


def test_a_submission_for_this_machine_is_cut_and_a_manifest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "detect", lambda: type("Machine", (), {"cpus": 1.0, "gpus": ()}))
    words = ["impala", "-p=game=cartpole", "-p=actors=4"]

    def requested(*more: str) -> set[str]:
        options = submit.parse([*words, *more])
        local = "--local" in more
        submission = submit._checked(options, CLUSTER, local=local)
        assert bool(submission.sharing) == local
        return {
            template["container"]["resources"]["requests"]["cpu"]
            for template in submission.manifest["spec"]["templates"]
            if template["name"] in ("train", "train-actor")
        }

    assert requested("--local", f"-p=outdir={tmp_path}/x") == {"500m", "125m"}
    assert requested("--manifest") == {"1", "250m"}
