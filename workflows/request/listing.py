"""What `workflows.submit` prints before it does anything: the known names (`--list`) and what would
run (`--dry-run`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence, Set

from config.algorithms import algorithm_names, find_algorithm
from config.described import (
    SECTIONS,
    WITHOUT_PRESETS,
    ParameterInfo,
    further_parameters,
    own_parameters,
    parameters,
    section_title,
    shared_parameters,
)
from config.errors import shown
from config.games import games_of, own_presets, playable
from config.parameters import to_text
from config.resolved import Resolved
from config.suites import SUITES
from config.webhook import NOTIFY, host_of
from workflows.dag.layout import Layout

WIDTH = 120


def everything(algorithms: Iterable[str]) -> str:
    """All algorithms and games, and every parameter with help, default and range."""
    algorithms = list(algorithms)
    lines = [f"algorithms  {', '.join(algorithm_names())}, package.module:NAME of your own", ""]
    lines += _games(algorithms)
    lines += _sections(shared_parameters(algorithms))
    for names, infos in further_parameters(algorithms).items():
        lines += _sections(infos, names[0], f" of {', '.join(names)}")
    for algorithm in algorithms:
        lines += _sections(own_parameters(algorithm), algorithm)
    return "\n".join(lines)


def _games(algorithms: Iterable[str]) -> Iterator[str]:
    """The games that each algorithm plays."""
    families = {algorithm: find_algorithm(algorithm).families for algorithm in algorithms}
    for algorithm, played in families.items():
        yield from _wrapped(f"games for {algorithm}", ", ".join(playable(played, own_presets())))
    for suite in SUITES:
        others = [name for name in games_of(suite) if name not in own_presets()]
        players = [algorithm for algorithm, played in families.items() if playable(played, others)]
        if players:
            needed = f" (needs pip install {suite.install})" if suite.missing() else ""
            title = f"{suite.title} games{needed} for {', '.join(players)}"
            yield from _wrapped(title, ", ".join(others))
    yield from _wrapped(
        "any other",
        "a gymnasium id such as Blackjack-v1, envpool:ID of the package envpool, "
        "package.module:Name of your own environment, or package.module:Id-v0 that it registers",
    )


def parameter_table(algorithm: str) -> list[str]:
    """Lines of a table: a heading for each section, then name, default, help and allowed values."""
    return list(_sections(parameters(algorithm), algorithm))


def _sections(
    infos: Sequence[ParameterInfo], algorithm: str = "", whose: str = ""
) -> Iterator[str]:
    width = max(len(info.name) for info in infos)
    for section in SECTIONS:
        inside = [info for info in infos if info.section == section]
        if inside:
            preset = "" if section in WITHOUT_PRESETS else " (default: the preset of the game)"
            yield f"\n{section_title(algorithm, section)}{whose}{preset}, -p name=value"
            yield from (_row(info, width) for info in inside)


def _row(info: ParameterInfo, width: int) -> str:
    default = f"; default {info.fallback}" if info.fallback else ""
    text = f"{info.help} ({info.allowed}{f'; {info.unit}' if info.unit else ''}{default})"
    return textwrap.fill(
        text, WIDTH, initial_indent=f"  {info.name:<{width}}  ", subsequent_indent=" " * (width + 4)
    )


def _wrapped(title: str, text: str) -> list[str]:
    return [title, textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "), ""]


def plan(
    resolved: Resolved,
    given: Set[str],
    layout: Layout,
    *,
    where: str,
    directory: str,
    presets: str = "",
) -> str:
    """What would run: the place, the size, the tasks, and every resolved parameter, with a mark at
    those that were given.
    """
    runs = resolved.experiment.runs
    facts = {
        "where": where,
        "directory": directory,
        "game": f"{resolved.game.name} ({resolved.game.id})",
        **({"presets": presets} if presets else {}),
        "training": _training(resolved),
        "checkpoints": f"every {resolved.checkpoint_interval:,} epochs",
        "success": f"{resolved.min_runs} usable runs of {runs}",
        "tasks": layout.listed(runs),
    }
    width = max(map(len, facts))
    lines = [f"{name:<{width}}  {fact}" for name, fact in facts.items()]
    return "\n".join(
        [*lines, "", "resolved parameters (* given)", *_resolved_parameters(resolved, given)]
    )


def _training(resolved: Resolved) -> str:
    """`3 x (97 epochs x 2,048 steps + 2,048 before) = 3 x 200,704 steps`."""
    runs = resolved.experiment.runs
    frames = resolved.total_steps * resolved.game.frames_per_step
    one = f"{resolved.epochs:,} epochs x {resolved.steps_per_epoch:,} steps"
    if resolved.warm_up_steps:
        one = f"({one} + {resolved.warm_up_steps:,} before)"
    text = f"{runs} x {one} = {runs} x {resolved.total_steps:,} steps"
    if frames > resolved.total_steps:
        text += f" ({frames:,} frames)"
    if resolved.first_epochs:
        text += f"; at first it was {resolved.first_epochs:,} epochs"
    return text


def _resolved_parameters(resolved: Resolved, given: Set[str]) -> Iterator[str]:
    listed = parameters(resolved.algorithm)
    width = max(len(info.name) for info in listed)
    for info in listed:
        value = to_text(resolved.value_of(info.section, info.name))
        if info.name == NOTIFY and value:
            value = f"an address at {host_of(value)}"
        mark = "*" if info.name in given else " "
        yield f"  {mark} {info.name:<{width}}  {value if value else shown('')}"
