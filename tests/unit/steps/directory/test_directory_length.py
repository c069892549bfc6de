"""Whether a directory's trainings may have another length, and what a directory of an earlier version
says of them."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from config.algorithms.ppo import PPO
from config.errors import BadInput, WrongDirectory
from config.identity import comparable, hash_of
from config.resolve import resolve
from steps.directory import checkpoints
from steps.directory.experiment import (
    ExperimentRecord,
    continued,
    evaluation_inputs,
    read_experiment,
    training_inputs,
    write_experiment,
)
from steps.directory.layout import ExperimentDirectory
from steps.directory.length import check_length

SAC = {"game": "pendulum", "epochs": "3", "hidden_sizes": "16", "evaluation_episodes": "2"}
FREE = {"game": "cartpole", "anneal_learning_rate": "false", "anneal_clip": "false"}
OF_VERSION_0_1 = "1e5d253b0a0b2933ab065f45fcdc3bfb508dce86afaebb62ecd2d3c0c2931f5a"
"""What that version wrote for SAC and a few parameters more."""


def record(algorithm: str = "sac", **given: str) -> ExperimentRecord:
    resolved = resolve(algorithm, {"outdir": "/storage/x", **given})
    return ExperimentRecord(
        resolved=resolved, identity=resolved.identity(), identity_hash=resolved.identity_hash,
        versions={}, source={}, image=None, started="first", workflow=None,
    )  # fmt: skip


def of_an_earlier_version(algorithm: str = "sac", **given: str) -> ExperimentRecord:
    """Its identity also had what only later steps read, the length, and the spacing."""
    now = record(algorithm, **given)
    identity: dict[str, Any] = copy.deepcopy(now.identity)
    for section, values in now.resolved.later().items():
        identity[section] |= values
    identity["experiment"]["epochs"] = now.resolved.epochs
    identity["experiment"]["checkpoint_interval"] = now.resolved.checkpoint_interval
    return dataclasses.replace(now, identity=identity, identity_hash=hash_of(identity))


def test_the_identity_of_an_earlier_version_is_the_one_it_wrote() -> None:
    more = {"epoch_steps": "100", "learning_starts": "100", "batch_size": "32", "num_envs": "1"}
    assert of_an_earlier_version(**SAC, **more).identity_hash == OF_VERSION_0_1


def test_a_directory_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    before = of_an_earlier_version(**SAC)
    directory = ExperimentDirectory(tmp_path)
    write_experiment(directory, before)
    assert read_experiment(directory) == before
    assert continued(before, record(**SAC)) == before
    # What its steps have finished is recognised.
    for inputs in (training_inputs, evaluation_inputs):
        assert inputs(before) == {"identity": before.identity_hash}
    # It may change as one of today; its identity stays as it is recorded.
    grown = continued(before, record(**{**SAC, "epochs": "6", "evaluation_episodes": "9"}))
    assert (grown.identity, grown.identity_hash) == (before.identity, before.identity_hash)
    assert training_inputs(grown) == {"identity": before.identity_hash, "epochs": 6}
    assert evaluation_inputs(grown) == {**training_inputs(grown), "evaluation_episodes": 9}
    write_experiment(directory, grown)
    assert read_experiment(directory) == grown
    with pytest.raises(WrongDirectory, match="seed: 0 in the directory, 1 now; choose another"):
        continued(before, record(**SAC, seed="1"))


def test_a_checkpoint_of_an_earlier_version_belongs_to_the_experiment(tmp_path: Path) -> None:
    before = of_an_earlier_version(**SAC)
    run = ExperimentDirectory(tmp_path).run(0)
    checkpoints.save(run, step=9, state={}, identity=before.identity, record={"epoch": 3})
    assert checkpoints.load_newest(run, record(**{**SAC, "epochs": "6"}).identity) is not None
    with pytest.raises(WrongDirectory, match=r"seed: 0 there, 1 here"):
        checkpoints.load_newest(run, record(**SAC, seed="1").identity)


def test_only_what_both_have_is_compared() -> None:
    recorded = {"experiment": {"seed": 0, "epochs": 3, "other": 1}, "environment": 5}
    assert comparable(recorded, {"experiment": {"seed": 0}}) == {
        "experiment": {"seed": 0, "other": 1},
        "environment": 5,
    }
    assert comparable(recorded, {"experiment": {"epochs": 4}}) == recorded


def test_an_identity_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    """Also where only its hash tells: what it holds beyond today's identity is not compared."""
    before = of_an_earlier_version(**SAC)
    directory = ExperimentDirectory(tmp_path)
    write_experiment(directory, before)
    path = directory.experiment_yaml
    # The first is among the parameters, the second in the identity.
    parameters, identity = path.read_text().split("\nidentity:\n")
    changed = identity.replace("evaluation_episodes: 2", "evaluation_episodes: 3")
    assert changed != identity
    path.write_text(f"{parameters}\nidentity:\n{changed}")
    with pytest.raises(WrongDirectory, match=r"changed by hand .*: identity_hash differs"):
        read_experiment(directory)


def refused(before: ExperimentRecord, now: ExperimentRecord, root: Path) -> str:
    with pytest.raises(BadInput) as caught:
        check_length(ExperimentDirectory(root), before, now.resolved)
    assert str(caught.value).isprintable()
    return str(caught.value).replace(str(root), "ROOT")


@pytest.mark.parametrize("before", [record, of_an_earlier_version])
def test_a_length_that_a_schedule_depends_on_is_refused_by_the_parameter(
    before: Any, tmp_path: Path
) -> None:
    tied = {**FREE, "anneal_learning_rate": "true"}
    for epochs in ("20", "5"):
        now = record("ppo", **tied, epochs=epochs)
        assert refused(before("ppo", **tied, epochs="10"), now, tmp_path) == (
            f"parameter 'epochs' cannot be {epochs} in ROOT, whose trainings have 10 epochs: "
            "anneal_learning_rate=true depends on the length; allowed: 10, or another outdir with "
            "start_from=ROOT"
        )
    both = record("dqn", epochs="20", prioritised="true")
    assert (
        "exploration_fraction=0.16, importance_exponent=0.4, anneal_learning_rate=true depend on"
        in refused(record("dqn", epochs="10", prioritised="true"), both, tmp_path)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Silent(PPO):
    """Says nothing of its own."""


def test_an_algorithm_that_does_not_say_keeps_its_length(tmp_path: Path) -> None:
    before, now = (record("ppo", **FREE, epochs=epochs) for epochs in ("10", "20"))
    silent = dataclasses.replace(now.resolved, hyperparameters=Silent())
    own = dataclasses.replace(before.resolved, hyperparameters=Silent())
    before = dataclasses.replace(before, resolved=own, identity=own.identity())
    assert (
        "ppo does not say which of its hyperparameters depend on the length, Silent has no method "
        "tied_to_length; allowed: 10, or"
    ) in refused(before, dataclasses.replace(now, resolved=silent), tmp_path)


def test_a_training_never_ends_before_what_is_trained(tmp_path: Path) -> None:
    before = record(**{**SAC, "epochs": "10"}, runs="2")
    directory = ExperimentDirectory(tmp_path)
    for run, epoch in ((0, 3), (1, 6)):
        checkpoints.save(
            directory.run(run), step=epoch, state={}, identity={}, record={"epoch": epoch}
        )
    for epochs in ("20", "10", "7", "6"):
        check_length(directory, before, record(**{**SAC, "epochs": epochs}).resolved)
    assert refused(before, record(**{**SAC, "epochs": "5"}), tmp_path) == (
        "parameter 'epochs' cannot be 5 in ROOT, whose trainings have 10 epochs: run 1 is trained "
        "for 6; allowed: 6 or more"
    )


def test_a_directory_of_other_parameters_is_not_measured_by_its_length(tmp_path: Path) -> None:
    before = record("ppo", epochs="10")
    now = record("ppo", epochs="20", seed="1")
    check_length(ExperimentDirectory(tmp_path), before, now.resolved)
    with pytest.raises(WrongDirectory, match=r"seed: 0 .*; experiment.epochs: 10 in the directory"):
        continued(before, now)
