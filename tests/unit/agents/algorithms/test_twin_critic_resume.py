"""A SAC or TD3 that is stopped between two epochs goes on as if nothing had happened: the same progress,
weights, generators, and the same rows of its replay."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from agents.interfaces import Growth, HasStreams, Progress, State
from agents.load import make_trainer
from config.errors import NoUsableState
from config.resolve import resolve
from config.resolved import Resolved

EPOCHS, STOPPED = 6, 3
SMALL = {
    "hidden_sizes": "16,16", "batch_size": "16", "epoch_steps": "60", "epochs": str(EPOCHS), "outdir": "/x",
    "learning_starts": "60", "train_every": "3",
}  # fmt: skip
GAMES = {
    "pendulum": {"game": "pendulum"},
    "full replay": {"game": "pendulum", "replay_size": "100", "batch_size": "16"},
    "before learning": {"game": "pendulum", "learning_starts": "270"},
    "normalised": {"game": "pendulum", "normalise_observations": "true"},
    "annealed": {"game": "tests.own_games:Endless", "anneal_learning_rate": "true"},
    "three environments": {"game": "tests.own_games:Endless", "num_envs": "3", "train_every": "6"},
    "images": {"game": "tests.own_games:Steering", "env_options": "side=10", "train_every": "20"},
}  # fmt: skip
CASES = {
    **{f"{algorithm}, {case}": (algorithm, given)
       for case, given in GAMES.items() for algorithm in ("sac", "td3")},
    "sac, fixed alpha": ("sac", {"game": "pendulum", "alpha": "0.2"}),
    # It stops after 41 updates, no multiple of the delay.
    "td3, long delay": ("td3", {"game": "pendulum", "policy_delay": "7"}),
}  # fmt: skip
PARTS = {
    "sac": ("network", "log_alpha", "optimisers", "generators"),
    "td3": ("network", "updates", "optimisers", "generators"),
}
"""Of the state, what an update depends on."""


def small(case: str) -> Resolved:
    algorithm, given = CASES[case]
    return resolve(algorithm, {**SMALL, **given})


class Streams:
    """What the steps keep of `grown`, in memory."""

    def __init__(self) -> None:
        self.parts, self.keep = dict[str, list[dict[str, np.ndarray]]](), dict[str, int | None]()

    def add(self, grown: dict[str, Growth]) -> None:
        for name, growth in grown.items():
            copied = {column: rows.copy() for column, rows in growth.rows.items()}
            self.parts.setdefault(name, []).append(copied)
            self.keep[name] = growth.keep

    def rows(self, name: str) -> dict[str, np.ndarray]:
        """Those that a training which goes on needs."""
        parts, keep = self.parts[name], self.keep[name]
        whole = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
        return {
            column: rows if keep is None else rows[max(0, len(rows) - keep) :]
            for column, rows in whole.items()
        }

    def copy(self) -> Streams:
        copied = Streams()
        copied.parts = {name: list(parts) for name, parts in self.parts.items()}
        copied.keep = dict(self.keep)
        return copied


def flat(node: Any, path: str = "") -> dict[str, Any]:
    if isinstance(node, dict):
        return {
            key: leaf
            for name, one in node.items()
            for key, leaf in flat(one, f"{path}/{name}").items()
        }
    return {
        path: (node.dtype.str, node.shape, node.tobytes()) if isinstance(node, np.ndarray) else node
    }


def through_json(node: Any) -> Any:
    """As a checkpoint holds it: arrays, and what JSON knows."""
    if isinstance(node, dict):
        return {name: through_json(one) for name, one in node.items()}
    return node.copy() if isinstance(node, np.ndarray) else json.loads(json.dumps(node))


def trained(
    resolved: Resolved, before: tuple[State, Streams] | None = None
) -> tuple[list[Progress], dict[int, tuple[State, Streams]]]:
    """The epochs, and the state after each, with the streams up to there."""
    trainer = make_trainer(resolved, run=1, device="cpu", precision="fp32")
    assert isinstance(trainer, HasStreams)
    streams, progress, states = Streams(), list[Progress](), {}
    if before is not None:
        streams = before[1].copy()
        trainer.load_state_dict(before[0])
        trainer.load_streams({name: iter([streams.rows(name)]) for name in streams.parts})
        assert (trainer.epoch, trainer.step) == (STOPPED, STOPPED * 60)
    for one in trainer.train():
        streams.add(trainer.grown())
        progress.append(one)
        states[one.epoch] = through_json(trainer.state_dict()), streams.copy()
    trainer.close()
    return progress, states


@pytest.mark.parametrize("case", CASES)
def test_it_goes_on_as_if_nothing_had_happened(case: str) -> None:
    resolved = small(case)
    progress, states = trained(resolved)
    resumed, later = trained(resolved, states[STOPPED])
    assert [one.epoch for one in resumed] == [4, 5, 6]
    assert resumed == progress[STOPPED:]
    (state, streams), (again, streams_again) = states[EPOCHS], later[EPOCHS]
    assert flat(state) == flat(again)
    assert set(streams.parts) == set(streams_again.parts) == {"replay", "replay-ends"}
    for name in streams.parts:
        assert flat(streams.rows(name)) == flat(streams_again.rows(name))


@pytest.mark.parametrize(("algorithm", "case"), [("sac", "pendulum"), ("td3", "long delay")])
def test_what_a_state_lacks_is_seen(algorithm: str, case: str) -> None:
    """Each part of the state is needed: exchanged for that of another epoch, the training differs."""
    resolved = small(f"{algorithm}, {case}")
    progress, states = trained(resolved)
    state, streams = states[STOPPED]
    for part in PARTS[algorithm]:
        resumed, _ = trained(resolved, ({**state, part: states[2][0][part]}, streams))
        assert resumed != progress[STOPPED:], part
    for purpose in ("actions", "minibatches", "updates"):
        generators = {**state["generators"], purpose: states[2][0]["generators"][purpose]}
        resumed, _ = trained(resolved, ({**state, "generators": generators}, streams))
        assert resumed != progress[STOPPED:], purpose


def test_it_does_not_go_on_with_less_than_it_had() -> None:
    resolved = small("sac, pendulum")
    states = trained(resolved)[1]
    streams = states[STOPPED][1]
    streams.parts["replay"] = streams.parts["replay"][:-1]
    with pytest.raises(NoUsableState, match="120 steps of its environments, its checkpoint 180"):
        trained(resolved, (states[STOPPED][0], streams))
