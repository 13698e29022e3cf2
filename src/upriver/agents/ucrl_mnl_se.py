"""UCRL-MNL-SE, the recommended agent: optimism of a few standard errors; nothing to tune."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log
from typing import ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.base import Episode, State
from upriver.agents.mnl_family import MaximumLikelihoodLearner
from upriver.features import Features
from upriver.mnl import model as mnl
from upriver.mnl.pooled import FIRST_SPREAD, likely_spread
from upriver.planning import Plan, draw_tie_seed
from upriver.planning.optimism import tilted

GROWTH = 1.3
"""The spread of pooled features is estimated again when k has grown by this factor."""
LARGE_SPREAD = 0.4
"""Above it pairs differ so much that an error in what they share is no longer common to them."""


@dataclass(frozen=True)
class UCRLMNLSE(MaximumLikelihoodLearner):
    """Optimism of a few standard errors, by a tilted distribution; nothing to tune.

    The estimate is that of UCRL-MNL, with the columns of the features on a common scale. The plan
    uses the estimated model shifted in the direction that raises the next value most: by three
    standard errors for coefficients that several pairs (s, a) share, and by 1.5 for those of one
    pair. The errors of separate pairs average out along a plan; that of a shared one adds up.

    Q_h = r + sum_u q_u V_{h+1}(u), q_u proportional to p_u exp((G x)_u / sqrt(x^T G x)).

    p is the distribution at theta_hat, which minimises (2), x_u = p_u (V_u - p V) is the gradient
    of the expected next value by the logits, and sqrt(x^T G x) a number of standard errors of it:
    G = shared_errors^2 (G_all - G_own) + own_errors^2 G_own, where G_all = Phi B^-1 Phi^T is the
    covariance of the logits of the pair by the Hessian B of (2), and G_own is the part that is left
    where the shared columns are known. A column is a pair's own if it varies among the successors
    of one pair only, as one-hot columns and the triple effects of pooled features do; with
    `per_step` all columns count as own. q is the model at a point of the confidence ellipsoid, so
    values are never above what some distribution gives.

    Before the ridge, shared columns are divided by their largest range among the successors of a
    pair and own columns by their largest absolute value, so the unit of a column does not matter.
    Pooled features whose spread is "estimate" begin with 0.1; it is estimated again by the marginal
    likelihood and a log-normal prior when k has grown by 30%. Once the estimate is above 0.4, the
    errors of shared columns count as those of own columns do. An unknown reward enters as an
    upper bound for each triple, see `rewards.triple_upper_bound`.

    No regret bound is proved.

    With an infinite horizon k counts steps, and a plan is kept until det B has doubled or half as
    many steps as before have passed.

    Parameters
    ----------
    shared_errors, own_errors : float
        The numbers of standard errors; with 0 for both it is the greedy learner.
    regularization : float
        lambda, for columns on the common scale.
    """

    shared_errors: float = 3.0
    own_errors: float = 1.5
    regularization: float = 1.0

    GRID: ClassVar = {"shared_errors": (1.5, 3.0, 6.0), "own_errors": (0.75, 1.5, 3.0)}

    @property
    def model_features(self) -> Features:
        return self.features.standardized

    def choose_weights(self, spread: float) -> mnl.ErrorWeights:
        """Return how the errors of shared and own columns count in the products of the model; where
        the spread is large all columns count as own ones do."""
        all_own = self.per_step or (self.learns_spread and spread > LARGE_SPREAD)
        shared = self.own_errors if all_own else self.shared_errors
        return float(shared), float(self.own_errors)

    @property
    def learns_spread(self) -> bool:
        return self.features.spread == "estimate"

    def start(self) -> mnl.Model:
        return mnl.start(
            self.model_features, self.regularization, self.n_models, with_products=True, local=True,
            factored=True, spread=FIRST_SPREAD if self.learns_spread else None,
            weights=self.choose_weights(0.0),
        )  # fmt: skip

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the plan with the tilted distributions."""
        task, start, extra = self.task, self.model_features.layout.product_start, None
        if state.rewards is None:
            reward = task.reward_rows
        else:
            reward = np.zeros((1, len(task.sizes)))
            extra = rewards.triple_upper_bound(task, state.rewards, self.own_errors)
        return tilted(task, state.model, reward, start, draw_tie_seed(rng), extra)

    def learn(self, state: State, plan: Plan, episode: Episode) -> mnl.Model:
        features, model, lam = self.model_features, state.model, self.regularization
        weights = self.choose_weights(model.spread)
        model = mnl.absorb(features, model, episode, lam, local=True, weights=weights)
        return self.adapt_spread(model, state.k, self.next_k(state, episode))

    def adapt_spread(self, model: mnl.Model, k: int, next_k: int) -> mnl.Model:
        """Return the model with its spread estimated again, if k has grown by 30%."""
        features = self.model_features
        if self.learns_spread and growth_steps(next_k) > growth_steps(max(k, 1)):
            spread = likely_spread(features, model)
            if spread != model.spread:
                model = mnl.change_spread(features, model, spread, self.choose_weights(spread))
        return model


def growth_steps(k: int) -> int:
    """Return how often k has grown by the factor GROWTH since 2; negative before."""
    return floor(log(k / 2) / log(GROWTH))
