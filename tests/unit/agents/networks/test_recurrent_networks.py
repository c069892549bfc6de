"""The recurrent networks: a sequence at once is one step after the other, a reset is a new episode,
and the heads see the steps that are asked for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from agents.networks import make_recurrent_actor_critic
from agents.networks.actor_critic import RecurrentActorCritic, Sequences
from agents.networks.images import NatureCNN, SmallCNN
from agents.networks.recurrent import LSTMTorso
from agents.networks.torsos import TorsoState
from agents.spaces import Interface

STEPS, ROWS = 6, 3
VECTOR = Interface(
    observation_shape=(5,), image=False, channels_last=False, actions=3, discrete=True
)
IMAGE = Interface(
    observation_shape=(3, 41, 50), image=True, channels_last=True, actions=3, discrete=True
)
GRID = Interface(
    observation_shape=(4, 7, 7), image=False, grid=True, channels_last=False, actions=3,
    discrete=True,
)  # fmt: skip
CONTINUOUS = Interface(
    observation_shape=(2, 3), image=False, channels_last=False, actions=2, discrete=False,
    action_shape=(2,),
)  # fmt: skip
KINDS = pytest.mark.parametrize(
    "spaces", [VECTOR, IMAGE, GRID, CONTINUOUS], ids=("vector", "image", "grid", "continuous")
)


def network_for(spaces: Interface) -> RecurrentActorCritic:
    return make_recurrent_actor_critic(
        spaces, lstm_size=8, hidden_sizes=(7,), log_std_init=-0.5, precision="fp32",
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip


def seen_by(network: RecurrentActorCritic) -> Tensor:
    """Encoded [STEPS, ROWS, ...]."""
    spaces, generator = network.spaces, torch.Generator().manual_seed(0)
    shape = (STEPS * ROWS, *spaces.environment_shape)
    observations = torch.randn(shape, generator=generator)
    if spaces.image:
        observations = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return network.encode(observations).unflatten(0, (STEPS, ROWS))  # type: ignore[no-untyped-call, no-any-return]


def state_for(network: RecurrentActorCritic, encoded: Tensor) -> TorsoState:
    generator = torch.Generator().manual_seed(2)
    first = network.first_state(encoded[0])
    return tuple(torch.randn(part.shape, generator=generator) for part in first)


RESETS = torch.tensor(
    [[0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=torch.bool
)


@KINDS
def test_a_sequence_is_one_step_after_the_other(spaces: Interface) -> None:
    network = network_for(spaces)
    with torch.no_grad():  # biases begin with 0, which would hide them
        for name, parameter in network.named_parameters():
            parameter.add_(0.2 if "bias" in name else 0.0)
    encoded = seen_by(network)
    state = state_for(network, encoded)
    everything = torch.arange(STEPS * ROWS)
    policy, value = network(Sequences(encoded, state, RESETS, everything))
    with torch.inference_mode():
        step, act = network.frozen(), network.acting()
        for t in range(STEPS):
            alone, follows = act(encoded[t], state, RESETS[t])
            of_policy, of_value, state = step(encoded[t], state, RESETS[t])
            assert torch.equal(alone, of_policy)
            assert all(map(torch.equal, follows, state))
            rows = slice(t * ROWS, (t + 1) * ROWS)
            assert torch.allclose(of_policy, policy[rows], atol=1e-5)
            assert torch.allclose(of_value, value[rows], atol=1e-5)
    after = network.torso(encoded, state_for(network, encoded), RESETS)[1]
    for one, other in zip(after, state, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@KINDS
def test_a_reset_is_a_new_episode_and_no_other_row_notices(spaces: Interface) -> None:
    network = network_for(spaces)
    encoded, none = seen_by(network), torch.zeros(STEPS, ROWS, dtype=torch.bool)
    state = state_for(network, encoded)
    reset = none.clone()
    reset[2, 0] = True
    rows = torch.arange(2 * ROWS, STEPS * ROWS)
    value = network(Sequences(encoded, state, reset, rows))[1].view(-1, ROWS)
    unbroken = network(Sequences(encoded, state, none, rows))[1].view(-1, ROWS)
    begun = tuple(torch.zeros_like(part) for part in state)
    fresh = network(Sequences(encoded[2:], begun, none[2:], rows - 2 * ROWS))[1].view(-1, ROWS)
    assert torch.allclose(value[:, 0], fresh[:, 0], atol=1e-6)
    assert torch.allclose(value[:, 1:], unbroken[:, 1:], atol=1e-6)
    assert (value[:, 0] - unbroken[:, 0]).abs().max().item() > 1e-3, "it does remember"


def test_only_the_steps_that_are_asked_for_are_answered() -> None:
    network = network_for(VECTOR)
    encoded = seen_by(network)
    state = state_for(network, encoded)
    policy, value = network(Sequences(encoded, state, RESETS, torch.arange(STEPS * ROWS)))
    rows = torch.tensor([1, 4, 17])
    some_policy, some_value = network(Sequences(encoded, state, RESETS, rows))
    assert torch.allclose(some_policy, policy[rows], atol=1e-7)
    assert torch.allclose(some_value, value[rows], atol=1e-7)


def test_no_state_is_a_first_state() -> None:
    network = network_for(VECTOR)
    encoded = seen_by(network)
    first = network.first_state(encoded[0])
    assert [part.shape for part in first] == [(ROWS, 2, 8)] * 2
    assert not any(part.any() for part in first)
    with torch.no_grad():
        features, other = (network.torso(encoded, state, RESETS)[0] for state in ((), first))
    assert torch.equal(features[0], other[0]) and torch.equal(features[1], other[1])


@pytest.mark.parametrize(("spaces", "eyes"), [(IMAGE, NatureCNN), (GRID, SmallCNN)])
def test_images_have_one_lstm_on_a_convolution_and_vectors_two(
    spaces: Interface, eyes: type
) -> None:
    torso = network_for(spaces).torso
    assert isinstance(torso, LSTMTorso) and isinstance(torso.eyes, eyes)
    assert torso.weight.shape == (1, 8, 32) and torso.features == 8
    of_vectors = network_for(VECTOR).torso
    assert isinstance(of_vectors, LSTMTorso) and of_vectors.eyes is None
    assert of_vectors.weight.shape == (2, 8, 32) and of_vectors.features == 7


def test_policy_and_value_have_a_memory_each() -> None:
    """The gradient of one's outputs reaches only its own LSTM."""
    network = network_for(VECTOR)
    encoded = seen_by(network)
    inputs = Sequences(encoded, state_for(network, encoded), RESETS, torch.arange(STEPS * ROWS))
    torso = network.torso
    assert isinstance(torso, LSTMTorso)
    for tower, output in enumerate(network(inputs)):
        (gradient,) = torch.autograd.grad(output.sum(), (torso.weight,), retain_graph=True)
        assert gradient[tower].any() and not gradient[1 - tower].any()


def test_initial_weights_are_orthogonal_gate_by_gate() -> None:
    network = network_for(VECTOR)
    weights = dict(network.named_parameters())
    for gate in weights["torso.weight"][0].chunk(4, dim=1):
        assert torch.allclose(gate.T @ gate, torch.eye(8), atol=1e-5)
    for gate in weights["torso.input_weight"][1].chunk(4, dim=1):
        assert torch.allclose(gate @ gate.T, torch.eye(5), atol=1e-5)
    layer = weights["torso.weight1"][0]
    assert torch.allclose(layer.T @ layer, 2 * torch.eye(7), atol=1e-5)
    assert not weights["torso.bias"].any() and not weights["torso.bias1"].any()
    assert float(network.policy_weight.detach().norm()) == pytest.approx(
        0.01 * math.sqrt(3), rel=1e-4
    )


def test_only_the_own_generator_is_used() -> None:
    before = torch.get_rng_state()
    one, two = network_for(IMAGE), network_for(IMAGE)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_a_torso_without_a_memory_keeps_the_contract_of_torsos() -> None:
    """So a person's own may be trained by ppo-lstm as well."""
    network = make_recurrent_actor_critic(
        VECTOR, lstm_size=8, hidden_sizes=(7,), log_std_init=0.0, precision="fp32",
        generator=torch.Generator().manual_seed(1), torso="my_lab.nets:Residual",
    )  # fmt: skip
    encoded = seen_by(network)
    assert network.first_state(encoded[0]) == ()
    value = network(Sequences(encoded, (), RESETS, torch.arange(STEPS * ROWS)))[1]
    with torch.inference_mode():
        of_value, state = network.frozen()(encoded[4], (), RESETS[4])[1:]
    assert state == ()
    assert torch.allclose(of_value, value[4 * ROWS : 5 * ROWS], atol=1e-6)
