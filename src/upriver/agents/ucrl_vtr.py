"""UCRL-VTR: value-targeted regression for linear mixture models.

Jia, Yang, Szepesvari and Wang, "Model-Based Reinforcement Learning with Value-Targeted Regression"
(2020), and Ayoub, Jia, Szepesvari, Wang and Yang (2020). The model is P = sum_j theta_j P_j; the
planned value of the next state is regressed, on X_V(s,a)_j = sum_s' V(s') P_j(s'|s,a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import linear, rewards
from upriver.agents.base import (
    CHECKS,
    Episode,
    Validated,
    function_or_number,
    guarded,
    with_default,
)
from upriver.checks import Array, nonnegative_number
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import Task
from upriver.planning import Plan, clip_q, draw_tie_seed, run_backward_pass


@add_repr
class UCRLVTRState(NamedTuple):
    """What UCRL-VTR keeps between episodes."""

    k: int
    """Number of the next episode, from 1."""
    gram: Array
    """Flat blocks of the sum of X X^T, without lambda I."""
    target: Array
    """(d,) sum of X V_{h+1}(s_{h+1})."""
    root: Array
    """Flat inverses of the Cholesky factors of the blocks of M = lambda I + gram."""
    theta: Array
    """(d,) M^-1 target."""
    rewards: rewards.RewardSums | None
    """Sums of rewards, only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True, eq=False)
class UCRLVTR(rewards.OptimisticReward, Validated):
    """Value-targeted regression for linear mixture models.

    Q_h = clip_[0,H](r + X_h^T theta_k + sqrt(beta_k) ||X_h||_{M_k^-1}), X_h = X_{V_{h+1}}(s, a).

    With one-hot features theta is the table of probabilities and X_h(s, a) holds V_{h+1} on the
    successors of (s, a): one small ridge for each (s, a).

    Deviations: the next states are the task's successors of (s, a), which are all states, as
    published, with support "full". Ties are broken uniformly at random.

    Parameters
    ----------
    features : Features, optional
        P_j(s'|s,a), one row per triple and one column per j; the default is one-hot, e_(s,a,s').
        The difference features of the MNL model are not such a mixture.
    bonus : float or function of k
        sqrt(beta_k); 0 is the greedy learner. The theory's beta_k is
        16 C^2 H^2 d log(1 + H k) log^2((k + 1)^2 H / delta), C at least 1 and ||theta*||.
    regularization : float
        lambda of M_1 = lambda I; the theory's is H^2 d. No one number serves all problems: on
        RiverSwim with local support 30 never leaves the near bank of a short river, and 3 explores
        a long one for too long. Tune it with `bonus`.
    """

    task: Task
    features: Features | None = None
    bonus: float | Callable[[int], float] = 3.0
    regularization: float = 10.0

    READS_PLAN: ClassVar[bool] = True
    """`update` regresses on the values of the plan."""
    GRID: ClassVar = {
        "bonus": (0.0, 0.3, 1.0, 2.0, 3.0), "regularization": (0.1, 1.0, 3.0, 10.0, 30.0),
    }  # fmt: skip
    OWN_CHECKS: ClassVar = {
        "features": with_default(None, CHECKS["features"]), "bonus": function_or_number(float),
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixture.spread:
            raise ValueError("features are pooled; UCRL-VTR needs a mixture of models")

    @cached_property
    def mixture(self) -> Features:
        """The features, or one-hot ones."""
        return linear.one_hot_mixture(self.task) if self.features is None else self.features

    def init(self) -> UCRLVTRState:
        """Return theta = 0 and M = lambda I."""
        eyes = [np.eye(m).ravel() for m in self.mixture.layout.size]
        root = np.concatenate(eyes) / sqrt(self.regularization)
        gram, zeros, sums = np.zeros_like(root), np.zeros, rewards.start(self.task)
        d = self.mixture.dimension
        return UCRLVTRState(1, gram, zeros(d), root, zeros(d), sums)

    def plan(self, state: UCRLVTRState, rng: np.random.Generator) -> Plan:
        """Return the optimistic values."""
        task, kernel = self.task, kernels.linear.backward_pass_value_targets
        reward, regression = self.reward(state), self.regression(*state[1:5])
        arguments = reward, self.mixture.layout, regression, self.radius(state.k)
        return run_backward_pass(task, kernel, arguments, clip_q(task), draw_tie_seed(rng))

    def update(self, state: UCRLVTRState, plan: Plan, episode: Episode) -> UCRLVTRState:
        """Regress V_{h+1}(s_{h+1}) on X_h, with the values that the episode was planned with."""
        task = self.task
        pairs = linear.count_visits(task, np.zeros((1, task.n_triples)), episode)
        new = [x.copy() for x in state[1:5]]
        kernels.linear.update_value_regression(
            self.mixture.layout, self.regression(*new), float(self.regularization), task.successors,
            task.next_state_reward_rows, pairs, episode.states, plan.v,
        )  # fmt: skip
        sums = rewards.observe(task, state.rewards, episode)
        return UCRLVTRState._make([state.k + 1, *new, sums])

    def regression(self, *arrays: Array) -> Any:
        """Return gram, target, root and theta as the compiled loops read them."""
        start = self.mixture.matrix_start
        return kernels.linear.ValueRegression(self.features is None, start, *arrays)

    def radius(self, k: int) -> float:
        """Return sqrt(beta_k)."""
        rule: Any = self.bonus
        return nonnegative_number("bonus", rule(k)) if callable(rule) else rule
