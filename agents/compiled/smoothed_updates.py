"""The updates of TD3 (`agents.algorithms.td3`) as two functions of machine code: of the critics, and of the
policy.
"""

from __future__ import annotations

import math

from agents.compiled import dense, descent, lanes, perceptrons, twin_critic_updates
from agents.compiled.dense import CHUNK, Floats, fewer, within
from agents.compiled.lanes import pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.perceptrons import turn_weights
from agents.compiled.twin_critic_updates import (
    Chosen,
    Found,
    Rows,
    Side,
    chosen_by_pointers,
    policy_at,
    rows_by_pointers,
    side_by_pointers,
    slow_values,
    step_actor,
    step_critics,
    through_critics,
)

SQUARES = 1.0
"""The critics' loss is Σ_i E[(Q_i − y)²]."""
SECOND = 1


@part
def _choose(actor: Side, parameters: Floats, encoded: Floats, batch: Rows, chosen: Chosen) -> None:
    """Actions tanh(u) of a policy at these rows."""
    network = actor.network
    for first in range(0, batch.rows, CHUNK):
        rows = fewer(CHUNK, batch.rows - first)
        place = policy_at(actor, parameters, encoded, first, rows)
        for row in range(first, first + rows):
            for one in range(batch.components):
                u = float(actor.memory.hidden[place + one])
                chosen.actions[row * batch.components + one] = math.tanh(u)
            place += network.strides[network.layers]


@compiled_from(dense, descent, lanes, perceptrons, twin_critic_updates)
def update_critics(
    critics_: Side, actor_: Side, slow_critics: Floats, slow_actor: Floats, batch_: Rows,
    noise: Floats, chosen_: Chosen, deviation: float, clip: float, learning_rate: float,
    found: Found,
) -> bool:  # fmt: skip
    """Make one step of the critics' optimiser, unless loss or gradient is not finite; whether it was made.
    found [4]: the loss, the means of Q and of |Q − y|, the gradient's norm. noise [B, A]; deviation, clip: of
    the target policy's smoothing.
    """
    critics = side_by_pointers(critics_)
    actor = side_by_pointers(actor_)
    batch = rows_by_pointers(batch_)
    chosen = chosen_by_pointers(chosen_)
    drawn = pointer(noise)
    turn_weights(actor.network, pointer(slow_actor), actor.memory, False)
    _choose(actor, pointer(slow_actor), batch.next_encoded, batch, chosen)
    for at in range(batch.rows * batch.components):
        noisy = chosen.actions[at] + within(deviation * drawn[at], -clip, clip)
        chosen.actions[at] = within(noisy, -1.0, 1.0)
    slow_values(critics, pointer(slow_critics), batch, chosen)
    for at in range(batch.rows):
        chosen.targets[at] = batch.rewards[at] + batch.discounts[at] * chosen.targets[at]
    return step_critics(critics, batch, chosen, SQUARES, learning_rate, pointer(found))


@compiled_from(dense, descent, lanes, perceptrons, twin_critic_updates)
def update_actor(
    critic_: Side, actor_: Side, batch_: Rows, chosen_: Chosen, learning_rate: float, found: Found
) -> bool:
    """Make one step of the policy's optimiser, unless loss or gradient is not finite; whether it was made.
    critic: the first one alone. found [2]: the loss and the gradient's norm.
    """
    critic = side_by_pointers(critic_)
    actor = side_by_pointers(actor_)
    batch = rows_by_pointers(batch_)
    chosen = chosen_by_pointers(chosen_)
    turn_weights(actor.network, actor.parameters, actor.memory, True)
    _choose(actor, actor.parameters, batch.encoded, batch, chosen)
    through_critics(critic, batch, chosen)
    share = 1 / batch.rows
    found[0] = 0
    for at in range(batch.rows):
        found[0] -= share * chosen.values[at]
    for at in range(batch.rows * batch.components):
        action = float(chosen.actions[at])
        # The deterministic policy gradient: the slope of Q_1 by the action, and that of the tanh.
        chosen.by_policy[at] = -share * chosen.slopes[at] * (1 - action * action)
    return step_actor(actor, batch, chosen, learning_rate, pointer(found), SECOND)
