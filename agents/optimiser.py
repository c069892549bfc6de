"""Adam over one flat vector: clipping, checking and stepping are one call each, however many layers there are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.interfaces import State


class FlatAdam:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980) on a module whose parameters become views into one vector.

    values, gradients: float32 [P]. Strides are kept, so that channels-last weights stay channels-last.
    """

    def __init__(self, module: nn.Module, *, epsilon: float) -> None:
        parameters = list(module.parameters())
        size, device = sum(one.numel() for one in parameters), parameters[0].device
        self.values, self.gradients = torch.empty(size, device=device), torch.zeros(size, device=device)
        offset = 0
        for one in parameters:
            value, gradient = (_view(vector, offset, one) for vector in (self.values, self.gradients))
            value.copy_(one.data)
            one.data, one.grad = value, gradient
            offset += one.numel()
        self._leaf = nn.Parameter(self.values)
        self._leaf.grad = self.gradients
        self._adam = torch.optim.Adam([self._leaf], eps=epsilon, fused=True)

    def clear_gradients(self) -> None:
        """Before a backward pass, which adds to them in place."""
        self.gradients.zero_()

    def clip_gradients(self, largest_norm: float) -> float:
        """Scale the gradient down to this norm; returns its norm before, which may be infinite or NaN."""
        norm = float(torch.linalg.vector_norm(self.gradients))
        if norm > largest_norm:
            self.gradients.mul_(largest_norm / (norm + 1e-6))
        return norm

    def step(self, learning_rate: float) -> None:
        """One update of all parameters."""
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.step()

    def state_dict(self) -> State:
        """First and second moments [P] and the number of updates."""
        state = self._adam.state.get(self._leaf, {})
        moments = [state.get(name, torch.zeros_like(self.values)) for name in ("exp_avg", "exp_avg_sq")]
        updates = int(state["step"]) if state else 0
        return {"first_moment": moments[0].cpu().numpy().copy(), "second_moment": moments[1].cpu().numpy().copy(), "updates": updates}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave."""
        if state["updates"] == 0:
            self._adam.state.clear()
            return
        device = self.values.device
        self._adam.state[self._leaf] = {
            "step": torch.tensor(float(state["updates"]), device=device),
            "exp_avg": torch.from_numpy(state["first_moment"].copy()).to(device),
            "exp_avg_sq": torch.from_numpy(state["second_moment"].copy()).to(device),
        }


def _view(vector: Tensor, offset: int, like: Tensor) -> Tensor:
    """The part of `vector` for one parameter, with the parameter's shape and strides (dense, in any order of dimensions)."""
    return torch.as_strided(vector, like.shape, like.stride(), offset)
