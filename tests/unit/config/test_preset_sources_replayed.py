"""Every preset of R2D2 and of asynchronous SAC against the source that it names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.algorithms.async_sac import AsyncSAC
from config.algorithms.r2d2 import R2D2
from config.environment import EachActor
from config.games import FOLDER, find_game, own_presets, playable
from config.strict_yaml import load_mapping
from tests.decided_presets import comment_of, decided

# Kapturowski et al. 2019: section 2.3, and its appendix's table of hyperparameters, in its words.
PAPER: dict[str, Any] = {
    "sequence length": 80, "burn-in": 40, "n-step": 5, "batch": 64, "discount": 0.997,
    "Adam learning rate": 1e-4, "Adam epsilon": 1e-3, "target update": 2500,
    "priority exponent": 0.9, "importance exponent": 0.6, "eta": 0.9, "epsilon": 0.4, "alpha": 7,
    "replay ratio": 0.8, "observations": 4_000_000, "LSTM": 512, "episodic life": False,
    "clip rewards": False,
}  # fmt: skip
LEARNT_ROWS = 40
"""Of a sequence: its loss is their sum there."""
CHANGED = {
    "steps": 10_000_000, "envs_per_actor": 8, "replay_size": 100_000, "learning_starts": 20_000,
    "epoch_updates": 10,
}  # fmt: skip
SMALL = {
    "envs_per_actor": 8, "learning_rate": 5e-4, "anneal_learning_rate": True, "replay_ratio": 8.0,
    "normalise_observations": True, "replay_size": 500_000, "target_every": 100,
    "n_step": 5,
}  # fmt: skip
OF_CARTPOLE = {
    "discount": 0.997, "epsilon": 0.1, "epsilon_exponent": 3.0, "learning_rate": 2e-3,
    "target_every": 20,
}  # fmt: skip
"""Where it is easy to find out what is good."""
DISCRETE = sorted(
    name
    for name in playable(("discrete",), own_presets())
    if not find_game(name).is_atari and "r2d2" in load_mapping(FOLDER / f"{name}.yaml")
)
OF_SAC = ("pendulum", "pendulum-no-velocity", "lunarlander_continuous", "fallback")


def of_the_paper() -> dict[str, Any]:
    names = {
        "unroll_length": "sequence length", "burn_in": "burn-in", "n_step": "n-step",
        "batch_size": "batch", "discount": "discount", "learning_rate": "Adam learning rate",
        "target_every": "target update", "priority_exponent": "priority exponent",
        "importance_exponent": "importance exponent", "priority_mix": "eta", "epsilon": "epsilon",
        "epsilon_exponent": "alpha", "replay_ratio": "replay ratio", "replay_size": "observations",
        "lstm_size": "LSTM", "episodic_life": "episodic life", "clip_rewards": "clip rewards",
    }  # fmt: skip
    defaults = asdict(EachActor()) | asdict(R2D2())
    settings = {ours: PAPER[theirs] for ours, theirs in names.items()}
    return defaults | settings | {"adam_epsilon": PAPER["Adam epsilon"] / LEARNT_ROWS}


def test_atari_follows_the_paper() -> None:
    published = of_the_paper() | {"env_options": "stack_num=1"}
    assert decided("r2d2", "pong") == decided("r2d2", "breakout") == published | CHANGED
    comment = comment_of("r2d2", "atari")
    for named in ("Kapturowski et al. 2019", "a 40th", "one frame instead of four", *CHANGED):
        assert named in comment


@pytest.mark.parametrize("name", [*DISCRETE, "Other-v0"])
def test_small_games_share_their_settings(name: str) -> None:
    found = decided("r2d2", name)
    steps = found.pop("steps")
    own = OF_CARTPOLE if name.startswith("cartpole") else {}
    assert found == asdict(EachActor()) | asdict(R2D2()) | SMALL | own
    assert steps >= 500_000
    comment = comment_of("r2d2", "fallback" if name == "Other-v0" else name)
    if name == "cartpole-no-velocity":
        assert "Kapturowski et al. 2019" in comment and "replay_ratio" in comment
    else:
        exception = (
            ""
            if own
            else ", but for discount, epsilon, its exponent, learning_rate and target_every"
        )
        assert f"As config/games/cartpole-no-velocity.yaml{exception}. Not measured." in comment


@pytest.mark.parametrize("name", OF_SAC)
def test_asynchronous_sac_is_set_as_sac(name: str) -> None:
    game = "Other-v0" if name == "fallback" else name
    added = {"unroll_length", "max_ahead"}
    found, of_sac = decided("async-sac", game), decided("sac", game)
    assert found.pop("envs_per_actor") == of_sac.pop("num_envs") == 1
    assert {one: value for one, value in found.items() if one not in added} == of_sac
    assert found["unroll_length"] == AsyncSAC().unroll_length
    assert "As sac above" in comment_of("async-sac", name)
