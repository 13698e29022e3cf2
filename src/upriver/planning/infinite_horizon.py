"""Plans of learners for tasks without a last step: one table of actions, for ever.

A model, or a set of models around one, is solved by `stationary.iterate`: policy iteration where an
improvement also chooses the best model of the set (extended value iteration, Jaksch, Ortner and
Auer 2010, taken to its end). Rewards are on the scale of [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning.average import LAZY
from upriver.planning.induction import Plan
from upriver.planning.stationary import Rows, iterate
from upriver.planning.tables import policy_type

LEVEL = 1e-7
"""Changes of a backup that differ by no more are level; rewards lie in [0, 1]."""

Improve = Callable[[Array, Array, Array], tuple[float, float]]


def plan_for(task: Task, prob: Array, reward: Array, word: np.uint64) -> Plan:
    """The optimum of one model: prob (n,), reward (S*A,), and what the task's triples pay."""
    if task.next_state_reward_rows.size:
        reward = reward + task.by_pair(prob * task.next_state_reward_rows[0])
    return plan_by(task, prob, reward, None, word, gain_discount(task))


def plan_l1(
    task: Task, prob: Array, reward: Array, radius: Array, word: np.uint64, discount: float
) -> Plan:
    """The optimum over models within L1 distance `radius` (S*A,) of `prob` at each pair."""
    chosen, earned = prob.copy(), reward.copy()
    improve = partial(
        kernels.extended.improve_l1, task.indptr, task.successors, prob, reward,
        task.next_state_reward_rows[0], radius, discount, chosen, earned,
    )  # fmt: skip
    return plan_by(task, chosen, earned, improve, word, discount)


def plan_errors(
    task: Task, prob: Array, reward: Array, geometry: Array, beta: float, word: np.uint64
) -> Plan:
    """The optimum over models within beta standard errors of `prob` at each pair."""
    chosen, earned, discount = prob.copy(), reward.copy(), gain_discount(task)
    improve = partial(
        kernels.extended.improve_errors, task.indptr, task.successors, prob, reward,
        task.next_state_reward_rows[0], geometry, task.square_start, beta, discount, chosen, earned,
    )  # fmt: skip
    return plan_by(task, chosen, earned, improve, word, discount)


def gain_discount(task: Task) -> float:
    assert task.discount is not None
    return task.discount


def plan_by(
    task: Task, prob: Array, reward: Array, improve: Improve | None, word: np.uint64,
    discount: float,
) -> Plan:  # fmt: skip
    """v (2, S): the values, of the average reward the bias, and the zeros that follow."""
    rows = Rows(task.indptr, task.successors, prob, reward, task.n_states)
    # ties stay as they begin, so that a random policy to begin with breaks them at random
    first = np.random.Generator(np.random.PCG64(int(word))).random(task.available.shape)
    policy = np.where(task.available, first, -1.0).argmax(axis=1).astype(np.int32)
    found = iterate(rows, discount, LAZY if discount == 1.0 else 0.0, LEVEL, None, improve, policy)
    u = found.u - found.u.min()
    if discount < 1.0:
        u = found.u + discount / (1.0 - discount) * 0.5 * (found.low + found.high)
    v = np.stack([u, np.zeros(task.n_states)])
    return Plan(found.policy.astype(policy_type(task))[None], v, None, task)
