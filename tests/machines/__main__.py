"""`make test-machines`: the whole pipeline, and the quick tests, as on machines that are not like
this one.

Each variant clones what is committed, trains for some 20 seconds up to the report, and is compared:
where the Python is the same, the CSV files have the same bytes, whatever the user, the locale or
the clock. A variant combines several conditions; each of them alone runs where it is named or with
FULL=1, to find the one that breaks a combination. Of the quick tests those run that a machine can
break, not those that only compute. What this machine cannot have is named as skipped. OVERCOMMIT=2 sets vm.overcommit_memory
for the whole machine meanwhile; FULL=1 also installs and runs `make run` as a new user, tries
the Pythons between the oldest and the newest, and runs the quick tests a second time, under other
conditions.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pwd
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.machines import conditions as on
from tests.machines import installation, machine, trial
from tests.machines.conditions import Setup
from tests.machines.variants import Variant, chosen

LIMIT_S = 840.0
"""After this no variant is started; one takes less than a minute, and the quick tests come
first."""
KEPT = machine.ROOT / "build/machines"


@dataclass
class Result:
    """One row of the table."""

    variant: Variant
    verdict: str
    seconds: float = 0.0
    python: str = ""
    files: dict[str, bytes] | None = None


class Trials:
    """All variants, as many at once as there are cores."""

    def __init__(self, stage: Path, uid: int | None, limit_s: float) -> None:
        self.stage, self.uid = stage, uid
        self.end = time.monotonic() + limit_s
        self.stopped = threading.Event()
        self.setups: list[Setup] = []

    def run(self, variants: Sequence[Variant]) -> list[Result]:
        """Their results, in their order."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            futures = [
                pool.submit(self.one, number, variant) for number, variant in enumerate(variants)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self.stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                while not all(future.done() for future in futures):
                    self.kill_all()
                    time.sleep(0.1)
                raise

    def kill_all(self) -> None:
        """Whatever runs for any variant."""
        installation.stop_installing()
        for setup in self.setups:
            trial.kill_left_over(setup)

    def one(self, number: int, variant: Variant) -> Result:
        """Try one variant; whatever goes wrong is its verdict."""
        if reasons := variant.missing():
            return self.told(Result(variant, f"skipped: {reasons}"))
        if time.monotonic() > self.end:
            return self.told(Result(variant, "skipped: the time is over"))
        started = time.monotonic()
        setup = self.setup(number)
        self.setups.append(setup)
        result = Result(variant, "ok")
        try:
            self.try_out(variant, setup, result)
        except installation.NoSpace as error:
            result.verdict = f"skipped: {error}"
        except Exception as error:
            result.verdict = (
                f"BROKEN: {error}"
                if isinstance(error, trial.Broken)
                else f"BROKEN: {type(error).__name__}: {error}"
            )
            keep_outputs(setup)
        finally:
            shutil.rmtree(setup.folder, ignore_errors=True)
        result.python, result.seconds = setup.python.name, time.monotonic() - started
        return self.told(result)

    def try_out(self, variant: Variant, setup: Setup, result: Result) -> None:
        """Make the clone under all conditions, run what the variant runs."""
        for condition in variant.conditions:
            condition.change(setup)
        if trial.reachable(setup) and not machine.has_mount_namespaces():
            result.verdict = (
                "skipped: its Python lies below a folder that other users may not enter"
            )
            return
        trial.make_clone(setup)
        if variant.quick_tests:
            result.verdict = f"ok: {trial.check_quick_tests(setup)}"
            return
        if on.INSTALLATION in variant.conditions:
            trial.check_make_run(setup)
            return
        result.files = trial.check_pipeline(setup)
        if variant.refused:
            trial.check_refused(setup, variant.refused)

    def setup(self, number: int) -> Setup:
        """The usual: an ordinary user with a home of their own, nothing else in the environment."""
        home = self.stage / "home"
        folder = home / f"{number:02d}"
        folder.mkdir()
        environment = {"PATH": machine.PATH, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm"}
        if self.uid is not None:
            name = pwd.getpwuid(self.uid).pw_name
            environment |= {"USER": name, "LOGNAME": name}
        return Setup(folder=folder, uid=self.uid, python=machine.default(), environment=environment)

    def told(self, result: Result) -> Result:
        """Say at once how it went."""
        if not self.stopped.is_set():
            print(f"{result.variant.name}: {result.verdict} ({result.seconds:.0f} s)", flush=True)
        return result


def keep_outputs(setup: Setup) -> None:
    """What its commands printed outlives a broken variant."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for output in setup.folder.glob("*.txt"):
        shutil.copyfile(output, KEPT / f"{setup.folder.name}-{output.name}")


def compare(results: Sequence[Result]) -> None:
    """The files of one Python are the same bytes in all variants; the first is what the others are
    held against."""
    first: dict[str, Result] = {}
    for result in results:
        if result.files is not None and result.verdict == "ok":
            reference = first.setdefault(result.python, result)
            different = [
                path
                for path, content in result.files.items()
                if (reference.files or {})[path] != content
            ]
            if different:
                result.verdict = (
                    f"BROKEN: not the bytes of {reference.variant.name}: {', '.join(different)}"
                )


def table(results: Sequence[Result]) -> str:
    """All variants as Markdown."""
    rows = [
        f"| {one.variant.name} | {one.variant.how} | {one.python} | {one.verdict.splitlines()[0]} | {one.seconds:.0f} |"
        for one in results
    ]
    return "\n".join(
        ["| variant | made by | Python | result | seconds |", "|---|---|---|---|---|", *rows]
    )


def main(arguments: Sequence[str]) -> int:
    """Try all variants, or those whose name contains one of the given words; 1 if one is broken."""
    parser = argparse.ArgumentParser(prog="make test-machines")
    parser.add_argument(
        "words", nargs="*", help="only the variants whose names contain one of these"
    )
    words = parser.parse_args(arguments).words
    variants = chosen(words, full=bool(os.environ.get("FULL")))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stage = Path(tempfile.mkdtemp(prefix="machines-"))
    stage.chmod(0o755)
    try:
        with (
            machine.ordinary_user(stage / "home") as uid,
            machine.overcommit(os.environ.get("OVERCOMMIT") or None),
        ):
            (stage / "home").mkdir(exist_ok=True)
            (stage / "home").chmod(0o755)  # some distributions make it for its owner alone
            results = Trials(stage, uid, LIMIT_S).run(variants)
    except KeyboardInterrupt:
        print("interrupted; nothing is left", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    compare(results)
    print(table(results))
    return int(any(result.verdict.startswith("BROKEN") for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
