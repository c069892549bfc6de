"""A search on a real controller: three lanes, and pods that are deleted at random."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from config.cluster import load_cluster
from steps.directory.search import SearchDirectory
from steps.directory.tables import read_rows
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods
from tests.cluster.test_interruptions import delete_at_random
from workflows.dag import manifest_yaml, render

SMALL = Path(__file__).with_name("small.yaml")
DELETED = 10
TRIALS = 20
BAD_PRESET = f"""
outdir: unused
runs: 2
algorithms: [ppo]
games: [cartpole]
parameters: {{learning_rate: 1e-5}}
search:
  parameters: {{learning_rate: {{low: 1e-5, high: 1e-2, scale: log}}}}
  trials: {TRIALS}
  parallel: 3
  prune: {{rungs: [0.1, 0.3, 1.0], reduction: 3}}
  then: {{best: 1, runs: 2, seed: 1000}}
"""


def test_ten_pods_of_a_search_deleted_at_random(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """From a bad preset to a trained agent, every trial told once and every epoch written once."""
    name = "t-search"
    manifest = tmp_path / "search.yaml"
    made = render.rendered_study(load_cluster(SMALL), kind=render.SEARCH)
    manifest.write_text(manifest_yaml.dump(made))
    k.delete(name)
    k.argo_without_server(
        "submit", str(manifest), "--name", name, *images.parameters,
        "-p", f"outdir={in_pods(outdir)}", "-p", f"study={BAD_PRESET}",
        "-p", "training_memory=1536Mi",
    )  # fmt: skip
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    deleted = delete_at_random(name, random.Random(seed), count=DELETED)
    status = k.ended(name, timeout_s=3000)
    assert status["phase"] == "Succeeded", f"{status.get('message')}; deleted: {deleted}"
    directory = SearchDirectory(outdir)
    lines = map(json.loads, directory.journal.read_text().splitlines())
    told = Counter(one["trial_id"] for one in lines if one["op_code"] == 6 and one["state"] > 0)
    assert told == Counter(dict.fromkeys(range(TRIALS), 1)), deleted
    for trial in read_rows(directory.trials_csv):
        for run in range(2):
            table = directory.experiment(trial["trial"]).run(run).train_csv
            epochs = [int(row["epoch"]) for row in read_rows(table)]
            assert epochs == sorted(set(epochs)), (trial, run, deleted)
            assert epochs[-1] == int(trial["epoch"]), (trial, run, deleted)
    best = next(path for path in directory.again.experiments.iterdir() if "trial" in path.name)
    summary = json.loads((best / "average" / "summary.json").read_text())
    assert summary["evaluation"]["mean"] >= 475
    assert "<h2>Complete</h2>" in directory.report_html.read_text()
