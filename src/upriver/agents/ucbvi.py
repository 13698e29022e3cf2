"""UCBVI and UCBVI-BF: value iteration on the frequencies of transitions, with a bonus.

Azar, Osband and Munos, "Minimax Regret Bounds for Reinforcement Learning", ICML 2017. N is the
number of visits of (s, a), h counts from 1, S is the number of states and L = log(5 S A T / delta).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode, State, Validated, check_rule, number_or_function
from upriver.agents.counts import CountLearner, frequencies
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array, check_instance, nonnegative_number
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining


class Bernstein(NamedTuple):
    """sqrt(variance Var_P V / N) + linear_h / N + sqrt(P doubt_h / N)."""

    variance: float
    linear: Array
    """(H,)"""
    doubt: Array
    """(1 | H, S) how uncertain V_{h+1} is at each next state."""


@dataclass(frozen=True)
class TheoryBonus(Validated):
    """The constants of the paper, for n_episodes, that fail with probability delta at most."""

    n_episodes: int
    delta: float = 0.05

    def log_term(self, task: Task) -> float:
        """Return L = log(5 S A T / delta)."""
        steps = self.n_episodes * task.horizon
        return log(5.0 * task.n_states * task.n_actions * steps / self.delta)


class theory_hoeffding(TheoryBonus):
    """7 H L / sqrt(N) of UCBVI-CH: optimistic in all T = n_episodes * H steps at once."""

    def __call__(self, task: Task) -> Array:
        return np.full(task.horizon, 7.0 * task.units.max_value * self.log_term(task))


class theory_bernstein(TheoryBonus):
    """sqrt(8 L Var_P V / N) + 14 H L / (3 N) + sqrt(8 sum_y P(y) min(D(y), H^2) / N) of UCBVI-BF,
    where D(y) = 100^2 H^3 S^2 A L^2 / N_{h+1}(y) and N_{h+1}(y) counts the visits of y at step h+1.
    """

    def __call__(self, task: Task, state_visits: Array) -> Bernstein:
        horizon, size = task.units.max_value, self.log_term(task)
        doubt = 1e4 * horizon**3 * task.n_states**2 * task.n_actions * size**2
        with np.errstate(divide="ignore"):
            squares = np.minimum(doubt / state_visits[1:], horizon**2)
        linear = np.full(task.horizon, 14.0 * horizon * size / 3.0)
        return Bernstein(8.0 * size, linear, 8.0 * squares)


@dataclass(frozen=True)
class UCBVI(OptimisticReward, CountLearner):
    """UCBVI with a Hoeffding bonus: Q_h = r + P V_{h+1} + b_h / sqrt(N), V_h at most H - h + 1.

    P are the frequencies over the task's support. A pair that was never visited may lead to the
    best of its successors and has the bonus of one visit after which the variance is the largest
    that V_{h+1} can have, (H - h)^2 / 4; with c = 0 it has a uniform P.

    Deviations: the support is used: a pair with one successor has no bonus, and one that was never
    visited is not worth H, unless the support is full. V is clipped at the steps left and Q is not,
    so that clipping creates no ties. The minimum with the Q of the last episode is left out: with a
    bonus that is not a valid bound, a value that was once too low would stay. Rewards are known
    unless the task leaves them out.

    Parameters
    ----------
    bonus : float or function of the task
        b_h (H,). A number c stands for the practical form c (H - h), H - h the range of V_{h+1},
        and 0 for the greedy learner; `theory_hoeffding` is the paper's.
    """

    bonus: float | Callable[..., Any] = 0.01

    GRID: ClassVar = {"bonus": (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)}
    OWN_CHECKS: ClassVar = {"bonus": number_or_function}

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the values with flat_h / sqrt(N) and the Bernstein terms as a bonus."""
        task, counts = self.task, getattr(state.model, "counts", state.model)[0]
        flat, variance, linear, doubt = self.terms(state)
        optimistic = bool(variance > 0.0 or flat.any() or linear.any())
        data = (
            frequencies(task, counts), self.reward(state), task.by_pair(counts), flat, variance,
            linear, doubt, task.units.next_value_range, optimistic,
        )  # fmt: skip
        return self.run_pass(kernels.tabular.count_rule, data, clip_v_remaining, rng)

    def terms(self, state: State) -> tuple[Array, float, Array, Array]:
        """Return b_h (H,) and the terms of a Bernstein bonus, which are 0."""
        task, c = self.task, self.bonus
        none = 0.0, np.zeros(task.horizon), np.zeros((1, task.n_states))
        if callable(c):
            return check_rule("bonus", c(task), (task.horizon,)), *none
        return c * task.units.next_value_range, *none


@add_repr
class VisitCounts(NamedTuple):
    """What UCBVI-BF counts."""

    counts: Array
    """(1, n) visits N(s, a, s') of each triple."""
    states: Array
    """(H + 1, S) visits N_h(s) of each state at each step."""


@dataclass(frozen=True)
class UCBVIBF(UCBVI):
    """UCBVI with a Bernstein bonus, which is small where the next values vary little.

    Q_h = r + P V + sqrt(c^2 Var_P V / N) + c (H - h) / N, or the paper's. The rest, and the
    deviations, are as in `UCBVI`.

    Parameters
    ----------
    bonus : float or function of the task and the visits of states (H + 1, S)
        The number c, or a function that returns the terms of a `Bernstein` bonus, of which
        `theory_bernstein` is the paper's.
    """

    def start(self) -> VisitCounts:
        state_visits = np.zeros((self.task.horizon + 1, self.task.n_states))
        return VisitCounts(super().start(), state_visits)

    def learn(self, state: State, plan: Plan, episode: Episode) -> VisitCounts:
        state_visits = state.model.states.copy()
        state_visits[np.arange(len(episode.states)), episode.states] += 1.0
        counts = super().learn(state._replace(model=state.model.counts), plan, episode)
        return VisitCounts(counts, state_visits)

    def terms(self, state: State) -> tuple[Array, float, Array, Array]:
        """Return a flat bonus of 0, and the Bernstein terms."""
        task, c = self.task, self.bonus
        flat, (horizon, n_states) = np.zeros(task.horizon), (task.horizon, task.n_states)
        if not callable(c):
            return flat, c**2, c * task.units.next_value_range, np.zeros((1, n_states))
        found = check_instance("bonus", c(task, state.model.states), Bernstein)
        return (
            flat, nonnegative_number("variance of the bonus", found.variance),
            check_rule("linear of the bonus", found.linear, (horizon,)),
            check_rule("doubt of the bonus", found.doubt, (1, n_states), (horizon, n_states)),
        )  # fmt: skip
