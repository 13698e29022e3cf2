"""UCRL-MNL-LL: maximum likelihood with a confidence set in the local norm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from upriver.agents.base import Episode, State
from upriver.agents.mnl_family import ConfidenceSetLearner
from upriver.agents.rewards import OptimisticReward
from upriver.mnl import model as mnl
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Plan, clip_q, draw_tie_seed
from upriver.planning.optimism import exact_maximum


@dataclass(frozen=True)
class UCRLMNLLL(OptimisticReward, ConfidenceSetLearner):
    """Maximum likelihood with a confidence set in the local norm.

    Li, Zhang, Zhao and Zhou, "Provably Efficient Reinforcement Learning with Multinomial Logit
    Function Approximation" (2024), the algorithm that its third version calls LL.

    theta_hat minimises (2) over all data, and B = lambda I + sum Hess l(theta_hat).

    Q_h = clip(r + P V_{h+1} + H beta_k sum_s' P ||varphi - mean||_{B^-1}
    + (5/2) H beta_k^2 max_s' ||varphi||^2_{B^-1}) to [0, H], mean the expected feature under P.
    With `exact`, Q_h = r + max of P_theta V_{h+1} over ||theta - theta_hat||_B <= beta_k instead,
    for each (s, a, h) separately.

    Deviations: the paper's set takes the Hessian at theta itself, here it is the one at theta_hat;
    by default the bonus that bounds the maximum is used. The default radius is the practical form.
    Ties are broken uniformly at random when the plan is made. The other parameters are those of
    `ConfidenceSetLearner`; `per_step` is as published.

    Parameters
    ----------
    exact : bool
        The maximum over the ellipsoid instead of the closed bonus: smaller, and slower.
    """

    radius: Radius | float = 3e-5
    exact: bool = False
    per_step: bool = field(default=True, kw_only=True)

    GRID: ClassVar = {
        "radius": (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2), "regularization": (1e-2, 1e-1, 1.0, 10.0),
    }  # fmt: skip

    def start(self) -> mnl.Model:
        lam = self.regularization
        return mnl.start(self.features, lam, self.n_models, with_products=True, local=True)

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimistic values with theta_hat and beta_k."""
        task, model, beta, reward = self.task, state.model, self.beta(state), self.reward(state)
        if self.exact:
            return exact_maximum(task, model, reward, beta, draw_tie_seed(rng))
        first, second = task.units.max_value * beta, 2.5 * task.units.max_value * beta**2
        bonus = online.local_bonus(task, model, first, second)
        return self.induce(model.prob, reward, clip_q, rng, bonus)

    def learn(self, state: State, plan: Plan, episode: Episode) -> mnl.Model:
        return mnl.absorb(self.features, state.model, episode, self.regularization, local=True)
