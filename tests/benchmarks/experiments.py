"""Experiments of ours for `make learning`: run as a user runs them, and what came of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from config.errors import ExperimentError
from config.resolved import Resolved
from steps.average import read_run
from steps.directory import checkpoints
from steps.directory.experiment import ExperimentRecord, read_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.usable import fingerprint
from steps.statistics.curves import Curve
from tests.benchmarks.verdicts import Outcome

POLICIES = ("greedy", "sample")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """given: without `runs` and `outdir`; evaluations: for those the pipeline does not make."""

    algorithm: str
    directory: Path
    given: Mapping[str, str]
    runs: int
    evaluations: Path

    def run(self) -> bool:
        """Begin it, or go on with it; whether it succeeded."""
        given = {**self.given, "runs": str(self.runs), "outdir": str(self.directory)}
        assignments = [word for item in given.items() for word in ("-p", "=".join(item))]
        command = [
            sys.executable,
            "-m",
            "workflows.submit",
            self.algorithm,
            "--local",
            *assignments,
        ]
        print("$ python", *command[1:], flush=True)
        return run_together([command])

    def evaluate(self, policy: str) -> None:
        """Play the evaluation of every run with this policy, unless that was done."""
        record = self._record()
        for run in self._runs(record.resolved):
            if policy == record.resolved.evaluation_policy:
                continue
            if self._evaluation(run, policy) is not None:
                continue
            print(f"{self.directory.name}, run {run.index}: {policy} evaluation", flush=True)
            returns = play(run, record.resolved, policy)
            content = {"checkpoint": newest_checkpoint(run), "returns": returns}
            path = self._evaluation_path(run, policy)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(content))

    def outcome(self, policy: str | None = None) -> Outcome:
        """What there is; policy: the pipeline's own by default."""
        try:
            resolved = self._record().resolved
        except ExperimentError as error:
            return Outcome(wanted=self.runs, scores=(), steps=None, missing=(str(error),))
        chosen = policy or resolved.evaluation_policy
        scores, missing, steps = [], [], None
        for run in self._runs(resolved):
            result = read_run(run, resolved)
            returns: Sequence[float] | None = [one.value for one in result.episodes]
            if returns and chosen != resolved.evaluation_policy:
                returns = self._evaluation(run, chosen)
            if returns:
                scores.append(fmean(returns))
                steps = result.step
            else:
                reason = result.usable.reason or f"no {chosen} evaluation"
                missing.append(f"run {run.index}: {reason}")
        return Outcome(wanted=self.runs, scores=tuple(scores), steps=steps, missing=tuple(missing))

    def curves(self) -> list[Curve]:
        """The trainings of the finished runs in which an episode ended."""
        try:
            resolved = self._record().resolved
        except ExperimentError:
            return []
        results = [read_run(run, resolved) for run in self._runs(resolved)]
        return [one.curve for one in results if one.usable and len(one.curve)]

    def policy(self) -> str:
        """How the pipeline evaluates; a dash before there is an experiment."""
        try:
            return self._record().resolved.evaluation_policy
        except ExperimentError:
            return "–"

    def commits(self) -> list[str]:
        """Of the first and of every later submission that came from another commit."""
        try:
            record = self._record()
        except ExperimentError:
            return []
        changes = [entry["changed"].get("source.commit") for entry in record.history]
        before = [change[0] for change in changes if change is not None]
        names = [(commit or "unknown")[:7] for commit in (*before, record.source["commit"])]
        return [*names[:-1], names[-1] + ("-changed" if record.source["changed"] else "")]

    def _record(self) -> ExperimentRecord:
        return read_experiment(ExperimentDirectory(self.directory))

    def _runs(self, resolved: Resolved) -> list[RunDirectory]:
        directory = ExperimentDirectory(self.directory)
        return [directory.run(index) for index in range(resolved.experiment.runs)]

    def _evaluation_path(self, run: RunDirectory, policy: str) -> Path:
        return self.evaluations / f"{self.directory.name}-run-{run.index}-{policy}.json"

    def _evaluation(self, run: RunDirectory, policy: str) -> list[float] | None:
        """The returns of the agent that the run has now; None before they were played."""
        try:
            content = json.loads(self._evaluation_path(run, policy).read_text())
        except FileNotFoundError:
            return None
        returns: list[float] = content["returns"]
        return returns if content["checkpoint"] == newest_checkpoint(run) else None


def play(run: RunDirectory, resolved: Resolved, policy: str) -> list[float]:
    """The returns of the evaluation's episodes; only here `agents.evaluation.episodes` is called."""
    from agents.evaluation.episodes import evaluate
    from agents.load import load_policy

    agent = load_policy(resolved, checkpoints.load_final(run, resolved).state)
    count = resolved.experiment.evaluation_episodes
    episodes = evaluate(agent, resolved, run.index, count, policy == "sample")
    return [one.return_ for one in episodes]


def newest_checkpoint(run: RunDirectory) -> dict[str, str | None]:
    """Which agent this is: another training in the same place has other checksums."""
    newest = [0, *run.checkpoint_steps()][-1]
    return fingerprint(run.root, [run.checkpoint(newest) / checkpoints.MANIFEST])


def run_together(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Wait for all of them; whether all succeeded. Ctrl-C reaches them, too: they end."""
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        codes = [process.wait() for process in processes]
    except KeyboardInterrupt:
        for process in processes:
            process.wait()
        raise
    return not any(codes)
