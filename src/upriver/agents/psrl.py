"""PSRL: draw a model from the posterior, play its optimum for an episode.

Osband, Russo and Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling", 2013,
after Strens (2000). The prior is a Dirichlet distribution over the task's support of each (s, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver import kernels
from upriver.agents import rewards, tabular
from upriver.agents.base import guarded
from upriver.agents.mnl_family import no_bonus
from upriver.agents.tabular import TabularLearner, TabularState
from upriver.planning import Plan, backward_induction, clip_nothing, draw_tie_seed


@guarded
@dataclass(frozen=True)
class PSRL(TabularLearner):
    """Draws a model from the posterior, and plays its optimum for an episode.

    P(. | s, a) ~ Dirichlet((prior / U + N(s, a, .)) / inflation), U the successors of (s, a).

    Unknown rewards are drawn from their posterior as well, see `rewards.posterior_reward`. With an
    infinite horizon a plan is kept until the visits of a pair have doubled.

    Deviations: none with inflation = 1.

    Parameters
    ----------
    prior : float
        Weight of the prior in visits, shared equally by the successors; 1 is Dirichlet(1/U).
    inflation : float
        1 is the posterior; more spreads the draws, as Agrawal and Jia (2017) do for a worst-case
        bound, and less draws them closer to its mean.
    """

    prior: float = 1.0
    inflation: float = 1.0

    GRID: ClassVar = {
        "prior": (1e-1, 1.0, 3.0, 10.0), "inflation": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    }  # fmt: skip

    def plan(self, state: TabularState, rng: np.random.Generator) -> Plan:
        """Return the optimum of a model drawn from the posterior."""
        task = self.task
        shape = self.prior * tabular.uniform(task) + state.counts.triples[0]
        prob = np.empty((1, task.n_triples))
        draws = rng.standard_gamma(shape / self.inflation)
        kernels.tabular.normalize_pairs(task.indptr, draws, prob)
        reward = rewards.posterior_reward(task, state.rewards, rng)
        added, clip = no_bonus(task), clip_nothing(task)
        return backward_induction(task, prob, reward, *added, clip, draw_tie_seed(rng))

    steps_until_replan = tabular.steps_until_visits_double
