"""Memory of trainings: quantities, what a machine allows, and a replay that does not fit is refused
before the training starts."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from my_lab import reinforce

from agents.environments.game_check import BESIDES_BYTES, check_game
from config import control_groups, memory
from config.algorithms import find_algorithm
from config.cluster import defaults, load_cluster
from config.errors import BadInput
from config.experiment import Experiment
from config.memory import at_least, in_bytes, larger, limit_bytes, shown
from config.parameters import parameter
from config.resolve import resolve
from steps import prepare, train
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from workflows.dag.render import build_manifest

OWN = f"{__name__}:HOARDER"
MACHINE_BYTES = 8 * 2**30
UNLIMITED = memory.resource.RLIM_INFINITY


@dataclass(frozen=True, kw_only=True)
class Hoarding(reinforce.Reinforce):
    replay_size: int = parameter(1000, low=1, high=10**12, help="steps that are kept")


def replay_bytes(resolved: Any, spaces: Any, dtype: np.dtype[Any]) -> int:
    """An observation and a reward of each step."""
    row = dtype.itemsize * int(np.prod(spaces.environment_shape)) + 4
    return int(resolved.hyperparameters.replay_size) * row


HOARDER = replace(
    reinforce.ALGORITHM, name="hoarder", hyperparameters=Hoarding,
    replay_bytes=f"{__name__}:replay_bytes", training_memory="6Gi",
)  # fmt: skip
LARGEST = (6 * 2**30 - BESIDES_BYTES) // 20
"""Steps of CartPole, of 4 float32 and a reward, that fit into 6 GiB."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control groups of a machine, without any yet."""
    monkeypatch.setattr(control_groups, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(control_groups, "OWN_GROUPS", tmp_path / "own")
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MACHINE_BYTES // 4096}
    monkeypatch.setattr(memory.os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (UNLIMITED, UNLIMITED))
    return tmp_path


@pytest.mark.parametrize(
    ("quantity", "size_bytes"),
    [("1", 1), ("5k", 5000), ("4Gi", 2**32), ("3G", 3 * 10**9), ("1536Mi", 1536 * 2**20)],
)
def test_quantities(quantity: str, size_bytes: int) -> None:
    assert in_bytes(quantity) == size_bytes
    assert larger(quantity, "") == quantity


def test_quantities_are_compared_by_their_size() -> None:
    assert larger("4Gi", "4000Mi") == larger("4000Mi", "4Gi") == "4Gi"
    assert larger("900Mi", "1G") == "1G"
    assert (at_least(2**32), at_least(2**32 + 1)) == ("4Gi", "5Gi")
    assert shown(7.06 * 2**30) == "7.1 GiB"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "4294967296\n"}, 2**32),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE_BYTES),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1073741824\n"}, 2**30),
        (
            "4:memory:/docker/x\n0::/\n",
            {"memory/memory.limit_in_bytes": "2147483648\n"},
            2**31,
        ),
        (
            "4:memory:/\n",
            {"memory/memory.limit_in_bytes": "9223372036854771712\n"},
            MACHINE_BYTES,
        ),
        ("1:cpu:/x\n", {"cpu/x/memory.limit_in_bytes": "1\n"}, MACHINE_BYTES),
        ("", {}, MACHINE_BYTES),
    ],
)
def test_the_memory_that_a_process_may_use(
    machine: Path, groups: str, files: dict[str, str], limit: int
) -> None:
    (machine / "own").write_text(groups)
    for name, text in files.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(text)
    assert limit_bytes() == limit


@pytest.mark.parametrize("limit", [2**31, 2 * MACHINE_BYTES])
def test_a_limit_of_the_address_space_counts(
    machine: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    (machine / "own").write_text("")
    limits = {memory.resource.RLIMIT_AS: (limit, UNLIMITED)}
    monkeypatch.setattr(memory.resource, "getrlimit", limits.__getitem__)
    assert limit_bytes() == min(limit, MACHINE_BYTES)


def test_a_training_asks_for_what_its_algorithm_needs(tmp_path: Path) -> None:
    """More than the cluster's settings give it, if there is need, and never less than they do."""
    assert resolve("ppo", {}).experiment.training_memory == Experiment.training_memory == "4Gi"
    assert load_cluster().training_memory == Experiment.training_memory
    assert resolve(OWN, {}).experiment.training_memory == "6Gi"
    assert resolve(OWN, {"training_memory": "5Gi"}).experiment.training_memory == "5Gi"
    (tmp_path / "large.yaml").write_text("training_memory: 32Gi")
    for path, expected in ((None, "6Gi"), (tmp_path / "large.yaml", "32Gi")):
        cluster = load_cluster(path)
        manifest = build_manifest(OWN, cluster)
        values = {one["name"]: one["value"] for one in manifest["spec"]["arguments"]["parameters"]}
        assert values["training_memory"] == defaults(cluster, HOARDER)["training_memory"]
        assert values["training_memory"] == expected


def test_memory_changes_no_result() -> None:
    one, other = ({"training_memory": text} for text in ("5Gi", "50Gi"))
    assert resolve(OWN, one).identity() == resolve(OWN, other).identity()
    with pytest.raises(BadInput, match="'training_memory' cannot be '5 GB'; allowed: a quantity"):
        resolve("ppo", {"training_memory": "5 GB"})


def test_a_replay_that_fits_to_the_byte() -> None:
    check_game(resolve(OWN, {"replay_size": str(LARGEST)}))
    with pytest.raises(BadInput) as refusal:
        check_game(resolve(OWN, {"replay_size": str(LARGEST + 1)}))
    assert str(refusal.value) == (
        f"parameter 'training_memory' cannot be '6Gi': the replay of {OWN} on cartpole takes 5.5 GiB, "
        "the rest of its training about 0.5 GiB; allowed: at least 7Gi, or a smaller replay_size"
    )
    check_game(resolve(OWN, {"replay_size": str(LARGEST + 1), "training_memory": "7Gi"}))


def test_what_keeps_little_is_never_refused() -> None:
    assert find_algorithm("ppo").replay_bytes == ""
    check_game(resolve("ppo", {"training_memory": "1"}), memory_bytes=1)


def given(outdir: Path, **changed: str) -> list[str]:
    parameters = {
        "outdir": str(outdir), "epochs": "2", "num_envs": "1", "rollout_length": "16", **changed
    }  # fmt: skip
    return [f"-p={name}={text}" for name, text in parameters.items()]


def test_prepare_refuses_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--algorithm", OWN, *given(tmp_path / "x", replay_size=str(LARGEST + 1))]
    assert prepare.main(arguments) == 2
    said = capsys.readouterr().err
    assert "allowed: at least 7Gi, or a smaller replay_size" in said and said.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("have_bytes", "code"), [(5 * 2**30, 2), (6 * 2**30, 0)])
def test_a_training_looks_at_the_memory_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, have_bytes: int, code: int
) -> None:
    """A machine may have less than was asked for; nothing has begun then."""
    for name in ("STORAGE", "OUTPUTS", "EXPERIMENT_OWNER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    outdir = tmp_path / "x"
    arguments = ["--algorithm", OWN, *given(outdir, replay_size=str(LARGEST))]
    assert prepare.main(arguments) == 0
    monkeypatch.setattr("steps.training.training_attempt.limit_bytes", lambda: have_bytes)
    assert train.main(["--outdir", str(outdir), "--run", "0"]) == code
    run = ExperimentDirectory(outdir).run(0)
    status = read_status(run.status / "train.json")
    assert status is not None and status.exit_code == code
    assert run.train_csv.exists() == (code == 0)
    if code:
        assert status.reason == (
            f"the replay of {OWN} on cartpole takes 5.5 GiB, the rest of its training about 0.5 GiB, "
            "and there are 5.0 GiB of memory here (training_memory=6Gi); "
            "allowed: a machine that has 6Gi with as much training_memory, or a smaller replay_size"
        )


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [
        ("ppo", "rollout_length"),
        ("a2c", "rollout_length"),
        ("ppo-lstm", "rollout_length"),
        ("impala", "batch_size"),
    ],
)
def test_a_rollout_that_does_not_fit_is_refused(algorithm: str, size: str) -> None:
    """An observation of 200,000 states is as many numbers; nothing of it is allocated to find out."""
    given = {"game": "tests.own_games:Table", "training_memory": "600Mi"}
    if algorithm == "a2c":
        given["rollout_length"] = "500"
    with pytest.raises(BadInput) as caught:
        check_game(resolve(algorithm, given))
    said = str(caught.value)
    assert said.startswith(
        f"parameter 'training_memory' cannot be '600Mi': the rollout of {algorithm}"
    )
    assert f"a smaller {size}" in said
    check_game(resolve(algorithm, {**given, "training_memory": "900Gi"}))


@pytest.mark.parametrize(
    "game",
    ["cartpole", "tests.own_games:Picture", pytest.param("pong", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("algorithm", ["ppo", "ppo-lstm"])
def test_a_rollout_is_as_large_as_was_said(algorithm: str, game: str) -> None:
    from agents.experience.rollout_sizes import of_rollout
    from agents.load import make_trainer

    resolved = resolve(algorithm, {"game": game, "num_envs": "2", "minibatches": "2"})
    trainer: Any = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    spaces, dtype = trainer.environments.interface, trainer.environments.observation.dtype
    rollout = trainer.rollout
    kept = rollout.observations.nbytes if rollout.observations is not None else 0
    encoded = rollout.encoded[:-1]
    told = of_rollout(resolved, spaces, dtype)
    trainer.close()
    really = encoded.nbytes + kept + encoded.nbytes // 2
    # Less where the network leaves out columns of a picture that its convolution does not reach.
    assert 0.97 * told <= really <= told
