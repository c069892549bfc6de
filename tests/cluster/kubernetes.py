"""The cluster as the tests use it: `kubectl` and `argo` as a person would type them, and what
Kubernetes says about pods afterwards.

`make test-cluster` starts the cluster and exports what is read here: KUBECONFIG, ARGO_SERVER,
ARGO_NAMESPACE, RL_CLUSTER_STORAGE (the folder behind the shared volume), and CLUSTER, the folder
with the scripts `up`, `down` and `image`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "localhost:5000"
T = TypeVar("T")
FINAL = ("Succeeded", "Failed", "Error")
NEEDED = ("KUBECONFIG", "ARGO_SERVER", "ARGO_NAMESPACE", "RL_CLUSTER_STORAGE", "CLUSTER")


def why_not() -> str | None:
    """The reason why the cluster cannot be used, or None where it is up."""
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        return f"no cluster: {', '.join(missing)} not set; `make test-cluster` starts it"
    try:
        answer = subprocess.run(
            ["kubectl", "get", "--raw", "/readyz"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no cluster: {error}"
    return None if answer.stdout == "ok" else f"no cluster: {answer.stderr.strip()[:200]}"


def command(
    *words: str,
    check: bool = True,
    timeout_s: float = 120,
    stdin: str | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a command in the repository's root; a failure shows what it printed."""
    ended = subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        env=os.environ | environment,
    )
    if check and ended.returncode:
        raise AssertionError(
            f"{' '.join(words)} ended with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    return ended


def python(
    *words: str, check: bool = True, timeout_s: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    return command(sys.executable, *words, check=check, timeout_s=timeout_s, **environment)


def kubectl(
    *words: str, check: bool = True, stdin: str | None = None, timeout_s: float = 120
) -> str:
    return command("kubectl", *words, check=check, stdin=stdin, timeout_s=timeout_s).stdout


def argo_without_server(
    *words: str, check: bool = True, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """`argo` straight to the Kubernetes API, as someone without an Argo Server uses it."""
    return command("argo", *words, check=check, timeout_s=timeout_s, ARGO_SERVER="", ARGO_TOKEN="")


def workflow(name: str) -> dict[str, Any]:
    text = kubectl("get", "workflow", name, "-o", "json", check=False)
    return json.loads(text) if text else {}


def status(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = workflow(name).get("status", {})
    return answer


def phase(name: str) -> str:
    return str(status(name).get("phase", ""))


def wait_for(what: str, look: Callable[[], T], *, timeout_s: float, poll_s: float = 1.0) -> T:
    """What `look` returns as soon as it is true; fails after the time limit."""
    ends_s = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < ends_s, f"{what}: not seen in {timeout_s:.0f} s"
        time.sleep(poll_s)
    return seen


def ended(name: str, *, timeout_s: float = 900) -> dict[str, Any]:
    """The workflow's status once its phase is final."""
    return (
        wait_for(
            f"end of {name}",
            lambda: (s := status(name)).get("phase") in FINAL and s,
            timeout_s=timeout_s,
            poll_s=2.0,
        )
        or {}
    )


def delete(*names: str) -> None:
    if names:
        kubectl("delete", "workflow", *names, "--ignore-not-found", "--wait=true", check=False)


def kill(program: str) -> None:
    """Ends one of the cluster's programs outright, as a lost node would."""
    state = Path(os.environ["RL_CLUSTER_STORAGE"]).parent
    os.kill(int((state / "run" / f"{program}.pid").read_text()), signal.SIGKILL)


def start_again() -> None:
    """Lets the cluster's own script start what was killed."""
    command(str(Path(os.environ["CLUSTER"]).resolve() / "up"), timeout_s=300)


def node(status: Mapping[str, Any], display_name: str) -> dict[str, Any]:
    """The one node of that display name; fails where there is none or more."""
    found = [n for n in status.get("nodes", {}).values() if n["displayName"] == display_name]
    assert len(found) == 1, f"{len(found)} nodes named {display_name!r}"
    return dict(found[0])


def phases(status: Mapping[str, Any], display_name: str) -> list[str]:
    """Phases of all nodes of that display name, in the order of their full names."""
    nodes = sorted(status.get("nodes", {}).values(), key=lambda n: n["name"])
    return [n["phase"] for n in nodes if n["displayName"] == display_name]


def pods(status: Mapping[str, Any], template: str) -> list[str]:
    """The phases of all pods of a template, in the order of their nodes' names."""
    nodes = sorted(status.get("nodes", {}).values(), key=lambda n: n["name"])
    return [n["phase"] for n in nodes if n["type"] == "Pod" and n.get("templateName") == template]


@dataclass
class PodTimes:
    """When the main container of each pod of a workflow ran, in seconds of the epoch, and what it
    had asked for."""

    template: str
    node_name: str
    requests: dict[str, str] = field(default_factory=dict)
    started_s: float | None = None
    ended_s: float | None = None

    def overlaps(self, other: PodTimes) -> bool:
        """Whether both ran at once; fails where one was not seen to start or to end."""
        (started_s, ended_s), (other_started_s, other_ended_s) = self._ran(), other._ran()
        return started_s < other_ended_s and other_started_s < ended_s

    def _ran(self) -> tuple[float, float]:
        assert self.started_s is not None and self.ended_s is not None, self
        return self.started_s, self.ended_s


@contextlib.contextmanager
def watched_pods(name: str) -> Iterator[dict[str, PodTimes]]:
    """Collects the times of a workflow's pods while they live: finished ones are removed after a
    minute."""
    seen: dict[str, PodTimes] = {}
    watch = subprocess.Popen(
        ["kubectl", "get", "pods", "-l", f"workflows.argoproj.io/workflow={name}", "--watch", "-o", "json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    reader = threading.Thread(target=_read_pods, args=(watch.stdout, seen), daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        watch.terminate()
        watch.wait(10)
        reader.join(10)
        if watch.stdout is not None:
            watch.stdout.close()


def _read_pods(lines: Any, seen: dict[str, PodTimes]) -> None:
    decoder, text = json.JSONDecoder(), ""
    for line in lines:
        text += line
        if line.rstrip() != "}":
            continue
        pod, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        _take(pod, seen)


def _take(pod: Mapping[str, Any], seen: dict[str, PodTimes]) -> None:
    metadata = pod["metadata"]
    main = next(c for c in pod["spec"]["containers"] if c["name"] == "main")
    template = (
        metadata["name"]
        .rsplit("-", 1)[0]
        .removeprefix(metadata["labels"]["workflows.argoproj.io/workflow"] + "-")
    )
    resources = main.get("resources", {})
    asked = {**resources.get("limits", {}), **resources.get("requests", {})}
    times = seen.setdefault(
        metadata["name"],
        PodTimes(template, metadata["annotations"]["workflows.argoproj.io/node-name"], asked),
    )
    for container in pod.get("status", {}).get("containerStatuses", []):
        if container["name"] == "main":
            state = container["state"]
            running = state.get("terminated") or state.get("running") or {}
            times.started_s = _seconds(running.get("startedAt")) or times.started_s
            times.ended_s = _seconds(running.get("finishedAt")) or times.ended_s


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def delete_one(name: str, template: str) -> None:
    """A running pod of a workflow's template."""
    of_workflow = ["-l", f"workflows.argoproj.io/workflow={name}"]
    running = ["--field-selector=status.phase=Running", "-o", "name"]
    pods = kubectl("get", "pods", *of_workflow, *running).split()
    pod = next(pod for pod in pods if re.fullmatch(rf"pod/{name}-{template}-\d+", pod))
    kubectl("delete", pod, "--wait=false")
