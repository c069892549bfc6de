"""A policy of SAC or TD3 as ONNX: the actions that the program itself would take, and its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agents.evaluation.export import to_onnx
from agents.load import load_policy, make_trainer
from config.resolve import resolve

SMALL = {
    "hidden_sizes": "16,16", "batch_size": "8", "learning_starts": "20", "epoch_steps": "40",
    "outdir": "/x", "epochs": "1",
}  # fmt: skip
GAMES = {
    "tests.own_games:Wide": {},
    "pendulum": {"normalise_observations": "true", "learning_starts": "40"},
    "tests.own_games:Steering": {"replay_size": "1000"},
}


HEADS = {"sac": ["mean", "log_std"], "td3": []}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", HEADS)
@pytest.mark.parametrize(
    "game",
    [pytest.param(one, marks=[] if one == "pendulum" else [pytest.mark.slow]) for one in GAMES],
)
def test_the_graph_acts_as_the_policy(game: str, algorithm: str) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import onnxruntime

    resolved = resolve(algorithm, {"game": game, **SMALL, **GAMES[game]})
    trainer: Any = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    content = to_onnx(policy, {"algorithm": algorithm})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    spaces, drawn = policy.spaces, np.random.default_rng(0)
    rows = drawn.normal(0, 2, (5, *spaces.environment_shape)).astype(np.float32)
    if spaces.image:
        rows = drawn.integers(0, 256, rows.shape).astype(np.uint8)
    names = [one.name for one in session.get_outputs()]
    answers = dict(zip(names, session.run(None, {"observation": rows}), strict=True))
    assert names == ["action", *HEADS[algorithm], "value"]
    expected = policy.act(rows, sample=False)
    np.testing.assert_allclose(answers["action"], expected, atol=1e-4)
    low, high = np.array(spaces.low), np.array(spaces.high)
    if "mean" in answers:
        squashed = low + (np.tanh(answers["mean"]) + 1) / 2 * (high - low)
        np.testing.assert_allclose(answers["action"], squashed, atol=1e-4)
    if not spaces.image and not GAMES[game]:
        encoded = torch.from_numpy(rows)
        unit = 2 * (torch.from_numpy(expected) - torch.tensor(low)) / torch.tensor(high - low) - 1
        with torch.no_grad():
            values = trainer.network.values(encoded, unit.float())
        np.testing.assert_allclose(answers["value"], values.min(0).values, atol=1e-4)
