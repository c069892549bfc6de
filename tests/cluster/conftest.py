"""The cluster's fixtures: skipped, with the reason, where it is not up."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster import kubernetes as k

KUBERNETES = k.ROOT / "containers" / "kubernetes"
ENFORCE = "pod-security.kubernetes.io/enforce"
IMAGE_FILES = (
    "pyproject.toml",
    "constraints.txt",
    "agents",
    "config",
    "steps",
    "workflows",
    "containers/Dockerfile",
)


class Images(NamedTuple):
    gpu: str
    cpu: str

    @property
    def parameters(self) -> list[str]:
        return ["-p", f"gpu_image={self.gpu}", "-p", f"cpu_image={self.cpu}"]


# What a shell starts in the background ignores SIGINT, and so would every program that the tests
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = k.why_not() if here else None
    for item in here:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(1800))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def namespace() -> str:
    """The namespace with what `containers/kubernetes/` brings, and nothing more."""
    name = os.environ["ARGO_NAMESPACE"]
    patch = f"--patch-file={KUBERNETES / 'controller.yaml'}"
    k.kubectl(
        "patch", "configmap", "workflow-controller-configmap", "-n", name, "--type=merge", patch
    )
    k.kubectl("apply", "-n", name, "-k", str(KUBERNETES))
    k.wait_for(
        "the claim",
        lambda: k.kubectl("get", "pvc", "storage", "-o", "jsonpath={.status.phase}") == "Bound",
        timeout_s=60,
    )
    return name


@pytest.fixture
def restricted(namespace: str) -> Iterator[str]:
    """The namespace while it enforces the restricted pod security standard."""
    k.kubectl("label", "--overwrite", "namespace", namespace, f"{ENFORCE}=restricted")
    yield namespace


@pytest.fixture
def privileged(namespace: str) -> Iterator[str]:
    """The namespace without enforcement: the small workflows of the comparison set no security
    context."""
    k.kubectl("label", "--overwrite", "namespace", namespace, f"{ENFORCE}=privileged")
    yield namespace
    k.kubectl("label", "--overwrite", "namespace", namespace, f"{ENFORCE}=restricted")


def _pull(name: str) -> None:
    """Have the node pull an image before any test looks at the clock; both images have the same
    layers."""
    k.kubectl("delete", "pod", "browse", "--ignore-not-found")
    k.kubectl(
        "apply", "-f", "-", stdin=(KUBERNETES / "browse.yaml").read_text().replace("rl:cpu", name)
    )
    k.kubectl("wait", "--for=condition=Ready", "pod/browse", "--timeout=20m", timeout_s=1300)
    k.kubectl("delete", "pod", "browse")


@pytest.fixture(scope="session")
def images(namespace: str) -> Images:
    """Both images of the project as it is now; the tag is a hash of what enters them, because a
    node keeps what it has pulled."""
    tag = _content_hash()
    built = Images(
        *(
            image(f"rl:{tag}-{target}", "--file", "containers/Dockerfile", "--target", target)
            for target in ("gpu", "cpu")
        )
    )
    _pull(built.cpu)
    return built


def image(name: str, *options: str, context: Path = k.ROOT) -> str:
    """Builds and pushes one image with the cluster's own script; its full name."""
    script = str(Path(os.environ["CLUSTER"]).resolve() / "image")
    built = subprocess.run(
        [script, str(context), "--name", name, *options],
        capture_output=True,
        text=True,
        cwd=k.ROOT,
        timeout=1500,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return built.stdout.strip().splitlines()[-1]


def _content_hash() -> str:
    digest = hashlib.sha256()
    for part in IMAGE_FILES:
        path = k.ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(k.ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's manifest with requests that fit a small node."""
    return small_manifest("ppo", tmp_path_factory.mktemp("manifest"))


def small_manifest(algorithm: str, folder: Path) -> Path:
    """With requests that fit a small node."""
    small = str(Path(__file__).parent / "small.yaml")
    file = folder / f"{algorithm}.yaml"
    file.write_text(
        k.python("-m", "workflows.submit", algorithm, "--manifest", "--cluster", small).stdout
    )
    return file


@pytest.fixture
def outdir(request: pytest.FixtureRequest, namespace: str) -> Iterator[Path]:
    """A directory of the test's own on the shared storage, as this machine sees it; in pods it is
    /storage/tests/<name>."""
    folder = (
        Path(os.environ["RL_CLUSTER_STORAGE"])
        / "tests"
        / request.node.name.replace("[", "-").replace("]", "")
    )
    folder.parent.mkdir(mode=0o777, exist_ok=True)
    folder.parent.chmod(0o777)
    shutil.rmtree(folder, ignore_errors=True)
    yield folder


def submit(manifest: Path, name: str, folder: Path, images: Images, **given: str) -> None:
    """Plain `argo submit` under a name that is free then; the results lie in the folder."""
    k.delete(name)
    words = parameters(folder, images, **given)
    k.argo_without_server("submit", str(manifest), "--name", name, *words)


def parameters(folder: Path, images: Images, **given: str) -> list[str]:
    """What it is given, as the local command takes it, too."""
    words = [word for key, value in given.items() for word in ("-p", f"{key}={value}")]
    return [*words, "-p", f"outdir={in_pods(folder)}", *images.parameters]


def in_pods(outdir: Path) -> str:
    """What pods call a directory of the shared storage."""
    return f"/storage/{outdir.relative_to(os.environ['RL_CLUSTER_STORAGE'])}"


def epochs(run: Path) -> list[str]:
    """Those of a training's table so far, of which the last may still be written."""
    table = run / "train.csv"
    if not table.exists():
        return []
    with table.open() as file:
        return [row["epoch"] for row in csv.DictReader(file)]
