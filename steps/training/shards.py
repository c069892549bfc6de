"""Games between workers and trainer: shards in the run's directory, and who waits for whom.

A worker goes on while the trainer has yet to take a few of its shards, and no further; the trainer
takes them while its replay ratio lets it. So the one that is ahead waits, and nothing else couples them.
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
"""Between two notes of what was taken: each waits for the disk."""
SHARD_POSITIONS = 256
SHARD_S = 2.0
"""A worker's games are sent when there are so many positions, or after so long."""
MOST_UNTAKEN = 4
"""Shards of a worker that lie there before it waits."""
OLD = 2
"""Generations by which a network is behind that a worker should have replaced."""
MOST_SAID = 10
"""Refused shards that are worth a line each."""


class Inbox:
    """The trainer's. taken: by start of a worker how many of its shards a checkpoint counts; newest:
    the generation that was published last. refused: shards that could not be read, by reason; old: of
    each worker the positions that it played by an old network.
    """

    def __init__(self, context: StepContext, taken: Mapping[str, int]) -> None:
        self._context = context
        self._run = context.run
        self._identity = context.record.identity_hash
        self.taken = dict(taken)
        self.newest = 0
        self.refused, self.positions, self.old = Counter[str](), Counter[int](), Counter[int]()
        self._listed = list[ShardName]()
        self._looked_s = self._told_s = float("-inf")
        self._untold = True
        self._heard_s = time.monotonic()
        self._at_step = dict[int, dict[str, int]]()
        self_play.remove_temporary_taken(self._run)

    @property
    def silent_s(self) -> float:
        """Since anything arrived."""
        return time.monotonic() - self._heard_s

    def take(self, wait_s: float) -> Games | None:
        """See `agents.selfplay.roles.Take`."""
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
        """The checkpoint of this step, once it is written, counts what was taken until now; what the
        oldest one counts is not needed any more.
        """
        self._at_step[step] = dict(self.taken)
        kept = self._run.checkpoint_steps()
        self._at_step = {
            one: taken for one, taken in self._at_step.items() if one >= min(kept, default=0)
        }
        if len(kept) > 1 and kept[0] in self._at_step:
            self_play.forget_shards(self._run, self._at_step[kept[0]])

    def _next(self) -> ShardName | None:
        """The next one that nobody has counted."""
        if not self._listed and time.monotonic() - self._looked_s >= POLL_S:
            found = self_play.shards(self._run)
            self._looked_s = time.monotonic()
            self._listed = [one for one in found if one.number >= self.taken.get(one.start, 0)]
        return self._listed.pop(0) if self._listed else None

    def _read(self, shard: ShardName) -> Games | None:
        self._heard_s = time.monotonic()
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

        scores = columns.pop("score").tolist()
        lengths = columns.pop("length").tolist()
        played_s, waited_s = columns.pop("seconds").tolist()
        behind = self.newest - columns["generation"]
        self.positions[shard.worker] += len(behind)
        self.old[shard.worker] += int((behind >= OLD).sum())
        return Games(columns, scores, lengths, shard.worker, played_s, waited_s)

    def _tell(self) -> None:
        """Let workers go on whose shards were taken."""
        if self._untold and time.monotonic() - self._told_s >= TELL_S:
            self._context.require_ours()
            self_play.write_taken(self._run, self.taken)
            self._told_s = time.monotonic()
            self._untold = False

    def told(self) -> dict[str, Any]:
        """For the status: what came of whom."""
        return {
            "refused_shards": dict(self.refused),
            "positions_of_workers": {
                str(worker): count for worker, count in self.positions.items()
            },
            "old_positions_of_workers": {
                str(one): count for one, count in self.old.items() if count
            },
        }


class Outlet:
    """A worker's. wait: called between two looks while it waits for the trainer; may raise."""

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
        self._waited_s, self._since_s = 0.0, time.monotonic()
        self.waited_s = 0.0
        self_play.remove_temporary_shards(context.run, member)

    def add(self, games: Sequence[Played]) -> None:
        """Send them on, some at a time; waits where too many lie there already, and raises `Preempted`
        where nobody takes any for `reconnect_timeout`.
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
        self._games, self._waited_s, self._since_s = [], 0.0, time.monotonic()
