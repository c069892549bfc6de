"""A training that begins with what another has learnt: what it takes, what it does not, and what is
refused, by `prepare` and by `train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.distributed.exchange import Exchange
from agents.interfaces import HasStreams, Resumable, State
from agents.load import make_learner, make_trainer
from agents.states import begin_with_weights
from config.errors import BadInput, Preempted
from config.resolve import resolve, resolved_from_dict
from config.resolved import Resolved
from steps import prepare, train
from steps.directory.checkpoints import load_newest
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from workflows.request.preflight import check_this_machine, cluster_outdir, place

SMALL = {"hidden_sizes": "8", "num_envs": "2", "outdir": "/x"}
ROLLOUTS = {"rollout_length": "8", "epochs": "3"}
CASES = {
    "ppo": {"game": "pendulum", **ROLLOUTS, "normalise_observations": "true", "normalise_rewards": "true"},
    "a2c": {"game": "cartpole", **ROLLOUTS},
    "ppo-lstm": {"game": "cartpole", **ROLLOUTS, "sequence_length": "4", "lstm_size": "8"},
    "dqn": {"game": "cartpole", "epochs": "3", "epoch_steps": "16", "learning_starts": "16",
            "batch_size": "4", "train_every": "4", "target_every": "16", "replay_size": "200",
            "normalise_observations": "true", "prioritised": "true"},
    "sac": {"game": "pendulum", "epochs": "3", "epoch_steps": "16", "learning_starts": "16",
            "batch_size": "4", "replay_size": "200", "normalise_observations": "true",
            "train_every": "4"},
    "td3": {"game": "pendulum", "epochs": "3", "epoch_steps": "16", "learning_starts": "16",
            "batch_size": "4", "replay_size": "200", "normalise_observations": "true",
            "train_every": "4"},
}  # fmt: skip


def trainer(algorithm: str, **changed: str) -> Any:
    resolved = resolve(algorithm, SMALL | CASES[algorithm] | changed)
    return make_trainer(resolved, run=0, device="cpu", precision="fp32")


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(node, dict):
        return {path: node}
    return {
        k: v for name, inner in node.items() for k, v in leaves(inner, f"{path}.{name}").items()
    }


def equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one, dtype=object), np.asarray(other, dtype=object)))


def alike(some: dict[str, Any], others: dict[str, Any]) -> bool:
    return all(equal(value, others[name]) for name, value in some.items())


def trained(algorithm: str, **changed: str) -> State:
    made = trainer(algorithm, **changed)
    for _ in made.train():
        if isinstance(made, HasStreams):
            made.grown()
    state: State = made.state_dict()
    made.close()
    return state


@pytest.mark.parametrize("algorithm", CASES)
def test_it_takes_what_was_learnt_and_nothing_else(algorithm: str) -> None:
    theirs = trained(algorithm, seed="1")
    fresh, begun = trainer(algorithm, seed="2"), trainer(algorithm, seed="2")
    before = leaves(fresh.state_dict())
    begin_with_weights(begun, theirs)
    after, learnt = leaves(begun.state_dict()), leaves(theirs)
    taken = tuple(f".{path}" for path in begun.learnt)
    assert after.keys() == before.keys()
    for name, value in after.items():
        is_taken = name.startswith(taken)
        assert equal(value, (learnt if is_taken else before)[name]), name
    weights = [name for name in after if name.startswith(".network.")]
    assert any(not equal(after[name], before[name]) for name in weights)
    if CASES[algorithm].get("normalise_observations"):
        counts = [name for name in after if name.endswith("observation_normaliser.count")]
        assert [after[name] > 0 for name in counts] == [True]
    assert (begun.epoch, begun.step) == (0, 0)
    assert sum(1 for _ in begun.train()) == 3
    for made in (fresh, begun):
        made.close()


def test_sac_takes_the_temperature_only_where_it_is_learnt() -> None:
    theirs = trained("sac")
    for alpha, expected in (("", theirs["log_alpha"]), ("0.25", np.log(np.float32(0.25)))):
        begun = trainer("sac", alpha=alpha)
        begin_with_weights(begun, theirs)
        assert float(begun.log_alpha.detach()) == pytest.approx(float(expected))
        begun.close()
    assert float(theirs["log_alpha"]) != 0


def test_the_actors_of_a_learner_are_given_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"game": "cartpole", "hidden_sizes": "8", "outdir": "/x"}
    learners = [
        make_learner(
            resolve("impala", given | {"seed": seed}), run=0, device="cpu", precision="fp32"
        )
        for seed in ("1", "2")
    ]
    theirs = leaves(learners[0].state_dict()["network"])
    published = list[dict[str, Any]]()
    monkeypatch.setattr(Exchange, "publish", lambda self, update, arrays: published.append(arrays))
    assert not alike(theirs, leaves(learners[1].state_dict()["network"]))
    begin_with_weights(learners[1], learners[0].state_dict())
    assert alike(theirs, leaves(learners[1].state_dict()["network"]))
    for one in learners:
        one.receiver(1)
    assert alike(*published)
    for one in learners:
        one.close()


@pytest.mark.parametrize("algorithm", ["impala", "r2d2", "async-sac"])
def test_a_learner_takes_what_was_learnt_too(algorithm: str) -> None:
    game = "pendulum" if algorithm == "async-sac" else "cartpole"

    def learner(seed: int) -> Any:
        given = {"game": game, "outdir": "/x", "seed": str(seed)}
        return make_learner(resolve(algorithm, given), run=0, device="cpu", precision="fp32")

    theirs, fresh, begun = learner(1).state_dict(), learner(2).state_dict(), learner(2)
    begin_with_weights(begun, theirs)
    after, before, learnt = (leaves(one) for one in (begun.state_dict(), fresh, theirs))
    taken = tuple(f".{path}" for path in begun.learnt)
    for name, value in after.items():
        assert equal(value, (learnt if name.startswith(taken) else before)[name]), name
    weights = [name for name in after if name.startswith(".network.") and "weight" in name]
    assert weights and not any(equal(after[name], before[name]) for name in weights)


@pytest.mark.parametrize(
    ("algorithm", "changed", "said"),
    [
        ("a2c", {"hidden_sizes": "9"}, r"the network\.\S+ of its agents is \[2, 8\], here it is \[2, 9\]"),
        ("a2c", {"hidden_sizes": "8,8"}, r"the network\.\S+ of its agents is .*nothing"),
        ("a2c", {"game": "acrobot"}, r"the interface\.observation_shape of its agents is \[4\], here it is \[6\]"),
        ("ppo", {"normalise_observations": "false"}, r"observation_normaliser\.mean .*here it is nothing"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(
    algorithm: str, changed: dict[str, str], said: str
) -> None:
    theirs, other = trained(algorithm), trainer(algorithm, **changed)
    before = leaves(other.state_dict())
    with pytest.raises(BadInput, match=said) as refused:
        begin_with_weights(other, theirs)
    assert "\n" not in str(refused.value)
    assert alike(leaves(other.state_dict()), before)
    other.close()


def test_a_trainer_that_does_not_say_what_it_has_learnt_is_refused() -> None:
    class Unable:
        epoch = step = 0

        def state_dict(self) -> State:
            return {}

        def load_state_dict(self, state: State, between: Any = None) -> None:
            raise AssertionError

    unable: Resumable = Unable()
    with pytest.raises(BadInput, match="cannot begin with weights"):
        begin_with_weights(unable, {})


TINY = {
    "game": "cartpole", "epochs": "2", "num_envs": "2", "rollout_length": "8", "hidden_sizes": "8",
}  # fmt: skip


def words(outdir: Path, given: dict[str, str]) -> list[str]:
    pairs = TINY | {"outdir": str(outdir)} | given
    return [word for name, value in pairs.items() for word in ("-p", f"{name}={value}")]


def prepared(outdir: Path, algorithm: str = "ppo", **given: str) -> int:
    return prepare.main(["--algorithm", algorithm, *words(outdir, given)])


def train_run(outdir: Path, run: int = 0) -> int:
    return train.main(["--outdir", str(outdir), "--run", str(run)])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished experiment of two runs."""
    outdir = tmp_path_factory.mktemp("other") / "x"
    assert prepared(outdir, runs="2") == 0
    assert [train_run(outdir, run) for run in (0, 1)] == [0, 0]
    return outdir


def weights(outdir: Path, run: int, step: int | None = None) -> dict[str, Any]:
    directory = ExperimentDirectory(outdir).run(run)
    checkpoint = load_newest(directory)
    assert checkpoint is not None
    assert step is None or checkpoint.step == step
    return leaves(checkpoint.state["network"])


def test_each_run_begins_with_the_weights_of_its_own(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdir = tmp_path / "x"
    assert prepared(outdir, runs="3", start_from=str(other), seed="9") == 0
    from agents.algorithms.ppo import PPOTrainer

    def nothing(self: PPOTrainer) -> Any:
        raise Preempted("before its first step")

    with monkeypatch.context() as patched:
        patched.setattr(PPOTrainer, "train", nothing)
        for run in range(3):
            assert train_run(outdir, run) == 75
    of_others = [weights(other, run) for run in (0, 1)]
    for run, theirs in enumerate([*of_others, of_others[0]]):
        ours = weights(outdir, run, step=0)
        assert alike(theirs, ours)
    assert not alike(*of_others)
    assert train_run(outdir) == 0


def test_it_belongs_to_the_identity_wherever_the_other_lies(
    other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(other)
    for name, given in (
        ("a", {"start_from": str(other)}),
        ("b", {"start_from": str(link)}),
        ("c", {}),
    ):
        assert prepared(tmp_path / name, **given) == 0
    records = [read_experiment(ExperimentDirectory(tmp_path / name)) for name in "abc"]
    theirs = read_experiment(ExperimentDirectory(other))
    assert records[0].identity_hash == records[1].identity_hash != records[2].identity_hash
    assert records[0].identity["experiment"]["start_from"] == theirs.identity_hash
    assert "start_from" not in records[2].identity["experiment"]
    assert records[0].resolved.experiment.start_from == str(other)
    capsys.readouterr()
    assert prepared(tmp_path / "c", start_from=str(other)) == 4
    assert "belongs to other parameters" in capsys.readouterr().err


def test_another_experiment_in_its_place_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    assert prepared(theirs) == train_run(theirs) == 0
    assert prepared(ours, start_from=str(theirs)) == 0
    theirs.rename(tmp_path / "old")
    capsys.readouterr()
    assert train_run(ours) == 2
    assert "holds no experiment" in capsys.readouterr().err
    assert prepared(theirs, seed="5") == train_run(theirs) == 0
    capsys.readouterr()
    assert train_run(ours) == 2
    said = capsys.readouterr().err
    assert "another experiment lies there" in said
    assert prepared(ours, start_from=str(theirs)) == 4
    (tmp_path / "old").rename(tmp_path / "again")
    assert prepared(ours, start_from=str(tmp_path / "again")) == 0
    assert train_run(ours) == 0


def test_what_prepare_sees(other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    untrained, outdir = tmp_path / "untrained", tmp_path / "x"
    assert prepared(untrained) == 0
    (tmp_path / "empty").mkdir()
    for algorithm, start_from, said in (
        ("ppo", tmp_path / "nowhere", "holds no experiment"),
        ("ppo", tmp_path / "empty", "holds no experiment"),
        ("ppo", untrained, "no checkpoint in"),
        ("a2c", other, "its algorithm is 'ppo', this one's is 'a2c'"),
        ("ppo", outdir, "it is outdir"),
        ("ppo", Path("../x"), "without '..'"),
    ):
        capsys.readouterr()
        assert prepared(outdir, algorithm, start_from=str(start_from)) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert said in lines[-1]
        assert "'start_from'" in lines[-1]
        assert not outdir.exists()


def test_what_train_sees(other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepared(tmp_path / "x", start_from=str(other), hidden_sizes="9") == 0
    for _ in range(3):
        capsys.readouterr()
        assert train_run(tmp_path / "x") == 2
        assert "parameter 'start_from' cannot be" in capsys.readouterr().err
    assert not ExperimentDirectory(tmp_path / "x").run(0).checkpoint_steps()


def test_it_lies_in_the_same_storage(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = other.parent
    where = place(str(root / "new"), None)
    assert place(str(other), where.storage, "start_from").outdir == "/storage/x"
    assert place("/storage/x", root, "start_from").directory == other
    with pytest.raises(BadInput, match=r"'start_from'.*below"):
        place(str(tmp_path), where.storage, "start_from")
    assert cluster_outdir("/storage/x", "start_from") == "/storage/x"
    with pytest.raises(BadInput, match="'start_from'"):
        cluster_outdir("results/x", "start_from")
    monkeypatch.setenv("STORAGE", str(root))
    assert prepared(root / "new", start_from=str(tmp_path)) == 2
    assert prepared(root / "new", start_from=str(other)) == 0


def test_a_machine_is_asked_before_anything_starts(other: Path) -> None:
    given = TINY | {"outdir": "/storage/y"}
    where = place("/storage/y", other.parent)
    asked: Resolved = resolve("ppo", given | {"start_from": "/storage/x"})
    check_this_machine(where, asked)
    with pytest.raises(BadInput, match="its algorithm is 'ppo'"):
        check_this_machine(where, resolve("a2c", given | {"start_from": "/storage/x"}))


def test_what_is_written_is_read_again(other: Path) -> None:
    from dataclasses import replace

    resolved = replace(resolve("ppo", TINY | {"start_from": str(other)}), origin="0" * 64)
    written = json.loads(json.dumps(resolved.as_dict()))
    assert resolved_from_dict(written) == resolved
    written["experiment"]["start_from"] = None
    with pytest.raises(BadInput, match="belong together"):
        resolved_from_dict(written)
