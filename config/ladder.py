"""Whom an agent of self-play meets when it is evaluated, by name; `agents.arena` has the players.

The ladder is the same for every game and every experiment: win rates against it can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

from config.errors import BadInput, shown

LADDER = ("mcts-1000", "mcts-100", "lookahead", "random")
"""The strongest first: the first evaluated games, which are filmed, are against it."""
ANCHOR = "random"
"""Its rating is 0."""
AGENT = "agent"
"""The trained player, in tables and plots."""
EXACT = "minimax"
"""Joins where it plays perfectly from the first move on, for small games."""
GENERATION = "generation "
"""With a number behind it, an earlier network of the same training."""
VALUE_KEPT = "value_kept_percent"
"""In the status of an evaluation and in summary.json: how often the agent's moves keep the value of
positions that minimax knows.
"""


def read_opponents(text: str) -> list[str]:
    """The further opponents of an arena: names of players, a person's own as `package.module:Name`, and
    other experiments' agents as `DIRECTORY[:run]`, with a slash in it.

    Raises `ValueError` with what is wrong.
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
    """The same text; raises as `read_opponents`."""
    return ",".join(read_opponents(text))


def with_directories(opponents: str, place: Callable[[str], str]) -> str:
    """The same opponents with other directories, as `place` changes each one; of a text that
    `read_opponents` reads.
    """
    changed = list[str]()
    for name in read_opponents(opponents):
        if is_directory(name):
            outdir, run = agent_of(name)
            name = f"{place(outdir)}:{run}"
        changed.append(name)
    return ",".join(changed)


def is_directory(opponent: str) -> bool:
    """Whether it is another experiment's agent: of names and import paths none has a slash."""
    return "/" in opponent


def agent_of(opponent: str) -> tuple[str, int]:
    """`results/x:2` -> directory and run, by default the first. Raises `ValueError`."""
    outdir, colon, run = opponent.rpartition(":")
    if not colon or "/" in run:
        return opponent, 0
    if not outdir or not run.isdecimal() or len(run) > 3:
        raise ValueError(f"{opponent!r} is no DIRECTORY[:run]")
    return outdir, int(run)


def directory_of(opponent: str) -> tuple[str, int]:
    """As `agent_of`, for who plays against it by name. Raises `BadInput`."""
    try:
        return agent_of(opponent)
    except ValueError:
        raise BadInput(
            f"opponent {shown(opponent)} cannot be; allowed: DIRECTORY[:run], run from 0"
        ) from None
