"""What an environment does to torch and numpy stays with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agents.environments.games import make_environment
from config.resolve import resolve
from tests.own_games import Bandit


def change() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(torch.get_num_threads() + 1)


class ChangesWhenMade(Bandit):
    def __init__(self) -> None:
        super().__init__()
        change()
        np.seterr(all="raise")
        torch.set_default_device("meta")


class ChangesInReset(Bandit):
    def reset(self, **given: Any) -> Any:
        change()
        return super().reset(**given)


class ChangesInStep(Bandit):
    def step(self, action: np.int64) -> Any:
        change()
        return super().step(action)


class ChangesAndBreaks(Bandit):
    def reset(self, **given: Any) -> Any:
        change()
        raise RuntimeError("broken")


def settings() -> list[Any]:
    return [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_device(),
        np.geterr(),
    ]


@pytest.mark.parametrize(
    "environment", [ChangesWhenMade, ChangesInReset, ChangesInStep, ChangesAndBreaks]
)
def test_settings_of_the_process_are_put_back(environment: type) -> None:
    before = settings()
    resolved = resolve("ppo", {"game": f"{__name__}:{environment.__name__}"})
    made = make_environment(resolved.game, resolved.environment)
    try:
        made.reset(seed=0)
        made.step(np.int64(0))
    except Exception as error:
        assert "broken" in str(error)
    assert settings() == before
