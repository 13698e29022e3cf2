"""UCBVI: value iteration on the frequencies of transitions, with an exploration bonus.

Azar, Osband and Munos, "Minimax Regret Bounds for Reinforcement Learning", ICML 2017. Two bonuses,
two classes: `UCBVI` with a Chernoff-Hoeffding bonus (the paper's UCBVI-CH), and `UCBVIBF` with a
Bernstein-Freedman one, which is small where the next values vary little. A bonus is a function of
the task; each one here is a small frozen class whose fields are its constants. N is the number of
visits of (s, a), h counts from 1, S is the number of states and L = log(5 S A T / delta).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import rewards, tabular
from upriver.agents.base import Episode, Validated, function_or_number, guarded
from upriver.agents.tabular import TabularLearner
from upriver.checks import Array
from upriver.display import add_repr
from upriver.mdp import Task
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed, run_backward_pass


@dataclass(frozen=True)
class scaled_hoeffding(Validated):
    """The practical form: c (H - h) / sqrt(N), H - h the range of V_{h+1}; c = 0 is greedy."""

    scale: float

    def __call__(self, task: Task) -> Array:
        return self.scale * tabular.steps_left(task)


@dataclass(frozen=True)
class theory_hoeffding(Validated):
    """7 H L / sqrt(N) of UCBVI-CH: optimistic in all T = n_episodes * H steps at once, with
    probability 1 - delta."""

    n_episodes: int
    delta: float = 0.05

    def __call__(self, task: Task) -> Array:
        return np.full(task.horizon, 7.0 * task.units.max_value * log_term(task, self))


class Bernstein(NamedTuple):
    """sqrt(variance Var_P V / N) + linear_h / N + sqrt(P doubt_h / N)."""

    variance: float
    linear: Array
    """(H,)"""
    doubt: Array
    """(1 | H, S) how uncertain V_{h+1} is at each next state."""


@dataclass(frozen=True)
class scaled_bernstein(Validated):
    """The practical form: c sqrt(Var_P V_{h+1} / N) + c (H - h) / N; c = 0 is greedy."""

    scale: float

    def __call__(self, task: Task, state_visits: Array) -> Bernstein:
        linear = self.scale * tabular.steps_left(task)
        return Bernstein(self.scale**2, linear, np.zeros((1, task.n_states)))


@dataclass(frozen=True)
class theory_bernstein(Validated):
    """sqrt(8 L Var_P V / N) + 14 H L / (3 N) + sqrt(8 sum_y P(y) min(D(y), H^2) / N) of UCBVI-BF,
    where D(y) = 100^2 H^3 S^2 A L^2 / N_{h+1}(y) and N_{h+1}(y) counts the visits of y at step h+1.
    """

    n_episodes: int
    delta: float = 0.05

    def __call__(self, task: Task, state_visits: Array) -> Bernstein:
        horizon, size = task.units.max_value, log_term(task, self)
        doubt = 1e4 * horizon**3 * task.n_states**2 * task.n_actions * size**2
        with np.errstate(divide="ignore"):
            squares = np.minimum(doubt / state_visits[1:], horizon**2)
        linear = np.full(task.horizon, 14.0 * horizon * size / 3.0)
        return Bernstein(8.0 * size, linear, 8.0 * squares)


def log_term(task: Task, bonus: theory_hoeffding | theory_bernstein) -> float:
    """Return L = log(5 S A T / delta)."""
    steps = bonus.n_episodes * task.horizon
    return log(5.0 * task.n_states * task.n_actions * steps / bonus.delta)


@guarded
@dataclass(frozen=True)
class UCBVI(rewards.OptimisticReward, TabularLearner):
    """UCBVI with a Hoeffding bonus: Q_h = r + P V_{h+1} + b_h / sqrt(N), V_h at most H - h + 1.

    P are the frequencies over the task's support. A pair that was never visited may lead to the
    best of its successors and has the bonus of one visit; with c = 0 it has a uniform P.

    Deviations: the support is used: a pair with one successor has no bonus, and one that was never
    visited is not worth H, unless the support is full. V is clipped at the steps left and Q is not,
    so that clipping creates no ties. The minimum with the Q of the last episode is left out: with a
    bonus that is not a valid bound, a value that was once too low would stay. Rewards are known
    unless the task leaves them out.

    Parameters
    ----------
    bonus : function of the task, or float
        b_h (H,). A number c stands for scaled_hoeffding(c).
    """

    bonus: Callable[[Task], Array] | float = 0.01

    GRID: ClassVar = {"bonus": (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)}
    OWN_CHECKS: ClassVar = {"bonus": function_or_number(scaled_hoeffding)}

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        """Return the values with flat_h / sqrt(N) and the Bernstein terms as a bonus."""
        task, counts = self.task, state.counts
        flat, (variance, linear, doubt) = self.terms(state)
        optimistic = bool(variance > 0.0 or flat.any() or linear.any())
        bonus = kernels.tabular.CountBonus(
            counts.visits, flat, variance, linear, doubt, tabular.steps_left(task), optimistic
        )
        arguments, clip = (counts.prob, self.reward(state), bonus), clip_v_remaining(task)
        kernel = kernels.tabular.backward_pass_counts
        return run_backward_pass(task, kernel, arguments, clip, draw_tie_seed(rng))

    def terms(self, state: Any) -> tuple[Array, Bernstein]:
        """Return b_h (H,) and the terms of a Bernstein bonus, which are 0."""
        rule: Any = self.bonus
        zeros = np.zeros(self.task.horizon)
        return rule(self.task), Bernstein(0.0, zeros, np.zeros((1, self.task.n_states)))


@add_repr
class UCBVIBFState(NamedTuple):
    """What UCBVI-BF keeps between episodes."""

    counts: tabular.Counts
    state_visits: Array
    """(H + 1, S) visits N_h(s) of each state at each step."""
    rewards: rewards.RewardSums | None
    """Sums of rewards, only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True)
class UCBVIBF(UCBVI):
    """UCBVI with a Bernstein bonus.

    Q_h = r + P V + sqrt(c^2 Var_P V / N) + c (H - h) / N, or the paper's. The rest, and the
    deviations, are as in `UCBVI`.

    Parameters
    ----------
    bonus : function of the task and the visits of states (H + 1, S), or float
        The terms of a `Bernstein` bonus. A number c stands for scaled_bernstein(c).
    """

    bonus: Callable[[Task, Array], Bernstein] | float = 0.01  # pyright: ignore[reportIncompatibleVariableOverride]

    OWN_CHECKS: ClassVar = {"bonus": function_or_number(scaled_bernstein)}

    def init(self) -> UCBVIBFState:
        """Return counts of 0."""
        state_visits = np.zeros((self.task.horizon + 1, self.task.n_states))
        return UCBVIBFState(tabular.start(self.task), state_visits, rewards.start(self.task))

    def terms(self, state: UCBVIBFState) -> tuple[Array, Bernstein]:
        """Return a flat bonus of 0, and the Bernstein terms."""
        rule: Any = self.bonus
        return np.zeros(self.task.horizon), rule(self.task, state.state_visits)

    def update(self, state: UCBVIBFState, plan: Plan, episode: Episode) -> UCBVIBFState:
        """Return the counts with one more episode."""
        state_visits = state.state_visits.copy()
        state_visits[np.arange(len(episode.states)), episode.states] += 1.0
        counts = tabular.absorb(self.task, state.counts, episode)
        sums = rewards.observe(self.task, state.rewards, episode)
        return UCBVIBFState(counts, state_visits, sums)
