"""The updates of soft actor-critic (`agents.algorithms.sac`) as two functions of machine code: of the
critics, and of the policy with all that follows it.
"""

from __future__ import annotations

import math

from agents.compiled import clipped_loss, dense, descent, lanes, perceptrons, twin_critic_updates
from agents.compiled.clipped_loss import LOG_2_PI
from agents.compiled.dense import CHUNK, Floats, fewer
from agents.compiled.descent import Descent, descend, descent_by_pointers
from agents.compiled.lanes import LANES, pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.perceptrons import outputs_at, turn_weights
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
    smaller,
    step_actor,
    step_critics,
    through_critics,
)

LEAST_LOG_STD = -20.0
LARGEST_LOG_STD = 2.0
LOG_2 = math.log(2)
HALF_SQUARES = 0.5
"""The critics' loss is Σ_i ½ E[(Q_i − y)²]."""
THIRD = 2


@part
def _sample(
    actor: Side, encoded: Floats, noise: Floats, batch: Rows, chosen: Chosen,
    log_probabilities: Floats,
) -> None:  # fmt: skip
    """Actions of the policy at these rows, and log π of them, as
    `agents.networks.action_distributions.SquashedActions` has them.
    """
    network = actor.network
    for first in range(0, batch.rows, CHUNK):
        rows = fewer(CHUNK, batch.rows - first)
        place = policy_at(actor, actor.parameters, encoded, first, rows)
        for row in range(rows):
            _squash(
                actor.memory.hidden, place, noise, first + row, batch.components, chosen,
                log_probabilities,
            )  # fmt: skip
            place += network.strides[network.layers]


@part
def _squash(
    policy: Floats, place: int, noise: Floats, at: int, components: int, chosen: Chosen,
    log_probabilities: Floats,
) -> None:  # fmt: skip
    """One row of the above, whose policy begins at `place`."""
    log_probability = 0.0
    for one in range(components):
        # Written so that a NaN stays one, which `min` does not promise.
        log_std = float(policy[place + components + one])
        if log_std < LEAST_LOG_STD:
            log_std = LEAST_LOG_STD
        if log_std > LARGEST_LOG_STD:
            log_std = LARGEST_LOG_STD
        drawn = float(noise[at * components + one])
        u = policy[place + one] + math.exp(log_std) * drawn
        softplus = math.log1p(math.exp(-abs(2 * u)))
        if u < 0:
            softplus -= 2 * u
        log_probability += -0.5 * drawn * drawn - log_std - 0.5 * LOG_2_PI
        # log(1 − tanh²u) itself would be log 0 where tanh u rounds to 1.
        log_probability -= 2 * (LOG_2 - u - softplus)
        chosen.actions[at * components + one] = math.tanh(u)
    log_probabilities[at] = log_probability


@compiled_from(clipped_loss, dense, descent, lanes, perceptrons, twin_critic_updates)
def update_critics(
    critics_: Side, actor_: Side, slow_critics: Floats, batch_: Rows, noise: Floats, chosen_: Chosen,
    log_probabilities: Floats, alpha: float, learning_rate: float, found: Found,
) -> bool:  # fmt: skip
    """Make one step of the critics' optimiser, unless loss or gradient is not finite; whether it was
    made. found [4]: the loss, the means of Q and of |Q − y|, the gradient's norm. noise [B, A];
    log_probabilities [B] are written.
    """
    critics = side_by_pointers(critics_)
    actor = side_by_pointers(actor_)
    batch = rows_by_pointers(batch_)
    chosen = chosen_by_pointers(chosen_)
    log_pi = pointer(log_probabilities)
    turn_weights(actor.network, actor.parameters, actor.memory, True)
    _sample(actor, batch.next_encoded, pointer(noise), batch, chosen, log_pi)
    slow_values(critics, pointer(slow_critics), batch, chosen)
    for at in range(batch.rows):
        # The y of eq. 5.
        soft = chosen.targets[at] - alpha * log_pi[at]
        chosen.targets[at] = batch.rewards[at] + batch.discounts[at] * soft
    return step_critics(critics, batch, chosen, HALF_SQUARES, learning_rate, pointer(found))


@part
def _policy_slopes(actor: Side, batch: Rows, noise: Floats, alpha: float, chosen: Chosen) -> None:
    """The derivatives of eq. 7 by the policy's outputs."""
    network = actor.network
    components = batch.components
    share = 1 / batch.rows
    for at in range(batch.rows):
        second = batch.rows + at
        place = outputs_at(network, actor.memory, at // CHUNK) + components
        place += (at % CHUNK) * network.strides[network.layers]
        # The share of each critic in the derivative of the smaller value.
        of_first = 0.5
        if chosen.values[at] < chosen.values[second]:
            of_first = 1.0
        if chosen.values[at] > chosen.values[second]:
            of_first = 0.0
        for one in range(components):
            action = float(chosen.actions[at * components + one])
            by_action = (
                of_first * chosen.slopes[at * components + one]
                + (1 - of_first) * chosen.slopes[second * components + one]
            )
            # The derivative of log π by u, of −log(1 − tanh²u), is 2 tanh u.
            slope = share * (2 * alpha * action - by_action * (1 - action * action))
            chosen.by_policy[2 * at * components + one] = slope
            log_std = float(actor.memory.hidden[place + one])
            by_log_std = 0.0
            if LEAST_LOG_STD <= log_std <= LARGEST_LOG_STD:
                drawn = float(noise[at * components + one])
                by_log_std = slope * drawn * math.exp(log_std) - share * alpha
            chosen.by_policy[(2 * at + 1) * components + one] = by_log_std


@compiled_from(clipped_loss, dense, descent, lanes, perceptrons, twin_critic_updates)
def update_actor(
    critics_: Side, actor_: Side, batch_: Rows, noise: Floats, chosen_: Chosen,
    log_probabilities: Floats, alpha: float, learning_rate: float, found: Found,
) -> bool:  # fmt: skip
    """Make one step of the policy's optimiser, after `update_critics` and unless loss or gradient is not
    finite; whether it was made. found [3]: the loss, the entropy, the gradient's norm.
    """
    critics = side_by_pointers(critics_)
    actor = side_by_pointers(actor_)
    batch = rows_by_pointers(batch_)
    chosen = chosen_by_pointers(chosen_)
    log_pi = pointer(log_probabilities)
    # The policy's weights are as they were for the critics' targets, and turned.
    _sample(actor, batch.encoded, pointer(noise), batch, chosen, log_pi)
    through_critics(critics, batch, chosen)
    share = 1 / batch.rows
    found[0] = 0
    found[1] = 0
    for at in range(batch.rows):
        least = smaller(chosen.values[at], chosen.values[batch.rows + at])
        found[0] += share * (alpha * log_pi[at] - least)
        found[1] -= share * log_pi[at]
    _policy_slopes(actor, batch, pointer(noise), alpha, chosen)
    return step_actor(actor, batch, chosen, learning_rate, pointer(found), THIRD)


@compiled_from(descent, lanes)
def update_temperature(
    log_alpha: Floats, gradient: Floats, surplus: float, descent: Descent, learning_rate: float
) -> bool:
    """Make one step by the derivative of eq. 18, α times the entropy's surplus, unless that is not
    finite; whether it was made. log_alpha, gradient: one number in a vector of 16.
    """
    gradient[0] = math.exp(log_alpha[0]) * surplus
    if not math.isfinite(gradient[0]):
        return False
    descend(
        LANES, pointer(log_alpha), pointer(gradient), descent_by_pointers(descent), learning_rate,
        abs(gradient[0]),
    )  # fmt: skip
    return True
