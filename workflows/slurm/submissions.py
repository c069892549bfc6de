"""Submits pods, equal ones together as arrays, and never one of them twice.

A submission is written down before it is made, with a name that no other has. If sbatch fails, does not
answer, or the engine is killed before it has noted the id, the job may have arrived or not: it is looked
up by its name before it is submitted again. An array that did not arrive is submitted again as two, for
the queue may have no room for so many jobs, or the site may limit arrays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from config.errors import ExperimentError
from workflows.local.errors import PodError
from workflows.slurm.commands import Controller, Listing, base_of
from workflows.slurm.errors import SlurmError
from workflows.slurm.records import Batch, Record

TOGETHER_S = 0.1
"""Pods that become due within this time may form an array."""
MOST_PATIENCE_S = 5.0
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0
STOPPED = "the workflow stopped before the job was submitted"
MOST_REFUSALS = 6
"""Before the workflow began, Slurm would have taken the job: a refusal may come from a controller that was just
started and has not heard of its nodes yet. So many take a minute.
"""
LOOKS = 2
"""A submission that is missing in so many listings, asked for after it was made, has not arrived."""


def patience_s(max_jobs: int) -> float:
    """How long a pod may wait for others that had to wait for a place among so many jobs: while most of
    them are still in the queue, nothing is lost by larger arrays.
    """
    return TOGETHER_S + min(MOST_PATIENCE_S, max_jobs / 20)


class _NoRoom(Exception):
    """An array has not arrived and is forgotten: its pods are due again, in smaller arrays."""


@dataclass
class Due:
    """A pod's job that is to be submitted. kind: only pods of the same kind form an array.

    order: writes what the job reads, for a batch and an index. within_s: how long it may wait for others.
    noted: is told the id, or why there is none.
    """

    key: str
    kind: str
    options: Sequence[str]
    order: Callable[[str, int], None]
    wanted: Callable[[], bool]
    within_s: float = TOGETHER_S
    noted: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Submissions:
    """All submissions of a workflow. suffix: makes their names unique among workflows. next_listing:
    waits for a listing of the queue that is asked for from now on. write_script: the script of a batch.
    """

    def __init__(
        self,
        record: Record,
        controller: Controller,
        *,
        suffix: str,
        array_size: int,
        script: Callable[[str], str],
        next_listing: Callable[[], asyncio.Future[Listing]],
        notice: Callable[[str], None],
    ) -> None:
        self._record = record
        self._controller = controller
        self._suffix = suffix
        self._array_size = self._largest = array_size
        self._script = script
        self._next_listing = next_listing
        self._notice = notice
        self._due: list[Due] = []
        self._soon: asyncio.TimerHandle | None = None
        self._sending: dict[str, asyncio.Task[str]] = {}
        self._one_at_a_time = asyncio.Lock()
        self.batches = {key: batch for batch in record.batches() for key in batch.keys}

    async def id_of(self, due: Due) -> str:
        """The id of a pod's job, submitted now unless an earlier engine has done so. Raises `PodError`
        if Slurm refuses it.
        """
        batch = self.batches.get(due.key)
        if batch is None:
            self._due.append(due)
            self._send_within(due.within_s)
            return await asyncio.shield(due.noted)
        try:
            if not batch.job:
                await self._sent(batch, [due], is_unsure=True)
        except _NoRoom:
            return await self.id_of(due)
        return batch.id_of(due.key)

    def _send_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._soon is not None and self._soon.when() <= loop.time() + seconds:
            return
        if self._soon is not None:
            self._soon.cancel()
        self._soon = loop.call_later(seconds, self._send_due)

    def _send_due(self) -> None:
        """Form batches of what is due, and send them."""
        self._soon = None
        groups: dict[tuple[str, ...], list[Due]] = {}
        for one in self._due:
            if one.wanted():
                groups.setdefault((one.kind, *one.options), []).append(one)
            else:
                one.noted.set_exception(PodError(STOPPED))
                one.noted.exception()
        self._due = []
        for group in groups.values():
            for begin in range(0, len(group), self._array_size):
                part = group[begin : begin + self._array_size]
                task = asyncio.ensure_future(self._submit(part))
                self._sending[part[0].key] = task

    async def _submit(self, group: Sequence[Due]) -> str:
        # The size tells a smaller array from a larger one that was given up and arrives after all.
        size = f".x{len(group)}" if len(group) > 1 else ""
        name = f"{group[0].key}{size}.{self._suffix}"
        batch = Batch(name, [one.key for one in group], group[0].options, self._script(name))
        try:
            for index, one in enumerate(group):
                one.order(name, index)
            self._record.write_batch(batch)
            self.batches |= dict.fromkeys(batch.keys, batch)
            await self._sent(batch, group, is_unsure=False)
        except _NoRoom:
            self._due += group
            self._send_within(0.0)
            return ""
        except (PodError, OSError, ExperimentError) as error:
            for one in group:
                if not one.noted.done():
                    one.noted.set_exception(PodError(str(error)))
                    one.noted.exception()
            return ""
        for one in group:
            if not one.noted.done():
                one.noted.set_result(batch.id_of(one.key))
        return batch.job

    async def _sent(self, batch: Batch, group: Sequence[Due], *, is_unsure: bool) -> None:
        """Have a batch submitted, once, whoever asks first."""
        task = self._sending.get(batch.name)
        if task is None:
            task = asyncio.ensure_future(self._send(batch, group, is_unsure=is_unsure))
            self._sending[batch.name] = task
        await asyncio.shield(task)

    async def _send(self, batch: Batch, group: Sequence[Due], *, is_unsure: bool) -> str:
        wait_s = FIRST_WAIT_S
        is_too_large = False
        refusals = 0
        while True:
            if is_unsure and (found := await self._look_up(batch)):
                batch.job = found
                break
            if is_too_large:
                self._array_size = max(1, len(batch.keys) // 2)
                self._forget(batch)
                raise _NoRoom
            if not any(one.wanted() for one in group):
                self._forget(batch)
                raise PodError(STOPPED)
            try:
                async with self._one_at_a_time:
                    batch.job = await self._controller.submit(self._options(batch), batch.script)
                break
            except SlurmError as error:
                refusals += error.is_permanent
                if refusals >= MOST_REFUSALS:
                    self._forget(batch)
                    raise PodError(f"Slurm refuses the job: {error}") from None
                self._notice(f"{batch.name} is not submitted yet: {error}")
                is_unsure = True
                is_too_large = len(batch.keys) > 1 and not (
                    error.is_unreachable or error.is_permanent
                )
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        # Without the note another engine looks the job up by its name.
        with contextlib.suppress(OSError, ExperimentError):
            self._record.write_batch(batch)
        self._array_size = min(self._largest, max(self._array_size, 2 * len(batch.keys)))
        return batch.job

    def _options(self, batch: Batch) -> list[str]:
        array = [f"--array=0-{len(batch.keys) - 1}"] if len(batch.keys) > 1 else []
        return [f"--job-name={batch.name}", *array, *batch.options]

    def _forget(self, batch: Batch) -> None:
        self._record.forget_batch(batch)
        self._sending.pop(batch.name, None)
        for key in batch.keys:
            self.batches.pop(key, None)

    async def _look_up(self, batch: Batch) -> str:
        """The id of a submission that may have arrived; empty if it has not. If it arrived twice, the
        later one is cancelled; its jobs would find the pods claimed.
        """
        for _ in range(LOOKS):
            found = (await self._next_listing()).named(batch.name)
            claimed = self._claimed(batch)
            if claimed or found:
                chosen = claimed or found[0]
                if others := [one for one in found if one != base_of(chosen)]:
                    with contextlib.suppress(SlurmError):
                        await self._controller.cancel(others)
                return chosen
        return ""

    def _claimed(self, batch: Batch) -> str:
        claims = filter(None, (self._record.claim(key) for key in batch.keys))
        is_array = len(batch.keys) > 1
        return next((base_of(job) if is_array else job for job, _ in claims), "")
