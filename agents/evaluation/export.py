"""A trained policy as ONNX, to be used without this program and without torch.

Input `observation` [N, *shape], as the environment gives it: float32, uint8 for images; N is free,
and normalisation is part of the graph. Where the environment says which actions it allows there is
a second one, `action_mask` [N, P], bool. Outputs:

    action    [N, ...]   the most probable one, as the environment takes it; int64 or float32
    logits    [N, P]     of discrete actions, one component's after the other's; of continuous ones
    mean      [N, A]     instead, and log_std [N, A], in the units of `agents.environments.spaces.Interface`
    value     [N]        as it was learnt: discounted, of rewards as they were clipped and scaled

Opset 18. Needs the packages onnx and onnxscript.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from agents.actions import masked
from agents.evaluation.policies import TrainedPolicy
from agents.interfaces import Policy
from agents.networks.images import BLOCK, NatureCNN
from agents.normalisation import CLIP
from config.errors import BadInput

OPSET = 18


def to_onnx(policy: Policy, notes: Mapping[str, str]) -> bytes:
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
    graph = PolicyGraph(cast(TrainedPolicy, policy)).eval()
    kind = torch.uint8 if graph.spaces.image else torch.float32
    examples = {"observation": torch.zeros((2, *graph.spaces.environment_shape), dtype=kind)}
    if graph.spaces.masked:
        examples["action_mask"] = torch.ones((2, graph.spaces.policy_outputs), dtype=torch.bool)
    logging.getLogger("torch.onnx").setLevel(
        logging.ERROR
    )  # else: a line for each operator of torchvision
    rows = torch.export.Dim("N")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own use of what torch is giving up
        exported = torch.onnx.export(
            graph,
            tuple(examples.values()),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(examples),
            output_names=list(graph.outputs),
            dynamic_shapes={name: {0: rows} for name in examples},
        )
    model = cast(torch.onnx.ONNXProgram, exported).model_proto  # None only without dynamo
    onnx.helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


class PolicyGraph(nn.Module):
    """What `TrainedPolicy.act` computes, in torch alone, from the raw observation to the
    environment's action.
    """

    def __init__(self, policy: TrainedPolicy) -> None:
        super().__init__()
        self.spaces, self.network, self.actions = policy.spaces, policy.network, policy.actions
        self.normaliser = policy.normaliser
        heads = ("mean", "log_std") if self.spaces.continuous else ("logits",)
        self.outputs = ("action", *heads, "value")

    def forward(self, observation: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Observations [N, *shape], masks [N, P] -> the outputs by the names in `outputs`."""
        policy, value = self.network(self._encoded(observation))
        policy = masked(policy, action_mask)
        action = self._environment_actions(self.actions.mode(policy))
        heads = policy.chunk(2, dim=1) if self.spaces.continuous else (policy,)
        return action, *heads, value

    def _encoded(self, observation: Tensor) -> Tensor:
        if isinstance(self.network.torso, NatureCNN):
            return _space_to_depth(
                observation.permute(0, 3, 1, 2) if self.spaces.channels_last else observation
            )
        if self.normaliser is not None:
            mean, scale = (
                torch.from_numpy(array)
                for array in (self.normaliser.mean, self.normaliser.inverse_deviation)
            )
            observation = ((observation - mean) * scale).clamp(-CLIP, CLIP)
        return self.network.encode(observation)

    def _environment_actions(self, actions: Tensor) -> Tensor:
        """`Interface.environment_actions` in torch."""
        if self.spaces.discrete:
            return actions + self.spaces.first_action
        if self.spaces.choices:
            taken = actions + torch.tensor(self.spaces.first_actions)
            return taken.reshape(-1, *self.spaces.action_shape)
        if self.spaces.low is None or self.spaces.high is None:
            return actions.reshape(-1, *self.spaces.action_shape)
        low, high = (
            torch.tensor(bound, dtype=torch.float32)
            for bound in (self.spaces.low, self.spaces.high)
        )
        if low.isfinite().all() and high.isfinite().all():
            actions = low + (actions.clamp(-1, 1) + 1) * (0.5 * (high - low))
        else:
            actions = torch.minimum(torch.maximum(actions, low), high)
        return actions.reshape(-1, *self.spaces.action_shape)


def _space_to_depth(images: Tensor) -> Tensor:
    """`agents.networks.images.space_to_depth` in torch: [N, C, H, W] -> [N, H//2, W//2, 4 C]."""
    count, channels, height, width = images.shape
    rows, columns = height // BLOCK, width // BLOCK
    whole = images[:, :, : rows * BLOCK, : columns * BLOCK]
    blocks = whole.reshape(count, channels, rows, BLOCK, columns, BLOCK)
    return blocks.permute(0, 2, 4, 1, 3, 5).reshape(count, rows, columns, channels * BLOCK * BLOCK)
