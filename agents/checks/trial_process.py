"""The process in which a game is tried, started by `steps.directory.elsewhere`."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence

from config.errors import ExperimentError, on_one_line
from config.imports import reason
from config.resolve import resolved_from_dict
from config.resolved import Resolved

MADE, STEPPED, DRAWN = "made", "stepped", "drawn"
"""What may be wanted, and the last line that says that it went well."""
REFUSED = "refused: "


def main(argv: Sequence[str]) -> None:
    """argv: what is wanted, and the experiment as JSON. The last line that is printed is what was
    wanted, or what is wrong.
    """
    wanted, text = argv
    resolved = resolved_from_dict(json.loads(text))
    try:
        _try(resolved, wanted)
    except ExperimentError as error:
        _say(f"{REFUSED}{on_one_line(error)}")
    except Exception as error:
        traceback.print_exception(error)
        _say(f"{REFUSED}game {resolved.game.name!r} cannot be tried: {reason(error)}")
    else:
        _say(wanted)
    # Threads and processes that the game has left do not keep this process alive.
    os._exit(0)


def _try(resolved: Resolved, wanted: str) -> None:
    if wanted == DRAWN:
        from agents.evaluation.rendering import draw_once

        draw_once(resolved.game, resolved.environment)
        return
    from agents.checks.playable import check_playable

    check_playable(resolved)
    if wanted == STEPPED:
        from agents.checks.trial import needs_a_trial, try_environment

        if needs_a_trial(resolved):
            try_environment(resolved)


def _say(line: str) -> None:
    sys.stderr.flush()
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()
