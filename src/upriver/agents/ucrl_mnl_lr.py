"""UCRL-MNL-LR: optimism over likelihood-ratio sets, with a proof and without a tuned number.

Pairs (s, a) with the same feature rows have the same distribution under the MNL model, so their
counts are added up. For such a class with counts n_u, n in all, over U successors, let the prior be
uniform over the distributions. The marginal likelihood divided by that of the truth is a
martingale, so by Ville's inequality, with probability 1 - delta for all n,

    n KL(p_hat || p*) <= log(1/delta) + log(prod p_hat_u^n_u (n + U - 1)! / ((U - 1)! prod n_u!)),

which is at most log(1/delta) + log C(n + U - 1, U - 1). No kappa, no bound of theta*, no ridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from upriver import kernels
from upriver.agents import mnl_family as family
from upriver.agents import rewards
from upriver.agents.fields import fraction, validate_mnl_fields
from upriver.agents.guard import guarded
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.checks import Array
from upriver.features import Features
from upriver.features.maps import recentre
from upriver.mdp import Task
from upriver.mnl.model import add_counts
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed, run_backward_pass


@guarded
@dataclass(frozen=True)
class UCRLMNLLR:
    """Q_h = r + max of q V_{h+1} over distributions q on the successors of (s, a) whose
    likelihood ratio is within the bound above, delta shared by all classes of pairs; V_h = max_a
    Q_h. With probability 1 - delta every plan is optimistic.

    It holds for all features of which the MNL model is true, and uses of them only which pairs
    have the same rows: one-hot features share nothing, and pairs whose rows differ are learned
    apart even where they have features in common.
    """

    task: Task
    features: Features
    delta: float = 0.05
    per_step: bool = False
    """One distribution for each step h instead of one for all."""
    reward_bonus: float = 1.0
    """Width of unknown rewards, see `rewards.optimistic_reward`; no effect on known ones."""

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {"delta": (0.01, 0.05, 0.2, 0.8)}

    def __post_init__(self) -> None:
        validate_mnl_fields(self, delta=fraction)

    def init(self) -> State:
        cores = self.task.horizon if self.per_step else 1
        return State(1, np.zeros((cores, self.task.n_triples)), rewards.start(self.task))

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        prob, size = self.sets(state)
        arrays = prob, family.reward(self, state), size
        clip = clip_v_remaining(self.task)
        return run_backward_pass(
            self.task, kernels.ratio.backward_pass_kl, arrays, clip, draw_tie_seed(rng)
        )

    def update(self, state: State, plan: Plan, episode: Episode) -> State:
        counts = state.model.copy()
        add_counts(self.features, counts, episode)
        return family.advance(self, state, counts, episode)

    def sets(self, state: State) -> tuple[Array, Array]:
        """(p_hat (C, n), bound / n (C, S*A)): frequencies of each pair's class, radius in KL."""
        from scipy.special import gammaln, xlogy

        task, counts = self.task, state.model
        slot, choices = class_rows(self.features), np.maximum(task.sizes, 1)
        n_classes = len(np.unique(slot[task.indptr[:-1][task.sizes > 1]]))
        pooled = np.zeros_like(counts)
        for core, seen in zip(pooled, counts, strict=True):
            np.add.at(core, slot, seen)
        pooled = pooled[:, slot]
        n = task.by_pair(pooled)
        each = np.repeat(n, task.sizes, axis=1)
        prob = np.where(
            each > 0, pooled / np.maximum(each, 1.0), 1.0 / np.repeat(task.sizes, task.sizes)
        )
        own = xlogy(pooled, prob) - gammaln(pooled + 1.0)
        bound = (
            log(max(n_classes, 1) * len(counts) / self.delta)
            + task.by_pair(own)
            + gammaln(n + choices)
            - gammaln(choices)
        )
        return prob, np.where(n > 0, bound / np.maximum(n, 1.0), np.inf)


@lru_cache(maxsize=64)
def class_rows(features: Features) -> Array:
    """(n,) for each triple the row that counts for it: of the first pair with the same features.

    Only differences within a pair matter, so rows are compared relative to the pair's first.
    """
    task = features.task
    rows = csr_array(recentre(features).matrix, copy=True)
    rows.eliminate_zeros()
    rows.sort_indices()
    seen: dict[tuple[bytes, ...], int] = {}
    slot = np.arange(task.n_triples)
    for start, stop in zip(task.indptr[:-1], task.indptr[1:], strict=True):
        low, high = rows.indptr[start], rows.indptr[stop]
        key = (
            (rows.indptr[start : stop + 1] - low).tobytes(),
            rows.indices[low:high].tobytes(),
            rows.data[low:high].tobytes(),
        )
        slot[start:stop] = seen.setdefault(key, int(start)) + np.arange(stop - start)
    return slot
