"""How a trainer and its workers hold each other up: columns of `resources.csv`, and the replay ratio at
which neither would wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from steps.directory.tables import Cell
from steps.training.shards import Inbox


class Waiting:
    """`steps.training.resources.Measure` of a trainer: how it and its workers hold each other up."""

    def __init__(self, counters: Callable[[], Mapping[str, float]], inbox: Inbox) -> None:
        self._counters, self._inbox = counters, inbox
        self._before = counters()

    def __call__(self, seconds: float) -> dict[str, Cell]:
        """Of so many seconds; shares of time are in percent, refused shards a total."""
        counted, before = self._counters(), self._before
        self._before = counted
        of_now = defaultdict(float, {name: counted[name] - before[name] for name in counted})
        return {
            "trainer_busy_percent": round(100 * busy_share(of_now, seconds), 1),
            "workers_waiting_percent": _rounded(waiting_share(of_now), 100),
            "positions_per_second": round(of_now["positions"] / seconds, 1),
            "balancing_ratio": _rounded(balancing_ratio(of_now, seconds)),
            "refused_shards": self._inbox.refused.total() + int(counted["refused"]),
        }


def busy_share(counted: Mapping[str, float], seconds: float) -> float:
    """Of its time the trainer did not wait for games."""
    return max(0.0, 1 - counted["trainer_waited_s"] / seconds)


def waiting_share(counted: Mapping[str, float]) -> float | None:
    """Of their time workers waited for the trainer; None where none has said anything."""
    of_all_s = counted["workers_waited_s"] + counted["workers_played_s"]
    return counted["workers_waited_s"] / of_all_s if of_all_s else None


def balancing_ratio(counted: Mapping[str, float], seconds: float) -> float | None:
    """The replay ratio at which nobody would wait: how often the trainer could learn from a position in
    the time in which workers that do not wait play another one, less what it does with each besides
    (it takes them in, and saves). None where one of both is not known.
    """
    waiting, positions, learnt = waiting_share(counted), counted["positions"], counted["learnt"]
    busy_s = busy_share(counted, seconds) * seconds
    learning_s = min(counted.get("trainer_learnt_s") or busy_s, busy_s)
    if waiting is None or waiting >= 1 or not learning_s or not positions or not learnt:
        return None
    played_s = (1 - waiting) * seconds / positions
    besides_s = (busy_s - learning_s) / positions
    return max(0.0, (played_s - besides_s) / (learning_s / learnt))


def _rounded(value: float | None, times: float = 1) -> float | None:
    return None if value is None else round(times * value, 2)
