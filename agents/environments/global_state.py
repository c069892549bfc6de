"""Keeps what belongs to the whole process as it was while code of an environment runs.

An environment may set torch's default dtype, switch gradients off, change the number of threads, or
let numpy raise for every overflow. The learner in the same process must not be touched by it. Imports
no torch: where nobody has imported it, nothing of it can have been changed.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class TorchSettings(NamedTuple):
    """What an environment might change in a step; read in a fifth of a microsecond."""

    default_dtype: Any
    has_gradients: bool
    threads: int


def torch_settings() -> TorchSettings | None:
    """Torch's settings now; None where it was not imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    return TorchSettings(
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    )


def put_back(before: TorchSettings | None) -> None:
    """Set torch's settings to what they were, if they have changed."""
    if before is None or torch_settings() == before:
        return
    torch: Any = sys.modules["torch"]
    torch.set_default_dtype(before.default_dtype)
    torch.set_grad_enabled(before.has_gradients)
    if torch.get_num_threads() != before.threads:
        torch.set_num_threads(before.threads)


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Put the settings of torch and numpy back, which an environment may change when it is made."""
    torch: Any = sys.modules.get("torch")
    of_torch = torch_settings()
    device = torch.get_default_device() if torch else None
    try:
        with np.errstate():
            yield
    finally:
        put_back(of_torch)
        if torch and torch.get_default_device() != device:
            torch.set_default_device(device)


@contextlib.contextmanager
def global_generators_kept() -> Iterator[None]:
    """Put the generators of Python, numpy and torch back, from which an environment may draw when it
    is made.
    """
    # A generator that was never imported was never drawn from.
    torch: Any = sys.modules.get("torch")
    of_python = random.getstate()
    of_numpy = np.random.get_state()
    of_torch = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if torch:
            torch.set_rng_state(of_torch)
