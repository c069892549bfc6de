"""States of trainings: torch's as nested dicts of arrays, and a new training that begins with the
weights of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from agents.interfaces import HasPolicyEntries, HasStreams, HasWeights, Resumable, State
from config.errors import BadInput, NoUsableState

FORMAT = 3
"""The format of the states of this project's algorithms."""


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
        # The array is copied, because on the CPU it would share memory with the tensor, which
        # further updates change.
        return state.detach().cpu().contiguous().numpy().copy()
    return [to_arrays(value) for value in state] if isinstance(state, list | tuple) else state


def to_tensors(arrays: Any) -> Any:
    """Convert to what `load_state_dict` takes. An optimiser numbers its parameters, so keys of
    digits become numbers again.
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


SAME = ("format", "interface")
"""Entries of a state, where there are such, that both trainings must have alike."""

NUMBERS = (np.ndarray, np.number, int, float)


def begin_with_weights(trainer: Resumable, theirs: State) -> None:
    """Give a new trainer, which `HasWeights`, those of another one's state.

    Raises `BadInput` if it has none, or the other sees, does or is something else; nothing is
    changed then.
    """
    if not isinstance(trainer, HasWeights):
        raise BadInput("this algorithm cannot begin with weights, its trainer has no 'learnt'")
    state = with_weights(trainer.state_dict(), theirs, trainer.learnt)
    trainer.load_state_dict(state)
    if isinstance(trainer, HasStreams):
        # The contract: `load_streams` follows every `load_state_dict`. A new training has no rows
        # yet.
        trainer.load_streams({})


def policy_state(trainer: Resumable) -> State:
    """What the policy of a training needs of its state now."""
    state = trainer.state_dict()
    if not isinstance(trainer, HasPolicyEntries):
        return state
    chosen: State = {}
    for path in trainer.policy_entries:
        *parents, name = path.split(".")
        source = state
        target = chosen
        for parent in parents:
            source = source[parent]
            target = target.setdefault(parent, {})
        target[name] = source[name]
    return chosen


def with_weights(ours: State, theirs: State, learnt: Sequence[str]) -> State:
    """Our state with the entries `learnt` of theirs, by their paths; raises `BadInput` where these
    have other names or shapes, or what is in `SAME` differs.
    """
    for name in SAME:
        _require_same(name, theirs.get(name), ours.get(name))
    for path in learnt:
        ours = _replaced(ours, theirs, path.split("."), path)
    return ours


def _replaced(ours: State, theirs: State, names: Sequence[str], path: str) -> State:
    name, *inner = names
    if name not in ours or name not in theirs:
        _require_same(path, theirs.get(name, "nothing"), ours.get(name, "nothing"))
        return ours
    if inner:
        return {**ours, name: _replaced(ours[name], theirs[name], inner, path)}
    _require_same(path, _shapes(theirs[name]), _shapes(ours[name]))
    return {**ours, name: theirs[name]}


def _shapes(entry: Any) -> Any:
    """Shapes in place of arrays and numbers, which have one without axes."""
    if isinstance(entry, Mapping):
        return {name: _shapes(value) for name, value in entry.items()}
    return list(np.shape(entry)) if isinstance(entry, NUMBERS) else type(entry).__name__


def _require_same(path: str, theirs: Any, ours: Any) -> None:
    """Raise `BadInput` with the first difference in two trees."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for name in (*theirs, *ours):
            one = theirs.get(name, "nothing")
            other = ours.get(name, "nothing")
            _require_same(f"{path}.{name}", one, other)
    elif theirs != ours:
        raise BadInput(f"the {path} of its agents is {_brief(theirs)}, here it is {_brief(ours)}")


def _brief(tree: Any) -> str:
    """Without what is inside."""
    return "something" if isinstance(tree, Mapping | np.ndarray) else str(tree)
