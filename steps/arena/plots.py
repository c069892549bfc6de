"""The plots of an arena, for one run and over all runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from config.errors import BadInput
from config.ladder import AGENT, ANCHOR, LADDER
from config.measures import ELO, WIN_RATE
from config.resolved import Resolved
from config.seeds import integer_seed
from steps.arena.averaged_arenas import Standing, standings
from steps.arena.games import read_all, read_games
from steps.arena.standing import generation_of, rated, tournament, won_against
from steps.command.context import StepContext
from steps.directory.layout import RunDirectory
from steps.figures.averaged_runs import Heading, evaluation, interval_caption, shown
from steps.figures.ratings import (
    against_plot,
    cross_table_plot,
    openings_caption,
    rating_plot,
    strength_plot,
)
from steps.figures.style import experiment_line
from steps.statistics.elo import cross_table
from steps.statistics.rule import Aggregate
from steps.statistics.scores import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_figures(context: StepContext) -> dict[str, Figure]:
    """File name -> figure for one run: who beats whom, the ratings of all players, and the agent's
    earlier ratings. Raises `BadInput` for damaged tables.
    """
    resolved = context.resolved
    run = context.run
    arena = tournament(read_all(run))
    names, pairings, scores = arena
    openings = scores.shape[1]
    title = f"Run {run.index}"
    ratings, low, high = rated(
        arena, integer_seed(resolved.experiment.seed, run.index, "bootstrap of openings")
    )
    against = [names.index(name) for name in (AGENT, *LADDER)]
    shares = cross_table(len(names), pairings, scores)[:, against]
    subtitle = experiment_line(resolved)
    figures = {
        "evaluation": cross_table_plot(
            names, [AGENT, *LADDER], shares,
            title=f"{title}: who beats whom", subtitle=subtitle, games=2 * openings,
        ),
        "ratings": rating_plot(
            names, ratings, low, high,
            title=f"{title}: strength", subtitle=subtitle, caption=openings_caption(openings),
        ),
    }  # fmt: skip
    generations = {generation_of(name): row for row, name in enumerate(names)}
    generations[resolved.epochs] = names.index(AGENT)
    known = sorted(number for number in generations if number is not None)
    if len(known) > 1:
        rows = np.array([generations[number] for number in known])
        figures["strength"] = strength_plot(
            known, ratings[rows], low[rows], high[rows],
            {name: float(ratings[names.index(name)]) for name in LADDER},
            title=f"{title}: strength over the training", subtitle=subtitle,
            caption="The networks of some generations, the last one is the trained agent. " + openings_caption(openings),
        )  # fmt: skip
    return figures


def average_figures(
    resolved: Resolved, runs: Sequence[RunDirectory], heading: Heading, *, seed: int
) -> dict[str, Figure | None]:
    """File name -> figure for the arenas of these runs: each agent's rating, what they scored
    against each opponent, and all ratings, also over the training. seed: of the intervals'
    resampling. Raises `BadInput` for damaged tables.
    """
    players = {one.player: one for one in standings(runs)}
    averaged = {name: one.rating(seed) for name, one in players.items()}
    agent = averaged[AGENT]
    one = players[AGENT]
    subtitle = heading.subtitle
    unit = f"{heading.sample}; unit: the run."
    drawn = f"{unit} {interval_caption(agent, 'line')}"
    figures: dict[str, Figure | None] = {
        "elo": evaluation(
            replace(heading, title="Elo ratings of the agents"), ELO,
            {run: [rating] for run, rating in one.ratings.items()}, {}, agent,
            dots=f"Bradley–Terry ratings in each run's own arena, where {ANCHOR} has 0", of="", solved=None,
        ),
        "opponents": _against(players.values(), seed, subtitle, drawn),
        "ratings": rating_plot(
            list(averaged), *_columns(averaged.values()), title="Strength of all players", subtitle=subtitle,
            caption=f"Bradley–Terry ratings, each run's own, averaged. {drawn}",
        ),
    }  # fmt: skip
    numbers = {generation_of(name): name for name in averaged} | {resolved.epochs: AGENT}
    known = sorted(number for number in numbers if number is not None)
    if len(known) > 1:
        figures["strength"] = strength_plot(
            known, *_columns(averaged[numbers[number]] for number in known),
            {name: float(shown(averaged[name])[0][0]) for name in LADDER},
            title="Strength over the training", subtitle=subtitle,
            caption=f"The networks of some generations, the last one is the trained agent. {drawn}",
        )  # fmt: skip
    return figures


def rates_of_ladder(run: RunDirectory) -> list[float]:
    """What a run's agent scored against each player of the ladder, in %; empty without its tables."""
    try:
        won = won_against(read_games(run.evaluated(WIN_RATE)))
    except (OSError, BadInput):
        return []
    return [WIN_RATE.of_run(won[name]) for name in LADDER if name in won]


def _against(players: Iterable[Standing], seed: int, subtitle: str, caption: str) -> Figure:
    met = [(one, rate) for one in players if (rate := one.rate(seed)) is not None]
    return against_plot(
        [one.player for one, _ in met], [list(one.rates.values()) for one, _ in met],
        *_columns(rate for _, rate in met),
        title="What the agents won against each opponent", subtitle=subtitle,
        caption=f"A dot is a run, a diamond what they amount to. {caption}",
    )  # fmt: skip


def _columns(averaged: Iterable[Aggregate]) -> tuple[Floats, Floats, Floats]:
    """The centres and both ends of intervals, [n] each. For one run the ends equal the centre."""
    rows = []
    for one in averaged:
        centre, low, high, *_ = shown(one)
        rows.append(
            [float((centre if column is None else column)[0]) for column in (centre, low, high)]
        )
    centres, lows, highs = np.array(rows, np.float64).T
    return centres, lows, highs
