"""The players that an agent of self-play meets when it is evaluated, by name. `agents.arena`
implements them.

The ladder is the same for every game and every experiment, so win rates against it can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

from config.errors import BadInput, shown

LADDER = ("mcts-1000", "mcts-100", "lookahead", "random")
"""Strongest first, because the first evaluated games are filmed."""
ANCHOR = "random"
"""The player whose rating is fixed at 0."""
AGENT = "agent"
"""The name of the trained player in tables and plots."""
EXACT = "minimax"
"""Perfect play by minimax. It joins the ladder of games that are small enough to be solved."""
GENERATION = "generation "
"""Followed by a number: an earlier network of the same training."""
VALUE_KEPT = "value_kept_percent"
"""The name, in an evaluation's status and in summary.json, of the share of the agent's moves that
keep the value of positions that minimax solved.
"""


def read_opponents(text: str) -> list[str]:
    """Parse the further opponents of an arena: names of players, a user's own players as
    `package.module:Name`, and agents of other experiments as `DIRECTORY[:run]`, which contains a
    slash.

    Raises `ValueError` with the reason.
    """
    names = text.split(",")
    for name in names:
        if not name or name != name.strip():
            raise ValueError("a name between two commas is empty or has spaces around it")
        if name in (*LADDER, AGENT) or name.startswith(GENERATION):
            raise ValueError(f"{name!r} is met anyway")
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice")
        if is_directory(name):
            agent_of(name)
    return names


def canonical_opponents(text: str) -> str:
    """Return the text unchanged if it is valid; raises as `read_opponents`."""
    return ",".join(read_opponents(text))


def with_directories(opponents: str, place: Callable[[str], str]) -> str:
    """The same opponents with every directory replaced by `place(directory)`. The text must be
    valid for `read_opponents`.
    """
    changed = list[str]()
    for name in read_opponents(opponents):
        if is_directory(name):
            outdir, run = agent_of(name)
            name = f"{place(outdir)}:{run}"
        changed.append(name)
    return ",".join(changed)


def is_directory(opponent: str) -> bool:
    """Whether an opponent is another experiment's agent. Neither names nor import paths contain a
    slash.
    """
    return "/" in opponent


def agent_of(opponent: str) -> tuple[str, int]:
    """`results/x:2` -> directory and run (by default run 0). Raises `ValueError`."""
    outdir, colon, run = opponent.rpartition(":")
    if not colon or "/" in run:
        return opponent, 0
    if not outdir or not run.isdecimal() or len(run) > 3:
        raise ValueError(f"{opponent!r} is no DIRECTORY[:run]")
    return outdir, int(run)


def directory_of(opponent: str) -> tuple[str, int]:
    """As `agent_of`, but raises `BadInput`."""
    try:
        return agent_of(opponent)
    except ValueError:
        raise BadInput(
            f"opponent {shown(opponent)} cannot be; allowed: DIRECTORY[:run], run from 0"
        ) from None
