"""Plays the episodes of one policy of a training, or, after self-play, its games against the ladder.

Every purpose has seeds of its own: what chose the best snapshot never measures it. The snapshots of a
run meet the same episodes, so that chance alone does not tell two of them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.ladder import AGENT, LADDER
from config.measures import Measure
from config.seeds import integer_seed
from steps.command.context import StepContext
from steps.directory import checkpoints, snapshots
from steps.directory.checkpoints import Checkpoint
from steps.directory.tables import Cell

if TYPE_CHECKING:
    import numpy as np

    from agents.arena.opponents import SearchPolicy
    from agents.interfaces import AnyPolicy

SNAPSHOTS = "evaluation of snapshots"
BEST = "evaluation of the best snapshot"
"""The purposes of seeds."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """columns, rows: the table of all episodes. first: the actions of the first one, as the environment
    received them; None after self-play, whose rows hold the actions.
    """

    columns: Sequence[str]
    rows: list[dict[str, Cell]]
    first: np.ndarray | None

    def score(self, measure: Measure) -> float:
        """The score of the policy in these episodes."""
        return measure.of_run([float(row[measure.column] or 0) for row in self.rows])


def play_snapshot(
    context: StepContext, snapshot: Checkpoint, *, episodes: int, purpose: str
) -> Played:
    """Play with a snapshot. episodes: their number, after self-play that of the games against each
    player of the ladder. Raises `NoUsableState` for a snapshot that holds no policy.
    """
    resolved = context.resolved
    from agents.load import load_policy

    with checkpoints.fitting(snapshot.path, snapshots.REMEDY):
        policy: Any = load_policy(resolved, snapshot.state)
    if resolved.descriptor.has_workers:
        return _games(context, policy, episodes, purpose)
    return _episodes(context, policy, episodes, purpose)


def _episodes(context: StepContext, policy: AnyPolicy, episodes: int, purpose: str) -> Played:
    from agents.evaluation.episodes import evaluate

    resolved = context.resolved
    columns = ("episode", "seed", resolved.measure.column, "length")
    rows = list[dict[str, Cell]]()
    first = None
    for one in evaluate(
        policy,
        resolved,
        context.run.index,
        episodes,
        resolved.evaluation_policy == "sample",
        lambda steps, playing: context.check_stop(),
        purpose=purpose,
    ):
        values = (one.episode, one.seed, one.return_, one.length)
        rows.append(dict(zip(columns, values, strict=True)))
        if first is None:
            first = one.actions
    return Played(columns=columns, rows=rows, first=first)


def _games(context: StepContext, policy: SearchPolicy, games: int, purpose: str) -> Played:
    import numpy as np

    from agents.arena.matches import after, opening_lines, play_games
    from agents.arena.opponents import load_player, trained
    from steps.arena.games import COLOURS, EVALUATION, played

    game = policy.game
    seed = integer_seed(context.resolved.experiment.seed, context.run.index, purpose)
    lines = opening_lines(game, games // len(COLOURS), np.random.default_rng(seed))
    found = []
    for opponent in LADDER:
        result = play_games(
            game, trained(AGENT, policy), load_player(opponent, game), after(game, lines), seed,
            each_turn=context.check_stop,
        )  # fmt: skip
        found += played(AGENT, opponent, result, lines.tolist(), seed)
    rows = [{"episode": number, **one.row()} for number, one in enumerate(found)]
    kept = [{name: row[name] for name in EVALUATION} for row in rows]
    return Played(columns=EVALUATION, rows=kept, first=None)
