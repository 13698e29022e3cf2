"""Plans of learners for tasks with an infinite horizon: one table of actions for all steps.

A model, or a set of models around one, is solved by `policy_iteration`: policy iteration where an
improvement also chooses the best model of the set (extended value iteration, Jaksch, Ortner and
Auer 2010, until it converges). Rewards are on the scale of [0, 1] and may be a tiny part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning.induction import Plan
from upriver.planning.policy_iteration import iterate_policies, scale_exponent
from upriver.planning.tables import policy_type

LEVEL_CHANGES = 1e-7
"""Policy iteration ends where the changes of a backup differ by no more; rewards lie in [0, 1], and
those that are a tiny part of it are scaled, see `scale_exponent`."""


Choose = Callable[[Array, Array], None]
"""(values (n,) of the next states, out (n,)): writes the best distribution of each pair."""


def plan_l1(
    task: Task, prob: Array, reward: Array, radius: Array, tie_seed: np.uint64, discount: float
) -> Plan:
    """Return the optimum over models within L1 distance `radius` (S*A,) of prob at each pair."""
    choose = partial(kernels.tabular.choose_in_l1_balls, task.indptr, prob, radius)
    return plan_model(task, prob, reward, tie_seed, choose, discount)


def plan_tilted(
    task: Task, prob: Array, reward: Array, products: Array, starts: Array,
    tie_seed: np.uint64, next_state_reward: Array | None = None,
) -> Plan:  # fmt: skip
    """Return the plan whose values are those of the tilted distributions, see `optimism.tilted`."""
    rows = task.kernel_rows[0], prob[None], products, starts.view(np.uint64)
    choose = partial(kernels.optimism.choose_tilted, *rows)
    return plan_model(task, prob, reward, tie_seed, choose, next_state_reward=next_state_reward)


def plan_model(
    task: Task, prob: Array, reward: Array, tie_seed: np.uint64, choose: Choose | None = None,
    discount: float | None = None, next_state_reward: Array | None = None,
) -> Plan:  # fmt: skip
    """Return the optimum of one model, or of those that `choose` chooses from: prob (n,), reward
    (S*A,) and a next-state reward (1, n), that of the task by default, as is the discount.

    With a discount v (2, S) holds the values, otherwise the bias; its second row is 0.
    """
    from scipy.sparse import csr_array

    discount = task.discount if discount is None else discount
    assert discount is not None
    rows_of = task.next_state_reward_rows if next_state_reward is None else next_state_reward
    extra: Any = rows_of[0] if rows_of.size else 0.0
    k = scale_exponent(max(np.abs(reward).max(), np.abs(extra).max()))
    reward, extra = np.ldexp(reward, -k), np.ldexp(extra, -k)
    prob, mean_reward = prob.copy(), reward + task.by_pair(prob * extra)
    transition = csr_array((prob, task.successors, task.indptr), (len(task.sizes), task.n_states))

    def choose_model(w: Array) -> None:
        assert choose is not None
        choose(np.ldexp(extra + discount * w[task.successors], k), prob)
        mean_reward[:] = reward + task.by_pair(prob * extra)

    draws = np.random.Generator(np.random.PCG64(int(tie_seed))).random(task.available.shape)
    policy = np.where(task.available, draws, -1.0).argmax(axis=1).astype(np.int32)
    found = iterate_policies(
        transition, mean_reward, discount, LEVEL_CHANGES, policy=policy,
        choose_model=choose_model if choose else None,
    )  # fmt: skip
    # Actions whose values differ by less than the error of the values are ties; the first of them
    # in the random order is played.
    q = mean_reward + discount * task.by_pair(prob * found.values[task.successors])
    q = np.where(task.available, q.reshape(draws.shape), -np.inf)
    tied = q >= q.max(axis=1, keepdims=True) - min(found.half_spread, LEVEL_CHANGES)
    policy = np.where(tied, draws, -1.0).argmax(axis=1)
    values = found.values - found.values.min()
    if discount < 1.0:
        values = found.values + discount / (1.0 - discount) * found.mean_change
    v = np.stack([np.ldexp(values, k), np.zeros(task.n_states)])
    return Plan(policy.astype(policy_type(task))[None], v, None, task)
