"""UCRL-MNL+ and UCRL-MNL-OL: upper confidence with an online estimate and local curvature.

Two groups of authors arrived at one algorithm: Cho, Hwang, Lee and Oh, "Randomized Exploration for
Reinforcement Learning with Multinomial Logistic Function Approximation" (2024), Algorithm 3; and
Li, Zhang, Zhao and Zhou, "Provably Efficient Reinforcement Learning with Multinomial Logit Function
Approximation" (2024), the algorithm that its third version calls OL. They differ in one constant
and in where values are clipped. Time and memory per episode do not grow with k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from upriver.agents import mnl_family as family
from upriver.agents.fields import validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.features import Features
from upriver.mdp import Task
from upriver.mnl import online
from upriver.mnl.radii import Radius
from upriver.planning import Clip, Plan, backward_induction, clip_q, clip_v, draw_tie_seed
from upriver.planning.optimism import ones


@guarded
@dataclass(frozen=True)
class UCRLMNLPlus:
    """Algorithm 3 of Cho et al. Inputs of the paper: beta_k is `radius`, eta `step_size`, lambda
    `regularization`, L_theta `theta_bound`.

    Q_h = r + P V_{h+1} + H beta_k sum_s' P ||varphi - mean||_{B_h^-1}
    + 3 H beta_k^2 max_s' ||varphi||^2_{B_h^-1}, mean the expected feature under P, and
    V_h = min(max_a Q_h, H).

    Deviations: the default radius is the practical form, with no ball; for the constants of the
    theory use `mnl.online.mirror_radius`, `theory_step` and `mirror_regularization` and a finite
    `theta_bound`. Ties are broken uniformly at random when the plan is made.
    """

    task: Task
    features: Features
    radius: Radius | float = 3e-5
    """beta_k; a number c stands for scaled_radius(c); 0 is the greedy learner."""
    step_size: float = 1.0
    """eta."""
    regularization: float = 1.0
    """lambda."""
    theta_bound: float | None = None
    """L_theta; None is no ball."""
    per_step: bool = True
    """One transition core for each step h, as published, instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "radius": (0.0, 1e-5, 1e-4, 1e-3),
        "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }
    SECOND_ORDER: ClassVar[float] = 3.0
    """Factor of the second-order term of the bonus."""
    CLIP: ClassVar[Callable[[Task], Clip]] = staticmethod(clip_v)
    """Where values are cut: V at H."""

    def __post_init__(self) -> None:
        validate_mnl_fields(self)

    def init(self) -> State:
        """theta_1 = 0, B_1 = lambda I."""
        return family.begin(self, online.start)

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """The optimistic values with theta_k and beta_k."""
        beta, horizon = self.beta(state), self.task.units.max_value
        reward = family.reward(self, state)
        second = self.SECOND_ORDER * horizon * beta**2
        bonus = online.local_bonus(self.task, state.model, horizon * beta, second)
        return backward_induction(
            self.task, state.model.prob, reward, bonus, ones(self.task), self.CLIP(self.task),
            draw_tie_seed(rng),
        )  # fmt: skip

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        """The mirror descent steps of the episode."""
        model = online.mirror_descent(
            self.features, state.model, episode, self.step_size, self.theta_bound
        )
        return family.advance(self, state, model, episode)

    def beta(self, state: State) -> float:
        """beta_k, the radius used to plan from `state`."""
        return family.beta(self, state)


@dataclass(frozen=True, repr=False)
class UCRLMNLOL(UCRLMNLPlus):
    """UCRL-MNL-OL of Li et al., third version: fields as in UCRL-MNL+.

    The second-order term has the factor 5/2 instead of 3, and Q is cut to [0, H] before the argmax,
    where saturated bonuses then tie. (In the first version of that paper OL named an algorithm
    without local curvature.) Deviations: as in UCRL-MNL+.
    """

    SECOND_ORDER: ClassVar[float] = 2.5
    CLIP: ClassVar[Callable[[Task], Clip]] = staticmethod(clip_q)
    """Where values are cut: Q to [0, H]."""
