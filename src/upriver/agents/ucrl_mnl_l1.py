"""UCRL-MNL-L1: plans over distributions near the estimate in the L1 norm.

The confidence set and the online mirror descent estimate of Park, Kwon and Lee, "Infinite-Horizon
Reinforcement Learning with Multinomial Logit Function Approximation" (2024), for episodes. Each
optimistic model is a distribution over the reachable states, so values need no clipping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from upriver import kernels
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import MirrorDescentLearner, State
from upriver.checks import Array
from upriver.mdp import Task
from upriver.mnl.radii import Radius
from upriver.planning import Plan, clip_nothing, draw_tie_seed, run_backward_pass


@guarded
@dataclass(frozen=True)
class UCRLMNLL1(MirrorDescentLearner):
    """Q_h = r + max of p V_{h+1} over distributions p on the successors of (s, a) with
    ||p - P_theta||_1 <= min(2, beta_k max_s' ||varphi||_{B^-1}), and V_h = max_a Q_h.

    Where ||theta - theta*||_B <= beta_k the true distribution is in the set, because
    ||P_theta - P_theta*||_1 <= max_s' |varphi^T (theta - theta*)|; so Q is at least Q*.

    Deviations: the authors' set has twice this size, which is not needed; they plan for the
    discounted or average reward of one infinite stream (see `UCMNLK`), here each episode is planned
    separately. The default radius is the practical form, without projection.

    Parameters
    ----------
    radius : Radius or float
        beta_k. A number c stands for scaled_radius(c); 0 is the greedy learner.
    regularization, step_size, theta_bound : float
        lambda, eta, and L_theta (None is no projection).
    """

    radius: Radius | float = 3e-3
    per_step: bool = field(default=False, kw_only=True)

    GRID: ClassVar = {
        "radius": (0.0, 1e-4, 1e-3, 1e-2), "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }  # fmt: skip

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the largest values over the L1 balls around P_theta."""
        model, reward = state.model, self.reward(state)
        size = np.minimum(self.beta(state) * model.max_norm, 2.0)
        return plan_in_l1_balls(self.task, model.prob, reward, size, draw_tie_seed(rng))


def plan_in_l1_balls(task: Task, prob: Array, reward: Array, size: Array, tie_seed: Any) -> Plan:
    """Run backward induction with the best model within L1 distance `size` (1 | H, S*A)."""
    kernel, arrays = kernels.tabular.backward_pass_l1, (prob, reward, size)
    return run_backward_pass(task, kernel, arrays, clip_nothing(task), tie_seed)
