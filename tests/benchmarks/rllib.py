"""IMPALA's steps a second that are learnt from, ours and RLlib's, which has an environment of its own
(`make benchmark` makes it: `.venv-rllib`, with the gymnasium that RLlib pins).

The same hyperparameters and the same two cores. Each side has three settings, of which the best one
counts; the sides take turns, one setting after the other, because both of them would have the cores.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.throughput import ROOT, Worker
from tests.benchmarks.together import experiment, together

PYTHON = ROOT / ".venv-rllib/bin/python"
SETTINGS = ((1, 16), (2, 8), (4, 8))
"""Actors, and environments of each."""
SEGMENT_S, WARM_S = 8.0, 2.0


def compare(game: str, rounds: int) -> list[float]:
    """Ours by theirs, the best of each side in every round."""
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON.relative_to(ROOT)} is missing: `make benchmark` makes it")
    ratios = list[float]()
    for _ in range(rounds):
        own, peer = (
            {setting: rate(game, *setting) for setting in SETTINGS} for rate in (ours, theirs)
        )
        for side, found in (("ours", own), ("RLlib", peer)):
            each = ", ".join(f"{a} x {n}: {one:,.0f}" for (a, n), one in found.items())
            print(f"{game}, {side}, steps/s with actors x environments: {each}", flush=True)
        ratios.append(max(own.values()) / max(peer.values()))
    return ratios


def ours(game: str, actors: int, environments: int) -> float:
    with together(experiment(game, environments), actors) as one:
        one.learn(WARM_S)
        return one.learn(SEGMENT_S).a_second


def theirs(game: str, actors: int, environments: int) -> float:
    resolved = experiment(game, environments)
    settings = {
        "kind": resolved.game.kind, "id": resolved.game.id, "actors": actors,
        "environments": environments, "cores": os.cpu_count(),
        "sticky_actions": resolved.environment.sticky_actions,
        "hyperparameters": asdict(resolved.hyperparameters),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        path.write_text(json.dumps(settings))
        script = Path(__file__).with_name("rllib_worker.py")
        worker = Worker([str(PYTHON), str(script), str(path)], 1, "wall")
        try:
            worker.rate(WARM_S)
            return worker.rate(SEGMENT_S)
        finally:
            worker.end()
