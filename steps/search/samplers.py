"""The ranges and the sampler of a search in Optuna's words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from config.seeds import integer_seed
from config.study import Search

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial


def suggest(trial: Trial, search: Search) -> None:
    """Let the sampler choose each searched parameter of a trial that has no value yet."""
    for name, one in search.parameters.items():
        if name in trial.params:
            continue
        # Optuna would warn of a range that its step does not divide.
        high = one.values()[-1] if one.step else one.high
        if one.choices:
            trial.suggest_categorical(name, one.choices)
        elif one.is_integer:
            step = int(one.step or 1)
            trial.suggest_int(name, int(one.low), int(high), step=step, log=one.is_log)
        else:
            trial.suggest_float(name, one.low, high, step=one.step, log=one.is_log)


def sampler(search: Search, number: int) -> BaseSampler:
    """The sampler that proposes the trial of this number. Each trial is proposed by a process of its own, so
    the seed depends on the trial; for sequences that all trials share it does not.
    """
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    own = integer_seed(search.seed, number, "sampler") % 2**32
    shared = integer_seed(search.seed, 0, "sampler") % 2**32
    made: dict[str, Any] = {
        "tpe": lambda: samplers.TPESampler(seed=own),
        "gp": lambda: samplers.GPSampler(seed=own, warn_independent_sampling=False),
        "cmaes": lambda: samplers.CmaEsSampler(
            seed=own,
            warn_independent_sampling=False,
            consider_pruned_trials=search.prune is not None,
        ),
        "qmc": lambda: samplers.QMCSampler(
            seed=shared, scramble=True, warn_independent_sampling=False
        ),
        "random": lambda: samplers.RandomSampler(seed=own),
        "grid": lambda: samplers.GridSampler(
            {name: one.values() for name, one in search.parameters.items()}, seed=shared
        ),
    }
    with warnings.catch_warnings():
        # Some are called experimental for years.
        warnings.simplefilter("ignore", ExperimentalWarning)
        found: BaseSampler = made[search.sampler]()
    return found
