"""Steps of which several processes work at the same time: a role, and one of those that have it.

    python -m steps.train --outdir … --run 0 --role learner              logs/train.log
    python -m steps.train --outdir … --run 0 --role actor --member 3     logs/train-actor-3.log

The first process of the first role, or of another that does the same under another name, answers for
the task: its files are called as if it was alone.
Every other member has its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from config.errors import BadInput

MOST_MEMBERS = 4096


def add_roles(
    parser: argparse.ArgumentParser, roles: Sequence[str], answering: Collection[str] = ()
) -> None:
    """Add `--role` and `--member` to a step's options; without them the process has the first role.
    answering: the roles whose first process represents the task; by default the first role.
    """
    answering = tuple(answering) or tuple(roles[:1])
    parser.add_argument(
        "--role",
        choices=roles,
        default=roles[0],
        help=f"what this process does; default: {' or '.join(answering)}",
    )
    parser.add_argument("--member", type=int, help="which of the processes with this role, from 0")
    parser.set_defaults(roles=tuple(roles), answering=answering)


def member_of(parsed: argparse.Namespace) -> str:
    """The member's name, such as `actor-3`; empty for the process that represents the task. Raises
    `BadInput`.
    """
    roles = getattr(parsed, "roles", ())
    role = getattr(parsed, "role", "")
    number = getattr(parsed, "member", None)
    if not roles or (role in parsed.answering and number in (None, 0)):
        return ""
    if number is None or not 0 <= number < MOST_MEMBERS:
        given = "missing" if number is None else str(number)
        raise BadInput(f"--member is {given} for the role {role}; allowed: 0 to {MOST_MEMBERS - 1}")
    return f"{role}-{number}"
