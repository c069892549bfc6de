"""The hyperparameters of AlphaZero, Silver et al. 2018 (Science 362, arXiv:1712.01815). Presets
adapt them to each game.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from config.algorithms import common_hyperparameters as common
from config.algorithms.descriptor import BOARD, SELF_PLAY, Algorithm
from config.algorithms.replay_ratio import ReplayRatio
from config.environment import Environments
from config.imports import IMPORT_PATH
from config.measures import WIN_RATE
from config.outdir import check_outdir_text
from config.parameters import cannot_be, parameter


@dataclass(frozen=True, kw_only=True)
class AlphaZero:
    """The defaults suit Connect Four on a few processors. One step is one position that a worker
    has played.
    """

    simulations: int = parameter(
        96,
        low=1,
        high=100_000,
        help="simulations of a full search, whose visit counts are the policy's target",
    )
    cheap_simulations: int = parameter(
        16,
        low=1,
        high=100_000,
        help="simulations of all other searches of self-play, whose moves are played but not "
        "learnt",
    )
    full_search_share: float = parameter(
        0.25, low=0.01, high=1, help="share of the moves of self-play that are searched in full"
    )
    evaluation_simulations: int = parameter(
        96,
        low=1,
        high=100_000,
        later=True,
        help="simulations of each move of the trained player in evaluation",
    )
    c_init: float = parameter(
        1.25,
        low=0,
        high=100,
        help="initial exploration constant c of PUCT, the weight of the prior against the value",
    )
    dirichlet_alpha: float = parameter(
        1.0,
        low=1e-3,
        high=100,
        help="concentration of the Dirichlet noise at the root of full searches; about 10 / "
        "average number of legal actions",
    )
    noise_fraction: float = parameter(
        0.25, low=0, high=1, help="share of the Dirichlet noise in the priors of the root"
    )
    sampled_plies: int = parameter(
        10,
        low=0,
        high=10_000,
        unit="plies",
        help="first plies of a game of self-play whose moves are drawn in proportion to "
        "visits; later moves are the best ones found",
    )
    gumbel: bool = parameter(
        False,
        help="search the root by sequential halving (Gumbel AlphaZero), which suits few "
        "simulations, instead of PUCT",
    )
    generation_positions: int = parameter(
        2000,
        low=1,
        high=10**8,
        unit="steps",
        help="positions that all workers play in one epoch, a generation",
    )
    learning_starts: int = parameter(
        2000,
        low=1,
        high=10**8,
        unit="steps",
        help="positions of all workers before the first update",
    )
    replay_ratio: float = parameter(
        4.0, low=1e-3, high=10_000, help="average number of times that each position is learnt from"
    )
    max_ahead: int = parameter(
        16,
        low=1,
        high=10**6,
        unit="updates",
        help="updates by which the trainer or the workers may be ahead of the replay ratio "
        "before they wait",
    )
    window: int = parameter(
        20_000,
        low=1,
        high=10**8,
        unit="steps",
        help="c: positions that the replay window holds at first; it grows with the positions "
        "played",
    )
    window_exponent: float = parameter(
        0.75,
        low=0.01,
        high=1,
        help="alpha in the size of the replay window, c (1 + beta ((N / c)^alpha - 1) / alpha) "
        "for N positions played",
    )
    window_growth: float = parameter(
        0.4,
        low=0,
        high=1,
        help="beta in the size of the replay window; 0: the window does not grow",
    )
    batch_size: int = parameter(
        256, low=1, high=65_536, unit="steps", help="positions in one update"
    )
    learning_rate: float = common.learning_rate(1e-3)
    anneal_learning_rate: bool = common.anneal_learning_rate(False)
    weight_decay: float = parameter(
        1e-4, low=0, high=1, help="weight of the sum of squared network weights in the loss"
    )
    average_decay: float = parameter(
        0.98,
        low=0,
        high=0.99999,
        help="decay per update of the exponential average of the weights, which plays in "
        "self-play; 0: the newest weights play",
    )
    blocks: int = parameter(4, low=0, high=100, help="blocks of the residual network")
    channels: int = parameter(64, low=1, high=4096, help="channels of the residual network")
    network: str | None = parameter(
        None,
        optional=True,
        pattern=IMPORT_PATH.pattern,
        form="package.module:Name",
        help="your own torso below the policy and value heads; empty: the residual network",
    )
    imitate: str | None = parameter(
        None,
        optional=True,
        form="a path below the storage mount",
        help="file of recorded games, one line of action numbers each, that the network "
        "imitates before the first game; empty: no imitation",
    )
    imitation_updates: int = parameter(
        1000,
        low=1,
        high=10**7,
        unit="updates",
        help="updates of the network on the recorded games of imitate",
    )
    kept_generations: int = parameter(
        8,
        low=1,
        high=1000,
        help="networks kept for evaluation, spread evenly over the training, besides the final one",
    )

    @property
    def ratio(self) -> ReplayRatio:
        """How often each position is learnt from, as a replay ratio."""
        return ReplayRatio(
            ratio=self.replay_ratio, starts=self.learning_starts, batch=self.batch_size, unroll=1,
            slack=self.max_ahead * self.batch_size,
        )  # fmt: skip

    def updates_after(self, generations: int) -> int:
        """Number of updates that are due after this many generations: at least as many as their
        positions require.
        """
        learnt = self.replay_ratio * self.generation_positions * generations
        return math.ceil(learnt / self.batch_size)

    def window_of(self, positions: int) -> int:
        """Number of the newest positions that are learnt from: KataGo's window (arXiv:1902.10565,
        appendix C), with N counted in positions.
        """
        c = self.window
        alpha = self.window_exponent
        beta = self.window_growth
        if positions <= c:
            return positions
        return int(c * (1 + beta * ((positions / c) ** alpha - 1) / alpha))

    def is_kept(self, generation: int, *, first: int, last: int) -> bool:
        """Whether the network of this generation is kept, in a training of `last` generations that
        had `first` of them when it was begun: a longer training keeps the first spacing.
        """
        spaced = max(1, last * self.kept_generations // first)
        kept = {round(first * k / self.kept_generations) for k in range(spaced + 1)}
        return generation in kept or generation == last

    tied_to_length = common.falling_learning_rate

    def steps_per_epoch(self, environment: Environments) -> int:
        """Positions of one generation, over all workers."""
        return self.generation_positions

    def warm_up_steps(self, environment: Environments) -> int:
        """Positions before the first update."""
        return self.learning_starts

    def check(self, environment: Environments) -> None:
        """Raise `BadInput` for values that do not go together."""
        if self.replay_ratio * self.generation_positions < self.batch_size:
            least = -(-self.batch_size // self.replay_ratio)
            raise cannot_be(
                "generation_positions",
                self.generation_positions,
                allowed=f"at least batch_size / replay_ratio, {least:g}",
            )
        if self.imitate is not None:
            check_outdir_text(self.imitate, "imitate")
        if self.cheap_simulations > self.simulations:
            raise cannot_be(
                "cheap_simulations",
                self.cheap_simulations,
                allowed=f"at most simulations, {self.simulations}",
            )
        if self.window < self.learning_starts:
            raise cannot_be(
                "window", self.window, allowed=f"at least learning_starts, {self.learning_starts}"
            )


ALGORITHM = Algorithm(
    name="alphazero",
    hyperparameters=AlphaZero,
    trainer="agents.algorithms.alphazero:AlphaZeroTrainer",
    policy="agents.selfplay.policy:load",
    worker="agents.selfplay.worker:Worker",
    families=(BOARD,),
    topology=SELF_PLAY,
    measure=WIN_RATE,
)
