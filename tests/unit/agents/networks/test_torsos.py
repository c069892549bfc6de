"""A network of a person's own: `-p network=my_lab.nets:Residual`, and one line for each promise that
another one breaks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from my_lab.nets import Residual
from torch import Tensor, nn

from agents.checks.algorithm_checks import TrainingChecks
from agents.checks.promises import tried
from agents.environments.game_check import check_game
from agents.load import load_policy, make_trainer
from agents.networks.own import OwnTorso
from config.errors import BadInput
from config.imports import NO_VERSION
from config.resolve import resolve
from config.resolved import Resolved

OWN = "my_lab.nets:Residual"
SMALL = {"num_envs": "4", "rollout_length": "16", "minibatches": "2", "epochs": "4"}


def small(game: str, network: str = OWN, **given: str) -> Resolved:
    return resolve("ppo", {"game": game, "network": network, **SMALL, **given})


@pytest.mark.parametrize(
    "game",
    [
        "cartpole",
        pytest.param("pendulum", marks=pytest.mark.slow),
        pytest.param("breakout", marks=pytest.mark.slow),
        "tests.own_games:Picture",
    ],
)
def test_every_promise_of_a_training_is_kept_with_it(game: str) -> None:
    findings = list(tried(TrainingChecks(small(game)).all()))
    assert [finding for finding in findings if not finding.kept] == []


def test_it_is_what_is_trained_and_what_acts() -> None:
    trainer = make_trainer(small("cartpole"), run=0, device="cpu", precision="fp32")
    network: Any = trainer.network  # type: ignore[attr-defined]
    assert isinstance(network.torso, OwnTorso) and isinstance(network.torso.torso, Residual)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    list(trainer.train())
    assert all((network.state_dict()[name] != value).any() for name, value in before.items())
    policy = load_policy(trainer.resolved, trainer.state_dict())  # type: ignore[attr-defined]
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    with torch.no_grad():
        expected = network(network.encode(torch.from_numpy(observations)))[0].argmax(dim=1)
    assert policy.act(observations, sample=False).tolist() == expected.tolist()
    trainer.close()


def test_its_weights_come_from_the_run_s_seed_alone() -> None:
    def weights(run: int) -> Tensor:
        torch.manual_seed(random.randrange(2**31))
        trainer: Any = make_trainer(small("cartpole"), run=run, device="cpu", precision="fp32")
        trainer.close()
        found: Tensor = trainer.network.torso.torso.inputs.weight.detach().clone()
        return found

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_its_package_is_part_of_what_the_directory_belongs_to() -> None:
    assert small("cartpole").packages == {"my_lab": NO_VERSION}
    assert small("cartpole").identity()["hyperparameters"]["network"] == OWN


class Torso(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 8)

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return self.layer(encoded), state


class OfOtherShape(Torso):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__((shape[0] + 1,))


class WithoutState(Torso):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return self.layer(encoded)


class Recurrent(Torso):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return self.layer(encoded), (encoded[-1],)


class Flat(Torso):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return self.layer(encoded).flatten(1), state


class Double(Torso):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.double()


class PartOfAnother(Torso):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.layer.weight = nn.Parameter(torch.zeros(8, 8)[:, : shape[0]])


class OfImages(Torso):
    def __init__(self, shape: tuple[int, ...]) -> None:
        channels, _, _ = shape
        super().__init__((channels,))


def a_function(shape: tuple[int, ...]) -> str:
    return "no module"


BROKEN = [
    (OfOtherShape, "fails on observations (4,): RuntimeError"),
    (WithoutState, "returns a Tensor; allowed: (features, state)"),
    (Recurrent, "keeps a state between steps; allowed here: the empty one, ()"),
    (Flat, "returns features of torch.float32 [2, 24] for 2 steps of 3 rows"),
    (Double, "has layer.weight of torch.float64; allowed: torch.float32"),
    (PartOfAnother, "has layer.weight, which is a part of another tensor"),
    (OfImages, "cannot be made for observations (4,): ValueError"),
    (a_function, "is a str; allowed: torch.nn.Module"),
]


@pytest.mark.parametrize(
    ("broken", "reason"), BROKEN, ids=lambda one: getattr(one, "__name__", str(one))[-30:]
)
def test_a_network_that_breaks_a_promise(broken: Any, reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(small("cartpole", f"{__name__}:{broken.__name__}"))
    assert reason in str(refusal.value)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("my_lab.nets", "allowed: package.module:Name"),
        ("my_lab.nets:Missing", "cannot be imported: AttributeError"),
        ("no_such_lab:Net", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_network(network: str, reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(small("cartpole", network))
    assert reason in str(refusal.value)
