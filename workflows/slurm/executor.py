"""Runs pods as jobs of Slurm: an executor of the local engine.

Jobs write into the shared directory that they have begun and ended, and the executor looks there every
quarter of a second. It asks Slurm at most once in two seconds, and follows its answer wherever a pod did not
end by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.errors import ExperimentError, WrongDirectory
from config.slurm import Slurm
from steps.directory import owner
from workflows.local.errors import LostPod, PodError
from workflows.local.executor import End, Order, Room
from workflows.slurm import job as job_program
from workflows.slurm import scripts, states
from workflows.slurm.commands import Controller, Listed, Listing
from workflows.slurm.errors import SlurmError
from workflows.slurm.records import Record, Said, Verdict, key_of
from workflows.slurm.submissions import TOGETHER_S, Due, Submissions, patience_s

LOOK_S = 0.25
BEAT_S = owner.LEASE_S / owner.HEARTBEATS_PER_LEASE
SURE_AFTER = 2
"""Listings that must agree before a pod that did not end by itself is given up."""
NEVER_RAN_S = 5.0
"""How long to wait for the end of a job that probably never ran."""
CLOSING_S = 90.0
LAUNCH_FAILED = "LAUNCH_FAILED"


@dataclass(eq=False)
class Job:
    """A pod, over all the jobs in which it runs. link: how many of its jobs came before the present one.
    id: Slurm's, of the present one. noted_s: since when this id is known. unseen, ended_seen: listings in a
    row that did not have the job, or had it as ended.
    """

    owner: OnSlurm
    order: Order
    link: int = 0
    id: str = ""
    noted_s: float = float("inf")
    began: datetime.datetime | None = None
    is_wanted: bool = True
    is_killed: bool = False
    unseen: int = 0
    ended_seen: int = 0
    is_judged: bool = False
    holds_place: bool = False
    has_waited: bool = False
    running: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    ended: asyncio.Future[End] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def key(self) -> str:
        """The key of the present job."""
        return key_of(self.order.pod, self.link)

    def release(self) -> None:
        """Do nothing: the place in the queue is given back when the job has ended, which may be later."""

    async def wait(self) -> End:
        """Wait for its end. Raises `LostPod`."""
        return await asyncio.shield(self.ended)

    def signal(self, number: signal.Signals) -> None:
        """Ask it to save and end, or end it for good."""
        self.is_wanted = False
        self.owner.instruct(self, number)

    def runs(self) -> None:
        """Note that it has begun."""
        if not self.running.done():
            self.running.set_result(None)

    def ends(self, end: End | PodError) -> None:
        """Note its end."""
        self.runs()
        if self.ended.done():
            return
        if isinstance(end, End):
            self.ended.set_result(end)
        else:
            self.ended.set_exception(end)
            self.ended.exception()  # nobody may be waiting


class OnSlurm:
    """An `Executor`. record: the workflow's folder, made by the caller, who also holds its lock under
    `lock`. storage: what pods see as the mount.
    """

    def __init__(
        self,
        slurm: Slurm,
        record: Record,
        *,
        uid: str,
        storage: Path,
        lock: str,
        notice: Callable[[str], None],
    ) -> None:
        self._slurm = slurm
        self._record = record
        self._uid = uid
        self._storage = storage
        self._lock = lock
        self._notice = notice
        self._said: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self._instructions: dict[Job, signal.Signals] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listings: list[asyncio.Future[Listing]] = []

    async def open(self) -> None:
        """Read what an earlier engine has left, and begin to follow."""
        self._controller = Controller(self._slurm.answer)
        self._places = asyncio.Semaphore(self._slurm.max_jobs)
        self._submissions = Submissions(
            self._record,
            self._controller,
            suffix=self._uid[:8],
            array_size=self._slurm.array_size,
            script=lambda name: scripts.script(self._slurm, self._record.root, name),
            next_listing=self._next_listing,
            notice=self._notice,
        )
        self._record.closed.unlink(missing_ok=True)
        for loop in (self._watch_files, self._watch_queue, self._instruct, self._beat):
            self._spawn(self._kept(loop))

    async def close(self) -> None:
        """Cancel the jobs that are left, which are none unless the workflow was ended by force or by a
        defect.
        """
        left = [job for job in self._jobs.values() if not job.ended.done()]
        for job in left:
            job.signal(signal.SIGKILL)
        if left:
            _, unended = await asyncio.wait([job.ended for job in left], timeout=CLOSING_S)
            if unended:
                self._record.closed.touch()
                self._notice(
                    f"{len(unended)} jobs may still be in Slurm's queue; none of them begins its work"
                )
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def folder(self, pod: str) -> Path:
        """The pod's folder, on the shared directory."""
        return self._record.folder(pod)

    def fields(self, pod: str) -> Mapping[str, str]:
        """Placeholders for what only the node knows; the job replaces them there."""
        return {
            "spec.nodeName": job_program.NODE,
            "status.hostIP": job_program.ADDRESS,
            "status.podIP": job_program.ADDRESS,
        }

    def scratch(self, pod: str) -> Path | None:
        """The pod's folder for temporary files, on the node."""
        return scripts.scratch(self._slurm, self._uid, pod)

    async def remove(self, pod: str) -> None:
        """Do nothing: the outputs stay, because an engine that goes on reads them again."""

    async def room(self, order: Order) -> Job:
        """Submit the pod and wait until its job has begun, or, if an earlier engine has seen its end,
        until that is known.
        """
        job = Job(self, order)
        try:
            await self._find_link(job)
            if not job.ended.done():
                job.has_waited = self._places.locked()
                if job.has_waited:
                    order.tell(f"waiting: {self._slurm.max_jobs} jobs are in the queue")
                await self._places.acquire()
                job.holds_place = True
                job.ended.add_done_callback(lambda _: self._leave(job))
                self._jobs[order.pod] = job
                order.tell("")
                self._spawn(self._of(job, self._submit(job)))
                await asyncio.shield(job.running)
        except asyncio.CancelledError:
            if job.holds_place:
                job.signal(signal.SIGKILL)
            raise
        if job.ended.done():
            job.ended.result()  # a refusal by Slurm is an error of the pod
        return job

    async def start(self, order: Order, room: Room) -> Job:
        """The job that has begun."""
        if not isinstance(room, Job):
            raise TypeError("a room of another executor")
        order.tell("")
        return room

    def instruct(self, job: Job, number: signal.Signals) -> None:
        """Have a job signalled soon, together with others."""
        if not job.ended.done() and self._instructions.get(job) is not signal.SIGKILL:
            self._instructions[job] = number

    async def _find_link(self, job: Job) -> None:
        """Skip the jobs of this pod that an earlier engine saw end."""
        while (verdict := self._record.verdict(job.key)) is not None:
            self._began(job)
            if verdict.kind != "next":
                self._end(job, verdict)
                return
            job.link += 1

    def _began(self, job: Job) -> None:
        claim = self._record.claim(job.key)
        if claim is not None:
            job.id, began = claim
            job.began = job.began or began

    async def _submit(self, job: Job) -> None:
        order = job.order
        scratch = scripts.scratch(self._slurm, self._uid, order.pod)
        key = job.key
        content = scripts.order_of(order, job.link, self._slurm, scratch, self._storage)
        due = Due(
            key,
            order.template,
            scripts.options(order, self._slurm),
            lambda batch, index: self._record.write_order(batch, index, content),
            lambda: job.is_wanted,
            within_s=patience_s(self._slurm.max_jobs) if job.has_waited else TOGETHER_S,
        )
        job.noted_s = float("inf")
        job.id = ""
        job.unseen = job.ended_seen = 0
        job.is_judged = False
        try:
            job.id = await self._submissions.id_of(due)
            job.noted_s = time.monotonic()
        except (PodError, OSError, ExperimentError) as error:
            job.ends(error if isinstance(error, PodError) else PodError(str(error)))

    def _leave(self, job: Job) -> None:
        self._places.release()
        self._instructions.pop(job, None)
        self._jobs.pop(job.order.pod, None)

    def _next_listing(self) -> asyncio.Future[Listing]:
        future: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
        self._listings.append(future)
        return future

    async def _watch_files(self) -> None:
        while True:
            claims = self._record.names_in("claims")
            ends = self._record.names_in("ends")
            for job in list(self._jobs.values()):
                if job.id and not job.is_judged:
                    if job.key in claims and not job.running.done():
                        self._began(job)
                        job.runs()
                    said = self._record.said(job.key) if job.key in ends else None
                    if said is not None and states.is_final(said):
                        self._judge(job, None, said)
            await asyncio.sleep(LOOK_S)

    async def _watch_queue(self) -> None:
        while True:
            if not self._jobs and not self._listings:
                await asyncio.sleep(LOOK_S)
                continue
            waiting, self._listings = self._listings, []
            try:
                listing = await self._controller.listing()
            except SlurmError as error:
                self._listings = waiting + self._listings
                self._say("queue", f"the queue cannot be read: {error}; running jobs go on")
                continue
            self._say("queue", "")
            for future in waiting:
                if not future.done():
                    future.set_result(listing)
            for job in list(self._jobs.values()):
                if job.id and not job.is_judged and job.noted_s < listing.begun_s:
                    self._seen(job, listing.jobs.get(job.id))

    def _say(self, topic: str, text: str) -> None:
        """Tell the person something, once as long as it stays so."""
        if text and text != self._said.get(topic):
            self._notice(text)
        self._said[topic] = text

    def _seen(self, job: Job, listed: Listed | None) -> None:
        """Take what a listing says of a job."""
        is_held = listed is not None and bool(states.HELD.search(listed.reason))
        if listed is not None and listed.state not in states.ENDED and not is_held:
            job.unseen = job.ended_seen = 0
            if listed.state in states.RUNNING:
                job.runs()
                job.order.tell("")
            else:
                reason = "" if listed.reason in ("None", "") else f": {listed.reason}"
                again = ", to begin again" if job.running.done() else ""
                job.order.tell(f"in Slurm's queue as {job.id}{again}{reason}")
            return
        if listed is None:
            job.unseen += 1
        else:
            job.ended_seen += 1
        if max(job.unseen, job.ended_seen) >= SURE_AFTER:
            job.is_judged = True
            state = None if listed is None else listed.state.partition(" ")[0]
            self._spawn(self._of(job, self._decide(job, LAUNCH_FAILED if is_held else state)))

    async def _decide(self, job: Job, state: str | None) -> None:
        """Judge a job that Slurm calls ended, or does not know any more. What it left may be late."""
        exit_code = None
        claim = self._record.claim(job.key)
        if claim is not None and claim[0] != job.id:  # a submission that arrived late runs the pod
            job.id = claim[0]
            job.unseen = job.ended_seen = 0
            job.is_judged = False
            return
        if state == LAUNCH_FAILED:
            await self._controller.cancel([job.id])
        said = self._record.said(job.key)
        patience_s: float = self._slurm.late
        if said is None and state == "FAILED":
            exit_code = await self._controller.exit_code(job.id)
        if said is None and state is None:
            known = await self._controller.accounted(job.id)
            state, exit_code = (None, None) if known is None else known
        has_run = self._record.claim(job.key) is not None
        if not has_run and (state in states.NEVER_RAN or exit_code not in (None, (0, 0))):
            patience_s = min(patience_s, NEVER_RAN_S)
        if job.is_killed:  # it leaves no end
            patience_s = min(patience_s, NEVER_RAN_S)
        if not job.is_wanted and not has_run:
            patience_s = 0.0
        ends_s = time.monotonic() + patience_s
        while said is None and time.monotonic() < ends_s:
            await asyncio.sleep(LOOK_S)
            said = self._record.said(job.key)
        self._judge(job, state, said, exit_code)

    def _judge(
        self,
        job: Job,
        state: str | None,
        said: Said | None,
        exit_code: tuple[int, int] | None = None,
    ) -> None:
        job.is_judged = True
        verdict = states.judge(state, said, exit_code)
        if verdict.kind == "next" and not job.is_wanted:
            verdict = Verdict("ended", verdict.code, at=verdict.at)
        try:
            self._record.write_verdict(job.key, verdict)
        except (OSError, ExperimentError) as error:
            self._say("verdict", f"the end of {job.key} cannot be noted yet: {error}")
            job.is_judged = False
            return
        self._say("verdict", "")
        self._began(job)
        if verdict.kind == "next":
            job.link += 1
            self._spawn(self._of(job, self._submit(job)))
        else:
            self._end(job, verdict)

    def _end(self, job: Job, verdict: Verdict) -> None:
        if verdict.kind == "lost":
            job.ends(LostPod(verdict.message))
        else:
            job.ends(End(code=verdict.code, message=verdict.message, at=verdict.at))

    async def _instruct(self) -> None:
        """Carry out what `instruct` asked for. It is repeated until Slurm can be reached."""
        while True:
            due = {job: number for job, number in self._instructions.items() if job.id}
            killed = [job.id for job, number in due.items() if number is signal.SIGKILL]
            asked = [job.id for job, number in due.items() if number is not signal.SIGKILL]
            try:
                await self._controller.terminate(asked)
                await self._controller.kill(killed)
            except SlurmError as error:
                self._say("signals", f"jobs cannot be signalled yet: {error}")
                await asyncio.sleep(1.0)
            else:
                self._say("signals", "")
                for job, number in due.items():
                    job.is_killed = job.is_killed or number is signal.SIGKILL
                    if self._instructions.get(job) is number:
                        del self._instructions[job]
            await asyncio.sleep(LOOK_S)

    async def _beat(self) -> None:
        """Keep the engine's lease. An engine that was displaced ends at once: its jobs are another's."""
        while True:
            with contextlib.suppress(OSError):
                try:
                    owner.touch(self._record.engine_json, self._lock)
                except WrongDirectory as error:
                    print(f"failed: another engine has taken over: {error}", file=sys.stderr)
                    sys.stderr.flush()
                    os._exit(WrongDirectory.exit_code)
            await asyncio.sleep(BEAT_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kept(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat a loop for ever. If it fails for a reason that nobody expected, all jobs are given up, so
        that the workflow does not wait for ever.
        """
        while True:
            try:
                await loop()
            except Exception as error:
                for job in list(self._jobs.values()):
                    await self._lose(job, error)
            await asyncio.sleep(LOOK_S)

    async def _of(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        """Do the work for one job, which is given up if the work fails for a reason that nobody expected."""
        try:
            await work
        except Exception as error:
            await self._lose(job, error)

    async def _lose(self, job: Job, error: Exception) -> None:
        """Give a job up. It must not run beside the pod's next attempt."""
        if job.id:
            with contextlib.suppress(SlurmError):
                await self._controller.kill([job.id])
        job.ends(LostPod(f"defect of the executor: {type(error).__name__}: {error}"))
