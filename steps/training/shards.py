"""Transfers games from workers to the trainer as shards in the run's directory, and lets the faster
side wait.

A worker plays on while the trainer has only a few of its shards left to take. The trainer takes
shards while its replay ratio allows it. Nothing else couples the two.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.errors import Preempted
from steps.command.context import StepContext
from steps.directory import self_play
from steps.directory.arrays import DamagedError
from steps.directory.self_play import ShardName

if TYPE_CHECKING:
    from agents.selfplay.roles import Games, Played

POLL_S = 0.05
TELL_S = 0.5
"""Seconds between two notes of what was taken. Each note waits for the disk."""
SHARD_POSITIONS = 256
SHARD_S = 2.0
"""A worker sends its games when there are enough positions, or after this many seconds."""
MOST_UNTAKEN = 4
"""Number of a worker's shards that may be left to take before it waits."""
OLD = 2
"""A network that is this many generations behind should have been replaced by the worker."""
LARGEST_SCORE = 100
"""A game's score is 100 if player 0 has won."""
LONGEST_S = 10.0**7
"""No worker plays or waits for so long before it sends a shard: four months."""
MOST_SAID = 10
"""Number of refused shards that get a log line each."""


class Inbox:
    """The trainer's side. taken: for each start of a worker, how many of its shards a checkpoint
    counts. newest: the generation published last. refused: number of unreadable shards by reason.
    old: for each worker, the positions that it played with an old network.
    """

    def __init__(self, context: StepContext, taken: Mapping[str, int]) -> None:
        self._context = context
        self._run = context.run
        self._identity = context.record.identity_hash
        self.taken = dict(taken)
        self.newest = 0
        self.refused = Counter[str]()
        self.positions = Counter[int]()
        self.old = Counter[int]()
        self._listed = list[ShardName]()
        self._looked_s = self._told_s = float("-inf")
        self._untold = True
        self._heard_s = time.monotonic()
        self._at_step = dict[int, dict[str, int]]()
        self_play.remove_temporary_taken(self._run)

    @property
    def silent_s(self) -> float:
        """Seconds since anything arrived."""
        return time.monotonic() - self._heard_s

    def take(self, wait_s: float) -> Games | None:
        """Implements `agents.selfplay.roles.Take`."""
        end = time.monotonic() + wait_s
        while True:
            self._tell()
            shard = self._next()
            games = None if shard is None else self._read(shard)
            if games is not None:
                return games
            if shard is None and time.monotonic() >= end:
                return None
            if shard is None:
                time.sleep(POLL_S)

    def saved(self, step: int) -> None:
        """Note that the checkpoint of this step, once written, counts everything taken so far.
        Shards that the oldest checkpoint counts are removed.
        """
        # A later attempt may go back to the older of the two kept checkpoints, and then needs the
        # shards that this one does not count.
        self._at_step[step] = dict(self.taken)
        kept = self._run.checkpoint_steps()
        self._at_step = {
            one: taken for one, taken in self._at_step.items() if one >= min(kept, default=0)
        }
        if len(kept) > 1 and kept[0] in self._at_step:
            self_play.forget_shards(self._run, self._at_step[kept[0]])

    def _next(self) -> ShardName | None:
        """The next shard that was not counted yet."""
        if not self._listed and time.monotonic() - self._looked_s >= POLL_S:
            found = self_play.shards(self._run)
            self._looked_s = time.monotonic()
            self._listed = [one for one in found if one.number >= self.taken.get(one.start, 0)]
        return self._listed.pop(0) if self._listed else None

    def _read(self, shard: ShardName) -> Games | None:
        self._heard_s = time.monotonic()
        # Counted even if it is damaged: reading it again would not help, and the worker waits.
        self.taken[shard.start] = shard.number + 1
        self._untold = True
        try:
            return self._games(shard, self_play.read_shard(self._run, shard, self._identity))
        except (DamagedError, KeyError, IndexError) as error:
            self.refused[str(error)] += 1
            if self.refused.total() <= MOST_SAID:
                print(f"warning: {self._run.positions / shard.file} is not learnt from: {error}")
            return None

    def _games(self, shard: ShardName, columns: dict[str, Any]) -> Games:
        from agents.selfplay.roles import Games

        complaint = _complaint(columns, self._context.resolved.epochs)
        if complaint:
            raise DamagedError(complaint)
        scores = columns.pop("score").tolist()
        lengths = columns.pop("length").tolist()
        played_s, waited_s = columns.pop("seconds").tolist()
        behind = self.newest - columns["generation"]
        self.positions[shard.worker] += len(behind)
        self.old[shard.worker] += int((behind >= OLD).sum())
        return Games(columns, scores, lengths, shard.worker, played_s, waited_s)

    def _tell(self) -> None:
        """Tell workers whose shards were taken that they may go on."""
        if self._untold and time.monotonic() - self._told_s >= TELL_S:
            self._context.require_ours()
            self_play.write_taken(self._run, self.taken)
            self._told_s = time.monotonic()
            self._untold = False

    def told(self) -> dict[str, Any]:
        """Details for the status: what arrived from which worker."""
        return {
            "refused_shards": dict(self.refused),
            "positions_of_workers": {
                str(worker): count for worker, count in self.positions.items()
            },
            "old_positions_of_workers": {
                str(one): count for one, count in self.old.items() if count
            },
        }


def _complaint(columns: Mapping[str, Any], last: int) -> str:
    """What no honest worker says of its games, in a few words; empty if there is nothing. The positions
    themselves are checked by `agents.selfplay.positions.refusal`. last: the generation after the last
    epoch; an honest worker may be ahead of a trainer that went back to its checkpoint. Raises `KeyError`
    for a missing column.
    """
    score = columns["score"]
    length = columns["length"]
    seconds = columns["seconds"]
    generation = columns["generation"]
    for name, column, kind in (
        ("score", score, "f"),
        ("length", length, "i"),
        ("seconds", seconds, "f"),
        ("generation", generation, "i"),
    ):
        if column.ndim != 1 or column.dtype.kind != kind:
            return f"{name} of {column.dtype} {list(column.shape)}"
    # This form of the conditions refuses NaN, too.
    if not ((score >= 0) & (score <= LARGEST_SCORE)).all():
        return f"a score beyond 0 … {LARGEST_SCORE}"
    if len(length) != len(score) or not (length > 0).all() or length.sum() != len(generation):
        return f"lengths of {len(length)} games that are not those of its positions"
    if len(seconds) != 2 or not ((seconds >= 0) & (seconds <= LONGEST_S)).all():
        return "times that no worker takes"
    if not ((generation >= 0) & (generation <= last)).all():
        return f"a generation beyond 0 … {last}"
    return ""


class Outlet:
    """A worker's side. wait: called again and again while it waits for the trainer; may raise."""

    def __init__(self, context: StepContext, wait: Callable[[], None]) -> None:
        self._context = context
        self._wait = wait
        self._identity = context.record.identity_hash
        member = context.arguments.member
        self._start = f"{member}-{context.attempt}-{secrets.token_hex(4)}"
        self._patience_s = context.resolved.workers.reconnect_timeout
        self._games = list["Played"]()
        self._number = 0
        self.positions = 0
        self._waited_s = 0.0  # since the last shard
        self._since_s = time.monotonic()
        self.waited_s = 0.0  # in all
        self_play.remove_temporary_shards(context.run, member)

    def add(self, games: Sequence[Played]) -> None:
        """Send games, several at a time. Waits while too many shards are left to take, and raises
        `Preempted` if none is taken for `reconnect_timeout`.
        """
        self._games += games
        count = sum(len(one.rows["value"]) for one in self._games)
        late = count and time.monotonic() - self._since_s >= SHARD_S
        if count >= SHARD_POSITIONS or late:
            self._wait_for_room()
            self._send(count)

    def _wait_for_room(self) -> None:
        started_s = changed_s = time.monotonic()
        taken = self_play.taken_of(self._context.run, self._start)
        while self._number - taken >= MOST_UNTAKEN:
            if time.monotonic() - changed_s >= self._patience_s:
                raise Preempted(f"the trainer has taken no games for {self._patience_s} s")
            self._wait()
            time.sleep(POLL_S)
            before = taken
            taken = self_play.taken_of(self._context.run, self._start)
            changed_s = changed_s if taken == before else time.monotonic()
        waited_s = time.monotonic() - started_s
        self._waited_s += waited_s
        self.waited_s += waited_s

    def _send(self, count: int) -> None:
        import numpy as np

        from agents.selfplay.positions import joined

        seconds = time.monotonic() - self._since_s
        columns = joined(one.rows for one in self._games)
        columns["score"] = np.array([one.score for one in self._games])
        columns["length"] = np.array([len(one.rows["value"]) for one in self._games])
        columns["seconds"] = np.array([seconds - self._waited_s, self._waited_s])
        self._context.require_ours()
        self_play.write_shard(self._context.run, self._start, self._number, columns, self._identity)
        self._number += 1
        self.positions += count
        self._games = []
        self._waited_s = 0.0
        self._since_s = time.monotonic()
