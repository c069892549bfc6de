"""`make mutants`: small mistakes in losses, targets and statistics, which the quick tests must notice.

Of all mutants of the modules in `targets.toml` a sample is drawn; each is written into a copy of
the tree, and the tests that hold its module run there. A mutant that survives is a missing
assertion, or changes nothing that matters; then `explained.txt` says why, a line each:

    module function: before => after # why

With `--meaning` the mutants are those of `meaning.toml`, all of them: text replacements that change
what is computed (which value bootstraps, which network, which rows), where the operators only change
signs, bounds and arguments. Their function is what they mean.

Exit code 1: something survived unexplained, or an explanation fits no mutant any more. 2: the
tests fail without any mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.mutants.operators import Mutant, mutant_by_replacing, mutants_of
from tests.mutants.server import HUNG

FOLDER = Path("tests/mutants")
ROOT = Path(__file__).parents[2]
NOT_COPIED = (".*", "__pycache__", "*.egg-info", "results", "build")
KILLED, SURVIVED, EXPLAINED = "killed", "survived", "explained"
VERDICTS = (KILLED, HUNG, EXPLAINED, SURVIVED)


class Unusable(Exception):
    """The tests say nothing: they fail without a mutant."""


class Workplace:
    """A copy of the tree, and a process in it that runs tests."""

    def __init__(self, root: Path, folder: Path, preload: Sequence[str]) -> None:
        self.tree = folder
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # One thread: two of these share the machine. No bytecode: two mutants of one size and one
        # second would share theirs.
        environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("server.py")), *preload],
            cwd=folder,
            env=environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test(self, tests: Sequence[str], limit_s: float) -> dict[str, Any]:
        """How these tests end: `ended`, `seconds`, `output`."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps({"tests": tests, "limit_s": limit_s}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def test_mutant(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> dict[str, Any]:
        """The same with the mutant in its module's place."""
        module = self.tree / mutant.path
        original = module.read_text("utf-8")
        module.write_text(mutant.source, "utf-8")
        try:
            return self.test(tests, limit_s)
        finally:
            module.write_text(original, "utf-8")

    def close(self) -> None:
        """Also in the middle of a mutant; the copy is the caller's."""
        self._server.send_signal(signal.SIGINT)
        self._server.communicate()


class Trial:
    """Runs mutants in as many workplaces as there are processes."""

    def __init__(self, tests: dict[str, list[str]], places: Sequence[Workplace]) -> None:
        self.tests = tests
        self.limits: dict[str, float] = {}
        self._free: queue.Queue[Workplace] = queue.Queue()
        for place in places:
            self._free.put(place)
        self._pool = ThreadPoolExecutor(len(places))
        self._done, self._lock = 0, threading.Lock()

    def measure(self, paths: Sequence[str]) -> None:
        """The time limit of each module's mutants: without one the tests pass in a third of it."""
        for path, answer in zip(paths, self._pool.map(self._unchanged, paths), strict=True):
            if answer["ended"] != 0:
                raise Unusable(f"{path}: its tests fail without a mutant:\n{answer['output']}")
            self.limits[path] = 5 + 3 * answer["seconds"]

    def run(self, mutants: Sequence[Mutant]) -> dict[Mutant, str]:
        """How each fared: killed, hung (which is noticed, too), or survived."""
        verdicts = self._pool.map(lambda mutant: self._verdict(mutant, len(mutants)), mutants)
        return dict(zip(mutants, verdicts, strict=True))

    def _unchanged(self, path: str) -> dict[str, Any]:
        place = self._free.get()
        try:
            return place.test(self.tests[path], 600)
        finally:
            self._free.put(place)

    def _verdict(self, mutant: Mutant, count: int) -> str:
        place = self._free.get()
        try:
            answer = place.test_mutant(mutant, self.tests[mutant.path], self.limits[mutant.path])
        finally:
            self._free.put(place)
        verdict = {0: SURVIVED, HUNG: HUNG}.get(answer["ended"], KILLED)
        with self._lock:
            self._done += 1
            seconds = f"{answer['seconds']:.1f} s"
            print(f"{self._done}/{count} {seconds} {verdict}: {mutant.change}", flush=True)
        return verdict


def read_explained(file: Path) -> dict[str, str]:
    """Change -> why it may survive."""
    lines = [line for line in file.read_text("utf-8").splitlines() if line and line[0] != "#"]
    return {change: why for change, _, why in (line.rpartition(" # ") for line in lines)}


def all_mutants(root: Path, paths: Sequence[str]) -> list[Mutant]:
    """Of these modules, in their order."""
    return [
        mutant for path in paths for mutant in mutants_of(path, (root / path).read_text("utf-8"))
    ]


def mutants_of_meaning(root: Path) -> list[Mutant]:
    """Those of `meaning.toml`. Raises `ValueError` for one whose text its file has not exactly once."""
    listed = tomllib.loads((root / FOLDER / "meaning.toml").read_text("utf-8"))["mutant"]
    return [
        mutant_by_replacing(
            one["file"],
            (root / one["file"]).read_text("utf-8"),
            one["before"],
            one["after"],
            one["meaning"],
        )
        for one in listed
    ]


def quick_tests_of(targets: dict[str, Any]) -> dict[str, list[str]]:
    """The arguments of pytest for each file that `meaning.toml` changes."""
    tests = {path: ["-m", "not slow", *named] for path, named in targets["tests"].items()}
    for path, named in targets["meaning"].items():
        tests[path] = [*tests.get(path, ["-m", "not slow"]), *named]
    return tests


def sampled(mutants: Sequence[Mutant], seed: int, count: int) -> list[Mutant]:
    """As good as random, but a change of one module leaves the sample of the others as it is."""
    drawn = sorted(mutants, key=lambda mutant: sha256(f"{seed} {mutant.change}".encode()).digest())
    chosen = set(drawn[:count])
    return [mutant for mutant in mutants if mutant in chosen]


def table(verdicts: dict[Mutant, str]) -> list[str]:
    """A row for each module."""
    counts = Counter((mutant.path, verdict) for mutant, verdict in verdicts.items())
    rows = [f"| module | mutants | {' | '.join(VERDICTS)} |", "|---" * 6 + "|"]
    for path in dict.fromkeys(mutant.path for mutant in verdicts):
        numbers = [counts[path, verdict] for verdict in VERDICTS]
        rows.append(f"| {path} | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--root", type=Path, default=ROOT, help="the project (default: this one)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default: 2)")
    parser.add_argument(
        "--meaning", action="store_true", help="all mutants of meaning.toml instead"
    )
    parser.add_argument("--only", default="", help="mutants whose line holds this text")
    given = parser.parse_args(arguments)
    targets = tomllib.loads((given.root / FOLDER / "targets.toml").read_text("utf-8"))
    explained = read_explained(given.root / FOLDER / "explained.txt")
    small = all_mutants(given.root, list(targets["tests"]))
    of_meaning = mutants_of_meaning(given.root)
    stale = explained.keys() - {mutant.change for mutant in [*small, *of_meaning]}
    everything = of_meaning if given.meaning else small
    drawn = [mutant for mutant in everything if given.only in mutant.change]
    sample = drawn if given.meaning else sampled(drawn, given.seed, given.count)
    if given.meaning:
        targets["tests"] = quick_tests_of(targets)
    verdicts = dict.fromkeys(sample, EXPLAINED)  # which need not run
    started = time.monotonic()
    try:
        verdicts |= run(given, targets, [one for one in sample if one.change not in explained])
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    print("", *table(verdicts), "", sep="\n")
    survivors = [mutant for mutant, verdict in verdicts.items() if verdict == SURVIVED]
    for mutant in survivors:
        print("survived, unexplained:", mutant.change)
    for change in sorted(stale):
        print("explained, but no mutant:", change)
    print(f"{len(sample)} of {len(drawn)} mutants, {time.monotonic() - started:.0f} s")
    return 1 if survivors or stale else 0


def run(
    given: argparse.Namespace, targets: dict[str, Any], sample: Sequence[Mutant]
) -> dict[Mutant, str]:
    """How each mutant of the sample fared."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        places = [
            Workplace(given.root, Path(folder, str(number)), targets["preload"])
            for number in range(given.processes)
        ]
        try:
            trial = Trial(targets["tests"], places)
            trial.measure(list(dict.fromkeys(mutant.path for mutant in sample)))
            return trial.run(sample)
        finally:
            for place in places:
                place.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which leaves nothing behind
    sys.exit(main())
