"""UCRL-MNL+ and UCRL-MNL-OL: upper confidence with an online estimate and local curvature.

Two groups of authors found one algorithm: Cho, Hwang, Lee and Oh, "Randomized Exploration for
Reinforcement Learning with Multinomial Logistic Function Approximation" (2024), Algorithm 3; and
Li, Zhang, Zhao and Zhou, "Provably Efficient Reinforcement Learning with Multinomial Logit Function
Approximation" (2024), the algorithm that its third version calls OL. They differ in one constant
and in where values are clipped. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents.base import State
from upriver.agents.mnl_family import MirrorDescentLearner
from upriver.mdp import Task
from upriver.mnl import online
from upriver.planning import Clip, Plan, clip_q, clip_v


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
