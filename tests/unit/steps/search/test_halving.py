"""Which trials go on: as Optuna's own pruner decides, fed with the same values in the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import optuna
import pytest

from steps.search.halving import Reached, goes_on, place
from tests.stand_in import height

RUNGS = (0.1, 0.3, 1.0)
REDUCTION = 3
EPOCHS = 30
TRIALS = 40


class Asynchronous:
    """Trials with known curves in several lanes, each at a speed of its own."""

    def __init__(self, seed: int, lanes: int) -> None:
        draw = random.Random(seed)
        self.qualities = [draw.random() for _ in range(TRIALS)]
        self.patience = [draw.uniform(1, 6) for _ in range(TRIALS)]
        self.seconds = [draw.uniform(0.5, 2) for _ in range(TRIALS)]
        self.lanes = lanes

    def value(self, trial: int, rung: int) -> float:
        epoch = round(EPOCHS * RUNGS[rung])
        return height(self.qualities[trial], self.patience[trial], epoch)

    def events(self, promoted: dict[tuple[int, int], bool]) -> Iterator[tuple[int, int]]:
        """The trials as they come to the rungs but the last, which is the end. promoted: filled in by the
        reader before it asks for the next one.
        """
        waiting = list(range(TRIALS))
        at = [(self.seconds[trial] * RUNGS[0], trial, 0) for trial in waiting[: self.lanes]]
        del waiting[: self.lanes]
        while at:
            at.sort()
            now, trial, rung = at.pop(0)
            if rung < len(RUNGS) - 1:
                yield trial, rung
                if promoted[trial, rung]:
                    more = self.seconds[trial] * (RUNGS[rung + 1] - RUNGS[rung])
                    at.append((now + more, trial, rung + 1))
                    continue
            if waiting:
                following = waiting.pop(0)
                at.append((now + self.seconds[following] * RUNGS[0], following, 0))


def by_optuna(trials: Asynchronous, *, maximise: bool) -> dict[tuple[int, int], bool]:
    """What Optuna's pruner says, asked as its documentation shows, with rungs at 1, 3, 9."""
    study = optuna.create_study(
        direction="maximize" if maximise else "minimize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION),
    )
    asked = [study.ask() for _ in range(TRIALS)]
    promoted: dict[tuple[int, int], bool] = {}
    for trial, rung in trials.events(promoted):
        asked[trial].report(trials.value(trial, rung), step=REDUCTION**rung)
        promoted[trial, rung] = not asked[trial].should_prune()
        if not promoted[trial, rung]:
            study.tell(asked[trial], state=optuna.trial.TrialState.PRUNED)
    return promoted


def by_us(trials: Asynchronous, *, maximise: bool) -> dict[tuple[int, int], bool]:
    """What `judge` says, which knows only what was written down, each time anew."""
    reached: list[Reached] = []
    promoted: dict[tuple[int, int], bool] = {}
    for trial, rung in trials.events(promoted):
        reached.append(Reached(trial, rung, trials.value(trial, rung)))
        promoted[trial, rung] = goes_on(reached, reduction=REDUCTION, maximise=maximise)[-1]
    return promoted


@pytest.mark.parametrize("maximise", [True, False])
@pytest.mark.parametrize(("seed", "lanes"), [(0, 1), (1, 4), (2, 13)])
def test_the_same_trials_are_pruned_at_the_same_rungs(
    seed: int, lanes: int, maximise: bool
) -> None:
    trials = Asynchronous(seed, lanes)
    expected = by_optuna(trials, maximise=maximise)
    assert by_us(trials, maximise=maximise) == expected
    assert 0 < sum(expected.values()) < len(expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_winner_costs_less_than_half_of_the_steps(seed: int) -> None:
    """Curves that keep their order: the best at the end was the best at the rungs."""
    trials = Asynchronous(seed, 4)
    trials.patience = [3.0] * TRIALS
    promoted = by_us(trials, maximise=True)
    done = 0.0
    complete = []
    for trial in range(TRIALS):
        rung = 0
        while rung < len(RUNGS) - 1 and promoted[trial, rung]:
            rung += 1
        done += RUNGS[rung]
        if rung == len(RUNGS) - 1:
            complete.append(trial)
    best = max(range(TRIALS), key=lambda trial: trials.qualities[trial])
    assert max(complete, key=lambda trial: trials.qualities[trial]) == best
    assert done / TRIALS <= 0.45


def test_the_place_among_those_that_came_before() -> None:
    reached = [Reached(0, 0, 1.0), Reached(1, 0, 3.0), Reached(0, 1, 9.0), Reached(2, 0, 2.0)]
    assert place(reached, maximise=True) == (2, 3)
    assert place(reached, maximise=False) == (2, 3)
    assert place(reached[:3], maximise=True) == (1, 1)
