"""Optimistic plans over a confidence set, each a named function that says what it proves.

All take the same arguments: the task, the running model, the reward (1 | H, S*A) on the scale of
[0, 1], the radius beta, and 64 random bits for ties. Write m = max_s' ||varphi(s, a, s')||_{A^-1},
and suppose that theta* lies in the ellipsoid. For V with range B,

    |P_theta V - P_theta* V| <= (B / 2) beta m                                    (first order)
    |P_theta V - P_theta* V - grad^T(theta - theta*)| <= (B / 2) (beta m)^2        (second order)

so each of `closed_form`, `half_range` and `gradient` is at least Q*; `exact_maximum` is so by
construction, and is never above `closed_form`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import Task
from upriver.mnl.model import Model
from upriver.planning import Plan, clip_nothing, clip_v, clip_v_remaining, run_backward_pass
from upriver.planning.infinite_horizon import plan_tilted

Optimism = Callable[[Task, Model, Array, float, np.uint64], Plan]


def half_remaining(task: Task) -> Array:
    """Return (H,), half the range of V_{h+1}: of the steps left after h and next-state rewards."""
    return 0.5 * task.units.next_value_range


def closed_form(task: Task, model: Model, reward: Array, beta: float, tie_seed: np.uint64) -> Plan:
    """Plan with eq. (6), the paper's: Q = r + P V + 2 H beta m, V clipped at H, Q not clipped.

    Optimistic with a factor 2 to 4 to spare; the bonus is added at the last step too.
    """
    scale = np.array([2.0 * task.units.max_value * beta])  # the same at every step
    return run_backward_pass(
        task, kernels.planning.bonus_rule, (model.prob, reward, model.max_norm, scale),
        clip_v(task), tie_seed,
    )  # fmt: skip


def half_range(task: Task, model: Model, reward: Array, beta: float, tie_seed: np.uint64) -> Plan:
    """Plan with Q_h = r + P V + ((H - h) / 2) beta m: first order, and tight.

    h counts from 1, so the last step has no bonus. V_h is clipped at the steps left. The bonus is
    at least four times smaller than that of (6).
    """
    return run_backward_pass(
        task, kernels.planning.bonus_rule,
        (model.prob, reward, model.max_norm, beta * half_remaining(task)),
        clip_v_remaining(task), tie_seed,
    )  # fmt: skip


def gradient(task: Task, model: Model, reward: Array, beta: float, tie_seed: np.uint64) -> Plan:
    """Plan with Q_h = r + P V + beta ||grad PV||_{A^-1} + ((H - h) / 2) (beta m)^2: second order.

    grad PV = sum_s' p (V - PV) varphi, small where the next values vary little. V_h is clipped at
    the steps left.
    """
    data = (
        model.prob, model.max_norm, model.inverse_products, task.square_start, reward, beta,
        half_remaining(task), task.max_successors,
    )  # fmt: skip
    return run_backward_pass(
        task, kernels.optimism.gradient_rule, data, clip_v_remaining(task), tie_seed
    )


def tilted(
    task: Task, model: Model, reward: Array, products_start: Array, tie_seed: np.uint64,
    next_state_reward: Array | None = None,
) -> Plan:  # fmt: skip
    """Plan with Q = r + sum_u q_u V_u, q_u proportional to p_u exp((G x)_u / sqrt(x^T G x)).

    x_u = p_u (V_u - PV), and G are the inner products that the model keeps, from products_start on:
    q is the distribution at theta_hat + A^-1 g / ||g||_{A^-1}, g = grad PV, where the
    linear part of `gradient` with beta = 1 has its maximum. Q is never above r and the largest next
    value, so nothing is clipped. With an infinite horizon V is stationary.
    `next_state_reward` (1, n) takes the place of that of the task.
    """
    if task.infinite_horizon:
        return plan_tilted(
            task, model.prob[0], reward[0], model.inverse_products, products_start, tie_seed,
            next_state_reward,
        )  # fmt: skip
    data = model.prob, model.inverse_products, products_start.view(np.uint64), reward
    return run_backward_pass(
        task, kernels.optimism.tilted_rule, data, clip_nothing(task), tie_seed,
        next_state_reward=True if next_state_reward is None else next_state_reward,
        memory=2 * task.n_triples,
    )  # fmt: skip


def exact_maximum(
    task: Task, model: Model, reward: Array, beta: float, tie_seed: np.uint64
) -> Plan:
    """Plan with eq. (4): Q = r + max over the confidence set of P_theta V, V clipped at H.

    The maximum is searched for each (s, a, h) by itself, see `kernels.ellipsoid`; actions closer
    than 1e-10 of the range of the next values are ties. Q lies between greedy and (6), and never
    above the steps left, so the clip never acts.
    """
    data = (
        model.prob, model.inverse_products, task.square_start, reward, beta, task.max_successors
    )  # fmt: skip
    return run_backward_pass(task, kernels.ellipsoid.exact_rule, data, clip_v(task), tie_seed)


OPTIMISMS: dict[str, Optimism] = {
    "closed-form": closed_form,
    "half-range": half_range,
    "gradient": gradient,
    "exact-maximum": exact_maximum,
}
NEEDS_GEOMETRY: frozenset[Optimism] = frozenset({gradient, exact_maximum})
