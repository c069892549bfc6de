"""The contract tests of a trainer and its policy."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from agents.checks.kept_streams import KeptStreams
from agents.checks.promises import Broken, Check
from agents.environments.game_check import check_game
from agents.environments.vectors import make_environments
from agents.evaluation.episodes import Acting
from agents.interfaces import AnyPolicy, Progress, RecurrentPolicy, State, Trainer
from agents.load import load_policy, make_trainer
from agents.states import policy_state
from config.resolved import Resolved

EPOCHS_BEFORE = 2
"""A training is saved after so many epochs, and compared after as many more."""
SPEED_S = 1.0
POLICY_STEPS = 3
"""A policy is asked for so many actions in a row: it may remember."""


class TrainingChecks:
    """The contract tests of a trainer and its policy. `resolved` must have at least 2 x
    EPOCHS_BEFORE epochs.
    """

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.saved: State = {}
        self.saved_policy: State = {}
        self.later = list[Progress]()
        self.saved_streams = KeptStreams()
        self.later_streams = KeptStreams()

    def all(self) -> dict[str, Check]:
        """The checks by the rule that each tries. Later ones build on earlier ones."""
        return {
            "an epoch is what the descriptor says": self.progress,
            "one seed is one training": self.seeds,
            "a state holds what a checkpoint can store": self.state,
            "saved, loaded and continued is the same training": self.resume,
            "a shorter training can go on as a longer one": self.grow,
            "a policy acts in the game's action space": self.policy,
            "a policy's answers are its seeds'": self.policy_seeds,
            "speed": self.speed,
        }

    def progress(self) -> str:
        """Epoch, step, returns and metrics of every epoch."""
        _, seen = self._train(2 * EPOCHS_BEFORE)
        names = list(seen[0].metrics)
        for number, progress in enumerate(seen, 1):
            expected = self.resolved.warm_up_steps + number * self.resolved.steps_per_epoch
            if progress.epoch != number:
                raise Broken(f"epoch {number} calls itself {progress.epoch!r}")
            if progress.step != expected:
                raise Broken(
                    f"after epoch {number} step is {progress.step!r}, the hyperparameters say {expected}"
                )
            if list(progress.metrics) != names:
                raise Broken(f"epoch {number} has metrics {list(progress.metrics)}, not {names}")
            measured = [value for value in progress.metrics.values() if value is not None]
            numbers = [*measured, *progress.returns, *progress.lengths]
            if not all(math.isfinite(value) for value in numbers):
                raise Broken(f"a metric, return or length of epoch {number} is not finite")
            if len(progress.returns) != len(progress.lengths):
                raise Broken(f"epoch {number} has not as many lengths as returns")
        return f"{self.resolved.steps_per_epoch} steps an epoch, metrics {', '.join(names)}"

    def seeds(self) -> str:
        """The same run twice gives equal results; another run gives different ones."""
        first = self._train(EPOCHS_BEFORE)[1]
        again = self._train(EPOCHS_BEFORE)[1]
        if first != again:
            raise Broken(f"the same run trained twice differs: {_difference(first, again)}")
        # A trainer that ignores its run would make all runs one and the same.
        if first == self._train(EPOCHS_BEFORE, run=1)[1]:
            raise Broken("run 1 is the same as run 0: take the seeds from config.seeds")
        return "equal when repeated, other runs differ"

    def state(self) -> str:
        """The state is nested dicts with text keys, arrays, and JSON values; taking it changes
        nothing.
        """
        trainer = self._trainer()
        kept = KeptStreams()
        epochs = _epochs(trainer, kept)
        for _ in range(EPOCHS_BEFORE):
            next(epochs)
        self.saved = trainer.state_dict()
        self.saved_policy = copy.deepcopy(policy_state(trainer))
        _check_leaves(self.saved)
        # The state is copied, because the trainer goes on and may change what it gave.
        self.saved = copy.deepcopy(self.saved)
        self.saved_streams = kept.copy()
        self.later = [next(epochs) for _ in range(EPOCHS_BEFORE)]
        self.later_streams = kept
        trainer.close()
        # This training's state was never taken: taking it must change nothing.
        undisturbed = self._train(2 * EPOCHS_BEFORE)[1][EPOCHS_BEFORE:]
        if self.later != undisturbed:
            raise Broken(
                f"state_dict() changed the training: {_difference(undisturbed, self.later)}"
            )
        streams = f", beside it the streams {', '.join(kept.names)}" if kept.names else ""
        return f"{_size(self.saved):,} bytes{streams}"

    def resume(self) -> str:
        """Another trainer goes on from the state as if nothing had happened."""
        trainer = self._trainer()
        trainer.load_state_dict(copy.deepcopy(self.saved))
        kept = self.saved_streams.copy()
        kept.give(trainer)
        step = self.later[0].step - self._epoch_steps
        if (trainer.epoch, trainer.step) != (EPOCHS_BEFORE, step):
            raise Broken(
                f"load_state_dict() leaves epoch {trainer.epoch}, step {trainer.step}; "
                f"saved were {EPOCHS_BEFORE} and {step}"
            )
        epochs = _epochs(trainer, kept)
        resumed = [next(epochs) for _ in range(EPOCHS_BEFORE)]
        trainer.close()
        if resumed != self.later:
            raise Broken(f"the resumed training differs: {_difference(self.later, resumed)}")
        if different := kept.difference(self.later_streams):
            raise Broken(f"the resumed training adds other rows: {different}")
        return f"equal for {EPOCHS_BEFORE} epochs"

    def grow(self) -> str:
        """A finished training goes on as one that was that long from the start, unless a hyperparameter
        is said to depend on the length.
        """
        tied = self.resolved.tied_to_length
        if tied is None:
            return "not said: tied_to_length is missing, so experiments keep their length"
        if tied:
            return f"no: {', '.join(tied)} depends on the length, as is said"
        shorter = replace(self.resolved.experiment, epochs=EPOCHS_BEFORE)
        trainer = self._trainer(resolved=replace(self.resolved, experiment=shorter))
        kept = KeptStreams()
        for _ in _epochs(trainer, kept):
            pass
        longer = self._trainer()
        longer.load_state_dict(copy.deepcopy(trainer.state_dict()))
        trainer.close()
        kept.give(longer)
        epochs = _epochs(longer, kept)
        grown = [next(epochs) for _ in range(EPOCHS_BEFORE)]
        longer.close()
        if grown != self.later:
            raise Broken(
                f"a training of {EPOCHS_BEFORE} epochs that goes on differs from one of "
                f"{self.resolved.epochs}: {_difference(self.later, grown)}; tied_to_length names the "
                "hyperparameters that depend on the length"
            )
        return f"equal for {EPOCHS_BEFORE} epochs"

    def policy(self) -> str:
        """Greedy and sampled; a snapshot holds all that the policy needs."""
        policy, observations = self._policy_and_observations()
        self._check_snapshot(policy, observations)
        environments = make_environments(self.resolved, 1)
        space = environments.single_action_space
        environments.close()
        for sample in (False, True):
            for actions in _acted(policy, observations, sample):
                if len(actions) != len(observations):
                    raise Broken(f"{len(observations)} observations got {len(actions)} actions")
                for action in actions:
                    if not space.contains(_as_taken(action, space)):
                        raise Broken(f"the action {action!r} is not in {space}")
        return str(space)

    def _check_snapshot(self, policy: AnyPolicy, observations: np.ndarray) -> None:
        """Compare the policy of the whole state with that of a snapshot."""
        try:
            snapshot = load_policy(self.resolved, copy.deepcopy(self.saved_policy))
        except KeyError as error:
            raise Broken(f"the policy reads {error}, which is not in policy_entries") from error
        for sample in (False, True):
            expected = _acted(policy, observations, sample)
            if not all(map(np.array_equal, expected, _acted(snapshot, observations, sample))):
                raise Broken(
                    "a policy of policy_entries alone acts otherwise than that of the state"
                )

    def policy_seeds(self) -> str:
        """The same seeds give the same actions, and no row depends on another one's."""
        policy, observations = self._policy_and_observations()
        # The first row is the same, the rows beside it are others.
        other = observations[::-1] + np.asarray(10, observations.dtype)
        other[0] = observations[0]
        for sample in (False, True):
            first = np.stack(_acted(policy, observations, sample))
            again = np.stack(_acted(policy, observations, sample))
            beside_others = np.stack(_acted(policy, other, sample))
            how = "sampled" if sample else "greedy"
            if not np.array_equal(first, again):
                raise Broken(f"the {how} actions of the same observations and seeds differ")
            if not np.array_equal(first[:, 0], beside_others[:, 0]):
                raise Broken(f"a {how} action depends on the other observations of its batch")
        if isinstance(policy, RecurrentPolicy):
            _check_reset(policy, observations)
            return "greedy and sampled actions repeat, and a reset clears what is remembered"
        return "greedy and sampled actions repeat"

    def speed(self) -> str:
        """Environment steps a second in training."""
        trainer = self._trainer()
        epochs = _epochs(trainer, KeptStreams())
        next(epochs)
        started_s = time.perf_counter()
        steps = 0
        for _ in range(2 * EPOCHS_BEFORE - 1):
            next(epochs)
            steps += self._epoch_steps
            if time.perf_counter() - started_s > SPEED_S:
                break
        trainer.close()
        return f"{steps / (time.perf_counter() - started_s):,.0f} environment steps/s"

    @property
    def _epoch_steps(self) -> int:
        return self.resolved.steps_per_epoch

    def _trainer(self, run: int = 0, resolved: Resolved | None = None) -> Trainer:
        chosen = resolved or self.resolved
        return make_trainer(chosen, run=run, device="cpu", precision="fp32")

    def _train(self, epochs: int, run: int = 0) -> tuple[Trainer, list[Progress]]:
        trainer = self._trainer(run)
        if (trainer.epoch, trainer.step) != (0, 0):
            raise Broken(f"a new trainer has epoch {trainer.epoch!r} and step {trainer.step!r}")
        seen = []
        for progress in _epochs(trainer, KeptStreams()):
            seen.append(progress)
            if len(seen) == epochs:
                break
        trainer.close()
        if len(seen) < epochs:
            raise Broken(
                f"train() ends after {len(seen)} of {self.resolved.epochs} epochs; one Progress each"
            )
        return trainer, seen

    def _policy_and_observations(self) -> tuple[AnyPolicy, np.ndarray]:
        spaces = check_game(self.resolved)
        generator = np.random.default_rng(0)
        shape = (4, *spaces.environment_shape)
        observations = generator.uniform(0, 1, shape).astype(np.float32)
        if spaces.image:
            observations = generator.integers(0, 256, shape).astype(np.uint8)
        return load_policy(self.resolved, copy.deepcopy(self.saved)), observations


def _epochs(trainer: Trainer, kept: KeptStreams) -> Iterator[Progress]:
    """Train as the steps do: the streams' growth is taken after every epoch."""
    for progress in trainer.train():
        kept.take(trainer)
        yield progress


def _acted(policy: AnyPolicy, observations: np.ndarray, sample: bool) -> list[np.ndarray]:
    """The actions of POLICY_STEPS steps from new episodes and the same seeds on."""
    policy.seed(range(len(observations)))
    acting = Acting(policy, len(observations))
    return [np.asarray(acting.act(observations, sample=sample)) for _ in range(POLICY_STEPS)]


def _check_reset(policy: RecurrentPolicy, observations: np.ndarray) -> None:
    """Check that an episode begins the same way whatever came before it, by the memory after its
    first step.
    """
    begins = np.ones(len(observations), np.bool_)
    first = policy.first_state(len(observations))
    _, state = policy.act(observations, first, begins, sample=False)
    _, fresh = policy.act(observations, first, begins, sample=False)
    _, again = policy.act(observations, state, begins, sample=False)
    if not all(map(np.array_equal, fresh, again)):
        raise Broken("what is remembered after a reset depends on what was before it")


def _as_taken(action: Any, space: Any) -> Any:
    """The action as the environment gets it: an integer of its space's type, or an array."""
    if isinstance(action, np.integer | int) and space.dtype is not None:
        return np.dtype(space.dtype).type(action)
    return np.asarray(action, space.dtype)


def _difference(expected: list[Progress], found: list[Progress]) -> str:
    """The first field that differs, in words."""
    for before, after in zip(expected, found, strict=False):
        for name in ("step", "returns", "lengths", "metrics"):
            one = getattr(before, name)
            other = getattr(after, name)
            if one != other:
                return f"{name} of epoch {before.epoch}"
    return "the number of epochs"


def _check_leaves(state: Any, path: str = "state_dict()") -> None:
    if isinstance(state, dict):
        for name, value in state.items():
            if not isinstance(name, str) or "/" in name:
                raise Broken(f"{path} has the key {name!r}; allowed: text without a slash")
            _check_leaves(value, f"{path}[{name!r}]")
    elif isinstance(state, list):
        for value in state:
            if isinstance(value, np.ndarray):
                raise Broken(f"{path} is a list with an array in it; allowed: a dict of arrays")
            _check_leaves(value, f"{path}[…]")
    elif not isinstance(state, np.ndarray | np.generic | str | int | float | bool | None):
        raise Broken(
            f"{path} is a {type(state).__name__}; allowed: dict, numpy.ndarray, list, text, number, "
            "true, false, None (agents.states.to_arrays makes them of torch's)"
        )


def _size(state: Any) -> int:
    if isinstance(state, dict):
        return sum(_size(value) for value in state.values())
    return state.nbytes if isinstance(state, np.ndarray) else 8
