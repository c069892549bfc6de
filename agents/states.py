"""torch's states as what a checkpoint holds: nested dicts with string keys and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from config.errors import NoUsableState

FORMAT = 3
"""Of the states of our own algorithms."""


def check_format(state: Mapping[str, Any]) -> None:
    """Raise `NoUsableState` for the state of a training by another version of this program."""
    if state["format"] != FORMAT:
        raise NoUsableState(
            f"the state of this training has format {state['format']}, this program reads {FORMAT}"
        )


def to_arrays(state: Any) -> Any:
    """The `state_dict()` of a module or an optimiser, its tensors copied to the CPU as arrays."""
    if isinstance(state, Mapping):
        return {str(name): to_arrays(value) for name, value in state.items()}
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().contiguous().numpy().copy()
    return [to_arrays(value) for value in state] if isinstance(state, list | tuple) else state


def to_tensors(arrays: Any) -> Any:
    """What `load_state_dict` takes; an optimiser numbers its parameters, so that keys of digits are
    numbers again.
    """
    if isinstance(arrays, Mapping):
        return {
            int(name) if name.isdecimal() else name: to_tensors(value)
            for name, value in arrays.items()
        }
    if isinstance(arrays, np.ndarray):
        return torch.from_numpy(arrays.copy())
    return [to_tensors(value) for value in arrays] if isinstance(arrays, list | tuple) else arrays


def ranges(columns: Mapping[str, torch.Tensor]) -> str:
    """`returns -1 … 2, values 0 … 1`: least and largest of each, for the report of a divergence."""
    return ", ".join(
        f"{name} {column.min():.4g} … {column.max():.4g}" for name, column in columns.items()
    )
