"""Optimistic plans over a confidence set, each a named function that says what it proves.

All take the same arguments: the task, the running model, the reward (1 | H, S*A), the radius beta
and 64 random bits for ties. Write m = max_s' ||varphi(s, a, s')||_{A^-1}, and suppose that theta*
lies in the ellipsoid. For V with range B,

    |P_theta V - P_theta* V| <= (B / 2) beta m                                    (first order)
    |P_theta V - P_theta* V - grad^T(theta - theta*)| <= (B / 2) (beta m)^2        (second order)

so each of `closed_form`, `half_range` and `gradient` is at least Q*; `exact_maximum` is so by
construction, and is never above `closed_form`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import Task
from upriver.mnl.model import Model
from upriver.planning import Clip, Plan, clip_v, clip_v_remaining, swept
from upriver.planning.induction import backed_up
from upriver.planning.infinite_horizon import plan_errors

Optimism = Callable[[Task, Model, Array, float, np.uint64], Plan]


@lru_cache(maxsize=64)
def ones(task: Task) -> Array:
    return np.ones(task.horizon)


@lru_cache(maxsize=64)
def zeros(task: Task) -> Array:
    return np.zeros(task.horizon)


@lru_cache(maxsize=64)
def half_remaining(task: Task) -> Array:
    """(H,) half the range of V_{h+1}, which is the number of steps left after step h, and of a
    reward that depends on s'."""
    return 0.5 * task.units.next_value_range


def closed_form(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Eq. (6), the paper's: Q = r + P V + 2 H beta m, V clipped at H, Q not clipped.

    Optimistic with a factor 2 to 4 to spare; the bonus is added at the last step too.
    """
    return sweep_width(
        task, model, reward, 2.0 * task.units.max_value * beta, ones(task), clip_v(task), word
    )


def half_range(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Q_h = r + P V + ((H - h) / 2) beta m, V_h clipped at the steps left: first order, tight.

    h counts from 1, so the last step has no bonus. At least four times smaller than (6).
    """
    return sweep_width(
        task, model, reward, beta, half_remaining(task), clip_v_remaining(task), word
    )


def gradient(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Q_h = r + P V + beta ||grad PV||_{A^-1} + ((H - h) / 2) (beta m)^2: second order.

    grad PV = sum_s' p (V - PV) varphi, small where the next values vary little. V_h is clipped at
    the steps left.
    """
    return sweep_gradient(
        task, model, reward, beta, 1.0, half_remaining(task), clip_v_remaining(task), word
    )


def standard_error(
    task: Task, model: Model, reward: Array, beta: float, word: np.uint64,
    geometry_start: Array | None = None,
) -> Plan:  # fmt: skip
    """Q_h = r + P V + beta ||grad PV||_{A^-1}: `gradient` without its remainder.

    Where the model's matrix is the Hessian of (2) the norm is the standard error of PV by the delta
    method. Optimistic only up to the remainder, and only as often as beta standard errors are. Of
    a task without a last step V is stationary, and P V with its errors at most the largest next V.
    geometry_start is that of the features where the model keeps the smaller form.
    """
    if task.infinite_horizon:
        return plan_errors(task, model.prob[0], reward[0], model.inverse_products[0], beta, word)
    clip = clip_v_remaining(task)
    if model.inverse_products.shape[1] < task.n_squares:
        return swept(
            task, kernels.optimism.sweep_errors, (model.prob, reward, model.inverse_products),
            (geometry_start, beta), (), clip, word,
        )  # fmt: skip
    return sweep_gradient(task, model, reward, beta, 1.0, zeros(task), clip, word)


def pessimistic(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """`gradient` with a minus: Q is at most the true value of the plan; for use offline."""
    clip = clip_v_remaining(task)._replace(low=0.0)
    return sweep_gradient(task, model, reward, beta, -1.0, half_remaining(task), clip, word)


def exact_maximum(task: Task, model: Model, reward: Array, beta: float, word: np.uint64) -> Plan:
    """Eq. (4): Q = r + max over the confidence set of P_theta V, V clipped at H.

    The maximum is taken for each (s, a, h) by itself, up to 1e-11 of the spread of the next values;
    actions closer than 1e-10 of it are ties. Between greedy and (6), and never above the steps
    left, so the clip never acts.
    """
    steps, across = len(model.prob), int(task.square_start[-1] - task.n_triples) // 2
    packed, kappa = np.empty((steps, across)), np.empty((steps, len(task.sizes)))
    for h in range(steps):
        kernels.pessimism.from_last(
            task.indptr, task.square_start, model.inverse_products[h], model.prob[h], np.inf, packed[h],
            kappa[h],
        )  # fmt: skip
    arrays = model.prob, reward, model.inverse_products, packed, kappa
    memory, clip = np.zeros((task.n_triples, kernels.maximum.KEPT)), clip_v(task)
    kernel = kernels.optimism.sweep_exact
    plan = swept(task, kernel, arrays, (task.square_start, beta, memory), (), clip, word)
    given = (task.next_state_reward_rows, *arrays), (task.square_start, beta, memory[:0])
    return plan._replace(backup=partial(backed_up, task, kernel, *given, (), clip, plan.v))


def sweep_width(
    task: Task, model: Model, reward: Array, beta: float, scale: Array, clip: Clip, word: np.uint64
) -> Plan:
    """r + P V + beta scale_h m, scale (H,)."""
    return swept(
        task, kernels.planning.sweep, (model.prob, reward, model.max_norm), (beta,), (scale,), clip,
        word,
    )  # fmt: skip


def sweep_gradient(
    task: Task, model: Model, reward: Array, beta: float, sign: float, remainder: Array, clip: Clip,
    word: np.uint64,
) -> Plan:  # fmt: skip
    """r + P V + sign (beta ||grad PV||_{A^-1} + remainder_h (beta m)^2), remainder (H,)."""
    return swept(
        task, kernels.optimism.sweep_gradient, (model.prob, reward, model.max_norm, model.inverse_products),
        (beta, sign), (remainder,), clip, word,
    )  # fmt: skip


OPTIMISMS: dict[str, Optimism] = {
    "closed-form": closed_form,
    "half-range": half_range,
    "gradient": gradient,
    "exact-maximum": exact_maximum,
    "pessimistic": pessimistic,
}
NEEDS_GEOMETRY: frozenset[Optimism] = frozenset({gradient, exact_maximum, pessimistic})
