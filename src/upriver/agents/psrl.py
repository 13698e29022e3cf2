"""PSRL: posterior sampling of a tabular model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from upriver.agents import rewards
from upriver.agents.base import State
from upriver.agents.counts import TabularLearner, frequencies
from upriver.checks import Array
from upriver.mdp import Task
from upriver.planning import Plan, clip_nothing


@dataclass(frozen=True)
class PSRL(TabularLearner):
    """Draws a model from the posterior, and plays its optimum for an episode.

    Osband, Russo and Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling",
    2013, after Strens (2000).

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

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the optimum of a model drawn from the posterior."""
        sizes = self.task.sizes
        shape = self.prior * (1.0 / np.repeat(sizes, sizes)) + state.model[0]
        if not shape.min() > 0.0:
            raise ValueError("the state of PSRL holds counts below 0, which no run has")
        prob = frequencies(self.task, draw_weights(self.task, shape / self.inflation, rng))
        reward = rewards.posterior_reward(self.task, state.rewards, rng)
        return self.induce(prob, reward, clip_nothing, rng)


def draw_weights(task: Task, shape: Array, rng: np.random.Generator) -> Array:
    """Return (n,) weights that are Dirichlet distributed in each pair, up to their sum.

    All gamma variables of a pair may underflow where its shapes are tiny. Such a Dirichlet draw has
    nearly all of its mass on one successor, which is chosen in proportion to its shape.
    """
    weights = rng.standard_gamma(shape)
    for pair in np.flatnonzero((task.by_pair(weights) == 0.0) & (task.sizes > 0)):
        rows = slice(task.indptr[pair], task.indptr[pair + 1])
        weights[rows] = rng.multinomial(1, shape[rows] / shape[rows].sum())
    return weights
