"""UCRL-VTR: value-targeted regression for linear mixture models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.agents.base import Episode, Learner, State, add_counts, number_or_function
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array, as_float, nonnegative_number
from upriver.display import add_repr
from upriver.features import Features
from upriver.planning import Plan, clip_q


@add_repr
class Regression(NamedTuple):
    """What UCRL-VTR has regressed."""

    gram: Array
    """Flat blocks of the sum of X X^T, without lambda I."""
    target: Array
    """(d,) sum of X V_{h+1}(s_{h+1})."""
    root: Array
    """Flat inverses of the Cholesky factors of the blocks of M = lambda I + gram."""
    theta: Array
    """(d,) M^-1 target."""


@dataclass(frozen=True, eq=False)
class UCRLVTR(OptimisticReward, Learner):
    """Value-targeted regression for linear mixture models, P = sum_j theta_j P_j.

    Jia, Yang, Szepesvari and Wang, "Model-Based Reinforcement Learning with Value-Targeted
    Regression" (2020), and Ayoub, Jia, Szepesvari, Wang and Yang (2020). The planned value of the
    next state is regressed on X_V(s,a)_j = sum_s' V(s') P_j(s'|s,a):

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

    features: Features | None = None
    bonus: float | Callable[[int], float] = 3.0
    regularization: float = 10.0

    GRID: ClassVar = {
        "bonus": (0.0, 0.3, 1.0, 2.0, 3.0), "regularization": (0.1, 1.0, 3.0, 10.0, 30.0),
    }  # fmt: skip
    OWN_CHECKS: ClassVar = {"bonus": number_or_function}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixture.spread:
            raise ValueError("features are pooled; UCRL-VTR needs a mixture of models")

    @cached_property
    def mixture(self) -> Features:
        """The features, or one-hot ones, for which theta is the table of probabilities."""
        if self.features is not None:
            return self.features
        size = self.task.n_states * self.task.n_actions * self.task.n_states
        return Features(self.task, sparse.identity(self.task.n_triples), formal_dimension=size)

    def start(self) -> Regression:
        eyes = [np.eye(m).ravel() for m in self.mixture.layout.size]
        root, zeros = np.concatenate(eyes) / sqrt(self.regularization), np.zeros
        d = self.mixture.dimension
        return Regression(np.zeros_like(root), zeros(d), root, zeros(d))

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimistic values."""
        features, (_, _, root, theta) = self.mixture, state.model
        data = self.reward(state), features.layout, root, theta, float(self.radius(state.k))
        return self.run_pass(kernels.linear.value_target_rule, data, clip_q, rng)

    def learn(self, state: State, plan: Plan, episode: Episode) -> Regression:
        """Regress V_{h+1}(s_{h+1}) on X_h, with the values that the episode was planned with."""
        task, v = self.task, as_float("v of the plan", getattr(plan, "v", None))
        shape = task.horizon + 1, task.n_states
        if v.shape != shape or not np.isfinite(v).all():
            raise ValueError(
                f"plan is not one of this task: its v must be finite, of shape {shape}"
            )
        if np.any(getattr(plan, "in_user_units", False)) and not task.units.is_identity:
            raise ValueError("plan is in the user's units; update needs it as the agent made it")
        pairs = add_counts(task, np.empty((1, 0)), episode)  # checked, and not counted
        new = Regression._make(x.copy() for x in state.model)
        kernels.linear.update_value_regression(
            self.mixture.layout, float(self.regularization), task.next_state_reward_rows, pairs,
            episode.states, v, *new,
        )  # fmt: skip
        return new

    def radius(self, k: int) -> float:
        """Return sqrt(beta_k)."""
        rule = self.bonus
        return nonnegative_number("bonus", rule(k)) if callable(rule) else rule
