"""What the presets must learn, for `make learning`, and what cannot be learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from config.numbers import short
from tests.benchmarks.verdicts import Bound

SEED = 1000
"""Nothing was ever tuned with it; the presets were with 0 to 8. Run i draws from (seed, i)."""
RUNS = 3


@dataclass(frozen=True)
class Goal:
    """What an algorithm must reach on a game, or cannot.

    steps: environment steps of a run, trained to the end of an epoch; given: what differs from the
    preset; label: what the tables say for the algorithm where its name says too little.
    """

    algorithm: str
    game: str
    steps: int
    bound: Bound
    runs: int = RUNS
    given: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def called(self) -> str:
        """The algorithm."""
        return self.label or self.algorithm

    @property
    def on(self) -> str:
        """The game; `catch` where it is `tests.own_games:Catch`."""
        return self.game.rpartition(":")[2].lower()

    @property
    def name(self) -> str:
        """`sac-pendulum`; `sac-lunarlander_continuous-200k`: the preset has another length."""
        length = f"-{short(self.steps)}" if "epochs" in self.given else ""
        return f"{self.called}-{self.on}{length}"


LATE, CATCH = "tests.late_weights:ALGORITHM", "tests.own_games:Catch"
OLD = {
    "envs_per_actor": "32", "epochs": "50", "learning_rate": "0.005", "entropy_coefficient": "0.03",
    "vectorisation": "sync", "actors": "1",
}  # fmt: skip
"""IMPALA of Catch from experience that is 20 updates old."""
UNCORRECTED = {**OLD, "vtrace": "false"}
WITHOUT_MEMORY = {"actors": "4", "network": "tests.replayed_actors:Forgetful"}
"""R2D2 whose torso has no memory."""


GOALS = (
    Goal("ppo", "cartpole", 100_000, Bound(490)),
    Goal("ppo", "acrobot", 300_000, Bound(-90)),
    Goal("ppo", "pendulum", 200_000, Bound(-250)),
    Goal("ppo", "lunarlander", 1_000_000, Bound(200)),
    Goal("ppo", "mountaincar", 1_000_000, Bound(-115)),
    Goal("ppo", "lunarlander_continuous", 1_000_000, Bound(230)),
    Goal("ppo", "cartpole-no-velocity", 100_000, Bound(150, is_upper=True)),
    Goal(
        "ppo", "pendulum-no-velocity", 100_000, Bound(-700, is_upper=True), given={"epochs": "48"}
    ),
    Goal("ppo-lstm", "cartpole-no-velocity", 100_000, Bound(450)),
    Goal("ppo-lstm", "pendulum-no-velocity", 100_000, Bound(-350)),
    Goal("dqn", "cartpole", 50_000, Bound(475)),
    Goal("dqn", "mountaincar", 120_000, Bound(-120)),
    Goal("dqn", "acrobot", 100_000, Bound(-90)),
    Goal("dqn", "lunarlander", 100_000, Bound(120)),
    Goal("sac", "pendulum", 20_000, Bound(-170)),
    Goal("td3", "pendulum", 20_000, Bound(-170)),
    Goal("impala", "cartpole", 500_000, Bound(499)),
    Goal(LATE, CATCH, 160_000, Bound(1), given=OLD, label="impala-late"),
    Goal(LATE, CATCH, 160_000, Bound(0.9, is_upper=True), given=UNCORRECTED, label="a3c-late"),
    Goal("async-sac", "pendulum", 20_000, Bound(-170), given={"actors": "4"}),
    Goal("r2d2", "cartpole-no-velocity", 500_000, Bound(475), given={"actors": "4"}),
    Goal(
        "r2d2",
        "cartpole-no-velocity",
        500_000,
        Bound(150, is_upper=True),
        given=WITHOUT_MEMORY,
        label="r2d2-forgetful",
    ),
    Goal("sac", "lunarlander_continuous", 200_000, Bound(150), runs=1, given={"epochs": "200"}),
)
LONG = (Goal("sac", "lunarlander_continuous", 500_000, Bound(200), runs=1),)
"""Hours of a processor."""
