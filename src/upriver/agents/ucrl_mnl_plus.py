"""UCRL-MNL+, -OL and -LL: upper confidence with local curvature.

Two groups of authors found one algorithm: Cho, Hwang, Lee and Oh, "Randomized Exploration for
Reinforcement Learning with Multinomial Logistic Function Approximation" (2024), Algorithm 3; and
Li, Zhang, Zhao and Zhou, "Provably Efficient Reinforcement Learning with Multinomial Logit Function
Approximation" (2024), the algorithm that its third version calls OL. They differ in one constant
and in where values are clipped. Time and memory per episode do not grow with k. LL of the second
article is maximum likelihood with the same bonus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from upriver.agents.base import Episode, State
from upriver.agents.mnl_family import ConfidenceSetLearner, MirrorDescentLearner
from upriver.agents.rewards import OptimisticReward
from upriver.mdp import Task
from upriver.mnl import model as mnl
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Clip, Plan, clip_q, clip_v, draw_tie_seed
from upriver.planning.optimism import exact_maximum


@dataclass(frozen=True)
class UCRLMNLPlus(MirrorDescentLearner):
    """Upper confidence with an online estimate: Algorithm 3 of Cho et al.

    Q_h = r + P V_{h+1} + H beta_k sum_s' P ||varphi - mean||_{B_h^-1}
    + 3 H beta_k^2 max_s' ||varphi||^2_{B_h^-1}, mean the expected feature under P, and
    V_h = min(max_a Q_h, H).

    Deviations: the default radius is the practical form, without projection; for the constants of
    the theory use `mnl.online.mirror_radius`, `theory_step` and `mirror_regularization` and a
    finite `theta_bound`. Ties are broken uniformly at random when the plan is made. The parameters
    are those of `MirrorDescentLearner`.
    """

    SECOND_ORDER: ClassVar[float] = 3.0
    """Factor of the second-order term of the bonus."""
    CLIP: ClassVar[Callable[[Task], Clip]] = staticmethod(clip_v)
    """Where values are clipped: V at H."""

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimistic values with theta_k and beta_k."""
        beta, horizon = self.beta(state), self.task.units.max_value
        second = self.SECOND_ORDER * horizon * beta**2
        bonus = online.local_bonus(self.task, state.model, horizon * beta, second)
        return self.induce(state.model.prob, self.reward(state), self.CLIP, rng, bonus)


@dataclass(frozen=True)
class UCRLMNLOL(UCRLMNLPlus):
    """Upper confidence with an online estimate: UCRL-MNL-OL of Li et al., third version.

    The parameters are those of UCRL-MNL+. The second-order term has the factor 5/2 instead of 3,
    and Q is clipped to [0, H] before the argmax, so that saturated bonuses tie. (In the first
    version of that paper OL named an algorithm without local curvature.) Deviations: as in
    UCRL-MNL+.
    """

    SECOND_ORDER: ClassVar[float] = 2.5
    CLIP: ClassVar[Callable[[Task], Clip]] = staticmethod(clip_q)
    """Where values are clipped: Q to [0, H]."""


@dataclass(frozen=True)
class UCRLMNLLL(OptimisticReward, ConfidenceSetLearner):
    """Maximum likelihood with a confidence set in the local norm: LL of Li et al., third version.

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
