"""PSRL: draw a model from the posterior, play its optimum for an episode.

Osband, Russo and Van Roy, "(More) Efficient Reinforcement Learning via Posterior Sampling", 2013,
after Strens (2000). The prior is a Dirichlet distribution over the task's support of each (s, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from upriver import kernels
from upriver.agents import rewards, tabular
from upriver.agents.fields import settle
from upriver.agents.guard import guarded
from upriver.agents.protocol import Episode
from upriver.checks import positive_number
from upriver.display import displayed
from upriver.mdp import Task
from upriver.planning import Plan, backward_induction, clip_nothing, draw_tie_seed


@displayed
class PSRLState(NamedTuple):
    counts: tabular.Counts
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


@guarded
@dataclass(frozen=True)
class PSRL:
    """P(. | s, a) ~ Dirichlet((prior / U + N(s, a, .)) / inflation), U the successors of (s, a).

    Unknown rewards are drawn from their posterior as well, see `rewards.posterior_reward`.
    Deviations: none with inflation = 1.
    """

    task: Task
    prior: float = 1.0
    """Weight of the prior in visits, shared equally by the successors; 1 is Dirichlet(1/U)."""
    inflation: float = 1.0
    """1 is the posterior; more spreads the draws, as Agrawal and Jia (2017) do for a worst-case
    bound, and less draws them closer to its mean."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {
        "prior": (1e-1, 1.0, 3.0, 10.0),
        "inflation": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    }

    def __post_init__(self) -> None:
        settle(self, prior=positive_number, inflation=positive_number)

    def init(self) -> PSRLState:
        return PSRLState(tabular.start(self.task), rewards.start(self.task))

    def plan(self, state: PSRLState, rng: np.random.Generator) -> Plan:
        task = self.task
        shape = self.prior * tabular.uniform(task) + state.counts.triples[0]
        prob = np.empty((1, task.n_triples))
        draws = rng.standard_gamma(shape / self.inflation)
        kernels.tabular.normalize_pairs(task.indptr, draws, prob)
        reward = rewards.posterior_reward(task, state.rewards, rng)
        return backward_induction(
            task, prob, reward, np.zeros((1, len(task.sizes))), np.zeros(task.horizon),
            clip_nothing(task), draw_tie_seed(rng),
        )  # fmt: skip

    def steps_until_replan(self, state: PSRLState, plan: Plan, episode: Episode) -> int:
        """Until the visits of a pair have doubled, for tasks without a last step."""
        return tabular.until_doubled(self.task, state.counts, episode)

    def update(self, state: PSRLState, plan: Plan, episode: Episode) -> PSRLState:
        return PSRLState(
            tabular.absorb(self.task, state.counts, episode),
            rewards.observe(self.task, state.rewards, episode),
        )
