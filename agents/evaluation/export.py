"""A trained policy as ONNX, to be used without this program and without torch.

Input `observation` [N, *shape], as the environment gives it: float32, uint8 for images; N is free,
and normalisation is part of the graph. Where the environment says which actions it allows there is
a second one, `action_mask` [N, P], bool. Outputs:

    action    [N, ...]   the most probable one, as the environment takes it; int64 or float32
    logits    [N, P]     of discrete actions, one component's after the other's; of continuous ones
    mean      [N, A]     instead, and log_std [N, A], in the units of `agents.spaces.Interface`;
                         SAC's are of the normal distribution whose tanh the action is;
                         TD3, whose actions have none, gives neither
    value     [N]        as it was learnt: discounted, of rewards as they were clipped and scaled;
                         SAC's and TD3's is the smaller Q of the action, with SAC entropy included

and of a policy by action values (DQN) `action`, and

    q         [N, A]     the value of each action, as it was learnt; forbidden ones are as they came out

A policy that remembers has further inputs, `reset` [N], bool: whether an episode begins, and `state_0`,
`state_1`, … [N, ...], float32, zeros at first; and as many outputs, `next_state_0`, …: what is to be
given with the next observations.

Opset 18. Needs the packages onnx and onnxscript.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from agents.environments.normalisation import CLIP
from agents.evaluation.policies import (
    NoisyPolicy,
    Trained,
    TrainedPolicy,
    TrainedRecurrentPolicy,
)
from agents.evaluation.value_policy import RecurrentValuePolicy, ValuePolicy
from agents.interfaces import AnyPolicy
from agents.networks.action_distributions import masked
from agents.networks.action_values import ActionValues
from agents.networks.actor_critic import RecurrentActorCritic
from agents.networks.images import BLOCK, NatureCNN
from agents.networks.recurrent import LSTMTorso
from agents.networks.torsos import each, planes
from config.errors import BadInput

OPSET = 18


def to_onnx(policy: AnyPolicy, notes: Mapping[str, str]) -> bytes:
    """The content of an ONNX file; notes: its metadata. Raises `BadInput` where a package is
    missing.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise BadInput(
            f"export needs a package that cannot be imported ({error}): pip install onnx onnxscript"
        ) from None
    graph = graph_of(policy).eval()
    examples = graph.examples()
    # The exporter would log a line for each operator of torchvision.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # The exporter itself calls functions that torch has deprecated.
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            graph,
            tuple(examples.values()),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=_names(examples),
            output_names=list(graph.outputs),
            dynamic_shapes=_rows_are_free(examples),
        )
    # By its annotation `export` may return None, which it does without `dynamo` only.
    model = cast(torch.onnx.ONNXProgram, exported).model_proto
    onnx.helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


Examples = dict[str, Tensor | list[Tensor]]
"""The arguments of a graph by name, two rows of each."""


def _names(examples: Examples) -> list[str]:
    """The names of the inputs; those of a list are numbered."""
    names = list[str]()
    for name, example in examples.items():
        if isinstance(example, list):
            names += [f"{name}_{number}" for number in range(len(example))]
        else:
            names.append(name)
    return names


def _rows_are_free(examples: Examples) -> dict[str, Any]:
    # The first dimension of every input has one and the same free size.
    rows = {0: torch.export.Dim("N")}
    free = dict[str, Any]()
    for name, example in examples.items():
        free[name] = [rows] * len(example) if isinstance(example, list) else rows
    return free


def graph_of(policy: AnyPolicy) -> Graph:
    """The graph of one of our own policies; raises `BadInput` for one that has none yet."""
    if isinstance(policy, RecurrentValuePolicy):
        raise BadInput("action values with a memory (r2d2) cannot be exported; allowed: any other")
    if isinstance(policy, ValuePolicy):
        return ValueGraph(policy)
    if isinstance(policy, TrainedRecurrentPolicy):
        return RecurrentPolicyGraph(policy)
    if isinstance(policy, NoisyPolicy):
        return DeterministicPolicyGraph(policy)
    return PolicyGraph(cast(TrainedPolicy, policy))


class Graph(nn.Module):
    """What a policy's `act` computes, in torch alone, from the raw observation to the environment's
    action. outputs: the names of what `forward` returns.
    """

    outputs: tuple[str, ...]

    def __init__(self, policy: Trained | ValuePolicy) -> None:
        super().__init__()
        self.spaces = policy.spaces
        self.normaliser = policy.normaliser
        self.network = policy.network

    def examples(self) -> Examples:
        """Examples of the arguments of `forward`."""
        kind = torch.uint8 if self.spaces.image else torch.float32
        examples: Examples = {
            "observation": torch.zeros((2, *self.spaces.environment_shape), dtype=kind)
        }
        if self.spaces.masked:
            mask = torch.ones((2, self.spaces.policy_outputs), dtype=torch.bool)
            examples["action_mask"] = mask
        return examples

    def _encoded(self, observation: Tensor) -> Tensor:
        torso = self.network.torso
        eyes = torso.eyes if isinstance(torso, LSTMTorso) else torso
        # The Nature CNN's own `encode` is numpy's, which cannot be exported.
        if isinstance(eyes, NatureCNN):
            return _space_to_depth(planes(observation, self.spaces))
        if self.normaliser is not None:
            mean = torch.from_numpy(self.normaliser.mean)
            scale = torch.from_numpy(self.normaliser.inverse_deviation)
            observation = ((observation - mean) * scale).clamp(-CLIP, CLIP)
        return self.network.encode(observation)

    def _environment_actions(self, actions: Tensor) -> Tensor:
        """`Interface.environment_actions` in torch."""
        if self.spaces.discrete:
            return actions + self.spaces.first_action
        if self.spaces.choices:
            taken = actions + torch.tensor(self.spaces.first_actions)
            return taken.reshape(-1, *self.spaces.action_shape)
        taken = actions
        # `bounded` is a property of the spaces: torch.export cannot follow an `if` that looks at a
        # tensor.
        if self.spaces.bounded:
            low, high = (torch.from_numpy(bound) for bound in self.spaces.policy_bounds)
            taken = self.spaces.in_range(actions.clamp(-1, 1), low, high)
        taken = taken.to(getattr(torch, self.spaces.action_dtype))
        if self.spaces.low is not None:
            low, high = (torch.from_numpy(bound) for bound in self.spaces.space_bounds)
            taken = torch.minimum(torch.maximum(taken, low), high)
        return taken.reshape(-1, *self.spaces.action_shape)


class PolicyGraph(Graph):
    """The graph of a `TrainedPolicy`."""

    def __init__(self, policy: Trained) -> None:
        super().__init__(policy)
        self.actions = policy.actions
        heads = ("mean", "log_std") if self.spaces.continuous else ("logits",)
        self.outputs = ("action", *heads, "value")

    def forward(self, observation: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Observations [N, *shape], masks [N, P] -> the outputs by the names in `outputs`."""
        policy, value = self.network(self._encoded(observation))
        return self._answer(policy, value, action_mask)

    def _answer(
        self, policy: Tensor, value: Tensor, action_mask: Tensor | None
    ) -> tuple[Tensor, ...]:
        policy = masked(policy, action_mask)
        action = self._environment_actions(self.actions.mode(policy))
        heads = policy.chunk(2, dim=1) if self.spaces.continuous else (policy,)
        return action, *heads, value


class DeterministicPolicyGraph(PolicyGraph):
    """The graph of a `NoisyPolicy`, whose actions have no distribution."""

    def __init__(self, policy: NoisyPolicy) -> None:
        super().__init__(policy)
        self.outputs = ("action", "value")

    def _answer(
        self, policy: Tensor, value: Tensor, action_mask: Tensor | None
    ) -> tuple[Tensor, ...]:
        return self._environment_actions(self.actions.mode(policy)), value


class ValueGraph(Graph):
    """The graph of a `ValuePolicy`."""

    outputs = ("action", "q")

    def forward(self, observation: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Observations [N, *shape], masks [N, A] -> action [N] and Q [N, A]."""
        network = cast(ActionValues, self.network)
        values = network.means(network(self._encoded(observation)))
        action = masked(values, action_mask).argmax(dim=1)
        return self._environment_actions(action), values


class RecurrentPolicyGraph(PolicyGraph):
    """The graph of a `TrainedRecurrentPolicy`."""

    network: RecurrentActorCritic

    def __init__(self, policy: TrainedRecurrentPolicy) -> None:
        super().__init__(policy)
        self._first_state = [torch.from_numpy(part) for part in policy.first_state(2)]
        self.outputs += tuple(f"next_state_{number}" for number in range(len(self._first_state)))

    def examples(self) -> Examples:
        """Examples of the arguments of `forward`."""
        # The order of the inputs: observation, reset, state, and the mask last, as in `forward`.
        observation, *rest = super().examples().items()
        remembered: Examples = {
            "reset": torch.ones(2, dtype=torch.bool), "state": self._first_state
        }  # fmt: skip
        return dict([observation]) | remembered | dict(rest)

    def forward(  # type: ignore[override]
        self, observation: Tensor, reset: Tensor, state: list[Tensor],
        action_mask: Tensor | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """The outputs, and the new state. state [N, ...]: the recurrent state before; reset [N]:
        rows whose state is cleared first.
        """
        encoded = self._encoded(observation)
        features, after = self.network.torso(encoded[None], tuple(state), reset[None])
        policy, value = self.network.heads(each(lambda one: one[0], features))
        return *self._answer(policy, value, action_mask), *after


def _space_to_depth(images: Tensor) -> Tensor:
    """`agents.networks.images.space_to_depth` in torch: [N, C, H, W] -> [N, H//2, W//2, 4 C]."""
    count, channels, height, width = images.shape
    rows = height // BLOCK
    columns = width // BLOCK
    whole = images[:, :, : rows * BLOCK, : columns * BLOCK]
    blocks = whole.reshape(count, channels, rows, BLOCK, columns, BLOCK)
    return blocks.permute(0, 2, 4, 1, 3, 5).reshape(count, rows, columns, channels * BLOCK * BLOCK)
