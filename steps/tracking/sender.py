"""Sends one run to one tracker: what is new, each time it is asked, and each row once."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from config.errors import Unsent, on_one_line
from config.tracking import SECRETS
from steps.directory.experiment import ExperimentRecord
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.tracking.hyperparameters import hyperparameters
from steps.tracking.journal import (
    Journal,
    Segment,
    Sent,
    journal_path,
    read_journal,
    write_journal,
)
from steps.tracking.sink import (
    Row,
    Sink,
    TrackedRun,
    load,
    refuse_among_results,
    without_credentials,
)
from steps.tracking.sources import Line, Source, files, has_changed, lines, sent_as, sources, sum_of

ROWS_AT_ONCE = 1000
LONGEST_REASON = 300


class Sender:
    """One run and one tracker. permitted: raises if another process writes the journal now. say: prints
    a line. moved_s: when the tracker last took something, on the monotonic clock.
    """

    def __init__(
        self,
        tracker: str,
        directory: ExperimentDirectory,
        run: RunDirectory,
        record: ExperimentRecord,
        permitted: Callable[[], None],
        say: Callable[[str], None] = print,
    ) -> None:
        refuse_among_results(tracker, directory.root)
        self.tracker = tracker
        self.run = run
        self.moved_s = time.monotonic()
        self._directory = directory
        self._record = record
        self._permitted = permitted
        self._say = say
        self._path = journal_path(run, tracker)
        self._journal = read_journal(self._path) or Journal(id=run_id(record, run.index))
        self._sink: Sink | None = None
        self._changed: dict[str, bool] = {}

    @property
    def sent(self) -> dict[str, int]:
        """How many rows and files have arrived."""
        return {"rows": self._journal.confirmed, "files": len(self._journal.files)}

    @property
    def destination(self) -> str:
        """Where it was sent; empty before."""
        return self._journal.destination

    def is_complete(self) -> bool:
        """Whether the tracker has all there is. Asks the files, and not the tracker. Raises `Unsent` if
        the tracker cannot even say where it would send to.
        """
        journal = self._journal
        if not journal.finished:
            return False
        with self._of_tracker():
            destination = load(self.tracker)().destination()
        return (
            journal.destination == destination
            and journal.confirmed == journal.numbered
            and not any(self._unsent_lines(source) for source in self._sources())
            and all(journal.files.get(name) == sum_of(path) for name, path in self._files())
        )

    def send(self, *, last: bool) -> None:
        """Send what is new. last: also the files, and close the run. Raises `Unsent` if the tracker
        fails; the next call then starts again with what may be missing.
        """
        try:
            sink = self._started()
            self._send_again(sink)
            for source in self._sources():
                self._send_new(source, sink)
            if last:
                self._send_files(sink)
                with self._of_tracker():
                    sink.finish()
                self._sink = None
                self._journal.finished = True
                self._save()
        except Unsent:
            self._sink = None
            raise

    def _started(self) -> Sink:
        if self._sink is None:
            with self._of_tracker():
                sink = load(self.tracker)()
                destination = sink.destination()
            if destination != self._journal.destination:
                self._journal.go_to(destination)
            self.run.tracking.mkdir(exist_ok=True)
            with self._of_tracker():
                known = sink.start(self._described())
            if known is not None:
                if known < self._journal.confirmed:
                    self._journal.files.clear()  # the tracker lost what it was given
                self._journal.confirmed = min(known, self._journal.numbered)
            self._save()
            self._sink = sink
        return self._sink

    def _described(self) -> TrackedRun:
        group = self._directory.root.name
        resolved = self._record.resolved
        return TrackedRun(
            id=self._journal.id,
            name=f"{group}/{self.run.index}",
            group=group,
            hyperparameters={"algorithm": resolved.algorithm, **hyperparameters(resolved)},
            folder=self.run.tracking,
            next_step=self._next_step(),
        )

    def _next_step(self) -> int:
        """The step of the first row of the training that has not certainly arrived; one more than the
        last one's if all have.
        """
        first = self._journal.tables.get("train", Sent()).rows
        for _, segment in self._journal.unconfirmed():
            if segment.group == "train":
                first = min(first, segment.first)
        (train,) = (source for source in self._sources() if source.group == "train")
        step = -1
        for index, line in enumerate(lines(train)):
            if index >= first:
                return line.step
            step = line.step
        return step + 1

    def _send_again(self, sink: Sink) -> None:
        """Send the rows that were under way when an earlier attempt ended."""
        by_group = {source.group: source for source in self._sources()}
        for number, segment in self._journal.unconfirmed():
            source = by_group[segment.group]
            if not self._has_changed(source):
                for part in _batches(_rows_of(source, segment), ROWS_AT_ONCE):
                    rows = _numbered(part, segment.group, number)
                    self._take(lambda rows=rows: sink.rows(rows))  # type: ignore[misc]
                    number += len(part)
            self._journal.confirmed = max(self._journal.confirmed, number)
        self._confirm()

    def _send_new(self, source: Source, sink: Sink) -> None:
        before = self._journal.tables.get(source.group, Sent())
        if self._has_changed(source):
            return
        for part in _batches(lines(source, before.bytes), ROWS_AT_ONCE):
            sent = self._journal.tables.get(source.group, Sent())
            end = part[-1].end
            first = self._journal.numbered
            self._journal.extend(
                source.group,
                Sent(rows=sent.rows + len(part), bytes=end, sha256=sum_of(source.path, end)),
            )
            self._save()
            rows = _numbered(part, source.group, first)
            self._take(lambda rows=rows: sink.rows(rows))  # type: ignore[misc]
            self._confirm()

    def _send_files(self, sink: Sink) -> None:
        for name, path in self._files():
            content = sum_of(path)
            if self._journal.files.get(name) != content:
                self._take(lambda path=path, name=name: sink.file(path, name))  # type: ignore[misc]
                self._journal.files[name] = content
                self._save()

    def _take(self, send: Callable[[], None]) -> None:
        with self._of_tracker():
            send()
        self.moved_s = time.monotonic()

    def _confirm(self) -> None:
        if self._journal.confirmed != self._journal.numbered:
            self._journal.confirmed = self._journal.numbered
            self._save()

    def _save(self) -> None:
        write_journal(self._path, self._journal, self._permitted)

    def _sources(self) -> list[Source]:
        return sources(self.run, self._record.resolved)

    def _files(self) -> list[tuple[str, Path]]:
        listed = files(self._directory, self.run, self._record.resolved)
        return [(sent_as(path, self._directory, self.run), path) for path in listed]

    def _unsent_lines(self, source: Source) -> bool:
        sent = self._journal.tables.get(source.group, Sent())
        if has_changed(source, sent):
            return False
        return next(lines(source, sent.bytes), None) is not None

    def _has_changed(self, source: Source) -> bool:
        """Whether a table has other rows now than were sent. Its file is sent again, but rows cannot be
        taken back.
        """
        if source.group not in self._changed:
            changed = has_changed(source, self._journal.tables.get(source.group, Sent()))
            self._changed[source.group] = changed
            if changed:
                self._say(
                    f"{self.tracker}: {source.path.name} of run {self.run.index} has other rows than "
                    "were sent: only the file is sent again"
                )
        return self._changed[source.group]

    @contextlib.contextmanager
    def _of_tracker(self) -> Iterator[None]:
        """What is raised inside is the tracker's, whatever it is."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise Unsent(f"{self.tracker}: {explained(error)}") from error


def run_id(record: ExperimentRecord, index: int) -> str:
    """The id of a run at all trackers. Two directories have different ones, and it stays the same
    when an experiment is submitted again.
    """
    parts = (record.identity_hash, record.resolved.experiment.outdir, record.started, str(index))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def explained(error: BaseException) -> str:
    """An error of a tracker on one line, without the values of secrets."""
    text = on_one_line(error)
    for name in SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, f"({name})")
    text = without_credentials(text)[:LONGEST_REASON]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _rows_of(source: Source, segment: Segment) -> Iterator[Line]:
    return itertools.islice(lines(source), segment.first, segment.first + segment.count)


def _numbered(part: list[Line], group: str, first: int) -> list[Row]:
    return [
        Row(number=first + index, group=group, step=line.step, values=line.values)
        for index, line in enumerate(part)
    ]


def _batches(whole: Iterator[Line], size: int) -> Iterator[list[Line]]:
    while part := list(itertools.islice(whole, size)):
        yield part
