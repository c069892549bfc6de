"""The algorithms by name: how a training starts and how its policy is loaded. Adding one: its
module, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agents.interfaces import Policy, State, Trainer
from agents.policies import TrainedPolicy
from agents.ppo import PPOTrainer
from agents.probe import decide
from config.errors import unknown

if TYPE_CHECKING:
    from config.resolve import Resolved

TRAINERS: dict[str, Callable[..., Trainer]] = {"ppo": PPOTrainer}

__all__ = ["TRAINERS", "decide", "load_policy", "make_trainer"]


def make_trainer(resolved: Resolved, *, run: int, device: str, precision: str) -> Trainer:
    """The training of one run, at its start; device and precision as `decide` chose them."""
    if resolved.algorithm not in TRAINERS:
        raise unknown("algorithm", resolved.algorithm, TRAINERS)
    return TRAINERS[resolved.algorithm](resolved, run=run, device=device, precision=precision)


def load_policy(resolved: Resolved, state: State) -> Policy:
    """The policy of a checkpoint, on the CPU, with its observation statistics frozen."""
    return TrainedPolicy(resolved, state)
