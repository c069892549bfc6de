"""Weights & Biases. Environment: `WANDB_API_KEY`, and optionally `WANDB_BASE_URL`, `WANDB_ENTITY`,
`WANDB_PROJECT` and `WANDB_MODE`.

A row's number is W&B's own step, so a run that is resumed says how many rows its server has. The
environment's step is a value of each row, against which W&B draws the row's group.

Without a key, or with `WANDB_MODE=offline`, the run is written to `tracking/wandb/` for `wandb sync`;
with a key, it is sent as a whole the next time.
An attempt that was killed loses rows that it had not written yet, so each attempt writes the whole run
again, unless it has been synced since.

Source: W&B's reference of `wandb.init`, "Resume a run", and `wandb.Run.log`.
"""

from __future__ import annotations

import netrc
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")
"""W&B takes our package `agents` for another one, and gives advice about it."""

import wandb  # noqa: E402 - reads its environment when it is imported

from steps.tracking.sink import PROJECT, Row, TrackedRun  # noqa: E402

TIMEOUT_S = 20.0
OFFLINE = "offline"
SYNCED = "*.synced"
"""What `wandb sync` leaves in the folder of a run that it has sent."""


class WeightsAndBiases:
    """A run of Weights & Biases."""

    def __init__(self) -> None:
        self._run: Any = None
        self._next = 0
        self._is_offline = _is_offline()

    def destination(self) -> str:
        """The project on the server, or this machine."""
        if self._is_offline:
            return OFFLINE
        place = [os.environ.get(name, "") for name in ("WANDB_BASE_URL", "WANDB_ENTITY")]
        return " ".join(["online", *filter(None, place), _project()])

    def start(self, run: TrackedRun) -> int | None:
        """Open the run under its id. Returns how many rows the server has."""
        try:
            return self._start(run)
        except BaseException:
            wandb.teardown()  # W&B's own process would say for ever that the run is in use
            raise

    def _start(self, run: TrackedRun) -> int | None:
        kept = self._is_offline and _remove_unsynced(run.folder, run.id)
        self._run = wandb.init(
            project=_project(),
            id=run.id,
            name=run.name,
            group=run.group,
            config=dict(run.hyperparameters),
            dir=str(run.folder),
            resume="allow",
            settings=wandb.Settings(
                mode=OFFLINE if self._is_offline else "online",
                init_timeout=TIMEOUT_S,
                console="off",
                silent=True,
                save_code=False,
                disable_git=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
            allow_val_change=True,
        )
        for group in ("train", "eval", "evaluation"):
            self._run.define_metric(f"{group}/step")
            self._run.define_metric(f"{group}/*", step_metric=f"{group}/step")
        if self._is_offline:
            return None if kept else 0
        self._next = int(self._run.starting_step)
        return self._next

    def rows(self, rows: Sequence[Row]) -> None:
        """Log each row that the server does not have."""
        for row in rows:
            if row.number >= self._next:
                values = {f"{row.group}/{name}": value for name, value in row.values.items()}
                self._run.log({f"{row.group}/step": row.step, **values}, step=row.number)

    def file(self, path: Path, name: str) -> None:
        """Copy the file into the run's folder, from which it is uploaded at once."""
        place = Path(self._run.dir) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        self._run.save(str(place), base_path=self._run.dir, policy="now")

    def finish(self) -> None:
        """Wait until everything has been uploaded."""
        self._run.finish()


def _is_offline() -> bool:
    """Without a key there is nobody to send to. W&B's own `login` is not asked: it may wait for its server."""
    if mode := os.environ.get("WANDB_MODE"):
        return mode != "online"
    return not os.environ.get("WANDB_API_KEY") and not _has_netrc_entry()


def _has_netrc_entry() -> bool:
    """Whether `wandb login` has left a key for the server."""
    address = os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url
    try:
        found = netrc.netrc(os.environ.get("NETRC"))
    except (OSError, netrc.NetrcParseError):
        return False
    return found.authenticators(urlsplit(address).hostname or "") is not None


def _project() -> str:
    return os.environ.get("WANDB_PROJECT") or PROJECT


def _remove_unsynced(folder: Path, id: str) -> bool:
    """Remove what earlier attempts wrote offline. Returns whether some of it was synced and stays."""
    kept = False
    for earlier in (folder / "wandb").glob(f"offline-run-*-{id}"):
        if any(earlier.glob(SYNCED)):
            kept = True
        else:
            shutil.rmtree(earlier)
    return kept
