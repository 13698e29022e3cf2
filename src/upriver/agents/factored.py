"""Learners of factored problems: the MNL of the components, and rollouts with what was learned.

A plan is a policy that simulates when it acts, so there are no optimistic values to compute. What
is left of optimism is a draw from the posterior.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from upriver.agents.base import Episode
from upriver.checks import Array, check_instance, positive_number
from upriver.display import add_repr
from upriver.features import Features, components
from upriver.mdp import FactoredMDP
from upriver.mnl.fit import fit_mnl
from upriver.mnl.fitted import FittedMNL
from upriver.planning.rollouts import RolloutPolicy


@add_repr
class FactoredState(NamedTuple):
    """What a learner of a factored problem knows."""

    counts: Array
    """How often each possible (kind, value) was seen, see `FactoredMDP.count`."""
    k: int
    """The number of the next episode, from 1."""


@add_repr
@dataclass(frozen=True, repr=False)
class FactoredGreedy:
    """Plans with the estimate: no exploration, the yardstick for those that explore.

    theta_hat maximises the likelihood of the components with the ridge of (2), and the policy is
    `rollout_policy` of the problem that has these log-odds.

    Parameters
    ----------
    task : FactoredMDP
        Without logits, as `FactoredMDP.task` returns it.
    regularization : float
        lambda; the prior of each parameter is N(0, 1 / lambda).
    scenarios, depth, base : int, int, and action, function or None
        See `rollout_policy`.
    """

    task: FactoredMDP
    _: KW_ONLY
    regularization: float = 1.0
    scenarios: int = 40
    depth: int = 8
    base: Any = None

    def __post_init__(self) -> None:
        if check_instance("task", self.task, FactoredMDP).logits is not None:
            raise TypeError("task is a FactoredMDP with logits; use mdp.task()")
        positive_number("regularization", self.regularization)
        RolloutPolicy(self.task, self.scenarios, self.depth, self.base)  # checks the other fields

    @cached_property
    def features(self) -> Features:
        """The features of the component choices."""
        return components(self.task)

    def init(self) -> FactoredState:
        """Return the state before the first episode."""
        return FactoredState(np.zeros(self.features.task.n_triples), 1)

    def fit(self, state: FactoredState) -> FittedMNL:
        """Return the estimate, with its standard errors."""
        return fit_mnl(self.features, state.counts, self.regularization)

    def choose_theta(self, fitted: FittedMNL, rng: np.random.Generator) -> Array:
        """Return the parameters to plan with."""
        return fitted.theta

    def make_policy(self, theta: Array, rng: np.random.Generator) -> RolloutPolicy:
        """Return the rollouts of the problem with parameters theta."""
        problem, seed = self.task.with_theta(theta), int(rng.integers(2**63))
        return RolloutPolicy(problem, self.scenarios, self.depth, self.base, seed=seed)

    def plan(self, state: FactoredState, rng: np.random.Generator) -> RolloutPolicy:
        """Return the policy of the next episode."""
        return self.make_policy(self.choose_theta(self.fit(state), rng), rng)

    def update(self, state: FactoredState, plan: Any, episode: Episode) -> FactoredState:
        """Return the state after an episode."""
        seen = self.task.count(episode.states[:-1], episode.actions, episode.states[1:])
        return FactoredState(state.counts + seen, state.k + 1)


@dataclass(frozen=True, repr=False)
class FactoredPSRL(FactoredGreedy):
    """Draws a parameter from its posterior, and plans with it for an episode.

    Posterior sampling with the ridge of (2) as a normal prior and Laplace's approximation, as
    `PSRLMNL`: theta ~ N(theta_hat, B^-1), B the Hessian of (2) at theta_hat, lambda I included.
    """

    def choose_theta(self, fitted: FittedMNL, rng: np.random.Generator) -> Array:
        """Return a draw from the posterior."""
        noise, factor = rng.standard_normal(len(fitted.theta)), cholesky(fitted.information)
        return fitted.theta + solve_triangular(factor, noise)
