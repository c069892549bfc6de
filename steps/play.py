"""The films of one run: `python -m steps.play --outdir results/cartpole --run 0`.

Films the first `video_episodes` episodes of the evaluation (same seeds, same actions) as
videos/episode-0.mp4 …, which every browser plays. A film is cut after two minutes, and its status
says so; it says, too, if a whole film does not have the return and the length of its row in
evaluation.csv, and which picture the environment drew in another size or not at all. After self-play
the films show games of the arena, against the strongest player of the ladder first, and on the board
what the agent's search thinks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from config.ending import end
from config.errors import BadInput
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory.arrays import read_actions
from steps.directory.experiment import evaluation_inputs
from steps.directory.files import remove_temporaries
from steps.directory.usable import Episode, evaluation_episodes, fingerprint
from steps.films.mp4 import write_film
from steps.films.skipping import film_or_skip, nothing_left_to_film

if TYPE_CHECKING:
    import numpy as np

LONGEST_S = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("play", play, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the films depend on: the episodes that were played, and how many are filmed."""
    table = context.run.evaluated(context.resolved.measure)
    evaluated = [table, context.run.evaluation_actions]
    return {
        **evaluation_inputs(context.record),
        "files": fingerprint(context.directory.root, evaluated),
    }


def play(context: StepContext) -> dict[str, Any] | Skipped:
    """Film the first episodes of the evaluation of one run."""
    return film_or_skip(context, _unfilmed(context), _film)


def _film(context: StepContext) -> dict[str, Any]:
    # Not the film of learning, which another step may be writing into the same folder.
    remove_temporaries(context.run.videos, of="episode-")
    of_games = context.resolved.descriptor.has_workers
    films = _of_games(context) if of_games else _of_episodes(context)
    return {"videos": [_write(context, film) for film in films]}


def _unfilmed(context: StepContext) -> str | None:
    return "video_episodes is 0" if context.resolved.experiment.video_episodes == 0 else None


class Film(NamedTuple):
    """A film to be made. frames: uint8 [H, W, 3] of one size. difference: after all frames were
    taken, how it differs from the evaluated episode, or None. irregular: after all frames were taken,
    the first one that is not what the environment drew, or None.
    """

    episode: int
    frames: Iterator[np.ndarray]
    frames_per_second: float
    difference: Callable[[], str | None]
    irregular: Callable[[], str | None] = lambda: None


def _of_episodes(context: StepContext) -> list[Film]:
    from agents.evaluation.rendering import Replay, film_rate

    rate = film_rate(context.resolved.game, context.resolved.environment)
    films = []
    for row, actions in evaluated_episodes(context):
        replay = Replay(context.resolved, row.seed, actions, rate.steps)
        difference = functools.partial(replay.difference, row.value, row.length)
        irregular = functools.partial(getattr, replay, "irregular")
        films.append(
            Film(row.episode, replay.frames(), rate.frames_per_second, difference, irregular)
        )
    return films


def _of_games(context: StepContext) -> list[Film]:
    from steps.arena.film import FRAMES_PER_SECOND, filmed_games

    return [
        Film(number, one.frames(), FRAMES_PER_SECOND, one.difference)
        for number, one in enumerate(filmed_games(context))
    ]


def evaluated_episodes(context: StepContext) -> list[tuple[Episode, np.ndarray]]:
    """The episodes to film: rows of evaluation.csv and their actions.

    Raises `BadInput` unless evaluate has left both intact.
    """
    from agents.environments.training import episode_seed

    run = context.run
    count = context.resolved.experiment.video_episodes
    measure = context.resolved.measure
    table = context.require(run.evaluated(measure), "evaluate")
    actions = read_actions(context.require(run.evaluation_actions, "evaluate"), count)
    rows = evaluation_episodes(run, measure)[:count]
    seeds = [episode_seed(context.resolved, run.index, number) for number in range(count)]
    expected = [(number, seeds[number], len(actions[number])) for number in range(count)]
    if [(row.episode, row.seed, row.length) for row in rows] != expected:
        episodes = f"the {count} episodes of {run.evaluation_actions.name}"
        raise BadInput(f"{table} does not begin with {episodes}: evaluate makes both")
    return list(zip(rows, actions, strict=True))


def video_path(context: StepContext, episode: int) -> Path:
    """Where the film of an episode lies."""
    return context.run.videos / f"episode-{episode}.mp4"


def _are_written(context: StepContext) -> bool:
    episodes = range(context.resolved.experiment.video_episodes)
    paths = [video_path(context, episode) for episode in episodes]
    return nothing_left_to_film(context, _unfilmed(context), paths)


def _write(context: StepContext, film: Film) -> dict[str, Any]:
    """Write one film, and say how it differs from what was evaluated."""
    rate = film.frames_per_second
    path = video_path(context, film.episode)
    longest = int(LONGEST_S * rate)
    written = write_film(context, path, itertools.islice(film.frames, longest), rate)
    # Asked only at the limit: one more frame tells a film that was cut from one that fits.
    is_cut = written == longest and next(film.frames, None) is not None
    difference = None if is_cut else film.difference()
    print(
        f"{path.name}: {written} frames, {written / rate:.1f} s, {path.stat().st_size} bytes{', cut there' if is_cut else ''}"
    )
    if difference:
        print(f"warning: {path.name} is not the evaluated episode: {difference}")
    irregular = film.irregular()
    if irregular:
        print(f"warning: a picture of {path.name} is not what the environment drew: {irregular}")
    return {
        "file": path.name,
        "frames": written,
        "seconds": round(written / rate, 2),
        "cut": is_cut,
        "differs": difference,
        "irregular": irregular,
    }


if __name__ == "__main__":
    end(main())
