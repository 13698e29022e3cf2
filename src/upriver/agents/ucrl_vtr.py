"""UCRL-VTR: value-targeted regression for linear mixture models.

Jia, Yang, Szepesvari and Wang, "Model-Based Reinforcement Learning with Value-Targeted Regression"
(2020), and Ayoub, Jia, Szepesvari, Wang and Yang (2020). The model is P = sum_j theta_j P_j; the
planned value of the next state is regressed, on X_V(s,a)_j = sum_s' V(s') P_j(s'|s,a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import linear, rewards
from upriver.agents.fields import rule, settle
from upriver.agents.guard import guarded
from upriver.agents.protocol import Episode
from upriver.checks import Array, nonnegative_number, positive_number
from upriver.display import displayed
from upriver.features import Features
from upriver.mdp import Task
from upriver.planning import Plan, clip_q, draw_tie_seed, run_backward_pass


@displayed
class UCRLVTRState(NamedTuple):
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
    """Only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True, eq=False)
class UCRLVTR:
    """Q_h = clip_[0,H](r + X_h^T theta_k + sqrt(beta_k) ||X_h||_{M_k^-1}), X_h = X_{V_{h+1}}(s, a).

    Inputs of the paper: the P_j are the columns of `features`, sqrt(beta_k) is `bonus` and
    M_1 = `regularization` I; the theory's constants are `ucrl_vtr_theory_bonus` and
    `ucrl_vtr_theory_regularization`.

    With the default, one-hot, theta is the table of probabilities and X_h(s, a) holds V_{h+1} on
    the successors of (s, a): one small ridge for each (s, a).

    Deviations: the next states are the task's successors of (s, a), which are all states, as
    published, with support "full". Ties are broken uniformly at random.
    """

    task: Task
    features: Features | None = None
    """P_j(s'|s,a), one row per triple and one column per j; one-hot, e_(s,a,s'), unless given. The
    difference features of the MNL model are no such mixture."""
    bonus: float | Callable[[int], float] = 3.0
    """sqrt(beta_k): a number, or a function of k; 0 is the greedy learner."""
    regularization: float = 10.0
    """lambda. No one number serves all: 30 never leaves the near bank of a short river with local
    support, 3 wanders on the long one. Tune it with `bonus`."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    READS_PLAN: ClassVar[bool] = True
    """`update` regresses on the values of the plan."""
    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "bonus": (0.0, 0.3, 1.0, 2.0, 3.0),
        "regularization": (0.1, 1.0, 3.0, 10.0, 30.0),
    }

    def __post_init__(self) -> None:
        self.mixture.check_task(self.task)
        if self.mixture.spread:
            raise ValueError("pooled features are no mixture of models, which UCRL-VTR needs")
        settle(
            self, bonus=rule(float), regularization=positive_number,
            reward_bonus=nonnegative_number,
        )  # fmt: skip

    @cached_property
    def mixture(self) -> Features:
        return linear.one_hot_mixture(self.task) if self.features is None else self.features

    def init(self) -> UCRLVTRState:
        features = self.mixture
        sizes = features.layout.size
        eyes = [np.eye(m).ravel() for m in sizes]
        root = np.concatenate(eyes) / sqrt(self.regularization)
        d = features.dimension
        return UCRLVTRState(
            1, np.zeros_like(root), np.zeros(d), root, np.zeros(d), rewards.start(self.task)
        )

    def plan(self, state: UCRLVTRState, rng: np.random.Generator) -> Plan:
        task, features = self.task, self.mixture
        reward = rewards.optimistic_reward(task, state.rewards, self.reward_bonus)
        regression = kernels.linear.ValueRegression(
            self.features is None, features.matrix_start, *state[1:5]
        )
        return run_backward_pass(
            task, kernels.linear.backward_pass_value_targets,
            (reward, features.layout, regression, self.radius(state.k)), clip_q(task),
            draw_tie_seed(rng),
        )  # fmt: skip

    def update(self, state: UCRLVTRState, plan: Plan, episode: Episode) -> UCRLVTRState:
        """Regress V_{h+1}(s_{h+1}) on X_h, with the values that the episode was planned with."""
        task, features = self.task, self.mixture
        visited = linear.count_visits(task, np.zeros((1, task.n_triples)), episode)
        new = [x.copy() for x in state[1:5]]
        kernels.linear.update_value_regression(
            features.layout,
            kernels.linear.ValueRegression(self.features is None, features.matrix_start, *new),
            float(self.regularization), task.successors, task.next_state_reward_rows, visited,
            episode.states, plan.v,
        )  # fmt: skip
        return UCRLVTRState(state.k + 1, *new, rewards.observe(task, state.rewards, episode))

    def radius(self, k: int) -> float:
        """sqrt(beta_k)."""
        rule: Any = self.bonus
        return nonnegative_number("bonus", rule(k)) if callable(rule) else rule


@dataclass(frozen=True)
class ucrl_vtr_theory_bonus:
    """sqrt(beta_k), beta_k = 16 C^2 H^2 d log(1 + H k) log^2((k + 1)^2 H / delta).

    C is at least 1 and at least ||theta*||; by default sqrt(S A), which holds for one-hot features.
    To be used with lambda = H^2 d.
    """

    task: Task
    delta: float = 0.05
    dimension: int | None = None
    """d; by default S*A*S."""
    theta_bound: float | None = None
    """C."""

    def __call__(self, k: int) -> float:
        task, big = self.task, self.theta_bound
        c = sqrt(len(task.sizes)) if big is None else max(big, 1.0)
        d = len(task.sizes) * task.n_states if self.dimension is None else self.dimension
        spread = log((k + 1) ** 2 * task.horizon / self.delta)
        return 4.0 * c * task.units.max_value * sqrt(d * log(1.0 + task.horizon * k)) * spread


def ucrl_vtr_theory_regularization(task: Task, dimension: int | None = None) -> float:
    """lambda = H^2 d; d is S*A*S unless given."""
    d = len(task.sizes) * task.n_states if dimension is None else dimension
    return float(task.units.max_value**2 * d)
