"""The settings of the environment: how many, and how the game is shown to the learner.

They are nobody's hyperparameters: every algorithm has them, and evaluation and films read those
that belong to the game. An algorithm's presets, and a game's, may set them like its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.parameters import parameter


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """One experiment's environments: those of training, evaluation and film."""

    num_envs: int = parameter(8, low=1, high=1024, help="environments that step together")
    normalise_observations: bool = parameter(
        False, help="by running mean and variance, kept with the agent; not for images"
    )
    normalise_rewards: bool = parameter(
        False, help="divide learnt rewards by the running deviation of the discounted return"
    )
    clip_rewards: bool = parameter(
        False, help="learn from rewards cut to -1 ... 1; reported returns stay the game's own"
    )
    sticky_actions: float = parameter(
        0.25, low=0, high=1, help="Atari: probability that the emulator repeats the last action"
    )
    full_action_set: bool = parameter(
        False, help="Atari: all 18 actions instead of those that the game uses"
    )
    episodic_life: bool = parameter(
        False, help="Atari: a lost life ends the episode in training, never in evaluation"
    )
    fire_after_life_loss: bool = parameter(
        True,
        help="Atari: where the game has FIRE, it is pressed after a reset and after a lost life, by nobody's choice",
    )
    noop_max: int = parameter(
        30, low=0, high=1000, unit="frames", help="Atari: idle at most so long after a reset"
    )


ATARI_ONLY = ("sticky_actions", "full_action_set", "episodic_life", "noop_max")
"""Refused where they would silently be ignored. `fire_after_life_loss` is not: it is on by default,
and off it changes nothing elsewhere."""
