"""Issue 4, point 7: a person's own environment reaches the pods by an image built from ours."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster import kubernetes as k
from tests.cluster.conftest import KUBERNETES, Images, image, in_pods

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
    k.delete("t-corridor")
    k.argo_without_server(
        "submit", str(manifest), "--name", "t-corridor", "-p", "game=corridor:Corridor", "-p", "epochs=20", "-p", "evaluation_episodes=3",
        "-p", "evaluation_policy=sample", "-p", f"outdir={in_pods(outdir)}", "-p", f"gpu_image={own}", "-p", f"cpu_image={own}",
    )  # fmt: skip
    status = k.ended("t-corridor")
    assert status["phase"] == "Succeeded", status.get("message")
    assert len((outdir / "runs/0/evaluation.csv").read_text().splitlines()) == 4
