"""Hyperparameters that several algorithms declare alike, each with its own default, and what else their
hyperparameters have in common. A hyperparameter with another range or help is declared where it belongs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from config.environment import EnvironmentSettings
from config.parameters import cannot_be, parameter

epoch_updates = partial(
    parameter, low=1, high=10**6, unit="updates", help="updates of the network in one epoch"
)
train_every = partial(
    parameter,
    low=1,
    high=10**6,
    unit="steps",
    help="steps of all environments between two rounds of updates",
)
n_step = partial(
    parameter,
    low=1,
    high=100,
    unit="steps",
    help="rewards that are summed in a target before the value of a later state is added",
)
discount = partial(
    parameter,
    low=0,
    high=1,
    help="gamma: factor by which a reward loses weight for each step that it lies in the future",
)
optimiser = partial(parameter, choices=("adam", "rmsprop"), help="gradient-descent algorithm")
learning_rate = partial(parameter, low=1e-8, high=1.0, help="step size of the optimiser")
anneal_learning_rate = partial(
    parameter, help="whether the learning rate falls linearly to 0 over the training"
)
adam_epsilon = partial(
    parameter, low=1e-12, high=0.1, help="constant added to the optimiser's denominator"
)
max_gradient_norm = partial(
    parameter,
    low=1e-3,
    high=1000,
    help="largest norm of a gradient; a larger gradient is scaled down to it",
)
entropy_coefficient = partial(
    parameter, low=0, high=1, help="weight of the entropy bonus in the loss"
)
value_coefficient = partial(
    parameter,
    low=0,
    high=100,
    help="weight of the value loss, half the mean squared error, in the loss",
)
log_std_init = partial(
    parameter,
    low=-5,
    high=2,
    help="continuous actions: initial logarithm of the policy's standard deviation",
)


def falling_learning_rate(hyperparameters: Any) -> list[str]:
    """The method `tied_to_length` of a class whose only schedule is that of its learning rate. It is
    not inherited, so each class assigns it.
    """
    return ["anneal_learning_rate"] if hyperparameters.anneal_learning_rate else []


def refuse_normalised_rewards(environment: EnvironmentSettings) -> None:
    """Raise `BadInput` for `normalise_rewards`, for an algorithm that learns from a replay."""
    if environment.normalise_rewards:
        raise cannot_be(
            "normalise_rewards",
            True,
            because="the rewards of a replay are learnt as they are",
            allowed="false",
        )
