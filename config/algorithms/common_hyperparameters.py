"""What the hyperparameters of several algorithms have in common."""

from __future__ import annotations

from typing import Any


def falling_learning_rate(hyperparameters: Any) -> list[str]:
    """The method `tied_to_length` of a class whose only schedule is that of its learning rate. It is
    not inherited, so each class assigns it.
    """
    return ["anneal_learning_rate"] if hyperparameters.anneal_learning_rate else []
