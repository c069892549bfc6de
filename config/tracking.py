"""The trackers that an experiment may send its results to, by the parameter `track`.

This module knows their names and what they need, and imports none of them. `steps.tracking` sends.
"""

from __future__ import annotations

import difflib
import importlib.util
from dataclasses import dataclass

from config.errors import BadInput
from config.imports import is_import_path

FORM = "wandb, mlflow or package.module:Class, several with commas between"
TENSORBOARD = "tensorboard"
"""Not to be asked for: every training writes its event files."""
METHODS = ("destination", "start", "rows", "file", "finish")
"""What a class given by import path must have; see `steps.tracking.sink.Sink`."""


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """One tracker. sink: import path of its `steps.tracking.sink.Sink`. package: the module that it
    needs. extra: the extra of this project that installs the package.
    """

    sink: str
    package: str
    extra: str


TRACKERS: dict[str, Tracker] = {
    "wandb": Tracker(
        sink="steps.tracking.weights_and_biases:WeightsAndBiases", package="wandb", extra="wandb"
    ),
    "mlflow": Tracker(
        sink="steps.tracking.mlflow_runs:MlflowRuns", package="mlflow", extra="mlflow"
    ),
}
SECRETS = ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "TRACKER_TOKEN")
"""Variables whose values are never printed."""
VARIABLES = (
    *SECRETS,
    "WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE", "WANDB_PROJECT",
    "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME",
    "TRACKER_URL",
)  # fmt: skip
"""The environment of the pods that send. On a cluster each comes from the key of the same name of a
secret, where it has one; on one machine from the caller's environment. A sink of one's own reads
`TRACKER_URL` and `TRACKER_TOKEN`.
"""


def canonical(text: str) -> str:
    """The names in `-p track=…` without spaces and repetitions. Raises `ValueError` with the reason
    for a name that no tracker has.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        _check(name)
    return ",".join(dict.fromkeys(names))


def _check(name: str) -> None:
    if name in TRACKERS or is_import_path(name):
        return
    if name == TENSORBOARD:
        raise ValueError("every training writes TensorBoard's event files without being asked")
    nearest = difflib.get_close_matches(name[:64].lower(), TRACKERS, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"unknown tracker {name[:64]!r}{hint}")


def names(track: str | None) -> tuple[str, ...]:
    """The trackers in a parameter's value."""
    return tuple(track.split(",")) if track else ()


def refuse_missing(track: str | None) -> None:
    """Raise `BadInput` for a tracker whose package is not installed here. Nothing is imported."""
    for name in names(track):
        known = TRACKERS.get(name)
        if known is not None and importlib.util.find_spec(known.package) is None:
            raise BadInput(
                f"parameter 'track' cannot be {track!r}: {name} needs a package that is not "
                f"installed; pip install 'rl-training-dag[{known.extra}]'"
            )
