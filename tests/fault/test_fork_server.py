"""A pod that is forked from a process with loaded modules is what its command would have become, and
without that process the command is executed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config import preloading
from tests.fault.test_local_interruptions import is_gone
from tests.fault.test_supervisor import parent
from tests.outside import ROOT, outside
from tests.unit.workflows.local.local_workflows import Document, pod, task, workflow
from tests.waiting import until
from workflows import local
from workflows.local.machine import supervision

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux adopts orphans")

PROGRAM = """
import sys
FORKED = "library" in sys.modules
import library
import ctypes, json, locale, multiprocessing, os, pathlib, random, resource, signal, threading, time, warnings

of_c = ctypes.CDLL(None).getenv
of_c.restype = ctypes.c_char_p

def facts():
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    listed = {name: os.readlink(f"/proc/self/fd/{name}") for name in "012"}
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": repr(sys.flags),
        "main": {name: str(globals()[name]) for name in ("__name__", "__file__", "__cached__", "__package__", "__doc__")},
        "spec": (__spec__.name, __spec__.parent, __spec__.origin), "is main": sys.modules["__main__"].__dict__ is globals(),
        "imported by its name": "program" in sys.modules,
        "cwd": os.getcwd(), "environment": dict(os.environ), "of C": of_c(b"MARK").decode(),
        "leads": (os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()),
        "parent": pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0")[4].rpartition("/")[2],
        "comm": pathlib.Path("/proc/self/comm").read_text(),
        "command": pathlib.Path("/proc/self/cmdline").read_text().strip("\\0").replace("\\0", " "),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "nice": os.nice(0), "processors": sorted(os.sched_getaffinity(0)), "group": pathlib.Path("/proc/self/cgroup").read_text(),
        "status": [line for line in status if line.startswith(("Umask", "Threads", "Sig", "Shd", "Cap", "NoNewPrivs"))
                   and not line.startswith("SigQ")],
        "handlers": [str(signal.getsignal(number)).split(" at ")[0] for number in (2, 13, 15, 17)],
        "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1], "streams": listed,
        "encodings": [(one.encoding, one.errors, one.line_buffering, one.mode) for one in (sys.stdin, sys.stdout, sys.stderr)],
        "locale": (locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()), "warnings": [repr(one) for one in warnings.filters],
        "main thread": threading.current_thread() is threading.main_thread(), "of a process": str(multiprocessing.parent_process()),
    }

def end(how):
    if how == "7":
        sys.exit(7)
    if how == "300":
        sys.exit(300)
    if how == "text":
        sys.exit("a reason")
    if how == "error":
        raise ValueError("an error")
    if how == "closed":
        os.close(1)
        print("lost")
        sys.exit(0)
    if how == "late":
        import atexit
        atexit.register(lambda: print("called at the end"))
        library.kept = open("kept.txt", "w")
        library.kept.write("kept")
        threading.Thread(target=lambda: (time.sleep(0.2), print("waited for"))).start()
        sys.exit(0)
    if how in ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT"):
        os.kill(os.getpid(), getattr(signal, how))
    if how == "child":
        if os.fork() == 0:
            time.sleep(3600)
    if how == "facts":
        print("facts", json.dumps(facts()))
    if how == "random":
        import numpy
        drawn = (random.random(), numpy.random.random(), multiprocessing.current_process().authkey.hex())
        print("random", json.dumps(drawn))
    if how == "kill":
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent = int(pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                if parent == os.getppid() and "fork_server.py" in pathlib.Path(f"/proc/{name}/cmdline").read_text():
                    os.kill(int(name), signal.SIGKILL)
            except (OSError, IndexError):
                pass
    if how == "change":
        with open(library.__file__, "a") as file:
            file.write("# another version\\n")
    if how == "sleep":
        print("pid", os.getpid(), flush=True)
        time.sleep(3600)

print("forked", FORKED, flush=True)
end(sys.argv[1])
"""
LIBRARY = "import multiprocessing, numpy.random, os\nos.environ['SET_BY_LIBRARY'] = 'yes'\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the pods; `program` and `library` are found elsewhere."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "program.py").write_text(PROGRAM)
    (modules / "library.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def program(how: str, **container: Any) -> Document:
    command = {
        "command": ["python", "-m", "program"],
        "args": [how, "{{workflow.name}}"],
        **container,
    }
    return pod(how.lower(), container=command)


def run(
    place: Path, *programs: Document, forked: bool = True, after: bool = False
) -> tuple[Mapping[str, local.Node], Mapping[str, str]]:
    """The nodes and logs of pods that run side by side, or one after another."""
    logs = place.parent / f"logs-{forked}"
    names = [one["name"] for one in programs]
    tasks = [task(name, name) for name in names]
    for earlier, later in itertools.pairwise(tasks):
        if after:
            later["depends"] = f"({earlier['name']}.Succeeded || {earlier['name']}.Failed)"
    for one in programs:
        one["container"]["env"] = [
            {"name": "MARK", "value": f"of {one['name']}"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ]
    status = local.run(
        workflow(tasks, *programs),
        name="w",
        storage=place.parent / "storage",
        logs=logs,
        capacity=local.Capacity(8.0),
        preloading=local.Preloading(modules={"program": ("library",)}, apart=("MARK",))
        if forked
        else None,
    )
    nodes = {node.display_name: node for node in status.nodes.values() if node.type == "Pod"}
    return nodes, {name: Path(str(nodes[name].log)).read_text() for name in names}


def told(log: str, name: str) -> Any:
    """What a program has printed under a name."""
    found = re.search(rf"^{name} (.*)$", log, re.MULTILINE)
    assert found is not None, log
    return json.loads(found[1].replace("True", "true") if name == "forked" else found[1])


def test_a_forked_pod_is_what_an_interpreter_would_have_become(place: Path) -> None:
    _, forked = run(place, program("facts"))
    _, executed = run(place, program("facts"), forked=False)
    assert told(forked["facts"], "forked") and "forked False" in executed["facts"]
    ours, theirs = told(forked["facts"], "facts"), told(executed["facts"], "facts")
    for name in ("streams", "environment"):  # the log has another name
        ours[name], theirs[name] = (
            json.loads(json.dumps(one[name]).replace(f"logs-{flag}", "logs"))
            for one, flag in ((ours, True), (theirs, False))
        )
    for one in (ours, theirs):
        del one["environment"]["ARGO_PROGRESS_FILE"]  # below a temporary folder of its own
    assert ours["environment"]["SET_BY_LIBRARY"] == "yes" and ours["command"].endswith("facts w")
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {}


def test_it_ends_as_an_interpreter_ends(place: Path) -> None:
    ways = ("7", "300", "text", "error", "late", "SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT", "child", "closed")  # fmt: skip
    ends = {}
    for forked in (True, False):
        nodes, logs = run(place, *map(program, ways), forked=forked)
        others = {name: log for name, log in logs.items() if f"forked {forked}" not in log}
        assert set(others) <= {"closed"}, others
        ends[forked] = {name: (node.phase, node.exit_code) for name, node in nodes.items()}
        assert "a reason" in logs["text"] and "ValueError: an error" in logs["error"]
        assert "waited for\ncalled at the end" in logs["late"]
        assert (place / "kept.txt").read_text() == "kept"
        (place / "kept.txt").unlink()
    assert ends[True] == ends[False]
    assert ends[True]["sigkill"] == ("Failed", 128 + signal.SIGKILL) and ends[True]["7"][1] == 7


def test_forked_pods_share_no_random_state(place: Path) -> None:
    first, second = program("random"), {**program("random"), "name": "again"}
    _, logs = run(place, first, second)
    one, other = (told(log, "random") for log in logs.values())
    assert [ours == theirs for ours, theirs in zip(one, other, strict=True)] == [False] * 3


def test_after_its_death_pods_are_executed(place: Path) -> None:
    nodes, logs = run(place, program("kill"), program("random"), after=True)
    assert "forked True" in logs["kill"] and "forked False" in logs["random"]
    assert {node.phase for node in nodes.values()} == {"Succeeded"}


@pytest.mark.parametrize(
    "library",
    [
        "raise ValueError",
        "import os; os._exit(0)",
        "import threading, time; threading.Thread(target=time.sleep, args=(0.2,)).start()",
        "import os; kept = os.open('/dev/null', os.O_RDONLY)",
        "import tempfile; tempfile.gettempdir()",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import os; os.environ['MARK'] = 'of all'",
    ],
)
def test_where_a_fork_would_differ_pods_are_executed(place: Path, library: str) -> None:
    modules = place.parent / "modules"
    (modules / "library.py").write_text(library)
    (modules / "program.py").write_text("import sys; print('forked', 'library' in sys.modules)")
    nodes, logs = run(place, program("any"))
    assert (nodes["any"].phase, logs["any"]) == ("Succeeded", "forked False\n")


def test_a_module_that_has_changed_since(place: Path) -> None:
    _, logs = run(place, program("change"), program("random"), after=True)
    assert "forked True" in logs["change"] and "forked False" in logs["random"]


def test_a_module_in_the_working_directory_comes_first_as_ever(place: Path) -> None:
    (place / "library.py").write_text("print('from here')")
    _, logs = run(place, program("random"))
    assert "forked False\n" in logs["random"] and "from here" in logs["random"]


def test_what_a_module_prints_is_in_the_log_of_its_pods(place: Path) -> None:
    (place.parent / "modules" / "library.py").write_text(LIBRARY + "print('a warning')")
    _, logs = run(place, program("random"))
    assert logs["random"].splitlines()[:2] == ["a warning", "forked True"]


def test_other_commands_are_executed(place: Path) -> None:
    other = pod("other", "import sys; print('forked', 'library' in sys.modules)", "")
    _, logs = run(place, other)
    assert logs["other"] == "forked False\n"


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and parent(int(entry.name)) == pid:
                found.append(int(entry.name))
    return found


ENGINE = """
import json, sys
from pathlib import Path
from workflows import local
preloading = local.Preloading(modules={"program": ("library",)}, apart=("MARK",))
local.run(json.loads(sys.argv[1]), name="w", logs=Path(sys.argv[2]), preloading=preloading)
"""


@pytest.mark.parametrize("killed", ["engine", "supervisor"])
def test_nothing_survives(place: Path, killed: str) -> None:
    """Without the engine the supervisor kills; without it, while the engine stands still, the kernel."""
    manifest = workflow([task("a", "sleep")], program("sleep"))
    container = manifest["spec"]["templates"][1]["container"]
    container |= {"args": ["sleep"], "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
    logs = place.parent / "logs"
    path = f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"  # the pods' and the engine's
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, json.dumps(manifest), str(logs)],
        env=outside(PYTHONPATH=path),
    )

    def printed() -> str:
        return "".join(log.read_text() for log in logs.glob("*.log"))

    until(lambda: "pid" in printed())
    assert "forked True" in printed()
    running = int(printed().split()[-1])
    supervisor = int(Path(f"/proc/{running}/stat").read_text().rpartition(")")[2].split()[1])
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    family = [int(pid) for pid in children.read_text().split()] if children.exists() else [running]
    assert running in family
    if killed == "engine":
        engine.kill()
    else:
        engine.send_signal(signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
    until(lambda: all(map(is_gone, family)))
    engine.kill()
    engine.wait()


@pytest.mark.slow  # 3 s: everything is loaded
def test_the_modules_of_the_steps_start_no_thread(tmp_path: Path) -> None:
    last = list(preloading.MODULES)[-1]
    arguments = [sys.executable, "-m", last, "--help"]
    loaded = local.Preloading(modules=preloading.MODULES, apart=preloading.APART)
    scratch, log = tmp_path / "scratch", tmp_path / "pod.log"

    async def scenario() -> None:
        owner = supervision.Processes(scratch)
        await owner.open()
        # Where HOME cannot be written matplotlib would make a temporary folder, which ends the server.
        environment = outside(OMP_NUM_THREADS="1", MPLCONFIGDIR=str(tmp_path))
        pod = await owner.start(arguments, environment, tmp_path, log, loaded)
        assert await pod.wait() == 0 and "--workflow-status" in log.read_text()
        assert (scratch / "fork-server-1.log").read_text() == "", (
            "it would have ended with a reason"
        )
        (server,) = children(owner._supervisor.pid)
        assert "\nThreads:\t1\n" in Path(f"/proc/{server}/status").read_text()
        mapped = Path(f"/proc/{server}/maps").read_text()
        assert "libtorch_cpu" in mapped and "cygrpc" not in mapped
        await owner.close()

    asyncio.run(scenario())


CLOCK = re.compile("resources|hours")
"""In the names of the files that show how long something took."""


@pytest.mark.slow  # two experiments
@pytest.mark.soak
def test_an_experiment_leaves_the_same_bytes_with_and_without(tmp_path: Path) -> None:
    left = {}
    for switch in "10":
        outdir = tmp_path / switch
        subprocess.run(
            [sys.executable, "-m", "workflows.submit", "ppo", "--local", "-p", "game=cartpole", "-p", "runs=2",
             "-p", "epochs=8", "-p", "evaluation_episodes=3", "-p", f"outdir={outdir}"],
            cwd=ROOT, env=outside() | {preloading.SWITCH: switch}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        left[switch] = {
            str(path.relative_to(outdir)): path.read_bytes()
            for path in sorted(outdir.rglob("*"))
            if path.suffix in (".csv", ".safetensors", ".mp4", ".png") and not CLOCK.search(path.name)
        }  # fmt: skip
    assert len(left["1"]) > 10 and left["1"].keys() == left["0"].keys()
    assert [name for name in left["1"] if left["1"][name] != left["0"][name]] == []
