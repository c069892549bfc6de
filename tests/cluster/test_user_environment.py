"""What a person brings reaches the pods by an image built from ours: an environment
and an algorithm."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.cluster import kubernetes as k
from tests.cluster.conftest import KUBERNETES, Images, image, submit

CORRIDOR = '''"""Ten cells in a row; the reward waits in the last one."""

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self._seen(), {}

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        return self._seen(), float(self.cell == 9), self.cell == 9, False, {}

    def _seen(self):
        return np.array([self.cell / 9], np.float32)
'''


def test_an_image_from_ours_with_an_environment_of_its_own(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    (dockerfile,) = re.findall(
        r"^```dockerfile\n(.*?)^```", (KUBERNETES / "README.md").read_text(), re.M | re.S
    )
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / "corridor.py").write_text(CORRIDOR)
    (tmp_path / ".dockerignore").write_text("Dockerfile\n")
    own = image(
        f"corridor:{images.cpu.rsplit(':')[-1]}",
        "--build-arg",
        f"IMAGE={images.cpu}",
        context=tmp_path,
    )
    submit(
        manifest, "t-corridor", outdir, Images(own, own), game="corridor:Corridor", epochs="20",
        evaluation_episodes="3", evaluation_policy="sample",
    )  # fmt: skip
    status = k.ended("t-corridor")
    assert status["phase"] == "Succeeded", status.get("message")
    assert len((outdir / "runs/0/evaluation.csv").read_text().splitlines()) == 4


STRANGER = k.ROOT / "tests" / "stranger"
GIVEN = {"game": "cartpole", "epochs": "120", "rollout_length": "256", "evaluation_episodes": "3"}


def lab_image(images: Images, folder: Path) -> str:
    """Ours, with the stranger's package beside it."""
    (folder / "Dockerfile").write_text("ARG IMAGE\nFROM ${IMAGE}\nCOPY my_lab my_lab/\n")
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(STRANGER / "my_lab", folder / "my_lab", ignore=without_caches)
    (folder / ".dockerignore").write_text("Dockerfile\n")
    tag = f"my-lab:{images.cpu.rsplit(':')[-1]}"
    return image(tag, "--build-arg", f"IMAGE={images.cpu}", context=folder)


def test_an_environment_wrappers_and_a_network_of_ones_own(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    name, own = "t-maze", lab_image(images, tmp_path)
    submit(
        manifest, name, outdir, Images(own, own), game="my_lab.envs:Maze", epochs="4",
        env_options="size=5", network="my_lab.nets:Residual", rollout_length="32", minibatches="4",
        evaluation_episodes="3",
        wrappers="my_lab.wrappers:within_fifty_steps,my_lab.wrappers:Impatient",
    )  # fmt: skip
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    assert len((outdir / "runs/0/evaluation.csv").read_text().splitlines()) == 4
    assert (outdir / "runs/0/videos/episode-0.mp4").is_file()


def test_an_algorithm_of_ones_own_killed_in_between(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """Its manifest comes from its descriptor; a deleted training pod changes no byte."""
    name, own = "t-reinforce", lab_image(images, tmp_path)
    algorithm, small = "my_lab.reinforce:ALGORITHM", Path(__file__).parent / "small.yaml"
    ours = ["-m", "workflows.submit", algorithm]
    rendered = k.python(*ours, "--manifest", "--cluster", str(small), PYTHONPATH=str(STRANGER))
    manifest = tmp_path / "reinforce.yaml"
    manifest.write_text(rendered.stdout)
    submit(manifest, name, outdir, Images(own, own), **GIVEN)
    run = outdir / "runs/0"
    k.wait_for(
        "a checkpoint", lambda: list((run / "checkpoints").glob("0*")), timeout_s=300, poll_s=0.1
    )
    selected = ["-l", f"workflows.argoproj.io/workflow={name}", "-o", "name"]
    (training,) = [p for p in k.kubectl("get", "pods", *selected).split() if "-train-" in p]
    k.kubectl("delete", training, "--wait=false")
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    assert (outdir / "report.html").is_file()
    here = tmp_path / "here"
    given = [f"-p={key}={value}" for key, value in {**GIVEN, "outdir": str(here)}.items()]
    k.python(*ours, "--local", *given, PYTHONPATH=str(STRANGER))
    assert (run / "train.csv").read_bytes() == (here / "runs/0/train.csv").read_bytes()
