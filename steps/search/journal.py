"""Optuna's journal of a search: which trials there are, what they were given, and what came of them.

The journal is a file on the shared storage, with the lock that Optuna's documentation gives for NFS. Each step
that changes it is a process of its own, and may be killed anywhere; so what it changes at once, it changes
under a second lock of the same kind, and what it finds half done it completes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, WrongDirectory, on_one_line
from config.study import Search
from steps.directory.search import SearchDirectory
from steps.search.halving import Reached, goes_on, place
from steps.search.samplers import sampler, suggest

if TYPE_CHECKING:
    from optuna.storages import JournalStorage
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial

NAME = "search"
LANE, RUNGS, REASON, FACTS = "lane", "rungs", "reason", "facts"
"""The names under which a trial keeps what only this program knows of it."""
MOST_ATTEMPTS = 5
"""Of one lane at one trial that comes to no end: its directory cannot be prepared, say."""
PROPOSING_S = 60
"""After so many seconds the process that holds the lock of the search is taken for lost."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A trial at a rung. number: from 0; order: the place among all that reached any rung; value: None if no
    episode had ended; rank, of: among those that had reached this rung by then.
    """

    number: int
    epoch: int
    order: int
    value: float | None
    promoted: bool
    rank: int = 0
    of: int = 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the journal says of a trial. state: running, complete, pruned or failed. value: of a complete one.
    lane: the workflow and the lane that have it. attempts: how often that lane was given it. facts: what it cost, see `steps.search.ended`.
    """

    number: int
    state: str
    values: Mapping[str, Any]
    value: float | None
    rungs: tuple[Rung, ...]
    lane: tuple[str, int] | None
    reason: str
    facts: Mapping[str, float]
    attempts: int = field(default=1, compare=False)

    @property
    def has_ended(self) -> bool:
        """Whether it was told."""
        return self.state != "running"


def require_optuna() -> None:
    """Raise `BadInput` if the extra is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise BadInput(
            f"a search needs the extra 'search' ({error}): pip install 'rl-training-dag[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class Journal:
    """The journal of one search. higher_is_better: of the measure of its experiment."""

    def __init__(
        self, directory: SearchDirectory, search: Search, *, higher_is_better: bool
    ) -> None:
        require_optuna()
        import optuna

        self._directory = directory
        self._search = search
        self._maximise = higher_is_better
        directory.search.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._storage = self._open()
            # Even where the study exists, this appends to the journal.
            self._study: OptunaStudy = optuna.create_study(
                study_name=NAME,
                storage=self._storage,
                direction="maximize" if higher_is_better else "minimize",
                load_if_exists=True,
            )

    def _open(self) -> JournalStorage:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = str(self._directory.journal)
        self._cut_torn_line()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                backend = JournalFileBackend(path, lock_obj=JournalFileOpenLock(path))
                return JournalStorage(backend)
            except (ValueError, KeyError) as error:
                raise WrongDirectory(f"{path} cannot be read: {on_one_line(error)}") from error

    def _cut_torn_line(self) -> None:
        """Remove the beginning of a line that a lost machine did not write to its end: Optuna would read
        nothing behind it.
        """
        path = self._directory.journal
        if not path.exists():
            return
        with path.open("rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other process change the search."""
        from optuna.storages.journal import JournalFileOpenLock

        lock = JournalFileOpenLock(str(self._directory.search / "search"), grace_period=PROPOSING_S)
        lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def trials(self) -> list[Trial]:
        """All trials, in their order."""
        return [_trial(one) for one in self._study.get_trials(deepcopy=False)]

    def trial(self, number: int) -> Trial:
        """One trial. Raises `BadInput` if it was never proposed."""
        listed = self.trials()
        if not 0 <= number < len(listed):
            raise BadInput(f"{self._directory.journal} has no trial {number}")
        return listed[number]

    def propose(self, workflow: str, lane: int) -> Trial | None:
        """The trial that a lane has, or takes over from one that is no more; else a new one, or None if all
        are proposed.
        """
        with self._locked():
            running = [one for one in self.trials() if not one.has_ended]
            own = [one for one in running if one.lane == (workflow, lane)]
            # Without a lane: its process was killed before it could say for whom it had asked.
            left = [one for one in running if one.lane is None or one.lane[0] != workflow]
            if own and own[0].attempts >= MOST_ATTEMPTS:
                reason = f"it came to no end in {MOST_ATTEMPTS} attempts"
                self._end(own[0].number, "failed", None, reason, {})
                own = []
            if own or left:
                return self._given_to((own or left)[0].number, workflow, lane)
            count = len(self.trials())
            if count >= self._search.trials:
                return None
            return self._given_to(None, workflow, lane)

    def _given_to(self, number: int | None, workflow: str, lane: int) -> Trial:
        """Give a trial to a lane, or a new one, with values for all parameters: a process that was killed may
        not have come so far.
        """
        from optuna.trial import Trial as Asked

        next_number = len(self.trials())
        self._study.sampler = sampler(self._search, next_number if number is None else number)
        if number is None:
            asked = self._study.ask()
            number = asked.number
        elif self._search.parameters.keys() - self.trial(number).values.keys():
            asked = Asked(self._study, self._id(number))
        else:
            asked = None
        if asked is not None:
            suggest(asked, self._search)
        before = self.trial(number)
        attempts = before.attempts + 1 if before.lane == (workflow, lane) else 1
        self._note(number, LANE, [workflow, lane, attempts])
        return self.trial(number)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _id(self, number: int) -> int:
        return int(self._frozen(number)._trial_id)

    def _note(self, number: int, name: str, value: Any) -> None:
        self._storage.set_trial_user_attr(self._id(number), name, value)

    def judge(self, number: int, rung: int, epoch: int, value: float | None) -> Rung:
        """Whether a trial goes on from a rung. The first answer is kept, however often it is asked for."""
        with self._locked():
            trial = self.trial(number)
            for one in trial.rungs:
                if one.number == rung:
                    return one
            found = self._judged(number, rung, epoch, value)
            if value is not None:
                # For the sampler and for Optuna's own pages, which know nothing of rungs.
                self._storage.set_trial_intermediate_value(self._id(number), epoch, value)
            self._note(number, RUNGS, [asdict(one) for one in (*trial.rungs, found)])
            return found

    def _judged(self, number: int, rung: int, epoch: int, value: float | None) -> Rung:
        before = sorted(
            ((one.order, trial.number, one) for trial in self.trials() for one in trial.rungs),
            key=lambda entry: entry[0],
        )
        prune = self._search.prune
        is_last = prune is None or rung == len(prune.rungs) - 1
        kept: dict[str, Any] = {
            "number": rung,
            "epoch": epoch,
            "order": len(before),
            "value": value,
        }
        if prune is None or is_last or value is None:
            return Rung(**kept, promoted=True)
        last = len(prune.rungs) - 1
        reached = [
            Reached(trial, one.number, one.value)
            for _, trial, one in before
            if one.value is not None and one.number < last
        ]
        reached.append(Reached(number, rung, value))
        promoted = goes_on(reached, reduction=prune.reduction, maximise=self._maximise)[-1]
        rank, of = place(reached, maximise=self._maximise)
        return Rung(**kept, promoted=promoted, rank=rank, of=of)

    def tell(
        self,
        number: int,
        *,
        state: str,
        value: float | None = None,
        reason: str = "",
        facts: Mapping[str, float],
    ) -> Trial:
        """Say how a trial ended, once: what was told before stays."""
        with self._locked():
            if not self.trial(number).has_ended:
                self._end(number, state, value, reason, facts)
            return self.trial(number)

    def _end(
        self, number: int, state: str, value: float | None, reason: str, facts: Mapping[str, float]
    ) -> None:
        from optuna.trial import TrialState

        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
        self._note(number, REASON, reason)
        self._note(number, FACTS, dict(facts))
        self._study.tell(number, value, state=states.get(state, TrialState.FAIL))

    def best(self, count: int) -> list[Trial]:
        """The best trials among those that were trained and evaluated to the end."""
        ended = [one for one in self.trials() if one.state == "complete" and one.value is not None]
        sign = -1 if self._maximise else 1
        return sorted(ended, key=lambda one: (sign * (one.value or 0.0), one.number))[:count]

    def importances(self) -> dict[str, float]:
        """How much of the variation of the values each parameter explains, by Optuna's fANOVA; empty with
        too few trials.
        """
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        if len(self.best(2)) < 2:
            return {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # With a seed, so that the same trials give the same page.
                evaluator = FanovaImportanceEvaluator(seed=self._search.seed % 2**32)
                return dict(get_param_importances(self._study, evaluator=evaluator))
        except (ValueError, RuntimeError) as error:
            print(f"no importance of parameters: {on_one_line(error)}")
            return {}


def _trial(frozen: FrozenTrial) -> Trial:
    own = frozen.user_attrs
    lane = own.get(LANE)
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(
        frozen.state.name, "running"
    )
    return Trial(
        number=frozen.number,
        state=state,
        values=dict(frozen.params),
        value=frozen.value if state == "complete" else None,
        rungs=tuple(Rung(**one) for one in own.get(RUNGS, ())),
        lane=None if lane is None else (str(lane[0]), int(lane[1])),
        attempts=1 if lane is None else int(lane[2]),
        reason=str(own.get(REASON, "")),
        facts=own.get(FACTS, {}),
    )


def in_words(rungs: Sequence[Rung]) -> str:
    """Why a trial was not promoted from its last rung; empty if it was."""
    if not rungs or rungs[-1].promoted:
        return ""
    last = rungs[-1]
    return (
        f"pruned at rung {last.number + 1}, epoch {last.epoch}: {last.value:.5g} is place {last.rank} of "
        f"the {last.of} that had reached it"
    )
