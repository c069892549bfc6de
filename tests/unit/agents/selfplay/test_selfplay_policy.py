"""The player of a checkpoint or of a kept generation plays by the averaged weights, and what is read of
networks is what was written."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from agents.networks.board_games import evaluator
from agents.selfplay.policy import load, make_network
from agents.states import FORMAT, to_arrays
from config.errors import BadInput
from config.resolve import resolve
from steps.directory import self_play
from steps.directory.layout import RunDirectory

RESOLVED = resolve("alphazero", {"game": "tic-tac-toe", "blocks": "1", "channels": "8"})
OWN = resolve(
    "alphazero",
    {"game": "tic-tac-toe", "network": "tests.unit.agents.selfplay.test_selfplay_policy:Flat"},
)


class Flat(nn.Module):
    """A torso of one layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), 12)

    def forward(self, encoded, state, reset):  # type: ignore[no-untyped-def]
        return self.layer(encoded.flatten(2)).relu(), ()


def weights(seed: int, resolved=RESOLVED):  # type: ignore[no-untyped-def]
    from agents.games.named import load_game

    game = load_game(resolved.game.id)
    return make_network(resolved.hyperparameters, game, torch.Generator().manual_seed(seed))


def test_the_player_plays_by_the_average_and_not_by_the_newest_weights() -> None:
    average, newest = weights(0), weights(1)
    state = {
        "format": FORMAT,
        "average": to_arrays(average.state_dict()),
        "network": to_arrays(newest.state_dict()),
    }
    policy = load(RESOLVED, state)
    positions = policy.game.play(policy.game.start(3), np.array([0, 4, 8]))
    planes, legal = policy.game.encode(positions), policy.game.legal(positions)
    logits, values = policy.evaluate(planes, legal)
    expected = evaluator(average)(planes, legal)
    assert np.array_equal(logits, expected[0])
    assert np.array_equal(values, expected[1])
    assert not np.array_equal(logits, evaluator(newest)(planes, legal)[0])
    assert policy.simulations == RESOLVED.hyperparameters.evaluation_simulations
    assert policy.settings.dirichlet_alpha == 2.0


def test_what_is_kept_of_networks_is_what_was_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, 0)
    assert self_play.kept_generations(run) == []
    for generation in range(6):
        state = {"format": FORMAT, "average": to_arrays(weights(generation).state_dict())}
        self_play.write_generation(run, generation, state, RESOLVED.identity())
        self_play.forget_networks(run, generation, lambda one: one in (0, 2))
    assert self_play.kept_generations(run) == [0, 2, 4, 5]
    kept = self_play.read_generation(run, 2)
    assert load(RESOLVED, kept).game.name == "tic-tac-toe"
    assert np.array_equal(kept["average"]["stem.convolution.weight"], to_arrays(weights(2).state_dict())["stem.convolution.weight"])  # fmt: skip
    before = self_play.manifest_of(run, 5)
    self_play.discard_networks_after(run, 4)
    assert self_play.kept_generations(run) == [0, 2, 4]
    assert self_play.manifest_of(run, 5) is None
    other = {"format": FORMAT, "average": to_arrays(weights(9).state_dict())}
    self_play.write_generation(run, 5, other, RESOLVED.identity())
    assert self_play.manifest_of(run, 5) not in (None, before), "another one of the same number"


def test_a_damaged_network_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, 0)
    state = {"format": FORMAT, "average": to_arrays(weights(0).state_dict())}
    self_play.write_generation(run, 0, state, RESOLVED.identity())
    tensors = run.network(0) / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-4] + b"none")
    with pytest.raises(BadInput, match=r"differs from manifest\.json"):
        self_play.read_generation(run, 0)
    with pytest.raises(BadInput, match="cannot be read"):
        self_play.read_generation(run, 7)


def test_the_heads_on_a_torso_of_ones_own_learn_and_play() -> None:
    network = weights(0, OWN)
    state = {"format": FORMAT, "average": to_arrays(network.state_dict())}
    policy = load(OWN, state)
    start = policy.game.start(2)
    logits, values = policy.evaluate(policy.game.encode(start), policy.game.legal(start))
    assert logits.shape == (2, 9)
    assert np.abs(values).max() <= 1
    network(torch.rand(4, *policy.game.planes))[1].sum().backward()
    assert all(one.grad is not None for one in network.torso.parameters())
