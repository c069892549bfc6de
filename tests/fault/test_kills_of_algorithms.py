"""Every algorithm of ours, killed several times at random moments, by SIGKILL and by SIGTERM:
weights, train.csv and what its replay holds end with the bytes of an undisturbed training.

Five kills of a short training in CI, twenty of a longer one in the soak tests."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from config.resolve import resolve
from steps.directory import segments
from steps.directory.checkpoints import trained_epochs
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import read_status
from tests.fault.conftest import Start, Step

STEPS_PER_KILL = 1000
FEW, MANY = 5, 20
TRAININGS = {
    "dqn": ("dqn", {"game": "cartpole"}),
    "dqn-prioritised": ("dqn", {"game": "cartpole", "prioritised": "true", "n_step": "3"}),
    "sac": ("sac", {"game": "pendulum", "train_every": "4"}),
    "td3": ("td3", {"game": "pendulum", "learning_starts": "1000", "hidden_sizes": "64,64"}),
    "ppo-lstm": ("ppo-lstm", {"game": "cartpole-no-velocity"}),
    "a2c": ("a2c", {"game": "cartpole"}),
}
CASES = [
    *((training, FEW, False) for training in ("sac", "ppo-lstm")),
    ("dqn-prioritised", FEW, True),
    *(
        pytest.param(training, MANY, pauses, marks=pytest.mark.soak)
        for training in TRAININGS
        for pauses in (False, True)
    ),
]
"""Training, kills, and whether every start is to pause somewhere. The few kills leave out `dqn`, `td3` and
`a2c`: the other trainings go through their code as well."""
Products = tuple[bytes, bytes, str, dict[str, str]]


def prepare(
    start: Start, outdir: Path, algorithm: str, given: dict[str, str], *, steps: int
) -> RunDirectory:
    epochs = resolve(algorithm, {**given, "steps": str(steps)}).epochs
    parameters = {**given, "outdir": str(outdir), "epochs": str(epochs)}
    words = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
    step = start("steps.prepare", ["--algorithm", algorithm, *words])
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def train(start: Start, outdir: Path, until: int | str = "") -> Step:
    return start("steps.train", ["--outdir", str(outdir), "--run", "0", f"--until={until}"])


def products(run: RunDirectory) -> Products:
    """What must be equal: train.csv, the weights, the rest of the state, the rows of the streams."""
    final = run.checkpoint(run.checkpoint_steps()[-1])
    state = json.loads((final / "state.json").read_bytes())["state"]
    weights = (final / "tensors.safetensors").read_bytes()
    return run.train_csv.read_bytes(), weights, json.dumps(state), contents(run, final)


def contents(run: RunDirectory, checkpoint: Path) -> dict[str, str]:
    """Stream and column -> checksum of the rows that the checkpoint lists, however they are divided
    into segments.
    """
    listed = checkpoint / segments.STREAMS
    if not listed.exists():
        return {}
    sums: dict[str, hashlib._Hash] = {}
    for name, stream in segments.parse(listed.read_bytes()).items():
        for rows in segments.read(run, name, stream):
            for column, values in rows.items():
                sums.setdefault(f"{name} {column}", hashlib.sha256()).update(values.tobytes())
    return {name: total.hexdigest() for name, total in sums.items()}


def begins_or_has_ended(step: Step) -> bool:
    return "training" in step.text or "nothing to do" in step.text


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("training", "kills", "pauses"), CASES)
def test_killed_at_random_moments(
    start: Start, tmp_path: Path, training: str, kills: int, pauses: bool
) -> None:
    algorithm, given = TRAININGS[training]
    steps = kills * STEPS_PER_KILL
    undisturbed = prepare(start, tmp_path / "undisturbed", algorithm, given, steps=steps)
    began_s = time.monotonic()
    step = train(start, tmp_path / "undisturbed")
    assert step.end(timeout_s=900) == 0, step.text
    whole_s = time.monotonic() - began_s
    expected = products(undisturbed)
    run = prepare(start, tmp_path / "killed", algorithm, given, steps=steps)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    epochs = resolve(algorithm, {**given, "steps": str(steps)}).epochs
    for number in range(kills):
        epoch = trained_epochs(run)
        until = generator.randint(epoch + 1, epoch + 2 * epochs // kills) if pauses else ""
        step = train(start, tmp_path / "killed", until)
        # The kill before this one may have come when all was done but the end of the process.
        step.wait_for(partial(begins_or_has_ended, step))
        time.sleep(generator.uniform(0, 2 * whole_s / kills))
        step.kill(generator.choice([signal.SIGKILL, signal.SIGTERM]))
        ended = step.end()
        assert ended in (0, -signal.SIGKILL, 75), (number, step.text)
        if ended == 0:
            status = read_status(run.status / "train.json")
            assert status is not None and status.state in ("succeeded", "paused")
            assert pauses or status.state == "succeeded"
            if status.state == "succeeded":
                break
    step = train(start, tmp_path / "killed")
    assert step.end(timeout_s=900) == 0, step.text
    assert products(run) == expected
