"""What SAC (`sac.py`) and TD3 (`td3.py`) have in common: networks with twin critics that learn from a
replay.

The pages of the two say what is learnt, in the order of their papers. Here is what surrounds it: a
batch from the replay, a step of an optimiser and the refusal of one that is not finite, the means of
an epoch, the state; and the loop of a training in one process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agents.devices import numbers, on_device
from agents.experience.collection import Collection
from agents.experience.replay import Transitions
from agents.interfaces import Growth, Progress, State
from agents.networks.action_distributions import BoundedActions
from agents.networks.twin_critics import TwinCritics
from agents.optimisation.blocks import Block, mean_norm
from agents.optimisation.gradients import Gradients
from agents.optimisation.optimiser import Adam
from agents.spaces import Interface
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed, seed_sequence

if TYPE_CHECKING:
    from agents.compiled.fast_twin_critics import CompiledTwinCritics

ADAM_EPSILON = 1e-8
CRITICS = "critics"
ACTOR = "actor"


class Batch(NamedTuple):
    """B transitions to learn from.

    encoded, next_encoded [B, ...]; actions [B, A], between −1 and 1; rewards; discounts [B]: γ, or
    0 after a termination; weights [B]: 1/B, or 0 if it is not known what followed.
    """

    encoded: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_encoded: Tensor
    weights: Tensor


class Learner(NamedTuple):
    """The gradients of a loss, and the optimiser of its parameters."""

    gradients: Gradients
    optimiser: Adam


class Measured(NamedTuple):
    """What was measured in an update: numbers [K], and the norms of gradients, tensors [] where
    nobody has looked at them.
    """

    numbers: Tensor
    norms: tuple[Any, ...]


Update = tuple[Measured | None, ...]
"""Of each group of metrics; None for a group whose networks did not learn in this update."""


def mean_metrics(names: Sequence[str], measured: Sequence[Measured]) -> dict[str, float | None]:
    """Means over an epoch's updates by name: of the numbers, then of the norms. None without
    updates.
    """
    if not measured:
        return dict.fromkeys(names)
    means = torch.stack([one.numbers for one in measured]).mean(dim=0)
    columns = zip(*(one.norms for one in measured), strict=True)
    norms = map(mean_norm, columns)
    return {**numbers(dict(zip(names, (*means, *norms), strict=True)))}


def value_metrics(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The means of Q and of |Q − y|; values [2, B], targets [B]."""
    with torch.no_grad():
        return values.mean(), (values - targets).abs().mean()


class TwinCriticLearning:
    """The networks of one training and their updates, for these spaces.

    An algorithm names its metrics (`groups`, in the order of an `Update`) and the inputs of each loss
    (`inputs`, for the report of a divergence), makes its networks and `learners`, and says what an
    update is. Where experience comes from is a subclass's affair.
    """

    policy_entries = ("format", "interface", "network", "observation_normaliser")
    groups: ClassVar[tuple[tuple[str, ...], ...]]
    inputs: ClassVar[Mapping[str, tuple[str, ...]]]
    network: TwinCritics
    actions: BoundedActions
    learners: dict[str, Learner]
    compiled: CompiledTwinCritics | None
    looks_at_each = True
    """Whether each step looks at its loss and norm before it is made."""

    def __init__(
        self, resolved: Resolved, spaces: Interface, *, run: int, device: str, precision: str
    ) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.spaces = spaces
        self.device = torch.device(device)
        self.epoch = 0
        self.step = 0
        self.learnt = ["network", "observation_normaliser"]
        seed = resolved.experiment.seed
        self.generators = {
            purpose: np.random.default_rng(seed_sequence(seed, run, purpose))
            for purpose in ("actions", "minibatches", "updates")
        }
        weights = torch.Generator().manual_seed(integer_seed(seed, run, "weights"))
        self.network = self._make_network(precision, weights).to(self.device)

    def _make_network(self, precision: str, generator: torch.Generator) -> TwinCritics:
        """The networks, on the CPU, their weights drawn from this generator."""
        raise NotImplementedError

    def _learner(
        self, loss: Callable[..., tuple[Tensor, ...]], parameters: list[nn.Parameter]
    ) -> Learner:
        return Learner(Gradients(loss, parameters), Adam(parameters, epsilon=ADAM_EPSILON))

    def _compiled(self, page: type, names: Sequence[str]) -> Any:
        """The machine code of the steps of critics and policy, for the methods of these names that stand on
        a page; None for others, which a subclass may have, and where torch is needed.
        """
        if any(getattr(type(self), name) is not getattr(page, name) for name in names):
            return None
        if not self.network.is_small:
            return None
        # numba takes a second to import, which is spared where nothing is small.
        from agents.compiled.fast_twin_critics import compiled

        optimisers = [learner.optimiser for learner in self.learners.values()]
        return compiled(self._machine_code(), self, optimisers, Batch)

    def _machine_code(self) -> type[CompiledTwinCritics]:
        """That of this algorithm."""
        raise NotImplementedError

    def _targets(self, batch: Batch, *given: Any) -> Tensor:
        """The targets y, [B], of a batch and what an algorithm needs besides, such as noise."""
        raise NotImplementedError

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Encoded, actions, targets and weights -> the critics' loss, and the means of Q and of |Q − y|."""
        raise NotImplementedError

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Features, and what an algorithm needs besides -> the policy's loss, and other numbers."""
        raise NotImplementedError

    @property
    def steps_now(self) -> int:
        """Environment steps so far, also in the middle of an epoch."""
        raise NotImplementedError

    def _update(self) -> Update:
        """Learn from one batch."""
        raise NotImplementedError

    def _drawn(self) -> Transitions:
        """The transitions of the next update, with normalised observations."""
        raise NotImplementedError

    def _batch(self) -> Batch:
        """A batch from the replay."""
        drawn = self._drawn()
        # The critics' loss is a mean over the valid transitions.
        weights = drawn.valid / np.float32(max(1, drawn.valid.sum()))
        encoded, next_encoded = map(self._encoded, (drawn.observation, drawn.next_observation))
        return Batch(
            encoded, self._tensor(drawn.action), self._tensor(drawn.reward),
            self._tensor(drawn.discount), next_encoded, self._tensor(weights),
        )  # fmt: skip

    def _noise(self, *shape: int) -> Tensor:
        """Standard normal noise for an update."""
        # It is drawn on the CPU by numpy's generator, whose state is part of the checkpoint.
        return self._tensor(self.generators["updates"].standard_normal(shape, np.float32))

    def _note(self, loss: Tensor, norm: Tensor) -> None:
        """Keep both for the look at a block of updates."""
        raise NotImplementedError

    def _descend_critics(self, batch: Batch, *given: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Make one step of the critics' optimiser: what their loss gave, and its gradient's norm. given:
        what the targets need beside the batch.
        """
        if self.compiled is not None:
            made = self.compiled.descend_critics(batch, self._learning_rate, *given)
            # What was not finite there is left to torch, which raises the error.
            if made is not None:
                return made
        targets = self._targets(batch, *given)
        return self._descend(CRITICS, batch.encoded, batch.actions, targets, batch.weights)

    def _descend_actor(self, batch: Batch, *given: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Likewise of the policy's. given: what its loss needs beside the features."""
        if self.compiled is not None:
            made = self.compiled.descend_actor(batch, self._learning_rate, *given)
            if made is not None:
                return made
        # The torso learns from the critics' loss alone (Yarats et al. 2021): the actor takes its
        # features, by the weights that this loss has just changed, as constants.
        with torch.no_grad():
            features = self.network.features(batch.encoded)
        return self._descend(ACTOR, features, *given)

    def _follow(self) -> None:
        """Move the target networks."""
        follow = self.network.follow if self.compiled is None else self.compiled.follow
        follow(self.hyper.target_rate)

    def _descend(self, name: str, *inputs: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Make one step of Adam. Returns what the loss gave, and the norm of its gradient."""
        gradients, optimiser = self.learners[name]
        outputs = gradients(*inputs)
        if not self.looks_at_each:
            unseen = optimiser.clip_unseen_gradients(math.inf)
            self._note(outputs[0], unseen)
            optimiser.step(self._learning_rate)
            return outputs, unseen
        # Nothing is clipped, but the norm tells whether every entry of the gradient is finite.
        norm = optimiser.clip_gradients(math.inf)
        if not math.isfinite(norm + float(outputs[0])):
            raise self._diverged(name, inputs, float(outputs[0]), norm)
        optimiser.step(self._learning_rate)
        return outputs, norm

    @property
    def _learning_rate(self) -> float:
        # Actors may have sent more steps than the training has.
        remaining = max(0.0, 1 - self.steps_now / self.resolved.total_steps)
        rate: float = self.hyper.learning_rate
        if self.hyper.anneal_learning_rate:
            rate *= remaining
        return rate

    def _metrics(self, updates: Sequence[Update]) -> dict[str, float | None]:
        """The last learning rate of an epoch, and the means of its updates by group."""
        metrics = {"learning_rate": self._learning_rate if updates else None}
        for group, names in enumerate(self.groups):
            measured = [one for one in (update[group] for update in updates) if one is not None]
            metrics |= mean_metrics(names, measured)
        return metrics

    def _diverged(
        self, name: str, inputs: tuple[Tensor, ...], loss: float, norm: float
    ) -> Diverged:
        """The error with statistics of the batch that must not be learnt from."""
        columns = dict(zip(self.inputs[name], inputs, strict=True))
        return Diverged(
            f"loss or gradient of the {name} is not finite in epoch {self.epoch + 1}, after step "
            f"{self.steps_now}: loss {loss:.4g}; gradient norm {norm:.4g}; "
            f"{self._more_of_diverged()}batch of {self.hyper.batch_size} rows: {ranges(columns)}"
        )

    def _more_of_diverged(self) -> str:
        """What else the report of a divergence has to say, with a semicolon."""
        return ""

    def _encoded(self, observations: np.ndarray) -> Tensor:
        """Normalised observations [B, ...] as the networks take them."""
        rows = torch.from_numpy(np.ascontiguousarray(observations))
        return on_device(self.network.encode(rows), self.device)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return on_device(torch.from_numpy(array), self.device)

    def learnt_state(self) -> State:
        """Everything that affects the future, except the experience."""
        return {
            "format": FORMAT, "epoch": self.epoch,
            "interface": self.spaces.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "optimisers": {name: each.optimiser.state_dict() for name, each in self.learners.items()},
            "generators": {
                name: each.bit_generator.state for name, each in self.generators.items()
            },
        }  # fmt: skip

    def load_learnt_state(self, state: State) -> None:
        """Load what `learnt_state` gave. Raises `NoUsableState` for a state of another format."""
        check_format(state)
        self.epoch = int(state["epoch"])
        self.network.load_state_dict(to_tensors(state["network"]))
        for name, learner in self.learners.items():
            learner.optimiser.load_state_dict(state["optimisers"][name])
        for name, generator in self.generators.items():
            generator.bit_generator.state = state["generators"][name]


class CollectingTrainer(TwinCriticLearning):
    """The training of one run, in one process. Implements `agents.interfaces.Trainer` and
    `HasStreams`. updates: made since the training began, where an algorithm counts them.
    """

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        # The collection comes before the networks, which need to know its spaces.
        self.collection = Collection(resolved, run)
        self.updates = 0
        super().__init__(
            resolved, self.collection.spaces, run=run, device=device, precision=precision
        )

    @functools.cached_property
    def policy(self) -> Callable[[Tensor], Tensor]:
        """Encoded [N, ...] -> policy [N, P]; it acts."""
        # Made at the first action: it holds the weights' memory, which moves before the training begins.
        return self.network.acting()

    @functools.cached_property
    def block(self) -> Block[Update]:
        """The updates between two steps of the environments, which are looked at with the actions
        of the second.
        """
        optimisers = [learner.optimiser for learner in self.learners.values()]
        changed = [one for optimiser in optimisers for one in optimiser.changed()]
        drawn_from = [self.generators[purpose] for purpose in ("minibatches", "updates")]
        return Block(self.device, [*changed, *self.network.targets], drawn_from)

    @property
    def looks_at_each(self) -> bool:  # type: ignore[override]
        """See the base class."""
        return self.block.looks_at_each

    def _note(self, loss: Tensor, norm: Tensor) -> None:
        self.block.note(loss, norm)

    def train(self) -> Iterator[Progress]:
        """Yield one `Progress` for each epoch. Raises `Diverged` for an update that is not finite."""
        steps = self.hyper.epoch_steps // self.resolved.environment.count
        while self.epoch < self.resolved.epochs:
            rounds = [self._step() for _ in range(steps)]
            self.block.settle()
            updates = [update for made in rounds for update in made]
            returns, lengths = self.collection.end_epoch()
            self.epoch = self.epoch + 1
            self.step = self.collection.step
            yield Progress(
                epoch=self.epoch, step=self.step, returns=returns, lengths=lengths,
                frame=self.step * self.resolved.game.frames_per_step,
                metrics=self._metrics(updates),
            )  # fmt: skip

    def _step(self) -> list[Update]:
        """Make one step of all environments, then the updates that follow it."""
        self.collection.take_step(self._act)
        step = self.collection.step
        hyper = self.hyper
        if step < hyper.learning_starts or step % hyper.train_every:
            return []
        before = self.updates

        def updates() -> list[Update]:
            self.updates = before
            return [self._update() for _ in range(hyper.updates)]

        return self.block.make(updates)

    @property
    def steps_now(self) -> int:
        """Environment steps so far, also in the middle of an epoch."""
        return self.collection.step

    @torch.no_grad()
    def _act(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Actions [N, A]: uniform before `learning_starts`, then the policy's. Continuous actions
        have no masks.
        """
        generator = self.generators["actions"]
        if self.collection.step < self.hyper.learning_starts:
            return self.actions.uniform(len(observations), generator)
        noise = self._tensor(self.actions.standard(len(observations), generator))
        encoded = self._encoded(observations)
        return self.block.fetch(lambda: self.actions.choose(self.policy(encoded), noise))

    def _drawn(self) -> Transitions:
        """Draw transitions from the replay."""
        drawn = self.collection.replay.sample(self.hyper.batch_size, self.generators["minibatches"])
        return drawn.changed(self.collection.normalised)

    def state_dict(self) -> State:
        """Everything that affects the future, except the replay's rows, which are streams."""
        return {**self.learnt_state(), **self.collection.state_dict()}

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue exactly where `state_dict` was taken; `load_streams` must follow. Raises
        `NoUsableState` for a state of another format.
        """
        self.load_learnt_state(state)
        self.step = int(state["step"])
        self.collection.load_state_dict(state, between)

    def grown(self) -> dict[str, Growth]:
        """The replay's streams, as `agents.interfaces.HasStreams` has them."""
        return self.collection.grown()

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Restore the replay's rows. Raises `NoUsableState` if there are fewer than there were."""
        self.collection.load_streams(streams)

    def close(self) -> None:
        """Release the environments."""
        self.collection.close()
