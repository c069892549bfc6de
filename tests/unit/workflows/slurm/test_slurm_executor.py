"""The executor over a scripted Slurm: failures, late answers, killed jobs and killed engines."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.errors import ExperimentError
from config.slurm import read_slurm
from tests.unit.workflows.local.local_workflows import output, pod, task, with_inputs, workflow
from tests.unit.workflows.slurm.scripted_slurm import ScriptedSlurm, read, write
from tests.waiting import until
from workflows.local.engine import run
from workflows.local.status import WorkflowStatus
from workflows.slurm import commands, executor, submissions
from workflows.slurm.executor import OnSlurm
from workflows.slurm.records import Batch, Record
from workflows.slurm.workflow import Begun, Workspace, locked

ONE = workflow([task("a", "a")], pod("a", "print('hello')"))
SAVES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
beginnings = pathlib.Path(sys.argv[1])
count = len(beginnings.read_text()) if beginnings.exists() else 0
beginnings.write_text("x" * (count + 1))
if count < int(sys.argv[2]):
    time.sleep(60)
"""
"""Waits for SIGTERM and then leaves 75, as a training that saves, until it has begun so many times."""
RETRIED = {"retryStrategy": {"limit": "5", "retryPolicy": "Always"}}


class Engine:
    """Runs workflows with the scripted Slurm."""

    def __init__(self, slurm: ScriptedSlurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self.notices: list[str] = []
        self.record: Record | None = None

    def run(self, manifest: dict[str, Any], **settings: Any) -> WorkflowStatus:
        workspace = Workspace(self.folder / "state")
        begun, self.record = workspace.begin(
            name=manifest["metadata"]["name"],
            manifest=manifest,
            parameters={},
            storage=self.folder / "storage",
        )
        with locked(self.record, begun.name) as lock:
            status = self.execute(begun, manifest, lock, settings)
        workspace.end(self.record)
        return status

    def execute(
        self, begun: Begun, manifest: dict[str, Any], lock: str, settings: dict[str, Any]
    ) -> WorkflowStatus:
        assert self.record is not None
        stop: Callable[..., None] | None = settings.pop("stop", None)
        slurm = read_slurm(
            {"late": 3, "answer": 5, "scratch": str(self.folder / "scratch"), **settings}
        )
        return run(
            manifest,
            name=begun.name,
            storage=self.folder / "storage",
            logs=self.record.logs,
            executor=OnSlurm(
                slurm,
                self.record,
                uid=begun.uid,
                storage=self.folder / "storage",
                lock=lock,
                notice=self.notices.append,
            ),
            again=begun.again,
            notice=self.notices.append,
            stop=stop,
        )


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    scripted = ScriptedSlurm(tmp_path / "slurm")
    monkeypatch.setenv("SCRIPTED_SLURM", str(scripted.root))
    monkeypatch.setenv("PATH", f"{scripted.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "BETWEEN_QUESTIONS_S", 0.15)
    monkeypatch.setattr(submissions, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(executor, "LOOK_S", 0.03)
    monkeypatch.setattr(executor, "NEVER_RAN_S", 0.3)
    return scripted


@pytest.fixture
def engine(slurm: ScriptedSlurm, tmp_path: Path) -> Engine:
    return Engine(slurm, tmp_path)


def names(slurm: ScriptedSlurm) -> list[str]:
    return [str(job["name"]) for job in slurm.jobs().values()]


def soon(action: Callable[[], None], when: Callable[[], bool]) -> threading.Thread:
    """Do something as soon as it is time."""

    def wait() -> None:
        until(when)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def running(slurm: ScriptedSlurm, count: int = 1) -> list[str]:
    """The jobs whose pods have been claimed."""
    found = [id_ for id_, job in slurm.jobs().items() if job["state"] == "RUNNING"]
    claims = [*slurm.root.parent.glob("state/*/claims/[!.]*")]
    claimed = {claim.read_text() for claim in claims}
    return [id_ for id_ in found if id_ in claimed] if len(claimed) >= count else []


def test_a_pod_is_a_job_named_after_workflow_and_pod(engine: Engine) -> None:
    status = engine.run(ONE)
    assert status.phase == "Succeeded"
    (name,) = names(engine.slurm)
    node = status.by_name("w.a")
    assert name == f"{node.pod}.0.{status.uid[:8]}" and node.pod.startswith("w-a-")
    assert Path(node.log).read_text() == "hello\n"


def test_outputs_values_and_exit_codes(engine: Engine) -> None:
    write = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
    made = {**pod("make", write, "/out/x", "7"), "outputs": output("x", "/out/x")}
    fails = with_inputs(
        pod("fail", "import sys; sys.exit(int(sys.argv[1]))", "{{inputs.parameters.x}}"), "x"
    )
    tasks = [
        task("make", "make"),
        task(
            "fail",
            "fail",
            depends="make",
            arguments={"x": "{{tasks.make.outputs.parameters.x}}"},
        ),
        task("absent", "absent"),
    ]
    absent = pod("absent", container={"command": ["there-is-no-such-program"]})
    status = engine.run(workflow(tasks, made, fails, absent))
    assert status.by_name("w.make").outputs == {"x": "7"}
    failed = status.by_name("w.fail")
    assert (failed.exit_code, failed.message) == (7, "main: Error (exit code 7)")
    assert status.by_name("w.absent").exit_code == 64


def test_equal_pods_form_one_array_and_unequal_ones_do_not(engine: Engine) -> None:
    loop = task("many", "one", withSequence={"count": "5"})
    other = pod("other", container={"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}})
    manifest = workflow([loop, task("other", "other")], pod("one"), other)
    assert engine.run(manifest, array_size=3).phase == "Succeeded"
    assert sorted(engine.slurm.jobs()) == ["1", "2_0", "2_1", "2_2", "3_0", "3_1"]
    options = engine.slurm.jobs()["1"]["options"]
    assert isinstance(options, list) and {"--cpus-per-task=2", "--mem=1024M"} <= set(options)


def test_at_most_so_many_jobs_are_in_the_queue(engine: Engine) -> None:
    program = (
        "import pathlib, sys, time; here = pathlib.Path(sys.argv[1]); mine = here / sys.argv[2]; "
        "mine.touch(); time.sleep(0.3); print('at once:', len(list(here.iterdir()))); mine.unlink()"
    )
    here = engine.folder / "here"
    here.mkdir()
    loop = task("many", "one", withSequence={"count": "6"}, arguments={"i": "{{item}}"})
    one = with_inputs(pod("one", program, str(here), "{{inputs.parameters.i}}"), "i")
    status = engine.run(workflow([loop], one), max_jobs=2)
    logs = [Path(node.log).read_text() for node in status.nodes.values() if node.log]
    assert len(logs) == 6 and max(logs) <= "at once: 2\n"


def test_sbatch_that_fails_five_times(engine: Engine) -> None:
    engine.slurm.set("failures", 5)
    assert engine.run(ONE).phase == "Succeeded"
    assert len(engine.slurm.jobs()) == 1 and len(engine.slurm.calls("sbatch")) == 6
    assert any("Unable to contact" in notice for notice in engine.notices)


def test_a_submission_that_arrived_although_sbatch_failed_is_not_repeated(engine: Engine) -> None:
    engine.slurm.set("failures", 5)
    engine.slurm.set("after")
    assert engine.run(ONE).phase == "Succeeded"
    assert len(engine.slurm.jobs()) == 1


def test_a_submission_that_arrived_although_sbatch_did_not_answer(engine: Engine) -> None:
    engine.slurm.set("late", 30)
    assert engine.run(ONE, answer=1).phase == "Succeeded"
    assert len(engine.slurm.jobs()) == 1
    assert any("has not answered for 1 s" in notice for notice in engine.notices)


def test_an_array_for_which_the_queue_has_no_room_becomes_smaller_ones(engine: Engine) -> None:
    engine.slurm.set("largest", 2)
    loop = task("many", "one", withSequence={"count": "8"})
    assert engine.run(workflow([loop], pod("one"))).phase == "Succeeded"
    jobs = list(engine.slurm.jobs())
    assert len(jobs) == 8 and any("_" in job for job in jobs), (
        "each pod once, some of them in arrays"
    )
    assert len(engine.slurm.calls("sbatch")) <= 3 + 4
    assert any("job submit limit" in notice for notice in engine.notices)


@pytest.mark.slow
def test_a_refusal_is_an_error_of_the_pod(engine: Engine) -> None:
    engine.slurm.set("refusal", "invalid partition specified: fast")
    status = engine.run(ONE)
    assert status.phase == "Error"
    assert "invalid partition specified: fast" in status.by_name("w.a").message


def test_a_refusal_by_a_controller_that_was_just_started_passes(engine: Engine) -> None:
    engine.slurm.set("refusal", "Requested node configuration is not available")
    waiting = soon(
        lambda: engine.slurm.unset("refusal"), lambda: len(engine.slurm.calls("sbatch")) >= 2
    )
    assert engine.run(ONE).phase == "Succeeded"
    waiting.join()
    assert len(engine.slurm.jobs()) == 1


def test_questions_are_asked_at_most_once_in_a_period(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, asked_s = commands.call, list[float]()

    async def noted(words: Sequence[str], **given: Any) -> str:
        if words[0] == "squeue":
            asked_s.append(time.monotonic())
        return await call(words, **given)

    monkeypatch.setattr(commands, "call", noted)
    loop = task("many", "one", withSequence={"count": "20"})
    one = pod("one", "import time; time.sleep(1)")
    assert engine.run(workflow([loop], one), array_size=4).phase == "Succeeded"
    between = [after - before for before, after in itertools.pairwise(asked_s)]
    assert len(asked_s) >= 3 and min(between) > 0.14


def test_a_controller_that_is_away_for_a_while(engine: Engine) -> None:
    engine.slurm.set("down")
    back = soon(lambda: engine.slurm.unset("down"), lambda: bool(engine.notices))
    status = engine.run(workflow([task("a", "a")], pod("a", "import time; time.sleep(1)")))
    back.join()
    assert status.phase == "Succeeded" and "the queue cannot be read" in engine.notices[0]


@pytest.mark.parametrize(
    ("state", "phase", "code", "message"),
    [
        ("CANCELLED", "Error", None, "Slurm: CANCELLED; the job left no end"),
        ("NODE_FAIL", "Error", None, "Slurm: NODE_FAIL; the job left no end"),
        ("OUT_OF_MEMORY", "Failed", 137, "OOMKilled (exit code 137)"),
        ("TIMEOUT", "Failed", 75, "main: Error (exit code 75): Slurm: TIMEOUT, without a save"),
    ],
)
def test_a_job_that_left_nothing_is_judged_by_its_state(
    engine: Engine, state: str, phase: str, code: int | None, message: str
) -> None:
    slurm = engine.slurm
    ended = soon(lambda: slurm.end("1", state), lambda: bool(running(slurm)))
    status = engine.run(workflow([task("a", "a")], pod("a", "import time; time.sleep(60)")), late=1)
    ended.join()
    node = status.by_name("w.a")
    assert (node.phase, node.exit_code) == (phase, code) and node.message.endswith(message)


def test_a_job_that_nobody_remembers_is_judged_by_what_it_left(engine: Engine) -> None:
    engine.slurm.set("forgets")
    assert engine.run(ONE).phase == "Succeeded"


@pytest.mark.parametrize(
    "state, code, message",
    [
        ("OUT_OF_MEMORY", 137, "OOMKilled (exit code 137)"),
        pytest.param("TIMEOUT", 75, "Slurm: TIMEOUT, without a save", marks=pytest.mark.slow),
        pytest.param(
            "CANCELLED", None, "Slurm: CANCELLED; the job left no end", marks=pytest.mark.slow
        ),
    ],
)
def test_accounting_says_how_a_job_ended_that_the_controller_has_forgotten(
    engine: Engine, state: str, code: int | None, message: str
) -> None:
    slurm = engine.slurm
    slurm.set("forgets")
    slurm.set("accounting")
    ended = soon(lambda: slurm.end("1", state), lambda: bool(running(slurm)))
    status = engine.run(workflow([task("a", "a")], pod("a", "import time; time.sleep(60)")), late=1)
    ended.join()
    node = status.by_name("w.a")
    assert node.exit_code == code and node.message.endswith(message)


def test_a_lost_job_is_repeated_by_the_workflows_own_rule(engine: Engine) -> None:
    slurm = engine.slurm
    ended = soon(lambda: slurm.end("1", "NODE_FAIL"), lambda: bool(running(slurm)))
    program = "import sys, time; time.sleep(60 if sys.argv[1] == '0' else 0)"
    once = pod("a", program, "{{retries}}", **RETRIED)
    status = engine.run(workflow([task("a", "a")], once), late=1)
    ended.join()
    assert status.phase == "Succeeded" and len(slurm.jobs()) == 2


def test_a_job_that_slurm_begins_again_is_one_attempt(engine: Engine) -> None:
    """After `scontrol requeue`: the pod saved and left 75, and the same job goes on."""
    slurm = engine.slurm
    saves = pod("a", SAVES, str(engine.folder / "count"), "1", **RETRIED)
    begun = engine.folder / "count"
    again = soon(lambda: slurm.begin_again("1"), begun.exists)
    status = engine.run(workflow([task("a", "a")], saves))
    again.join()
    assert status.phase == "Succeeded" and len(begun.read_text()) == 2
    assert len(slurm.jobs()) == 1
    assert len([node for node in status.nodes.values() if node.type == "Pod"]) == 1


def test_a_training_that_is_longer_than_the_limit_runs_in_a_chain_of_jobs(engine: Engine) -> None:
    """The pod is asked to save before the limit, and goes on in new jobs without using a retry."""
    begun = engine.folder / "count"
    saves = pod("a", SAVES, str(begun), "1")
    cpu = {"time_limit": "1:00"}
    status = engine.run(workflow([task("a", "a")], saves), cpu=cpu, warning=56)
    assert status.phase == "Succeeded" and len(begun.read_text()) == 2
    links = [str(name).split(".")[1] for name in names(engine.slurm)]
    assert links == ["0", "1"]


def test_a_stop_lets_pods_save_and_cancels_what_waits(engine: Engine) -> None:
    """As `argo stop`: SIGTERM, the exit handler runs, nothing is left in the queue."""
    begun = engine.folder / "count"
    saves = pod("a", SAVES, str(begun), "9", **RETRIED)
    manifest = workflow([task("a", "a"), task("b", "b")], saves, pod("b"), pod("end"), onExit="end")
    stops: list[Callable[[], None]] = []
    engine.slurm.set("held")
    free = soon(lambda: engine.slurm.unset("held"), lambda: len(engine.slurm.jobs()) == 2)
    stopped = soon(lambda: stops[0](), begun.exists)
    status = engine.run(manifest, stop=stops.append)
    free.join()
    stopped.join()
    assert status.interrupted and status.by_name("w.onExit").phase == "Succeeded"
    assert status.by_name("w.a").phase == "Failed" and len(begun.read_text()) == 1
    states = {str(job["state"]) for job in engine.slurm.jobs().values()}
    assert states <= {"COMPLETED", "FAILED", "CANCELLED"}


def test_a_stop_cancels_jobs_that_wait(engine: Engine) -> None:
    stops: list[Callable[[], None]] = []
    engine.slurm.set("held")
    stopped = soon(lambda: stops[0](), lambda: bool(engine.slurm.jobs()))
    status = engine.run(ONE, stop=stops.append)
    stopped.join()
    assert status.by_name("w.a").message == "workflow shutdown with strategy:  Stop"
    assert [job["state"] for job in engine.slurm.jobs().values()] == ["CANCELLED"]


def test_sigkill_of_a_pod_is_slurms_own_word_to_explain(engine: Engine) -> None:
    """A pod that dies by SIGKILL is reported when Slurm has said that its job ended."""
    dies = pod("a", "import os; os.kill(os.getpid(), 9)")
    node = engine.run(workflow([task("a", "a")], dies)).by_name("w.a")
    assert (node.phase, node.exit_code) == ("Failed", 137)


def test_the_end_of_a_job_may_be_seen_late(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm calls the job ended, and what it left is not there yet."""
    said = Record.said
    late_s = time.monotonic() + 2.0

    def seen_late(record: Record, key: str) -> Any:
        return None if time.monotonic() < late_s else said(record, key)

    monkeypatch.setattr(Record, "said", seen_late)
    assert engine.run(ONE).phase == "Succeeded"
    assert time.monotonic() > late_s


ALONE = """
import json, pathlib, sys
from tests.unit.workflows.slurm.test_slurm_executor import Engine
from tests.unit.workflows.slurm.scripted_slurm import ScriptedSlurm, read, write
from workflows.slurm import commands, executor, submissions
commands.BETWEEN_QUESTIONS_S, submissions.FIRST_WAIT_S, executor.LOOK_S = 0.15, 0.05, 0.03
slurm = ScriptedSlurm.__new__(ScriptedSlurm)
slurm.root = pathlib.Path(sys.argv[1]) / "slurm"
engine = Engine(slurm, pathlib.Path(sys.argv[1]))
status = engine.run(json.loads(sys.argv[2]))
print(status.phase, len(status.nodes))
"""
APPENDS = (
    "import pathlib, sys, time; time.sleep(3.5); "
    "open(sys.argv[1], 'a').write(sys.argv[2] + ' '); pathlib.Path(sys.argv[3]).write_text('[0,1]')"
)


@pytest.mark.slow
def test_an_engine_killed_at_any_moment_submits_nothing_twice(engine: Engine) -> None:
    """Ten engines are killed, between a submission and its note, too; the next one goes on."""
    done = engine.folder / "done"
    first = pod("first", APPENDS, str(done), "first", "/out/list")
    first["outputs"] = output("list", "/out/list")
    then = with_inputs(pod("then", APPENDS, str(done), "{{inputs.parameters.i}}", "/out/x"), "i")
    then["outputs"] = output("x", "/out/x")
    loop = task(
        "then",
        "then",
        depends="first",
        withParam="{{tasks.first.outputs.parameters.list}}",
        arguments={"i": "then-{{item}}"},
    )
    last = task("last", "last", depends="then")
    manifest = workflow([task("first", "first"), loop, last], first, then, pod("last"))
    words = [sys.executable, "-c", ALONE, str(engine.folder), json.dumps(manifest)]
    root = Path(__file__).parents[4]
    for number in range(10):
        process = subprocess.Popen(words, cwd=root, stdout=subprocess.DEVNULL)
        time.sleep(0.45 + 0.07 * number)
        assert process.poll() is None, "the workflow ended too early"
        process.kill()
        process.wait()
    ended = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split()[0] == "Succeeded", ended.stderr
    assert sorted(done.read_text().split()) == ["first", "then-0", "then-1"]
    submissions_made = {job.partition("_")[0] for job in engine.slurm.jobs()}
    assert len(submissions_made) == len({*names(engine.slurm)}) == 3


def failing(times: int, error: Exception, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises so many times and then does what it did before."""
    left = [error] * times

    def tried(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return real(*arguments)

    return tried


def test_an_end_that_cannot_be_noted_is_noted_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(Record, "write_verdict", failing(3, full, Record.write_verdict))
    assert engine.run(ONE).phase == "Succeeded" and len(engine.slurm.jobs()) == 1
    assert sum("cannot be noted yet" in notice for notice in engine.notices) == 1


def test_a_job_whose_id_cannot_be_noted_is_no_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Record.write_batch

    def with_id_fails(record: Record, batch: Batch) -> None:
        if batch.job:
            raise ExperimentError("no space for a batch")
        write(record, batch)

    monkeypatch.setattr(Record, "write_batch", with_id_fails)
    assert engine.run(ONE).phase == "Succeeded" and len(engine.slurm.jobs()) == 1


def test_an_order_that_cannot_be_written_is_an_error_of_the_pod(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = ExperimentError("no space for orders")
    monkeypatch.setattr(Record, "write_order", failing(1, full, Record.write_order))
    status = engine.run(ONE)
    assert status.phase == "Error" and "no space for orders" in status.by_name("w.a").message
    assert engine.slurm.jobs() == {}


def test_a_defect_of_the_engine_leaves_no_job_beside_the_next_attempt(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = engine.slurm
    names_in = Record.names_in
    failed: list[str] = []

    def fails_once(record: Record, folder: str) -> set[str]:
        if not failed and running(slurm):
            failed.append(folder)
            raise RuntimeError("nobody expected this")
        return names_in(record, folder)

    monkeypatch.setattr(Record, "names_in", fails_once)
    program = "import sys, time; time.sleep(60 if sys.argv[1] == '0' else 0)"
    status = engine.run(workflow([task("a", "a")], pod("a", program, "{{retries}}", **RETRIED)))
    assert status.phase == "Succeeded" and len(slurm.jobs()) == 2
    assert slurm.jobs()["1"]["state"] != "RUNNING", "it was killed"


@pytest.mark.slow
def test_a_pod_that_is_killed_at_its_deadline_is_not_waited_for(engine: Engine) -> None:
    """It leaves no end, and a shared directory that may be late for a minute is no reason to wait."""
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    limited = pod("a", ignores, activeDeadlineSeconds=2)
    limited["podSpecPatch"] = '{"terminationGracePeriodSeconds": 1}'
    began_s = time.monotonic()
    status = engine.run(workflow([task("a", "a")], limited), late=40)
    assert "Pod was active on the node longer" in status.by_name("w.a").message
    assert time.monotonic() - began_s < 35


def test_a_job_that_slurm_holds_after_a_failed_launch_is_lost(engine: Engine) -> None:
    slurm = engine.slurm
    slurm.set("held")

    def hold() -> None:
        write(slurm.root, "1", read(slurm.root, "1") | {"reason": "launch failed requeued held"})
        slurm.unset("held")

    def is_there() -> bool:
        return "1" in slurm.jobs()

    once = pod("a", "pass", **RETRIED)
    held = soon(hold, is_there)
    status = engine.run(workflow([task("a", "a")], once), late=1)
    held.join()
    assert status.phase == "Succeeded" and len(slurm.jobs()) == 2
    assert slurm.jobs()["1"]["state"] == "CANCELLED"


def test_a_submission_that_arrives_after_it_was_given_up_is_followed(engine: Engine) -> None:
    """Another job has claimed the pod; that of the engine ends without doing anything."""
    slurm = engine.slurm
    slurm.set("held")

    def claim() -> None:
        assert engine.record is not None
        (key,) = (str(name).rpartition(".")[0] for name in names(slurm))
        write(slurm.root, "77", {**read(slurm.root, "1"), "state": "RUNNING", "name": "late"})
        (engine.record.root / "claims" / key).write_text("77")
        slurm.unset("held")
        time.sleep(2.0)
        said = {"code": 7, "terminated": False, "warned": False, "error": "", "at": NOW}
        (engine.record.root / "ends" / f"{key}.json").write_text(json.dumps(said))
        write(slurm.root, "77", {**read(slurm.root, "77"), "state": "FAILED", "code": 7})

    claimed = soon(claim, lambda: "1" in slurm.jobs())
    status = engine.run(ONE)
    claimed.join()
    assert status.by_name("w.a").exit_code == 7


NOW = "2026-01-01T00:00:00+00:00"
