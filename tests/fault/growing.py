"""`python -m tests.fault.growing`: `steps.train` with another loop than that of one process, and a
learner with a replay, which it keeps in a stream: what it draws from that is in every row of
train.csv. STOPPED_IN: of this epoch it is asked to stop, and then its state takes SAVING_S."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agents.interfaces import Growth, Progress, State

ROWS, CAPACITY = 20, 150
FRAME = (64, 512)
LARGEST_BYTES = 25 * 2**15
"""Of a segment; a row has 32 KiB: of the rows of three epochs, between two checkpoints, some fill one
in an epoch without a checkpoint, the others are written by the checkpoint."""


STOPPED_IN = int(os.environ.get("STOPPED_IN", "0"))
SAVING_S = 6.0
"""Longer than `steps.command.stop.GRACE_S`."""


class Learner:
    """Draws rows and samples old ones."""

    def __init__(self, epochs: int, run: int) -> None:
        self.epochs = epochs
        self.epoch = self.step = self.added = 0
        self.generator = np.random.default_rng(run)
        self.frames = np.zeros((0, *FRAME), np.uint8)
        self.moves = np.zeros((0, 2), np.int16)

    def learn(self) -> Iterator[Progress]:
        while self.epoch < self.epochs:
            frames = self.generator.integers(0, 256, (ROWS, *FRAME), np.uint8)
            moves = self.generator.integers(0, 100, (ROWS, 2), np.int16)
            self.frames = np.concatenate([self.frames, frames])[-CAPACITY:]
            self.moves = np.concatenate([self.moves, moves])
            self.epoch, self.step, self.added = self.epoch + 1, self.step + ROWS, self.added + ROWS
            seen = self.frames[self.generator.integers(len(self.frames), size=8)]
            if self.epoch == STOPPED_IN:
                os.kill(os.getpid(), signal.SIGTERM)
            yield Progress(
                epoch=self.epoch,
                step=self.step,
                frame=self.step,
                returns=[float(self.moves.sum())],
                lengths=[len(self.moves)],
                metrics={"seen": float(seen.mean()), "rows": float(len(self.frames))},
            )

    def grown(self) -> dict[str, Growth]:
        added, self.added = self.added, 0
        if not added:
            return {}
        return {
            "replay": Growth(rows={"frame": self.frames[-added:]}, keep=CAPACITY),
            "positions": Growth(rows={"move": self.moves[-added:]}),
        }

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        self.frames = np.concatenate([part["frame"] for part in streams["replay"]])
        self.moves = np.concatenate([part["move"] for part in streams["positions"]])

    def state_dict(self) -> State:
        if self.epoch == STOPPED_IN:
            time.sleep(SAVING_S)
        return {
            "epoch": self.epoch,
            "step": self.step,
            "generator": self.generator.bit_generator.state,
            "weights": self.frames.mean(axis=0),
        }

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        self.epoch, self.step = state["epoch"], state["step"]
        self.generator.bit_generator.state = state["generator"]


def train(attempt: Any) -> dict[str, Any]:
    """As a learner of several processes would be trained: nothing here is a `Trainer`."""
    from steps.training.training_files import TrainingFiles

    compute = attempt.decided()
    learner = Learner(attempt.context.resolved.epochs, attempt.context.run_index)
    attempt.restore(learner, compute)
    with TrainingFiles(attempt) as files:
        for progress in learner.learn():
            files.epoch_ended(learner, progress)
        return files.end()


def main(argv: Sequence[str] | None = None) -> int:
    import steps.train
    from steps.training import stream_writer, training_files

    training_files.train_in_one_process = train
    stream_writer.LARGEST_BYTES = LARGEST_BYTES
    stream_writer.SEALED_BYTES = LARGEST_BYTES // 2
    return steps.train.main(argv)


if __name__ == "__main__":
    sys.exit(main())
