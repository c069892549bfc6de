"""Adam over one flat vector: clipping, checking and stepping are a few calls each, however many
layers there are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from agents.interfaces import State

DECAY_1, DECAY_2 = 0.9, 0.999


class FlatAdam:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1) on a module whose parameters become
    views into one vector.

    values, gradients: float32 [P]. Strides are kept, so that channels-last weights stay
    channels-last. One call of torch's fused kernel: measured on CartPole's network 33 µs, seven
    calls of arithmetic 40, `torch.optim.Adam(fused=True)` 79; on the Nature CNN 1.1 ms, the
    arithmetic 5.5.
    """

    def __init__(self, module: nn.Module, *, epsilon: float) -> None:
        parameters = list(module.parameters())
        size, device = sum(one.numel() for one in parameters), parameters[0].device
        self.values, self.gradients = (
            torch.empty(size, device=device),
            torch.zeros(size, device=device),
        )
        self._moment_1, self._moment_2 = (
            torch.zeros(size, device=device),
            torch.zeros(size, device=device),
        )
        self._updates, self._epsilon = torch.zeros((), device=device), epsilon
        offset = 0
        for one in parameters:
            value, gradient = (
                _view(vector, offset, one) for vector in (self.values, self.gradients)
            )
            value.copy_(one.data)
            one.data, one.grad = value, gradient
            offset += one.numel()

    def clear_gradients(self) -> None:
        """Before a backward pass, which adds to them in place."""
        self.gradients.zero_()

    def clip_gradients(self, largest_norm: float) -> float:
        """Scale the gradient down to this norm; returns its norm before, which may be infinite or
        NaN.
        """
        norm = float(torch.linalg.vector_norm(self.gradients))
        if norm > largest_norm:
            self.gradients.mul_(largest_norm / (norm + 1e-6))
        return norm

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update of all parameters."""
        adam(
            [self.values], [self.gradients], [self._moment_1], [self._moment_2], [], [self._updates],
            foreach=False, fused=True, capturable=False, differentiable=False, amsgrad=False, maximize=False, weight_decay=0.0,
            beta1=DECAY_1, beta2=DECAY_2, lr=learning_rate, eps=self._epsilon,
        )  # fmt: skip

    def state_dict(self) -> State:
        """First and second moments [P] and the number of updates."""
        moments = {
            "moment_1": self._moment_1.cpu().numpy().copy(),
            "moment_2": self._moment_2.cpu().numpy().copy(),
        }
        return {**moments, "updates": int(self._updates)}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave."""
        self._updates.fill_(state["updates"])
        for moment, name in ((self._moment_1, "moment_1"), (self._moment_2, "moment_2")):
            moment.copy_(torch.from_numpy(state[name].copy()))


def _view(vector: Tensor, offset: int, like: Tensor) -> Tensor:
    """The part of `vector` for one parameter, with the parameter's shape and strides (dense, in any
    order of dimensions).
    """
    return torch.as_strided(vector, like.shape, like.stride(), offset)
