"""UCMNLK and UCRL-MNL-L1: plans over distributions near an online estimate in the L1 norm.

Park, Kwon and Lee, "Infinite-Horizon Reinforcement Learning with Multinomial Logit Function
Approximation" (2024), for discounted and for average reward; and its confidence set for episodes.
Each optimistic model is a distribution over the reachable states, so values need no clipping.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from math import log, sqrt
from typing import Any, ClassVar

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode, State, number_or_function
from upriver.agents.mnl_family import MirrorDescentLearner, steps_until_doubled
from upriver.mnl import model as mnl
from upriver.mnl.radii import Radius
from upriver.planning import Plan, clip_nothing, draw_tie_seed
from upriver.planning.infinite_horizon import plan_l1


@dataclass(frozen=True)
class UCMNLK(MirrorDescentLearner):
    """Discounted streams: plans over an L1 ball around an online estimate.

    V = max_a (r + gamma max of p V over distributions p on the successors of (s, a) with
    ||p - P_theta||_1 <= min(2, 2 beta max_s' ||varphi||_{B^-1})), theta and B by mirror descent.

    A plan is kept until det B has doubled. With a discount, gamma is the task's. For the average
    reward it is 1 - sqrt(d / (D T)). Where ||theta - theta*||_B <= beta the true distribution is in
    the set even at half its size, because
    ||P_theta - P_theta*||_1 <= max_s' |varphi^T (theta - theta*)|; so V is at least V*.

    Deviations: V solves its equation to rounding, where the authors make N sweeps from
    1 / (1 - gamma). The inner maximum moves probability from the worst successors to the best,
    which is exact; the authors' code calls a solver for each pair. The default radius is the
    practical form, without projection. Episodes of a task that has a horizon are planned one by
    one, as UCRL-MNL-L1 does. The other parameters are those of `MirrorDescentLearner`.

    Parameters
    ----------
    radius : Radius or float
        beta. A number c stands for the authors' practical form at time t,
        c sqrt(d) log(S t / (1 - gamma))^2; 0 is the greedy learner.
    n_steps, diameter : int, float
        T and D, which only the average reward needs. `per_step` is only for a finite horizon.
    """

    radius: Radius | float = 1e-3
    _: KW_ONLY
    step_size: float = 0.5 * log(2.0) + 2.0
    n_steps: int = 10_000
    diameter: float = 10.0
    per_step: bool = False

    GRID: ClassVar = {"radius": (0.0, 1e-4, 1e-3, 1e-2, 1e-1), "regularization": (0.1, 1.0, 10.0)}

    OWN_CHECKS: ClassVar = {"radius": number_or_function}

    @property
    def gamma(self) -> float:
        """The discount that is planned with."""
        discount = self.task.discount
        if discount is None:
            return 1.0 - 1.0 / (1.0 + self.task.horizon)
        if discount < 1.0:
            return discount
        return max(1.0 - sqrt(self.features.formal_dimension / self.diameter / self.n_steps), 0.0)

    def beta(self, state: State) -> float:
        """Return beta at the time of `state`."""
        rule: Any = self.radius
        if callable(rule):
            return super().beta(state)
        task, dimension = self.task, self.features.formal_dimension
        return rule * sqrt(dimension) * log(task.n_states * state.k / (1.0 - self.gamma)) ** 2

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the largest values over the L1 balls around P_theta."""
        prob, reward = state.model.prob, self.reward(state)
        size = np.minimum(2.0 * self.beta(state) * state.model.max_norm, 2.0)
        if self.task.infinite_horizon:
            tie_seed = draw_tie_seed(rng)
            return plan_l1(self.task, prob[0], reward[0], size[0], tie_seed, self.gamma)
        data = prob, reward, size, self.task.max_successors, True
        return self.run_pass(kernels.tabular.ball_rule, data, clip_nothing, rng)

    def next_k(self, state: State, episode: Episode) -> int:
        """Return the number of the next step, whatever the horizon."""
        return state.k + len(episode.actions)

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Return the steps until det B has doubled."""
        return steps_until_doubled(
            state.model,
            lambda model, part: self.learn(state._replace(model=model), plan, part),
            lambda model: mnl.logdet_ratio(self.features, model),
            episode,
        )


@dataclass(frozen=True)
class UCRLMNLL1(MirrorDescentLearner):
    """Episodes: plans over an L1 ball around an online estimate.

    Q_h = r + max of p V_{h+1} over distributions p on the successors of (s, a) with
    ||p - P_theta||_1 <= min(2, beta_k max_s' ||varphi||_{B^-1}), and V_h = max_a Q_h.

    Where ||theta - theta*||_B <= beta_k the true distribution is in the set, because
    ||P_theta - P_theta*||_1 <= max_s' |varphi^T (theta - theta*)|; so Q is at least Q*.

    Deviations: the authors' set has twice this size, which is not needed; they plan for the
    discounted or average reward of one infinite stream (see `UCMNLK`), here each episode is planned
    separately. The default radius is the practical form, without projection. The parameters are
    those of `MirrorDescentLearner`.
    """

    radius: Radius | float = 3e-3
    per_step: bool = field(default=False, kw_only=True)

    GRID: ClassVar = {
        "radius": (0.0, 1e-4, 1e-3, 1e-2), "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }  # fmt: skip

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the largest values over the L1 balls around P_theta."""
        size = np.minimum(self.beta(state) * state.model.max_norm, 2.0)
        data = state.model.prob, self.reward(state), size, self.task.max_successors, True
        return self.run_pass(kernels.tabular.ball_rule, data, clip_nothing, rng)
